//! What the scripted model keeps of a sequence: rows with their positions, and a state over all of
//! them.

use super::script::IMAGES;
use crate::engine::request::item::PromptItem;
use crate::engine::runner::SavedRows;
use crate::engine::vision::encoder_cache::EncoderCache;
use crate::engine::vision::image::{Embedding, Image, ImageRow};
use crate::units::Token;

/// Numbers of an image's row: the eight parts of its key, then row and column.
const N_EMBD: usize = 10;

/// Bytes of a saved row.
const ROW_BYTES: usize = 12;

/// One row of the KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FakeRow {
    pub token: Token,
    pub pos: u32,
    /// The position that comes after it; inside an image its own.
    pub next: u32,
}

#[derive(Default)]
pub struct FakeSequence {
    /// The attention rows.
    pub rows: Vec<FakeRow>,
    /// The recurrent state: a number that depends on every row. A sequence whose state does not
    /// belong to its rows says so at its next row.
    pub state: u64,
    /// It was put back and has had no row since.
    pub restored: bool,
    /// Length of the prompt and the answer to it, known from the first row with output on.
    pub answering: Option<(usize, usize)>,
    /// Cut and not stepped since.
    pub cut: bool,
    /// Rows in the last step, if it was in it.
    pub fresh_rows: usize,
    /// What the MTP head was given since the last step.
    pub drafted: Vec<Token>,
    /// Was in a step that failed half-way: must be cleared first.
    pub unknown: bool,
}

impl FakeSequence {
    pub fn tokens(&self) -> Vec<Token> {
        self.rows.iter().map(|row| row.token).collect()
    }

    /// The position that comes next.
    pub fn next(&self) -> u32 {
        self.rows.last().map_or(0, |row| row.next)
    }

    pub fn push(&mut self, item: PromptItem, pos: u32, encoder_cache: &EncoderCache) {
        let token = match item {
            PromptItem::Token(token) => token,
            PromptItem::Image(row) => seen(row, encoder_cache),
        };
        self.rows.push(FakeRow { token, pos, next: pos + item.n_pos() as u32 });
        self.state = next_state(self.state, token);
    }

    /// Rows before position `end`, which lies inside no image.
    pub fn n_before(&self, end: u32) -> usize {
        let n = self.rows.partition_point(|row| row.pos < end);
        // Saved rows begin where they were saved from.
        let first = self.rows.first().map_or(0, |row| row.pos);
        let next = n.checked_sub(1).map_or(first, |last| self.rows[last].next);
        assert!(n == self.rows.len() || next == end, "contract: position {end} lies inside an image");
        n
    }
}

/// Does the item follow the last one of `before`: an image's rows come whole and in order.
pub fn follows(before: Option<PromptItem>, item: PromptItem) -> bool {
    let open = before.and_then(|item| item.image()).filter(|row| !row.is_last());
    match (open, item.image()) {
        (Some(row), next) => next == Some(ImageRow { index: row.index + 1, ..row }),
        (None, Some(row)) => row.index == 0,
        (None, None) => true,
    }
}

/// The image's key and the place of each row, as numbers that a step can check.
pub fn encoded(image: &Image) -> Embedding {
    let Image { key, grid, .. } = *image;
    let floats = ImageRow::all(key, grid).flat_map(|row| {
        let (y, x) = row.place();
        let parts = (0..8).map(move |i| (key.get() >> (16 * i)) as u16);
        parts.map(f32::from).chain([y as f32, x as f32])
    });
    Embedding { grid, n_embd: N_EMBD, floats: floats.collect() }
}

/// What a script sees of an image's row: a number beyond all tokens that depends on all of its
/// embedding.
fn seen(row: ImageRow, encoder_cache: &EncoderCache) -> Token {
    let floats = encoder_cache.row(row).expect("contract: an image that was not encoded");
    let key = floats[..8].iter().rev().fold(0u128, |key, part| (key << 16) | u128::from(*part as u16));
    let place = (floats[8] as u32, floats[9] as u32);
    assert_eq!((key, place), (row.key.get(), row.place()), "contract: the embedding of another row");
    token_of(row)
}

/// See `seen`.
pub fn token_of(row: ImageRow) -> Token {
    let key = (row.key.get() >> 64) as u64 ^ row.key.get() as u64;
    let hash = (key ^ u64::from(row.index) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Token(IMAGES | (hash >> 33) as u32)
}

pub fn next_state(state: u64, token: Token) -> u64 {
    (state ^ u64::from(token.0)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23).wrapping_add(1)
}

pub fn state_of(rows: &[FakeRow]) -> u64 {
    rows.iter().fold(0, |state, row| next_state(state, row.token))
}

pub fn save(rows: &[FakeRow]) -> Vec<u8> {
    let words = |row: &FakeRow| [row.token.0, row.pos, row.next];
    rows.iter().flat_map(words).flat_map(u32::to_le_bytes).collect()
}

/// The wanted rows among saved ones.
pub fn read(part: &SavedRows<'_>) -> Vec<FakeRow> {
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let row = |bytes: &[u8]| FakeRow { token: Token(word(bytes, 0)), pos: word(bytes, 4), next: word(bytes, 8) };
    let all: Vec<FakeRow> = part.bytes.chunks_exact(ROW_BYTES).map(row).collect();
    let saved = FakeSequence { rows: all, ..FakeSequence::default() };
    assert_eq!(saved.rows.first().map(|row| row.pos), Some(part.start.0), "contract: rows of another place");
    assert!(part.to.0 <= saved.next(), "contract: rows that were not saved");
    saved.rows[saved.n_before(part.from.0)..saved.n_before(part.to.0)].to_vec()
}
