//! plateau: one hybrid language model, one GPU, one speed.
//!
//! Layers, each naming only those to its right (kept by `tests/tidy`):
//!
//! ```text
//! main -> cli                 cli, app -> everything
//! api  -> chat, engine(handle, request), text, config, telemetry, image
//! chat -> grammar, text, sampling(params), engine(request), config, image
//! engine -> grammar, text, sampling, config, telemetry
//! llama -> engine(runner), text(codec), sampling, config      implements the seam ModelRunner
//! text -> gguf                gguf, grammar, sampling, config, gpu, telemetry, check, image -> nothing but units
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
pub mod image;
#[cfg(feature = "native")]
pub mod llama;
pub mod sampling;
pub mod telemetry;
pub mod text;
pub mod units;
