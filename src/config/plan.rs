//! The memory plan: what a model needs, with its context *full*, on the GPU and on the host. Pure arithmetic over sizes that
//! the caller read from the file and the devices; `alternatives` names what would fit where this does not.
//!
//! Weights, KV cache and recurrent state are exact. Compute buffers, the device's own context and the process are estimates
//! and marked so; docs/vram.md derives them. What drafting takes is in `drafting`, what images take in `images`.

mod alternatives;
mod base;
mod builder;
mod compose;
mod drafting;
mod images;
mod sizes;
mod table;

pub use alternatives::{Alternative, Change, alternatives};
pub use sizes::{ImageSizes, ModelSizes, cache_types_fit, kv_bytes_per_token, mtp_kv_bytes_per_token};
pub use table::{FreeMemory, Item, Place, Plan, Shortfall};

#[cfg(test)]
mod tests;
