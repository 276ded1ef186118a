//! The JSON of requests and responses as serde types. No logic: what a field means is decided in
//! `convert` and below.

mod chat;
mod completion;
mod ops;
mod response;
mod shared;

pub use chat::{ChatBody, ChatOwnFields};
pub use completion::{CompletionBody, CompletionOwnFields};
pub use ops::{DetokenizeBody, TokenizeBody};
pub use response::{
    CacheBody, CallBody, ChatChoice, ChatChunkChoice, ChatLogprobs, ChatMessage, CompletionChoice, CompletionLogprobs,
    DraftBody, EncodingBody, Envelope, FunctionBody, PromptDetails, PromptProgress, ReasoningTokens, TimingsBody,
    TokenEntry, TopEntry, UsageBody,
};
pub use shared::ResponseFields;
