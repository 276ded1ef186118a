//! Decoded pixels: their size, their hash, smaller ones of them.

use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use xxhash_rust::xxh3::Xxh3;

use super::error::ImageRefusal;

/// `width * height` times red, green, blue, rows from the top.
#[derive(Clone, PartialEq, Eq)]
pub struct Rgb {
    pub width: u32,
    pub height: u32,
    pub data: Vec<u8>,
}

impl std::fmt::Debug for Rgb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rgb({} x {})", self.width, self.height)
    }
}

impl Rgb {
    /// Equal images have equal hashes, whatever file they came in.
    pub fn hash(&self) -> u128 {
        let mut hash = Xxh3::new();
        hash.update(&self.width.to_le_bytes());
        hash.update(&self.height.to_le_bytes());
        hash.update(&self.data);
        hash.digest128()
    }

    /// Resized with the filter that the encoder's own preprocessing resizes with, so that an image that is shrunk here looks to
    /// the model like one that is shrunk there.
    ///
    /// # Errors
    /// A side of 0.
    pub fn resized(self, width: u32, height: u32) -> Result<Rgb, ImageRefusal> {
        if (width, height) == (self.width, self.height) {
            return Ok(self);
        }
        let fault = |what: String| ImageRefusal::invalid(format!("the image cannot be resized: {what}"));
        let source = ImageRef::new(self.width, self.height, &self.data, PixelType::U8x3);
        let source = source.map_err(|error| fault(error.to_string()))?;
        let mut out = Image::new(width, height, PixelType::U8x3);
        let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::CatmullRom));
        Resizer::new().resize(&source, &mut out, &options).map_err(|error| fault(error.to_string()))?;
        Ok(Rgb { width, height, data: out.into_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chequered(width: u32, height: u32) -> Rgb {
        let pixel =
            |i: u32| if (i % width / 8 + i / width / 8).is_multiple_of(2) { [255, 0, 10] } else { [0, 255, 20] };
        Rgb { width, height, data: (0..width * height).flat_map(pixel).collect() }
    }

    #[test]
    fn the_hash_tells_size_and_pixels_apart() {
        let image = chequered(16, 32);
        assert_eq!(image.hash(), chequered(16, 32).hash());
        let turned = Rgb { width: 32, height: 16, ..image.clone() };
        assert_ne!(turned.hash(), image.hash(), "the same bytes in another shape");
        let mut other = image.clone();
        other.data[700] ^= 1;
        assert_ne!(other.hash(), image.hash());
    }

    #[test]
    fn shrinking_keeps_the_colours_of_areas() {
        let small = chequered(64, 64).resized(16, 16).unwrap();
        assert_eq!((small.width, small.height, small.data.len()), (16, 16, 768));
        // 8 pixels became 2; the first is far enough from the edge to be nearly its colour.
        assert!(small.data[0] > 240 && small.data[1] < 15, "{:?}", &small.data[..3]);
        for (w, h) in [(1, 1), (1, 500), (500, 1)] {
            assert_eq!(chequered(64, 64).resized(w, h).unwrap().data.len(), (w * h * 3) as usize);
        }
    }
}
