//! The bytes of every token in one buffer: one allocation for a vocabulary of 250,000 tokens.

use crate::units::Token;

/// Bytes by token id.
#[derive(Clone, Debug)]
pub struct PieceTable {
    bytes: Vec<u8>,
    /// `ends[i]` is where token i ends and token i + 1 begins.
    ends: Vec<usize>,
}

impl PieceTable {
    pub fn with_capacity(n_tokens: usize) -> PieceTable {
        PieceTable { bytes: Vec::with_capacity(n_tokens.saturating_mul(6)), ends: Vec::with_capacity(n_tokens) }
    }

    /// Adds the next token.
    pub fn push(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
        self.ends.push(self.bytes.len());
    }

    /// The bytes of a token; empty for an id that is not there.
    pub fn get(&self, token: Token) -> &[u8] {
        let Some(&end) = self.ends.get(token.index()) else { return &[] };
        let start = token.index().checked_sub(1).map_or(0, |previous| self.ends[previous]);
        &self.bytes[start..end]
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_back_by_id_and_ids_outside_are_empty() {
        let mut table = PieceTable::with_capacity(3);
        for piece in ["ab", "", "cde"] {
            table.push(piece.as_bytes());
        }
        assert_eq!(table.get(Token(0)), b"ab");
        assert_eq!(table.get(Token(1)), b"");
        assert_eq!(table.get(Token(2)), b"cde");
        assert_eq!(table.get(Token(3)), b"");
        assert_eq!(table.len(), 3);
    }
}
