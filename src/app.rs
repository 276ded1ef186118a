//! Composition root: a validated profile becomes a running engine, a router and a server, and ends in order. The only place
//! that knows every layer; it decides nothing that a layer could decide alone.

pub mod cache;
pub mod devices;
mod failure;
pub mod fit;
mod gpu_watch;
pub mod machine;
pub mod model;
mod options;
mod process;
mod serve;
mod start;
pub mod terminal;

pub use failure::Failure;
pub use options::StartOptions;
pub use process::{leave, runtime, version};
pub use serve::serve;
pub use start::{Started, start};
