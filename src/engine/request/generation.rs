//! What goes into the engine.

use std::sync::Arc;
use std::time::Instant;

use super::breakpoint::CacheUse;
use super::draft::SpeculativeParams;
use super::item::PromptItem;
use crate::engine::constraint::rules::Constraint;
use crate::engine::vision::image::Image;
use crate::sampling::SamplingParams;

/// A prepared, validated request: everything in it is consumed by the engine.
#[derive(Clone, Debug)]
pub struct GenerationRequest {
    /// For the log line and events, e.g. "chatcmpl-...".
    pub id: String,
    /// Not empty; its last item is a token.
    pub prompt: Arc<[PromptItem]>,
    /// The images of `prompt`, each key once.
    pub images: Vec<Arc<Image>>,
    pub sampling: SamplingParams,
    /// Stop strings, matched on generated text; the text of a stop string is never sent.
    pub stop: Vec<String>,
    /// `None`: until the context is full.
    pub max_tokens: Option<u32>,
    /// Do not end at an end-of-generation token (its logit is banned instead).
    pub ignore_eos: bool,
    /// Number of alternatives per token (0..=20); `None`: no logprobs.
    pub logprobs: Option<u8>,
    /// May the state that earlier requests left be reused for a common prefix of the prompt.
    pub cache_prompt: bool,
    pub cache: CacheUse,
    /// Send `Event::Progress` during prefill.
    pub progress: bool,
    /// Text of control tokens is part of the output (raw completions with `special: true`).
    pub show_control: bool,
    pub speculative: SpeculativeParams,
    pub constraint: Constraint,
    pub arrived: Instant,
}
