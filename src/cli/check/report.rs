//! How a check ended.

/// What a check prints, and whether it passed.
pub struct Report {
    pub text: String,
    pub passed: bool,
}
