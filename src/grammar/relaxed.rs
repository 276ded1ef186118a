//! What of a constraint holds less strictly than asked for.

/// A part of a schema that holds less strictly than asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relaxed {
    /// Where: a JSON pointer into the schema as sent.
    pub pointer: String,
    /// What is not enforced, and why.
    pub what: String,
    /// What holds instead.
    pub to: String,
}
