//! What a generation must look like: its rules, and the state that follows them token by token.

mod mask_precompute;
pub mod rules;
pub(in crate::engine) mod state;
#[cfg(test)]
mod tests;
