//! How long, how often and until where to generate: the fields of a request, checked and completed
//! with defaults.

use std::collections::HashSet;

use serde_json::Value;

use super::error::RequestError;
use super::fields::{CacheMembers, FieldValue, GenerationFields, Members, SamplingFields, SpeculativeFields, first};
use super::number::Int;
use super::sampling::{self, SamplingContext, integer};
use super::served::ServedModel;
use super::speculative::check as check_speculative;
use crate::config::Profile;
use crate::engine::SpeculativeParams;
use crate::sampling::SamplingParams;
use crate::text::Tokenizer;

/// Most alternatives per token.
const MAX_LOGPROBS: i64 = 20;

/// What options are made of.
#[derive(Clone, Debug, Default)]
pub struct OptionFields {
    pub generation: GenerationFields,
    pub sampling: SamplingFields,
    /// Alternatives per token; `None`: as `n_probs` says.
    pub logprobs: Option<FieldValue<Int>>,
    /// Tell how far the prompt is.
    pub progress: bool,
    /// Text of control tokens is part of the output.
    pub show_control: bool,
}

/// Checked options, the same for all choices of a request.
#[derive(Clone, Debug)]
pub struct GenerationOptions {
    pub n: usize,
    /// `None`: until the context is full.
    pub max_tokens: Option<u32>,
    /// Choice `i` gets the seed + i.
    pub sampling: SamplingParams,
    pub stop: Vec<String>,
    pub ignore_eos: bool,
    pub logprobs: Option<u8>,
    pub cache_prompt: bool,
    /// Save states of the request for later ones.
    pub cache_store: bool,
    pub progress: bool,
    pub show_control: bool,
    pub speculative: SpeculativeParams,
}

/// Checks every field. `random_seed` is for requests that bring none.
///
/// # Errors
/// Names the field.
pub fn check(
    fields: OptionFields,
    served: &ServedModel<'_>,
    random_seed: u64,
) -> Result<GenerationOptions, RequestError> {
    let OptionFields { generation, sampling, logprobs, progress, show_control } = fields;
    let GenerationFields {
        n,
        max_tokens,
        max_completion_tokens,
        n_predict,
        stop,
        ignore_eos,
        n_probs,
        cache_prompt,
        cache,
        speculative,
        speculative_n_max,
        speculative_n_min,
        speculative_p_min,
    } = generation;
    let profile = served.profile;
    let CacheMembers { read, write } = cache.unwrap_or_default();
    let cache_prompt = read.or(cache_prompt).unwrap_or(true);
    let limits =
        [("max_completion_tokens", max_completion_tokens), ("max_tokens", max_tokens), ("n_predict", n_predict)];
    let max_tokens = max_tokens_of(first(limits), profile)?;
    let n_probs = n_probs.filter(|n| n.0 != 0).map(|value| FieldValue { param: "n_probs", value });
    let logprobs = match logprobs.or(n_probs) {
        None => None,
        Some(asked) => Some(integer(asked.param, Some(asked.value), 0, 0..=MAX_LOGPROBS)? as u8),
    };
    let context = SamplingContext { tokenizer: served.tokenizer, defaults: &profile.sampling, random_seed };
    let sampling = sampling::check(sampling, &context)?;
    let ignore_eos = ignore_eos.unwrap_or(false);
    check_bans(&sampling, ignore_eos, served.tokenizer)?;
    // `GenerationFields::unknown_members` names the others.
    let Members { known, unknown: _ } = speculative.unwrap_or_default();
    let speculative = SpeculativeFields {
        n_max: known.n_max.or(speculative_n_max),
        n_min: known.n_min.or(speculative_n_min),
        p_min: known.p_min.or(speculative_p_min),
        ..known
    };
    Ok(GenerationOptions {
        n: integer("n", n, 1, 1..=i64::from(profile.limits.n))? as usize,
        max_tokens,
        sampling,
        stop: stop.map_or(Ok(Vec::new()), |value| stops(&value, profile))?,
        ignore_eos,
        logprobs,
        cache_prompt,
        cache_store: write.unwrap_or(cache_prompt),
        progress,
        show_control,
        speculative: check_speculative(speculative, &profile.speculative)?,
    })
}

/// `n_choices` of a request, over all its prompts; `param` names what multiplied them.
///
/// # Errors
/// More than could ever be queued.
pub fn check_choices(n_choices: usize, param: &str, served: &ServedModel<'_>) -> Result<(), RequestError> {
    let most = served.max_choices();
    if n_choices <= most {
        return Ok(());
    }
    let message = format!("{n_choices} choices were asked for, at most {most} can be queued; ask for fewer");
    Err(RequestError::too_large(param, message))
}

fn max_tokens_of(asked: Option<FieldValue<Int>>, profile: &Profile) -> Result<Option<u32>, RequestError> {
    match asked {
        None => Ok(profile.generation.max_tokens),
        Some(FieldValue { value: Int(-1), .. }) => Ok(None),
        Some(FieldValue { value: Int(value), .. }) if value >= 1 => Ok(Some(u32::try_from(value).unwrap_or(u32::MAX))),
        Some(FieldValue { param, value: Int(value) }) => {
            let message = format!("`{param}` is {value}; it must be at least 1, or -1 for no limit");
            Err(RequestError::invalid(param, message))
        }
    }
}

/// A vocabulary that is banned as a whole is refused before anything is generated.
fn check_bans(sampling: &SamplingParams, ignore_eos: bool, tokenizer: &Tokenizer) -> Result<(), RequestError> {
    let mut banned: HashSet<u32> =
        sampling.logit_bias.iter().filter(|(_, bias)| *bias == f32::NEG_INFINITY).map(|(token, _)| *token).collect();
    banned.extend(tokenizer.eos().filter(|_| ignore_eos).map(|token| token.0));
    if banned.len() < tokenizer.n_vocab() {
        return Ok(());
    }
    let message = "`logit_bias` bans every token of the vocabulary; leave at least one that can be generated";
    Err(RequestError::invalid("logit_bias", message))
}

/// A string or a list of strings; empty ones can never match and are left out.
fn stops(value: &Value, profile: &Profile) -> Result<Vec<String>, RequestError> {
    let one = std::slice::from_ref(value);
    let (list, is_list) = match value {
        Value::Array(list) => (list.as_slice(), true),
        _ => (one, false),
    };
    let limits = &profile.limits;
    if list.len() > limits.stop_strings as usize {
        let message = format!("{} stop strings were sent, at most {} are served", list.len(), limits.stop_strings);
        return Err(RequestError::too_large("stop", message));
    }
    let mut out = Vec::with_capacity(list.len());
    for (i, value) in list.iter().enumerate() {
        let path = if is_list { format!("stop[{i}]") } else { "stop".to_owned() };
        let text = value.as_str();
        let text = text.ok_or_else(|| {
            let wanted = if is_list { "a string" } else { "a string or a list of strings" };
            RequestError::invalid(&*path, format!("`{path}` must be {wanted}, not {value}"))
        })?;
        if text.len() > limits.stop_string_bytes as usize {
            let message = format!("`{path}` has {} bytes, at most {} are served", text.len(), limits.stop_string_bytes);
            return Err(RequestError::too_large(path, message));
        }
        if !text.is_empty() {
            out.push(text.to_owned());
        }
    }
    Ok(out)
}
