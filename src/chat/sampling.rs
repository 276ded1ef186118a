//! The sampling fields of a request, checked against their ranges and completed with the profile's
//! defaults.
//!
//! Nothing is clamped: a value outside its range is refused by name.

use std::ops::RangeInclusive;
use std::sync::Arc;

use serde_json::Value;

use super::error::RequestError;
use super::fields::SamplingFields;
use super::number::Int;
use super::{breakers, number};
use crate::config::SamplingDefaults;
use crate::sampling::{Dry, SamplingParams, Xtc};
use crate::text::tokenizer::{Specials, Tokenizer};

/// Most biased tokens of a request: enough for any list a client makes on purpose.
const MAX_BIASES: usize = 4096;
/// A look-back in tokens: -1 is all, 0 is off.
const LAST_N: RangeInclusive<i64> = -1..=i32::MAX as i64;

/// What the fields are checked against.
pub struct SamplingContext<'a> {
    pub tokenizer: &'a Tokenizer,
    pub defaults: &'a SamplingDefaults,
    /// Taken where the request has no seed, or -1.
    pub random_seed: u64,
}

/// Checks every field.
pub fn check(fields: SamplingFields, context: &SamplingContext<'_>) -> Result<SamplingParams, RequestError> {
    let SamplingFields {
        temperature,
        top_k,
        top_p,
        min_p,
        typical_p,
        xtc_probability,
        xtc_threshold,
        dry_multiplier,
        dry_base,
        dry_allowed_length,
        dry_penalty_last_n,
        dry_sequence_breakers,
        repeat_penalty,
        repetition_penalty,
        repeat_last_n,
        presence_penalty,
        frequency_penalty,
        logit_bias,
        seed,
    } = fields;
    let defaults = context.defaults;
    let repeat = match (repeat_penalty, repetition_penalty) {
        (None, Some(_)) => ("repetition_penalty", repetition_penalty),
        _ => ("repeat_penalty", repeat_penalty),
    };
    let mut dry = Dry {
        multiplier: float("dry_multiplier", dry_multiplier, 0.0, 0.0..=100.0)?,
        base: float("dry_base", dry_base, 1.75, 1.0..=100.0)?,
        allowed_length: integer("dry_allowed_length", dry_allowed_length, 2, 0..=65_536)? as u32,
        last_n: last_n(integer("dry_penalty_last_n", dry_penalty_last_n, -1, LAST_N)?),
        breakers: Arc::default(),
    };
    dry.breakers = breakers::tokens(dry_sequence_breakers.as_deref(), dry.is_on(), context.tokenizer)?;
    Ok(SamplingParams {
        temperature: float("temperature", temperature, defaults.temperature, 0.0..=10.0)?,
        top_k: integer("top_k", top_k, i64::from(defaults.top_k), -1..=i64::from(i32::MAX))?.max(0) as u32,
        top_p: float("top_p", top_p, defaults.top_p, 0.0..=1.0)?,
        min_p: float("min_p", min_p, defaults.min_p, 0.0..=1.0)?,
        typical_p: float("typical_p", typical_p, defaults.typical_p, 0.0..=1.0)?,
        xtc: Xtc {
            probability: float("xtc_probability", xtc_probability, 0.0, 0.0..=1.0)?,
            threshold: float("xtc_threshold", xtc_threshold, 0.1, 0.0..=1.0)?,
        },
        dry,
        repeat_penalty: float(repeat.0, repeat.1, defaults.repeat_penalty, 0.01..=10.0)?,
        presence_penalty: float("presence_penalty", presence_penalty, defaults.presence_penalty, -10.0..=10.0)?,
        frequency_penalty: float("frequency_penalty", frequency_penalty, defaults.frequency_penalty, -10.0..=10.0)?,
        penalty_last_n: last_n(integer("repeat_last_n", repeat_last_n, i64::from(defaults.penalty_last_n), LAST_N)?),
        logit_bias: logit_bias.map_or(Ok(Vec::new()), |value| biases(&value, context.tokenizer))?,
        seed: match seed {
            None | Some(Int(-1)) => context.random_seed,
            // Negative seeds are as good as any other: their bits are the seed.
            Some(Int(seed)) => seed as u64,
        },
    })
}

/// A finite number in `range`, or the default.
pub(super) fn float(
    param: &str,
    value: Option<f64>,
    default: f32,
    range: RangeInclusive<f64>,
) -> Result<f32, RequestError> {
    match value {
        None => Ok(default),
        Some(value) if range.contains(&value) => Ok(value as f32),
        Some(value) => Err(out_of_range(param, value, *range.start(), *range.end())),
    }
}

/// An integer in `range`, or the default.
pub(super) fn integer(
    param: &str,
    value: Option<Int>,
    default: i64,
    range: RangeInclusive<i64>,
) -> Result<i64, RequestError> {
    match value {
        None => Ok(default),
        Some(Int(value)) if range.contains(&value) => Ok(value),
        Some(Int(value)) => Err(out_of_range(param, value, *range.start(), *range.end())),
    }
}

fn out_of_range<T: std::fmt::Display>(param: &str, value: T, low: T, high: T) -> RequestError {
    RequestError::invalid(param, format!("`{param}` is {value}; it must be from {low} to {high}"))
}

fn last_n(value: i64) -> Option<u32> {
    u32::try_from(value).ok()
}

