//! The fields of a request that say how long, how often and until where to generate, checked and completed with defaults.

use std::collections::HashSet;

use serde_json::Value;

use super::RequestError;
use super::request::GenerationFields;
use super::sampling::{SamplingContext, check as check_sampling, integer};
use super::speculative::check as check_speculative;
use crate::config::Profile;
use crate::engine::SpeculativeParams;
use crate::sampling::SamplingParams;
use crate::text::Tokenizer;

/// Most alternatives per token.
const MAX_LOGPROBS: i64 = 20;

/// Checked fields, the same for all choices of a request.
#[derive(Clone, Debug)]
pub struct Generation {
    pub n: usize,
    pub max_tokens: Option<u32>,
    pub sampling: SamplingParams,
    pub stop: Vec<String>,
    pub ignore_eos: bool,
    pub logprobs: Option<u8>,
    pub cache_prompt: bool,
    /// Save states of the request for later ones.
    pub cache_store: bool,
    pub progress: bool,
    pub speculative: SpeculativeParams,
}

/// Checks every field.
pub fn check(
    fields: GenerationFields,
    profile: &Profile,
    context: &SamplingContext<'_>,
) -> Result<Generation, RequestError> {
    let GenerationFields {
        max_tokens,
        n,
        stop,
        ignore_eos,
        logprobs,
        cache_prompt,
        cache,
        progress,
        speculative,
        sampling,
        constraint: _taken_by_the_caller,
    } = fields;
    let cache_prompt = cache.read.or(cache_prompt).unwrap_or(true);
    let max_tokens = match max_tokens {
        None => profile.generation.max_tokens,
        Some(named) if named.value == -1 => None,
        Some(named) if named.value >= 1 => Some(u32::try_from(named.value).unwrap_or(u32::MAX)),
        Some(named) => {
            let message = format!("`{}` is {}; it must be at least 1, or -1 for no limit", named.param, named.value);
            return Err(RequestError::invalid(named.param, message));
        }
    };
    let logprobs = match logprobs {
        None => None,
        Some(named) => Some(integer(named.param, Some(named.value), 0, 0..=MAX_LOGPROBS)? as u8),
    };
    let sampling = check_sampling(sampling, context)?;
    check_bans(&sampling, ignore_eos, context.tokenizer)?;
    Ok(Generation {
        n: integer("n", n, 1, 1..=i64::from(profile.limits.n))? as usize,
        max_tokens,
        sampling,
        stop: stop.map_or(Ok(Vec::new()), |value| stops(&value, profile))?,
        ignore_eos,
        logprobs,
        cache_prompt,
        cache_store: cache.write.unwrap_or(cache_prompt),
        progress,
        speculative: check_speculative(speculative, &profile.speculative)?,
    })
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
