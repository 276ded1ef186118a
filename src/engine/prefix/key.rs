//! What a saved state is filed under: items of prompts as bytes, checksums, and the fingerprint of all that makes a state
//! useless to another server.
//!
//! Nothing here knows where states are kept.

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::engine::request::PromptItem;
use crate::units::Token;

/// Checksum of a file's contents: detects torn and altered files, not attackers.
pub fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// Everything that a state depends on beside its tokens: model, element types of the caches, rope, template, build. States
/// with another fingerprint are never looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fingerprint(pub u64);

impl Fingerprint {
    /// Of named parts; order and names count.
    pub fn of<'a>(parts: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Fingerprint {
        let mut hash = Xxh3::new();
        for (name, value) in parts {
            for text in [name.as_bytes(), value] {
                hash.update(&(text.len() as u64).to_le_bytes());
                hash.update(text);
            }
        }
        Fingerprint(hash.digest())
    }

    /// The name of its folder.
    pub fn folder(self) -> String {
        format!("{:016x}", self.0)
    }
}

/// First byte of a token among encoded items.
const TAG_TOKEN: u8 = 0;

/// Appends `items` to `out`, 5 bytes a token.
pub(super) fn encode_items(items: &[PromptItem], out: &mut Vec<u8>) {
    for item in items {
        match item {
            PromptItem::Token(token) => {
                out.push(TAG_TOKEN);
                out.extend_from_slice(&token.0.to_le_bytes());
            }
        }
    }
}

/// The inverse; `None`: not what `encode_items` wrote.
pub(super) fn decode_items(mut bytes: &[u8]) -> Option<Vec<PromptItem>> {
    let mut items = Vec::with_capacity(bytes.len() / 5);
    while let Some((&tag, rest)) = bytes.split_first() {
        let (number, rest) = rest.split_first_chunk::<4>()?;
        if tag != TAG_TOKEN {
            return None;
        }
        items.push(PromptItem::Token(Token(u32::from_le_bytes(*number))));
        bytes = rest;
    }
    Some(items)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn any_part_changes_the_fingerprint() {
        let of = |parts: &[(&str, &str)]| Fingerprint::of(parts.iter().map(|(n, v)| (*n, v.as_bytes())));
        let all = [
            of(&[("model", "a"), ("k", "f16")]),
            of(&[("model", "b"), ("k", "f16")]),
            of(&[("model", "a"), ("k", "q8_0")]),
            of(&[("model", "a"), ("v", "f16")]),
            of(&[("model", "ak"), ("", "f16")]),
            of(&[("model", "a")]),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|b| a != b), "{i}");
        }
    }

    proptest! {
        #[test]
        fn items_read_back(tokens in prop::collection::vec(any::<u32>(), 0..50), cut in 0usize..4) {
            let items: Vec<PromptItem> = tokens.into_iter().map(|t| PromptItem::Token(Token(t))).collect();
            let mut bytes = Vec::new();
            encode_items(&items, &mut bytes);
            prop_assert_eq!(decode_items(&bytes), Some(items.clone()));
            if !items.is_empty() {
                bytes.truncate(bytes.len() - 1 - cut);
                prop_assert_eq!(decode_items(&bytes), None);
            }
        }
    }
}
