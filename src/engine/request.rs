//! What goes into the engine and what comes out.

use std::sync::Arc;
use std::time::Instant;

use super::constraint::Constraint;
use super::picture::{Picture, PictureRow};
use crate::sampling::SamplingParams;
use crate::units::Token;

/// One element of a prompt: what takes one row of the KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PromptItem {
    Token(Token),
    /// All rows of a picture follow each other, in order. They have the position of the first, and the item after the last
    /// comes `Grid::n_pos` later.
    Picture(PictureRow),
}

impl PromptItem {
    /// Room in the KV cache.
    pub fn n_tokens(&self) -> usize {
        match self {
            PromptItem::Token(_) | PromptItem::Picture(_) => 1,
        }
    }
    /// How far it moves the position.
    pub fn n_pos(&self) -> usize {
        match self {
            PromptItem::Token(_) => 1,
            PromptItem::Picture(row) if row.is_last() => row.grid.n_pos(),
            PromptItem::Picture(_) => 0,
        }
    }

    pub fn token(&self) -> Option<Token> {
        match self {
            PromptItem::Token(token) => Some(*token),
            PromptItem::Picture(_) => None,
        }
    }

    pub fn picture(&self) -> Option<PictureRow> {
        match self {
            PromptItem::Token(_) => None,
            PromptItem::Picture(row) => Some(*row),
        }
    }
}

/// The longest beginning of `items`, of at most `n`, that does not end inside a picture.
pub fn whole(items: &[PromptItem], n: usize) -> usize {
    let n = n.min(items.len());
    match n.checked_sub(1).and_then(|last| items[last].picture()) {
        Some(row) if !row.is_last() => n.saturating_sub(row.index as usize + 1),
        _ => n,
    }
}

/// A place in a prompt that later prompts are likely to begin like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Items before it.
    pub at: usize,
    pub kind: MarkKind,
}

/// What stands at a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkKind {
    /// The end of system prompt and tools.
    System,
    /// The beginning of a message.
    Message,
    /// The beginning of the assistant's turn that is to be generated.
    Turn,
    /// Before a block of thinking.
    Thinking,
    /// After a block of thinking.
    ThinkingEnd,
    /// The whole prompt but its last item.
    PromptEnd,
    /// The end of an answer, whole or broken off.
    AnswerEnd,
    /// After the last row of a picture. The engine finds these itself.
    Picture,
    /// Nothing in particular.
    Grid,
}

/// What a request leaves in the prefix cache. What it begins from is `cache_prompt`'s business.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheUse {
    /// Save states of it for later requests.
    pub store: bool,
    /// In ascending order.
    pub marks: Vec<Mark>,
}

impl CacheUse {
    /// Saves, without knowing anything about the prompt.
    pub const UNMARKED: CacheUse = CacheUse { store: true, marks: Vec::new() };
}

/// A prepared, validated request: everything in it is consumed by the engine.
#[derive(Clone, Debug)]
pub struct GenerationRequest {
    /// For the log line and events, e.g. "chatcmpl-...".
    pub id: String,
    /// Not empty; its last item is a token.
    pub prompt: Arc<[PromptItem]>,
    /// The pictures of `prompt`, each key once.
    pub pictures: Vec<Arc<Picture>>,
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
pub enum Why {
    /// No prompt that is known begins like it.
    #[default]
    Unknown,
    /// The request asked for no cache.
    NotAsked,
    /// It is new: known prompts go on otherwise, with `known` where this one has `prompt` (texts of the first tokens that
    /// differ), or end there.
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

impl Why {
    /// One word for machines.
    pub fn as_str(&self) -> &'static str {
        match self {
            Why::Unknown => "unknown",
            Why::NotAsked => "not_asked",
            Why::New { .. } => "new",
            Why::NoState { .. } => "no_state",
            Why::Evicted { .. } => "evicted",
            Why::Failed => "failed",
            Why::Checked => "checked",
        }
    }
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Why::Unknown => write!(f, "no known prompt begins like this one"),
            Why::NotAsked => write!(f, "the request asked for no cache"),
            Why::New { at, known: Some(known), prompt: Some(prompt) } => {
                write!(f, "new from token {at}: {prompt:?}, where a known prompt has {known:?}")
            }
            Why::New { at, .. } => write!(f, "new from token {at}"),
            Why::NoState { common } => write!(f, "known up to token {common}, without a saved state in between"),
            Why::Evicted { common } => write!(f, "known up to token {common}; the state in between had to give way"),
            Why::Failed => write!(f, "a saved state could not be restored"),
            Why::Checked => write!(f, "processed again to check a saved state"),
        }
    }
}

/// What a request began from. Its tokens are `Usage::cached`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Restored {
    pub tier: Tier,
    /// Time to put the state back, without the wait for the disk.
    pub restore_ms: f64,
    pub why: Why,
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
    /// Pictures that were encoded for it, and the time that took; a part of `prompt_ms`.
    pub encode_n: usize,
    pub encode_ms: f64,
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
    /// What the constraint leaves no choice about.
    Forced,
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
    pub forced: DraftCount,
    pub by_position: [DraftCount; MAX_DRAFT_TOKENS],
}

impl DraftTotals {
    /// Drafted and accepted tokens of all sources.
    pub fn all(&self) -> DraftCount {
        DraftCount {
            drafted: self.mtp.drafted + self.lookup.drafted + self.forced.drafted,
            accepted: self.mtp.accepted + self.lookup.accepted + self.forced.accepted,
        }
    }
}
