//! The JSON of requests and responses as serde types. No logic: what a field means is decided in `lower` and below.

mod chat;
mod completion;
mod generation;
mod ops;
mod response;

pub use crate::chat::number::Int;
pub use chat::ChatBody;
pub use completion::CompletionBody;
pub use generation::{CacheMembers, GenerationBody, SpeculativeBody, SpeculativeMembers};
pub use ops::{DetokenizeBody, TokenizeBody};
pub use response::{
    CacheBody, ChatChoice, ChatChunkChoice, ChatLogprobs, ChunkCall, ChunkFunction, CompletionChoice,
    CompletionLogprobs, Delta, DraftBody, EncodingBody, Envelope, Message, MessageCall, MessageFunction, PromptDetails,
    PromptProgress, ReasoningTokens, TimingsBody, TokenEntry, TopEntry, UsageBody,
};
