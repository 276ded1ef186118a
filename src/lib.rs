//! plateau: one hybrid language model, one card, one speed.
//!
//! Layers, each naming only those to its right (kept by `tests/tidy`):
//!
//! ```text
//! main -> cli                 cli, app -> everything
//! api  -> chat, engine(handle, request), text, config, telemetry, picture
//! chat -> grammar, text, sampling(params), engine(request), config, picture
//! engine -> grammar, text, sampling, config, telemetry
//! llama -> engine(runner), text(codec), sampling, config      implements the seam ModelRunner
//! text -> gguf                gguf, grammar, sampling, config, gpu, telemetry, check, picture -> nothing but units
//! ```

pub mod api;
pub mod app;
pub mod chat;
pub mod check;
pub mod cli;
pub mod config;
pub mod engine;
pub mod gguf;
pub mod gpu;
pub mod grammar;
#[cfg(feature = "native")]
pub mod llama;
pub mod picture;
pub mod sampling;
pub mod telemetry;
pub mod text;
pub mod units;
