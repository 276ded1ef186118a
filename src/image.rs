//! Images that requests bring: from a URL to bytes, from bytes to pixels, from pixels to the size that the model's vision encoder
//! take.
//!
//! Nothing here knows requests, models or HTTP's server side. Decoding blocks and may take a while: call it off the async
//! threads. Encoding for the model is deliberately absent; that is the engine's.

pub mod address;
pub mod data_uri;
pub mod decode;
mod error;
pub mod fetch;
pub mod file;
pub mod kind;
pub mod pixels;
pub mod size;
mod whole;

pub use decode::{Limits, Probe};
pub use error::{Fault, ImageRefusal};
pub use fetch::{FetchRules, Fetcher};
pub use kind::Kind;
pub use pixels::Rgb;
pub use size::{Rule, Tokens};
