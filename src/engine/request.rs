//! What goes into the engine and what comes out.

use std::time::Instant;

use crate::sampling::SamplingParams;
use crate::units::Token;

/// One element of a prompt. Pictures become a second kind: they take several tokens but fewer positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PromptItem {
    Token(Token),
}

impl PromptItem {
    /// Room in the KV cache.
    pub fn n_tokens(&self) -> usize {
        match self {
            PromptItem::Token(_) => 1,
        }
    }
    /// How far it moves the position.
    pub fn n_pos(&self) -> usize {
        match self {
            PromptItem::Token(_) => 1,
        }
    }
}

/// A prepared, validated request: everything in it is consumed by the engine.
#[derive(Clone, Debug)]
pub struct GenerationRequest {
    /// For the log line and events, e.g. "chatcmpl-...".
    pub id: String,
    /// Not empty.
    pub prompt: Vec<PromptItem>,
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
    /// Send `Event::Progress` during prefill.
    pub progress: bool,
    /// Text of control tokens is part of the output (raw completions with `special: true`).
    pub show_control: bool,
    pub speculative: SpeculativeParams,
    pub arrived: Instant,
}

/// Drafting for one request. It changes how fast the answer comes, never which one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpeculativeParams {
    /// Most tokens that the MTP head drafts in a step; 0: none.
    pub mtp_max: u32,
    /// Most tokens that lookup drafts in a step; 0: none.
    pub lookup_max: u32,
    /// Draft only as much as pays; else always the most.
    pub adaptive: bool,
    /// A draft of fewer tokens is dropped.
    pub n_min: u32,
    /// The MTP head stops where its best token is less probable, 0..=1.
    pub p_min: f32,
}

impl SpeculativeParams {
    /// No drafts.
    pub const OFF: SpeculativeParams =
        SpeculativeParams { mtp_max: 0, lookup_max: 0, adaptive: true, n_min: 0, p_min: 0.0 };
}

/// From engine to client, in order; exactly one `Finished` or `Failed`, last.
#[derive(Clone, Debug)]
pub enum Event {
    /// The prompt is being processed: `done` of `total` tokens, `cached` of them reused.
    Progress {
        done: usize,
        total: usize,
        cached: usize,
        elapsed_ms: f64,
    },
    /// New text (whole characters, never empty), the tokens whose text begins in it and their logprobs where asked for. A
    /// token whose text is held back is held back with it; one without text leaves with the text after it. Several steps
    /// are joined into one when the client reads slowly.
    Delta {
        text: String,
        tokens: Vec<Token>,
        logprobs: Vec<Logprob>,
    },
    Finished(Box<Finish>),
    Failed(super::EngineError),
}

/// A generated token's logprob with bytes, ready for the wire.
#[derive(Clone, Debug, PartialEq)]
pub struct Logprob {
    pub token: Token,
    pub text: String,
    pub bytes: Vec<u8>,
    pub logprob: f32,
    /// (token, text, bytes, logprob), best first.
    pub top: Vec<(Token, String, Vec<u8>, f32)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// An end-of-generation token.
    Eos(Token),
    /// A stop string.
    Stop(String),
    /// `max_tokens` reached.
    MaxTokens,
    /// The context is full.
    ContextFull,
    /// The client went away or the request was cancelled. Nobody reads this event; the log does.
    Cancelled,
}

/// The end of a generation. `text`, `tokens` and `logprobs` hold what no `Delta` has carried yet.
#[derive(Clone, Debug)]
pub struct Finish {
    pub reason: FinishReason,
    pub text: String,
    pub tokens: Vec<Token>,
    pub logprobs: Vec<Logprob>,
    pub usage: Usage,
    pub timings: Timings,
    pub drafts: DraftTotals,
}

/// Token counts. `prompt` includes `cached`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub prompt: usize,
    pub cached: usize,
    pub completion: usize,
}

/// Wall times of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timings {
    pub queue_ms: f64,
    /// Tokens prefilled (prompt less cached) and the time from first chunk to first logits.
    pub prompt_n: usize,
    pub prompt_ms: f64,
    pub predicted_n: usize,
    pub predicted_ms: f64,
    /// From arrival to the first generated token.
    pub ttft_ms: f64,
}

/// Longest draft of a sequence in a step.
pub const MAX_DRAFT_TOKENS: usize = 16;

/// Where a draft comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DraftSource {
    /// The model's MTP head.
    Mtp,
    /// What followed the same words earlier.
    Lookup,
}

/// Drafted tokens and those of them that the model said too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftCount {
    pub drafted: u32,
    pub accepted: u32,
}

/// What drafting came to in one generation. Positions count from 0, the first drafted token of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftTotals {
    /// Steps that gave tokens, with a draft or without.
    pub n_steps: u32,
    pub mtp: DraftCount,
    pub lookup: DraftCount,
    pub by_position: [DraftCount; MAX_DRAFT_TOKENS],
}

impl DraftTotals {
    /// Drafted and accepted tokens of all sources.
    pub fn all(&self) -> DraftCount {
        DraftCount {
            drafted: self.mtp.drafted + self.lookup.drafted,
            accepted: self.mtp.accepted + self.lookup.accepted,
        }
    }
}
