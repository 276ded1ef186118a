//! Responses and stream chunks of both generation endpoints. Members are written in the order that
//! OpenAI writes them.

use serde::Serialize;

/// A whole response, or one chunk of a stream; `C` is its kind of choice.
#[derive(Clone, Debug, Serialize)]
pub struct Envelope<C> {
    pub id: String,
    pub object: &'static str,
    pub created: u64,
    pub model: String,
    pub system_fingerprint: String,
    pub choices: Vec<C>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timings: Option<TimingsBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_progress: Option<PromptProgress>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UsageBody {
    pub prompt_tokens: usize,
    pub completion_tokens: usize,
    pub total_tokens: usize,
    pub prompt_tokens_details: PromptDetails,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_tokens_details: Option<ReasoningTokens>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PromptDetails {
    pub cached_tokens: usize,
    /// Rows of images, which `prompt_tokens` includes. Only where the request has some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_tokens: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReasoningTokens {
    pub reasoning_tokens: usize,
}

/// Under the names of llama-server.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimingsBody {
    pub cache_n: usize,
    pub prompt_n: usize,
    pub prompt_ms: f64,
    pub prompt_per_token_ms: f64,
    pub prompt_per_second: f64,
    pub predicted_n: usize,
    pub predicted_ms: f64,
    pub predicted_per_token_ms: f64,
    pub predicted_per_second: f64,
    /// Not llama-server's: from arrival to the first token, and the part of it spent in the queue.
    pub ttft_ms: f64,
    pub queue_ms: f64,
    /// Not llama-server's, and only where images were encoded: how many, and the time of it, a
    /// part of `prompt_ms`.
    #[serde(flatten)]
    pub encoding: Option<EncodingBody>,
    /// Not llama-server's: what the prompt began from.
    pub cache: CacheBody,
    /// Only where something was drafted, as llama-server does.
    #[serde(flatten)]
    pub drafts: Option<DraftBody>,
}

/// Images that were encoded for a request; those of the cache are not among them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct EncodingBody {
    pub encode_n: usize,
    pub encode_ms: f64,
}

/// What a prompt began from, of the first choice.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CacheBody {
    /// Tokens of the state that it went on from.
    pub restored_from: usize,
    /// "none", "vram", "ram" or "disk".
    pub tier: &'static str,
    pub restore_ms: f64,
    /// Tokens that were processed.
    pub prefilled: usize,
    /// Why they were: one word, and the story.
    pub why: &'static str,
    pub reason: String,
}

/// Drafted tokens and those that the model said too; the first two names are llama-server's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DraftBody {
    /// From the MTP head and from lookup.
    pub draft_n: u32,
    pub draft_n_accepted: u32,
    /// Share accepted of what was drafted at each place of a draft, the first token first.
    pub accepted_per_position: Vec<f64>,
    pub draft_n_lookup: u32,
    pub draft_n_lookup_accepted: u32,
    pub draft_n_forced: u32,
    pub draft_n_forced_accepted: u32,
}

/// Under the names of llama-server.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PromptProgress {
    pub total: usize,
    pub cache: usize,
    pub processed: usize,
    pub time_ms: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct ChatChoice {
    pub index: usize,
    pub message: ChatMessage,
    pub logprobs: Option<ChatLogprobs>,
    pub finish_reason: &'static str,
}

#[derive(Clone, Debug, Serialize)]
pub struct ChatChunkChoice {
    pub index: usize,
    pub delta: ChatMessage,
    pub logprobs: Option<ChatLogprobs>,
    pub finish_reason: Option<&'static str>,
}

/// A message, or what a chunk adds to one.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ChatMessage {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
    /// Absent in chunks about something else; `Some(None)`, null, in a whole message of tool calls
    /// alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Option<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// The same again, under the name that newer clients read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<CallBody>,
}

/// A call of a whole message has everything but `index`. Of a stream's chunks the first has
/// everything, later ones only `index` and a piece of the arguments.
#[derive(Clone, Debug, Serialize)]
pub struct CallBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    pub function: FunctionBody,
}

#[derive(Clone, Debug, Serialize)]
pub struct FunctionBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// JSON text, or a piece of it.
    pub arguments: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct ChatLogprobs {
    pub content: Vec<TokenEntry>,
    pub refusal: Option<()>,
}

#[derive(Clone, Debug, Serialize)]
pub struct TokenEntry {
    pub token: String,
    pub logprob: f32,
    pub bytes: Vec<u8>,
    pub top_logprobs: Vec<TopEntry>,
}

#[derive(Clone, Debug, Serialize)]
pub struct TopEntry {
    pub token: String,
    pub logprob: f32,
    pub bytes: Vec<u8>,
}

#[derive(Clone, Debug, Serialize)]
pub struct CompletionChoice {
    pub index: usize,
    pub text: String,
    pub logprobs: Option<CompletionLogprobs>,
    pub finish_reason: Option<&'static str>,
}

/// Parallel lists, one entry a token.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CompletionLogprobs {
    pub tokens: Vec<String>,
    pub token_logprobs: Vec<f32>,
    /// Text of an alternative -> its log-probability, best first.
    pub top_logprobs: Vec<indexmap::IndexMap<String, f32>>,
    /// Where the token starts in the text of the choice, in characters.
    pub text_offset: Vec<usize>,
}
