//! What goes into the engine and what comes out: plain data, without a notion of slots, threads or
//! devices.

pub mod breakpoint;
pub mod draft;
pub mod error;
pub mod event;
pub mod generation;
pub(in crate::engine) mod images;
pub mod item;
