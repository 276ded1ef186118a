//! What the engine hands in to be counted, in plain numbers.

use std::time::Duration;

/// How an accepted request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    Eos,
    Stop,
    Complete,
    MaxTokens,
    ContextFull,
    Cancelled,
    Failed,
}

impl Outcome {
    pub(super) const ALL: [Outcome; 7] = [
        Outcome::Eos,
        Outcome::Stop,
        Outcome::Complete,
        Outcome::MaxTokens,
        Outcome::ContextFull,
        Outcome::Cancelled,
        Outcome::Failed,
    ];

    /// The value of the label and of the log field.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Eos => "eos",
            Outcome::Stop => "stop",
            Outcome::Complete => "complete",
            Outcome::MaxTokens => "max_tokens",
            Outcome::ContextFull => "context_full",
            Outcome::Cancelled => "cancelled",
            Outcome::Failed => "failed",
        }
    }
}

/// What is known of a request at its end.
#[derive(Clone, Copy, Debug)]
pub struct RequestRecord {
    pub outcome: Outcome,
    pub n_prompt: usize,
    pub n_cached: usize,
    pub n_generated: usize,
    /// Not one character was sent although nothing failed and nobody left.
    pub empty: bool,
    /// `None` where the request never got so far.
    pub queued: Option<Duration>,
    pub ttft: Option<Duration>,
    /// Tokens a second.
    pub prefill_tps: Option<f64>,
    pub decode_tps: Option<f64>,
}

/// The engine's gauges, set once a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineGauges {
    pub n_queued: usize,
    pub n_active: usize,
    pub n_fill: usize,
    pub n_ctx: usize,
}

/// How long things last that may never end; set when metrics are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineAges {
    /// Of the step that runs now.
    pub step: Option<Duration>,
    /// Since the arrival of the first that waits.
    pub oldest_queued: Option<Duration>,
}

/// Drafted tokens and those of them that the model said too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drafted {
    pub drafted: u64,
    pub accepted: u64,
}

/// What drafting came to in one request.
#[derive(Clone, Copy, Debug)]
pub struct DraftRecord<'a> {
    /// Steps that gave tokens, with a draft or without.
    pub n_steps: u64,
    pub mtp: Drafted,
    pub lookup: Drafted,
    /// By a constraint.
    pub forced: Drafted,
    /// By the place in the draft, the first token first; at most `DRAFT_POSITIONS`.
    pub by_position: &'a [Drafted],
    /// Tokens a step; `None` where the request did not end well or made no step.
    pub acceptance_length: Option<f64>,
    /// The MTP head's drafts were nearly all rejected: something is wrong with it.
    pub collapsed: bool,
}
