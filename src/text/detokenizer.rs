//! Incremental UTF-8: bytes of tokens in, whole characters out.

/// Holds the bytes of an unfinished character between tokens.
#[derive(Clone, Debug, Default)]
pub struct Detokenizer {
    pending: Vec<u8>,
}

impl Detokenizer {
    /// Appends the characters that `bytes` completes to `out`. Bytes that can never be part of a character become U+FFFD.
    pub fn push(&mut self, bytes: &[u8], out: &mut String) {
        let _ = (bytes, out, &mut self.pending);
        unimplemented!()
    }
    /// Ends the text: an unfinished character becomes one U+FFFD.
    pub fn finish(&mut self, out: &mut String) {
        let _ = out;
        unimplemented!()
    }
}
