//! How a check ended.

use crate::app::Failure;

/// What a check prints, and the exit code.
pub struct Report {
    pub text: String,
    pub code: u8,
}

/// The exit code of a verdict.
pub fn code(passed: bool) -> u8 {
    if passed { 0 } else { Failure::FAULT }
}
