//! Characters that the server puts into client text for its own use.

/// Stands behind the text that the model is to continue; a noncharacter of Unicode that no template
/// changes.
pub const CONTINUE_MARK: char = '\u{FDD1}';