fn biases(value: &Value, tokenizer: &Tokenizer) -> Result<Vec<(u32, f32)>, RequestError> {
    let mut out = Vec::new();
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let path = format!("logit_bias.{key}");
                let id = key.parse::<u64>().ok();
                let id = id.ok_or_else(|| RequestError::invalid(&*path, format!("{key:?} is not a token id")))?;
                out.push((token_id(&path, id, tokenizer)?, bias(&path, value)?));
            }
        }
        Value::Array(list) => {
            for (i, pair) in list.iter().enumerate() {
                let path = format!("logit_bias[{i}]");
                let Some([what, value]) = pair.as_array().map(Vec::as_slice) else {
                    return Err(RequestError::invalid(path, "each entry must be a pair [token id or text, bias]"));
                };
                let bias = bias(&path, value)?;
                for token in biased_tokens(&path, what, tokenizer)? {
                    out.push((token, bias));
                }
            }
        }
        _ => return Err(RequestError::invalid("logit_bias", "`logit_bias` must be an object or a list of pairs")),
    }
    if out.len() > MAX_BIASES {
        let message = format!("{} tokens are biased, at most {MAX_BIASES} are served", out.len());
        return Err(RequestError::too_large("logit_bias", message));
    }
    Ok(out)
}

fn biased_tokens(path: &str, what: &Value, tokenizer: &Tokenizer) -> Result<Vec<u32>, RequestError> {
    if let Some(id) = number::unsigned(what) {
        return Ok(vec![token_id(path, id, tokenizer)?]);
    }
    let text =
        what.as_str().ok_or_else(|| RequestError::invalid(path, "the first of a pair is a token id or a text"))?;
    let tokens = tokenizer.encode(text, Specials::AsText);
    let tokens = tokens.map_err(|error| RequestError::invalid(path, error.to_string()))?;
    Ok(tokens.into_iter().map(|token| token.0).collect())
}

/// A token id of the vocabulary.
pub(super) fn token_id(path: &str, id: u64, tokenizer: &Tokenizer) -> Result<u32, RequestError> {
    let n_vocab = tokenizer.n_vocab();
    match u32::try_from(id) {
        Ok(token) if (token as usize) < n_vocab => Ok(token),
        _ => {
            let message =
                format!("token {id} is not in the vocabulary, whose ids are 0 to {}", n_vocab.saturating_sub(1));
            Err(RequestError::invalid(path, message))
        }
    }
}

fn bias(path: &str, value: &Value) -> Result<f32, RequestError> {
    match (value, value.as_f64()) {
        (Value::Bool(false), _) => Ok(f32::NEG_INFINITY),
        (_, Some(bias)) if (-100.0..=100.0).contains(&bias) => Ok(bias as f32),
        _ => {
            let message = format!("the bias {value} must be a number from -100 to 100, or false to ban the token");
            Err(RequestError::invalid(path, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::Profile;

    fn checked(fields: SamplingFields) -> Result<SamplingParams, RequestError> {
        let (tokenizer, profile) = (Tokenizer::bytes_for_tests(), Profile::demo());
        let context = SamplingContext { tokenizer: &tokenizer, defaults: &profile.sampling, random_seed: 9 };
        check(fields, &context)
    }

    #[test]
    fn absent_fields_are_the_profiles() {
        let params = checked(SamplingFields::default()).unwrap();
        assert_eq!((params.temperature, params.top_k, params.top_p, params.seed), (0.6, 20, 0.95, 9));
        assert_eq!((params.penalty_last_n, params.dry.last_n), (Some(64), None));
        assert!(params.dry.breakers.is_empty(), "DRY is off");
        let on = checked(SamplingFields { dry_multiplier: Some(0.5), ..SamplingFields::default() }).unwrap();
        assert_eq!(*on.dry.breakers, [b'\n', b'"', b'*', b':'].map(u32::from));
    }

    #[test]
    fn minus_one_and_zero_mean_what_llama_server_means() {
        let fields = SamplingFields {
            top_k: Some(Int(-1)),
            repeat_last_n: Some(Int(-1)),
            dry_penalty_last_n: Some(Int(0)),
            ..SamplingFields::default()
        };
        let params = checked(fields).unwrap();
        assert_eq!((params.top_k, params.penalty_last_n, params.dry.last_n), (0, None, Some(0)));
    }

    #[test]
    fn a_number_that_is_none_is_refused() {
        for value in [f64::NAN, f64::INFINITY, -1.0] {
            let fields = SamplingFields { temperature: Some(value), ..SamplingFields::default() };
            assert_eq!(checked(fields).unwrap_err().param.as_deref(), Some("temperature"), "{value}");
        }
    }

    #[test]
    fn biases_come_in_both_forms() {
        let bias = |value| checked(SamplingFields { logit_bias: Some(value), ..SamplingFields::default() });
        let both = [(97, 1.5), (98, f32::NEG_INFINITY)];
        assert_eq!(bias(json!({ "97": 1.5, "98": false })).unwrap().logit_bias, both);
        assert_eq!(bias(json!([[97, 1.5], ["b", false]])).unwrap().logit_bias, both);
        assert_eq!(
            bias(json!([[97.0, 1.5], [98.0, false]])).unwrap().logit_bias,
            both,
            "an integer may be written as 97.0"
        );
        for none in [json!(97.5), json!(-1), json!(null), json!(1e300)] {
            assert_eq!(bias(json!([[none, 1]])).unwrap_err().param.as_deref(), Some("logit_bias[0]"), "{none}");
        }
        assert_eq!(bias(json!([["ab", 1]])).unwrap().logit_bias, [(97, 1.0), (98, 1.0)]);
    }
}
