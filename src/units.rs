//! Newtypes that every layer shares: a token, a position, a sequence, an amount of memory.
//!
//! Positions and token counts are different things: after an image a sequence has fewer positions than tokens
//! (`native-core`, M-RoPE), so they never share a type.

use std::fmt;

/// A token of the model's vocabulary. Ids fit llama.cpp's `llama_token` (`i32`) and are never negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u32);

impl Token {
    /// The id as an index into a logits row.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A position in a sequence as the model sees it (llama.cpp's `llama_pos`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pos(pub u32);

/// A sequence slot of the context: `0..n_seq_max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeqId(pub u32);

/// A number of bytes, printed in MiB or GiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = self.0 as f64 / (1024.0 * 1024.0);
        if mib >= 10_240.0 { write!(f, "{:.2} GiB", mib / 1024.0) } else { write!(f, "{mib:.1} MiB") }
    }
}

impl std::ops::Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }
}

impl std::iter::Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(iter: I) -> Bytes {
        iter.fold(Bytes(0), |a, b| a + b)
    }
}
