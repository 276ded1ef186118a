//! Carries out what `scheduler` decided: owns the model and what is kept of it, and reports.
//!
//! `executor` runs steps, `batch` lays out their rows, `proposer` makes the drafts, `checkpoint`
//! and `restore` move states between the model and the prefix cache, `vision_encode` encodes
//! images.

mod batch;
pub(in crate::engine) mod checkpoint;
pub(in crate::engine) mod executor;
mod proposer;
pub(in crate::engine) mod restore;
mod slot_memory;
pub(in crate::engine) mod vision_encode;
