//! The prefix cache: a tree of saved states over prompts, in host memory and on disk.
//!
//! `boundary` says where to save, `tree` which states there are, `store` what is kept and where,
//! `disk` how it survives the process, `cache` puts them together for the scheduler. Nothing here
//! calls the model.

pub mod boundary;
pub(super) mod cache;
pub mod disk;
pub mod key;
pub(super) mod store;
pub(super) mod tree;

pub use cache::{CacheView, Checks, DiskSettings, NodeView, PrefixSettings, RecentRequest};
pub use key::Fingerprint;
pub use store::StoreTotals;
