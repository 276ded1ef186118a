//! The OpenAI API over HTTP. The only layer that knows HTTP; what a request means is decided in
//! `chat`, what is generated in `engine`.
//!
//! Path of a generation: `extract` (bytes -> `wire`, by the table in `fields`) -> `convert` (`wire`
//! -> `ChatRequest`) -> `images` (got and decoded) -> `chat::prepare` -> `choices` (running) ->
//! `sse` or `collect`, both of which print through `render`. `protocol` has this path for every
//! API.

mod cache;
mod chat;
mod choice;
mod choices;
mod collect;
mod completions;
mod convert;
pub mod error;
mod extract;
pub mod fields;
mod guard;
mod headers;
mod images;
mod models;
mod ops;
mod preparing;
mod protocol;
mod render;
mod router;
pub mod routes;
mod sse;
mod state;
mod usage;
pub mod wire;

pub use error::{ApiError, ErrorCode};
pub use images::Images;
pub use preparing::Preparing;
pub use router::router;
pub use state::{ApiState, BuildInfo, ModelInfo};
