//! The elements of a prompt, and how far a list of them has come.

use crate::engine::vision::image::ImageRow;
use crate::units::{Pos, Token};

/// One element of a prompt: what takes one row of the KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PromptItem {
    Token(Token),
    /// All rows of an image follow each other, in order. They have the position of the first, and
    /// the item after the last comes `Grid::n_pos` later.
    Image(ImageRow),
}

impl PromptItem {
    /// Room in the KV cache.
    pub fn n_tokens(&self) -> usize {
        match self {
            PromptItem::Token(_) | PromptItem::Image(_) => 1,
        }
    }
    /// How far it moves the position.
    pub fn n_pos(&self) -> usize {
        match self {
            PromptItem::Token(_) => 1,
            PromptItem::Image(row) if row.is_last() => row.grid.n_pos(),
            PromptItem::Image(_) => 0,
        }
    }

    pub fn token(&self) -> Option<Token> {
        match self {
            PromptItem::Token(token) => Some(*token),
            PromptItem::Image(_) => None,
        }
    }

    pub fn image(&self) -> Option<ImageRow> {
        match self {
            PromptItem::Token(_) => None,
            PromptItem::Image(row) => Some(*row),
        }
    }
}

/// The longest beginning of `items`, of at most `n`, that does not end inside an image.
pub fn whole(items: &[PromptItem], n: usize) -> usize {
    let n = n.min(items.len());
    match n.checked_sub(1).and_then(|last| items[last].image()) {
        Some(row) if !row.is_last() => n.saturating_sub(row.index as usize + 1),
        _ => n,
    }
}

/// How far a list of items has come: images take more tokens than positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    pub n_items: usize,
    /// Room in the KV cache.
    pub n_tokens: usize,
    pub n_pos: usize,
}

impl Extent {
    pub fn of(items: &[PromptItem]) -> Extent {
        let mut extent = Extent::default();
        items.iter().for_each(|item| extent.advance(item));
        extent
    }

    pub fn advance(&mut self, item: &PromptItem) {
        self.n_items += 1;
        self.n_tokens += item.n_tokens();
        self.n_pos += item.n_pos();
    }

    /// The position after it.
    pub fn pos(&self) -> Pos {
        Pos(u32::try_from(self.n_pos).expect("n_ctx, the bound of every position, fits llama.cpp's 32 bits"))
    }
}
