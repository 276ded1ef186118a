//! What a saved state is filed under: items of prompts as bytes, checksums, and the fingerprint of
//! all that makes a state useless to another server.
//!
//! Nothing here knows where states are kept.

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::engine::request::item::PromptItem;
use crate::engine::vision::image::{Grid, ImageKey, ImageRow};
use crate::units::Token;

/// Checksum of a file's contents: detects incomplete and altered files, not attackers.
pub fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// Everything that a state depends on beside its tokens: model, element types of the caches, rope,
/// template, build. States with another fingerprint are never looked at.
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
/// First byte of a run of rows of one image.
const TAG_IMAGE: u8 = 1;
/// Rows of an image beyond which a run is taken for damage: many times what any encoder gives.
const MAX_IMAGE_ROWS: usize = 1 << 17;

/// Appends `items` to `out`, 5 bytes a token and 29 an image.
pub(super) fn encode_items(items: &[PromptItem], out: &mut Vec<u8>) {
    for run in items.chunk_by(continues) {
        match run[0] {
            PromptItem::Token(token) => {
                out.push(TAG_TOKEN);
                out.extend_from_slice(&token.0.to_le_bytes());
            }
            PromptItem::Image(ImageRow { key, grid, index }) => {
                out.push(TAG_IMAGE);
                out.extend_from_slice(&key.get().to_le_bytes());
                out.extend_from_slice(&grid.nx.to_le_bytes());
                out.extend_from_slice(&grid.ny.to_le_bytes());
                out.extend_from_slice(&index.to_le_bytes());
                out.extend_from_slice(&(run.len() as u32).to_le_bytes());
            }
        }
    }
}

/// Are both rows of one image, one after the other.
fn continues(a: &PromptItem, b: &PromptItem) -> bool {
    let (Some(a), Some(b)) = (a.image(), b.image()) else { return false };
    (a.key, a.grid) == (b.key, b.grid) && a.index.checked_add(1) == Some(b.index)
}

/// The inverse; `None`: not what `encode_items` wrote.
pub(super) fn decode_items(mut bytes: &[u8]) -> Option<Vec<PromptItem>> {
    let mut items = Vec::with_capacity(bytes.len() / 5);
    while let Some((&tag, rest)) = bytes.split_first() {
        bytes = match tag {
            TAG_TOKEN => {
                let (number, rest) = rest.split_first_chunk::<4>()?;
                items.push(PromptItem::Token(Token(u32::from_le_bytes(*number))));
                rest
            }
            TAG_IMAGE => {
                let (run, rest) = decode_run(rest)?;
                items.extend(run.map(PromptItem::Image));
                rest
            }
            _ => return None,
        };
    }
    Some(items)
}

/// The rows of a run and the bytes after it.
fn decode_run(bytes: &[u8]) -> Option<(impl Iterator<Item = ImageRow>, &[u8])> {
    let (key, rest) = bytes.split_first_chunk::<16>()?;
    let (nx, rest) = rest.split_first_chunk::<2>()?;
    let (ny, rest) = rest.split_first_chunk::<2>()?;
    let (first, rest) = rest.split_first_chunk::<4>()?;
    let (n, rest) = rest.split_first_chunk::<4>()?;
    let key = ImageKey::new(u128::from_le_bytes(*key));
    let grid = Grid { nx: u16::from_le_bytes(*nx), ny: u16::from_le_bytes(*ny) };
    let (first, n) = (u32::from_le_bytes(*first), u32::from_le_bytes(*n));
    let end = first.checked_add(n)?;
    let sound = n > 0 && end as usize <= grid.n_tokens() && grid.n_tokens() <= MAX_IMAGE_ROWS;
    sound.then(|| ((first..end).map(move |index| ImageRow { key, grid, index }), rest))
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
        fn items_read_back(
            parts in prop::collection::vec(prop_oneof![(0u32..9).prop_map(Err), (1u16..5, 1u16..5, 0u128..3).prop_map(Ok)], 0..40),
            drop in 0usize..20,
            cut in 1usize..30,
        ) {
            let items = parts.into_iter().flat_map(|part| match part {
                Err(token) => vec![PromptItem::Token(Token(token))],
                Ok((nx, ny, key)) => {
                    ImageRow::all(ImageKey::new(key), Grid { nx, ny }).map(PromptItem::Image).collect()
                }
            });
            // An edge may begin anywhere.
            let items: Vec<PromptItem> = items.skip(drop).collect();
            let mut bytes = Vec::new();
            encode_items(&items, &mut bytes);
            prop_assert_eq!(decode_items(&bytes), Some(items.clone()));
            bytes.truncate(bytes.len().saturating_sub(cut));
            let read = decode_items(&bytes);
            prop_assert!(read.is_none_or(|read| items.starts_with(&read)));
        }
    }

    #[test]
    fn a_run_of_rows_that_no_image_has_is_not_read() {
        let mut bytes = Vec::new();
        let grid = Grid { nx: 3, ny: 2 };
        encode_items(&[PromptItem::Image(ImageRow { key: ImageKey::new(7), grid, index: 5 })], &mut bytes);
        assert!(decode_items(&bytes).is_some());
        for (at, value) in [(21, 6u8), (25, 0), (25, 2), (28, 255)] {
            let mut wrong = bytes.clone();
            wrong[at] = value;
            assert_eq!(decode_items(&wrong), None, "byte {at}");
        }
    }
}
