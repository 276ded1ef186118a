//! Whether text that is made of tokens ends at the border of a character.

/// How many bytes the last character still misses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Utf8Tail {
    missing: u8,
}

impl Utf8Tail {
    pub fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.missing = match byte {
                0x80..=0xBF => self.missing.saturating_sub(1),
                0xC2..=0xDF => 1,
                0xE0..=0xEF => 2,
                0xF0..=0xF4 => 3,
                _ => 0,
            };
        }
    }

    pub fn is_whole(self) -> bool {
        self.missing == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn text_is_whole_exactly_between_its_characters(text in any::<String>()) {
            let mut tail = Utf8Tail::default();
            for (i, byte) in text.bytes().enumerate() {
                tail.push(&[byte]);
                prop_assert_eq!(tail.is_whole(), text.is_char_boundary(i + 1));
            }
        }
    }

    #[test]
    fn a_broken_character_is_not_waited_for() {
        let mut tail = Utf8Tail::default();
        tail.push(&[0xE2, b'a']);
        assert!(tail.is_whole());
    }
}
