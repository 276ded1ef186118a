//! Incremental UTF-8: bytes of tokens in, whole characters out.
//!
//! Deliberately absent: any knowledge of tokens. Whoever calls decides which tokens are text.

/// Holds the bytes of an unfinished character between tokens.
#[derive(Clone, Debug, Default)]
pub struct Detokenizer {
    pending: Vec<u8>,
}

impl Detokenizer {
    /// Appends the characters that `bytes` completes to `out`. Bytes that can never be part of a character become U+FFFD.
    pub fn push(&mut self, bytes: &[u8], out: &mut String) {
        if self.pending.is_empty() {
            let held = decode(bytes, out);
            self.pending.extend_from_slice(held);
            return;
        }
        // An unfinished character has at most 3 bytes, so this copies little.
        let mut joined = std::mem::take(&mut self.pending);
        joined.extend_from_slice(bytes);
        let held = decode(&joined, out).len();
        joined.drain(..joined.len() - held);
        self.pending = joined;
    }

    /// Ends the text: an unfinished character becomes one U+FFFD.
    pub fn finish(&mut self, out: &mut String) {
        if !self.pending.is_empty() {
            self.pending.clear();
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }

    /// Bytes held back until the rest of their character comes; at most 3.
    pub fn pending(&self) -> &[u8] {
        &self.pending
    }
}

/// Appends what `bytes` decides and returns the unfinished character at its end.
fn decode<'a>(mut bytes: &'a [u8], out: &mut String) -> &'a [u8] {
    loop {
        match std::str::from_utf8(bytes) {
            Ok(text) => {
                out.push_str(text);
                return &[];
            }
            Err(error) => {
                let (valid, rest) = bytes.split_at(error.valid_up_to());
                out.push_str(std::str::from_utf8(valid).expect("valid_up_to bytes are valid"));
                let Some(bad) = error.error_len() else { return rest };
                out.push(char::REPLACEMENT_CHARACTER);
                bytes = &rest[bad..];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn in_pieces<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> String {
        let (mut detokenizer, mut out) = (Detokenizer::default(), String::new());
        for piece in pieces {
            detokenizer.push(piece, &mut out);
            assert!(detokenizer.pending().len() <= 3);
        }
        detokenizer.finish(&mut out);
        out
    }

    #[test]
    fn emoji_given_byte_by_byte_comes_out_whole_and_at_once() {
        let (mut detokenizer, mut out) = (Detokenizer::default(), String::new());
        for byte in [0xF0, 0x9F, 0x98] {
            detokenizer.push(&[byte], &mut out);
            assert_eq!(out, "");
        }
        detokenizer.push(&[0xB8], &mut out);
        assert_eq!(out, "\u{1F638}");
        detokenizer.finish(&mut out);
        assert_eq!(out, "\u{1F638}");
    }

    #[test]
    fn generation_that_ends_inside_a_character_gives_one_replacement() {
        assert_eq!(in_pieces([&b"a\xF0\x9F"[..], &b"\x98"[..]]), "a\u{FFFD}");
    }

    #[test]
    fn hopeless_bytes_do_not_wait() {
        let (mut detokenizer, mut out) = (Detokenizer::default(), String::new());
        detokenizer.push(b"\xF0\x9F", &mut out);
        detokenizer.push(b"x\xFFy", &mut out);
        assert_eq!(out, "\u{FFFD}x\u{FFFD}y");
    }

    #[test]
    fn every_two_cuts_of_a_mixed_text_give_the_same() {
        let bytes = b"a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\xB8\xE2\x82\xFFz\xF0\x9F";
        let whole = String::from_utf8_lossy(bytes);
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                assert_eq!(in_pieces([&bytes[..first], &bytes[first..second], &bytes[second..]]), whole);
            }
        }
    }

    fn byte() -> impl Strategy<Value = u8> {
        prop_oneof![any::<u8>(), prop::sample::select(vec![b'a', 0xC3, 0xA9, 0xE2, 0x82, 0xAC, 0xF0, 0x9F, 0xED, 0xA0])]
    }

    proptest! {
        #[test]
        fn any_cutting_equals_lossy_decoding_of_the_whole(pieces in prop::collection::vec(prop::collection::vec(byte(), 0..6), 0..12)) {
            let whole = pieces.concat();
            prop_assert_eq!(in_pieces(pieces.iter().map(Vec::as_slice)), String::from_utf8_lossy(&whole));
        }
    }
}
