//! Images in prompts. An image is as many items as it has rows in the KV cache; its pixels
//! travel beside the prompt.
//!
//! Decoding files and choosing sizes is `crate::image`'s business, encoding the model's.

/// Which image: a 128-bit hash of size and pixels. Equal keys are equal images.
/// Kept as bytes: a number of 128 bits would make every item of a prompt half as large again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ImageKey([u8; 16]);

impl ImageKey {
    pub fn new(hash: u128) -> ImageKey {
        ImageKey(hash.to_le_bytes())
    }

    pub fn get(self) -> u128 {
        u128::from_le_bytes(self.0)
    }
}

/// Size of an image in tokens: `nx * ny` rows of the KV cache in raster order, `max(nx, ny)`
/// positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grid {
    pub nx: u16,
    pub ny: u16,
}

impl Grid {
    pub fn n_tokens(self) -> usize {
        usize::from(self.nx) * usize::from(self.ny)
    }

    pub fn n_pos(self) -> usize {
        usize::from(self.nx.max(self.ny))
    }
}

/// A decoded image.
#[derive(Clone, PartialEq, Eq)]
pub struct Image {
    pub key: ImageKey,
    /// Of the encoder's result for it.
    pub grid: Grid,
    pub width_px: u32,
    pub height_px: u32,
    /// `width_px * height_px` times red, green, blue, rows from the top.
    pub rgb: Vec<u8>,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Image({:032x}, {} x {} px, {:?})", self.key.get(), self.width_px, self.height_px, self.grid)
    }
}

/// What the vision encoder makes of an image: a row of `n_embd` numbers for each of its tokens, in
/// raster order.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedding {
    pub grid: Grid,
    pub n_embd: usize,
    /// `grid.n_tokens() * n_embd` of them.
    pub floats: Vec<f32>,
}

impl Embedding {
    pub fn row(&self, index: u32) -> Option<&[f32]> {
        self.floats.chunks_exact(self.n_embd.max(1)).nth(index as usize)
    }

    pub fn bytes(&self) -> u64 {
        (self.floats.len() * size_of::<f32>()) as u64
    }
}

/// One token of an image in a prompt. All rows of an image follow each other, `index` from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ImageRow {
    pub key: ImageKey,
    pub grid: Grid,
    pub index: u32,
}

impl ImageRow {
    /// All rows of an image.
    pub fn all(key: ImageKey, grid: Grid) -> impl Iterator<Item = ImageRow> {
        (0..grid.n_tokens() as u32).map(move |index| ImageRow { key, grid, index })
    }

    /// Row and column in the image.
    pub fn place(self) -> (u32, u32) {
        let nx = u32::from(self.grid.nx).max(1);
        (self.index / nx, self.index % nx)
    }

    pub fn is_last(self) -> bool {
        self.index as usize + 1 == self.grid.n_tokens()
    }
}

/// What the vision encoder takes. `None` in `RunnerFacts`: it has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VisionFacts {
    /// Pixels of one token's side (patch size times merge): 32 for `qwen3vl_merger`.
    pub token_px: u32,
    /// Tokens of the smallest and the largest image; others are resized.
    pub min_tokens: u32,
    pub max_tokens: u32,
}
