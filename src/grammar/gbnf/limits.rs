//! How large a grammar may be.

/// Bytes of a grammar's text.
pub const MAX_BYTES: usize = 512 * 1024;
/// Groups inside one another.
pub const MAX_DEPTH: usize = 64;
/// Rules, defined or named.
pub const MAX_RULES: usize = 4_096;
/// The largest number in `{n,m}`.
pub const MAX_REPETITIONS: usize = 10_000;
/// Alternatives of all rules and groups together.
pub const MAX_ALTERNATIVES: usize = 20_000;
/// Characters and classes when every rule name and repetition is written out, recursion taken once.
pub const MAX_EXPANDED: usize = 5_000_000;
/// Items that follow one another when every rule name is written out, repetitions and recursion taken once: the lexer's work
/// grows with the square of it.
pub const MAX_ROW: usize = 2_000;
/// Rules that name one another in a line or a circle: `llguidance` follows them by recursion.
pub const MAX_CHAIN: usize = 1_000;
/// Lexemes and groups that the parser keeps apart.
pub const MAX_PARTS: usize = 25_000;
