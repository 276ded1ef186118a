//! What comes out of the engine.

use super::draft::DraftTotals;
use super::error::EngineError;
use crate::units::Token;

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
    /// New text (whole characters, never empty), the tokens whose text begins in it and their
    /// logprobs where asked for. A token whose text is held back is held back with it; one without
    /// text leaves with the text after it. Several steps are joined into one when the client reads
    /// slowly.
    Delta {
        text: String,
        tokens: Vec<Token>,
        logprobs: Vec<Logprob>,
    },
    Finished(Box<Finish>),
    Failed(EngineError),
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
    /// The constraint has nothing more to say.
    Complete,
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
    pub restored: Restored,
}

/// Where the state that a request began from came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tier {
    /// Nothing was reused.
    #[default]
    None,
    /// The sequence held it.
    Vram,
    Ram,
    Disk,
}

impl Tier {
    pub const ALL: [Tier; 4] = [Tier::None, Tier::Vram, Tier::Ram, Tier::Disk];

    pub fn as_str(self) -> &'static str {
        match self {
            Tier::None => "none",
            Tier::Vram => "vram",
            Tier::Ram => "ram",
            Tier::Disk => "disk",
        }
    }
}

/// Why the rest of a prompt was processed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MissReason {
    /// No prompt that is known begins like it.
    #[default]
    Unknown,
    /// The request asked for no cache.
    NotAsked,
    /// It is new: known prompts go on otherwise, with `known` where this one has `prompt` (texts of
    /// the first tokens that differ), or end there.
    New { at: usize, known: Option<String>, prompt: Option<String> },
    /// It is known up to `common` tokens, but no state between is saved.
    NoState { common: usize },
    /// As `NoState`: there was one, and it had to give way.
    Evicted { common: usize },
    /// A state could not be restored.
    Failed,
    /// It was processed again to compare the result with a saved state.
    Checked,
}

impl MissReason {
    /// One word for machines.
    pub fn as_str(&self) -> &'static str {
        match self {
            MissReason::Unknown => "unknown",
            MissReason::NotAsked => "not_asked",
            MissReason::New { .. } => "new",
            MissReason::NoState { .. } => "no_state",
            MissReason::Evicted { .. } => "evicted",
            MissReason::Failed => "failed",
            MissReason::Checked => "checked",
        }
    }
}

impl std::fmt::Display for MissReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MissReason::Unknown => write!(f, "no known prompt begins like this one"),
            MissReason::NotAsked => write!(f, "the request asked for no cache"),
            MissReason::New { at, known: Some(known), prompt: Some(prompt) } => {
                write!(f, "new from token {at}: {prompt:?}, where a known prompt has {known:?}")
            }
            MissReason::New { at, .. } => write!(f, "new from token {at}"),
            MissReason::NoState { common } => write!(f, "known up to token {common}, without a saved state in between"),
            MissReason::Evicted { common } => {
                write!(f, "known up to token {common}; the state in between had to give way")
            }
            MissReason::Failed => write!(f, "a saved state could not be restored"),
            MissReason::Checked => write!(f, "processed again to check a saved state"),
        }
    }
}

/// What a request began from. Its tokens are `Usage::cached`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Restored {
    pub tier: Tier,
    /// Time to put the state back, without the wait for the disk.
    pub restore_ms: f64,
    pub why: MissReason,
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
    /// Images that were encoded for it, and the time that took; a part of `prompt_ms`.
    pub encode_n: usize,
    pub encode_ms: f64,
}
