//! Images: what a prompt and a device know of them, and the encoded ones that are kept.
//!
//! When one is encoded is `scheduler`'s business, encoding it `execution`'s.

pub mod encoder_cache;
pub mod image;
