//! From the bytes of a file to pixels, within limits that are checked before anything is decoded.
//!
//! Alpha is laid over white, which is what pages and viewers show transparent images on: over black, a diagram of black lines
//! would be gone. Colour profiles are not looked at. Of an animation the first image is taken.

use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};

use image::error::{ImageError, LimitErrorKind};
use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageReader};

use super::error::ImageRefusal;
use super::kind::Kind;
use super::pixels::Rgb;
use super::whole::is_whole;

/// What decoders need beside pixels: tables, rows, palettes.
const SPARE_BYTES: u64 = 32 << 20;
/// Bytes of a pixel in the largest format, 16 bits of red, green, blue and alpha, and once more for what it is turned into.
const BYTES_PER_PIXEL: u64 = 16;

/// Bounds of one image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of its file.
    pub bytes: u64,
    /// The longer of its sides.
    pub side: u32,
    pub pixels: u64,
}

/// An image of which the header was read.
#[derive(Clone, Copy, Debug)]
pub struct Probe<'a> {
    bytes: &'a [u8],
    kind: Kind,
    width: u32,
    height: u32,
}

impl<'a> Probe<'a> {
    /// Reads the header and checks what it claims.
    ///
    /// # Errors
    /// Not an image of a kind that is taken, not a whole file, or larger than a limit.
    pub fn read(bytes: &'a [u8], limits: &Limits) -> Result<Probe<'a>, ImageRefusal> {
        if bytes.len() as u64 > limits.bytes {
            return Err(ImageRefusal::too_long(limits.bytes));
        }
        let kind = Kind::of(bytes)?;
        let (width, height) = guarded(kind, || Ok(decoder(kind, bytes, SPARE_BYTES)?.dimensions()))?;
        let pixels = u64::from(width) * u64::from(height);
        if pixels == 0 {
            return Err(ImageRefusal::invalid(format!(
                "the image is {width} x {height} pixels: there is nothing to see"
            )));
        }
        if width.max(height) > limits.side {
            let Limits { side, .. } = limits;
            let message = format!("the image is {width} x {height} pixels, a side may have {side} (`images.max_side`)");
            return Err(ImageRefusal::too_large(message));
        }
        if pixels > limits.pixels {
            let most = limits.pixels;
            let message =
                format!("the image is {width} x {height} = {pixels} pixels, {most} are taken (`images.max_pixels`)");
            return Err(ImageRefusal::too_large(message));
        }
        if !is_whole(kind, bytes) {
            return Err(ImageRefusal::invalid(format!("the {} file is cut off: its end is missing", kind.as_str())));
        }
        Ok(Probe { bytes, kind, width, height })
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub fn n_pixels(&self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }

    /// Decodes, turns as the camera says, and lays over white.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn decode(self) -> Result<Rgb, ImageRefusal> {
        let memory = self.n_pixels().saturating_mul(BYTES_PER_PIXEL).saturating_add(SPARE_BYTES);
        let decode = || {
            let mut decoder = decoder(self.kind, self.bytes, memory)?;
            // A camera's note that cannot be read is no reason to see nothing.
            let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
            let mut image = DynamicImage::from_decoder(decoder)?;
            image.apply_orientation(orientation);
            Ok(over_white(image))
        };
        guarded(self.kind, decode)
    }
}

fn decoder(kind: Kind, bytes: &[u8], memory: u64) -> Result<impl ImageDecoder + '_, ImageError> {
    let mut reader = ImageReader::with_format(Cursor::new(bytes), kind.format());
    let mut limits = image::Limits::no_limits();
    limits.max_alloc = Some(memory);
    reader.limits(limits);
    reader.into_decoder()
}

/// A decoder that panics is one that cannot read the file; the fault is in a library, and the request is not to pay with 500.
fn guarded<T>(kind: Kind, work: impl FnOnce() -> Result<T, ImageError>) -> Result<T, ImageRefusal> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(damaged(kind, &error)),
        Err(_) => Err(ImageRefusal::invalid(format!("the {} file is damaged", kind.as_str()))),
    }
}

fn damaged(kind: Kind, error: &ImageError) -> ImageRefusal {
    let kind = kind.as_str();
    match error {
        ImageError::Limits(limit) if limit.kind() == LimitErrorKind::InsufficientMemory => {
            ImageRefusal::too_large(format!("the {kind} file asks for more memory than its size explains"))
        }
        ImageError::Unsupported(_) => ImageRefusal::invalid(format!("this variant of {kind} is not taken: {error}")),
        _ => ImageRefusal::invalid(format!("the {kind} file is damaged: {error}")),
    }
}

/// 16 bits become 8, grey becomes colour, alpha is laid over white.
fn over_white(image: DynamicImage) -> Rgb {
    let (width, height) = (image.width(), image.height());
    if !image.color().has_alpha() {
        return Rgb { width, height, data: image.into_rgb8().into_raw() };
    }
    let pixels = image.into_rgba8().into_raw();
    let mut data = Vec::with_capacity(pixels.len() / 4 * 3);
    for pixel in pixels.chunks_exact(4) {
        let alpha = u32::from(pixel[3]);
        let blend = |colour: u8| ((u32::from(colour) * alpha + 255 * (255 - alpha) + 127) / 255) as u8;
        data.extend(pixel[..3].iter().map(|colour| blend(*colour)));
    }
    Rgb { width, height, data }
}

#[cfg(test)]
mod tests;
