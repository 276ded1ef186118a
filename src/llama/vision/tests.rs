//! Against mtmd's own reading of files and its own rule of sizes: what our decoder and our rule
//! give it must be what it would have made of the file itself. Its reader runs here alone.

use image::codecs::{jpeg::JpegEncoder, png::PngEncoder};
use image::{ExtendedColorType, ImageEncoder};

use super::*;
use crate::engine::{Grid, ImageKey};
use crate::image::{Limits, Probe, Rgb, Rule, Tokens};

const LIMITS: Limits = Limits { bytes: 1 << 26, side: 16_384, pixels: 50_000_000 };

/// Sides in pixels: below, at and above whole tokens, long and thin, shrunk and enlarged ones.
const SIZES: [(u32, u32); 20] = [
    (1, 1),
    (2, 90),
    (17, 16),
    (31, 33),
    (32, 32),
    (47, 48),
    (64, 64),
    (65, 200),
    (96, 96),
    (100, 75),
    (112, 80),
    (127, 129),
    (160, 96),
    (199, 211),
    (224, 224),
    (256, 320),
    (300, 9),
    (333, 77),
    (401, 399),
    (640, 480),
];

fn vision_encoder() -> Vision {
    let mut profile = Profile::demo();
    profile.model.gpu_layers = Some(0);
    let model = Model::load(&profile.model, &mut |_| true).unwrap();
    Vision::load(&profile, &model).unwrap().unwrap()
}

/// Slopes, edges and some noise, so that a decoder has something to round.
fn drawn(width: u32, height: u32) -> Rgb {
    let mut noise = 1u32;
    let pixel = |i: u32| {
        let (x, y) = (i % width, i / width);
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let inside = (x / 24 + y / 24).is_multiple_of(2);
        let base = if inside { [200, 40, x % 200] } else { [y % 180, 120, 60] };
        base.map(|colour| (colour + (noise >> 24) % 16) as u8)
    };
    Rgb { width, height, data: (0..width * height).flat_map(pixel).collect() }
}

fn png(image: &Rgb) -> Vec<u8> {
    let mut file = Vec::new();
    let encoder = PngEncoder::new(&mut file);
    encoder.write_image(&image.data, image.width, image.height, ExtendedColorType::Rgb8).unwrap();
    file
}

fn jpeg(image: &Rgb) -> Vec<u8> {
    let mut file = Vec::new();
    let encoder = JpegEncoder::new_with_quality(&mut file, 90);
    encoder.write_image(&image.data, image.width, image.height, ExtendedColorType::Rgb8).unwrap();
    file
}

fn ours(file: &[u8]) -> Rgb {
    Probe::read(file, &LIMITS).unwrap().decode().unwrap()
}

fn theirs(file: &[u8]) -> Rgb {
    // SAFETY: the file outlives the call; without audio no context is looked at; the bitmap is read
    // before it is freed, and has as many bytes as it says.
    unsafe {
        let options = ffi::mtmd_helper_init_opt_default();
        let read =
            ffi::mtmd_helper_bitmap_init_from_buf(std::ptr::null(), file.as_ptr(), file.len(), false, options).bitmap;
        assert!(!read.is_null(), "mtmd cannot read the file");
        let n_bytes = ffi::mtmd_bitmap_get_n_bytes(read);
        let data = std::slice::from_raw_parts(ffi::mtmd_bitmap_get_data(read), n_bytes).to_vec();
        let (width, height) = (ffi::mtmd_bitmap_get_nx(read), ffi::mtmd_bitmap_get_ny(read));
        ffi::mtmd_bitmap_free(read);
        Rgb { width, height, data }
    }
}

fn rule(facts: &VisionFacts) -> Rule {
    Rule { token_px: facts.token_px, min_tokens: facts.min_tokens, max_tokens: facts.max_tokens }
}

fn encode(vision: &mut Vision, image: Rgb) -> Vec<f32> {
    let Tokens { nx, ny } = rule(&vision.facts).tokens(image.width, image.height);
    let grid = Grid { nx: nx as u16, ny: ny as u16 };
    let Rgb { width, height, data } = image;
    let image = Image { key: ImageKey::new(0), grid, width_px: width, height_px: height, rgb: data };
    vision.encode(&image).unwrap().floats
}

/// Square of the difference over the square of the second.
fn error(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let square = |x: f32| f64::from(x) * f64::from(x);
    let off: f64 = a.iter().zip(b).map(|(a, b)| square(a - b)).sum();
    off / b.iter().copied().map(square).sum::<f64>()
}

#[test]
fn embeddings_are_those_of_mtmds_own_reading_of_png_and_jpeg() {
    let mut vision = vision_encoder();
    let mut worst = (0u8, 0.0f64);
    for (width, height) in SIZES {
        let image = drawn(width, height);
        let file = png(&image);
        assert!(ours(&file) == image && theirs(&file) == image, "{width} x {height} as PNG");
        let file = jpeg(&image);
        let (a, b) = (ours(&file), theirs(&file));
        let off = a.data.iter().zip(&b.data).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
        let (a, b) = (encode(&mut vision, a), encode(&mut vision, b));
        worst = (worst.0.max(off), worst.1.max(error(&a, &b)));
    }
    println!("JPEG: colours at most {} of 255 apart, embeddings {:.1e} NMSE", worst.0, worst.1);
    assert!(worst.0 <= 4 && worst.1 <= 1e-3, "{worst:?}");
}

/// The size that mtmd makes of an image, without encoding it: a promise that cannot be kept is
/// answered with the truth.
fn their_grid(vision: &Vision, image: &Rgb) -> (u32, u32) {
    let mut grid = [0u32, 0];
    let vision_encoder = vision.vision_encoder.as_ref().unwrap();
    // SAFETY: the encoder is alive, pixels and grid outlive the call, and nothing is encoded, so no
    // floats are written.
    let code = unsafe {
        ffi::plateau_vision_encoder_encode(
            vision_encoder.raw.as_ptr(),
            image.width,
            image.height,
            image.data.as_ptr(),
            grid.as_mut_ptr(),
            std::ptr::null_mut(),
            0,
        )
    };
    assert_eq!(code, OTHER_GRID);
    (grid[0], grid[1])
}

#[test]
fn the_rule_of_sizes_is_that_of_mtmd() {
    let vision = vision_encoder();
    let rule = rule(&vision.facts);
    let mut state = 7u32;
    let mut below = |n: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        1 + (state >> 8) % n
    };
    let random: Vec<(u32, u32)> =
        (0..300).map(|i| (below([40, 400, 3000][i % 3]), below([40, 400, 3000, 60][i % 4]))).collect();
    let edges = [(4000, 1), (1, 4000), (2064, 2048), (2100, 2048), (16, 16_000), (48, 80), (2500, 2500)];
    for (width, height) in SIZES.into_iter().chain(random).chain(edges) {
        let image = Rgb { width, height, data: vec![90; 3 * (width * height) as usize] };
        let Tokens { nx, ny } = rule.tokens(width, height);
        assert_eq!((nx, ny), their_grid(&vision, &image), "{width} x {height}");
    }
}
