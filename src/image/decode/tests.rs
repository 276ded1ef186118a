//! Every kind, every cut, every lie in a header. The files of `tests/images` show red beside blue, 24 x 16 pixels.

use image::{ExtendedColorType, ImageEncoder};
use proptest::prelude::*;

use super::super::error::Fault;
use super::*;

const LIMITS: Limits = Limits { bytes: 1 << 20, side: 16_384, pixels: 50_000_000 };

macro_rules! files {
    ($($name:literal),+ $(,)?) => { [$(($name, include_bytes!(concat!("../../../tests/pictures/", $name)))),+] };
}

const FILES: [(&str, &[u8]); 14] = files![
    "progressive.jpg",
    "optimised.jpg",
    "cmyk.jpg",
    "grey.jpg",
    "lossy.webp",
    "lossless.webp",
    "alpha.webp",
    "animated.webp",
    "animated.gif",
    "still.gif",
    "palette.png",
    "bits.png",
    "rgb.bmp",
    "palette.bmp",
];

fn file(name: &str) -> &'static [u8] {
    FILES.iter().find(|(file, _)| *file == name).unwrap().1
}

fn decode(bytes: &[u8]) -> Result<Rgb, ImageRefusal> {
    Probe::read(bytes, &LIMITS)?.decode()
}

fn pixel(image: &Rgb, x: u32, y: u32) -> [u8; 3] {
    let at = ((y * image.width + x) * 3) as usize;
    image.data[at..at + 3].try_into().unwrap()
}

/// Within what JPEG does to a colour.
fn near(a: [u8; 3], b: [u8; 3]) -> bool {
    a.iter().zip(b).all(|(a, b)| a.abs_diff(b) <= 12)
}

fn png(width: u32, height: u32, data: &[u8], colour: ExtendedColorType) -> Vec<u8> {
    let mut out = Vec::new();
    image::codecs::png::PngEncoder::new(&mut out).write_image(data, width, height, colour).unwrap();
    out
}

fn jpeg(width: u32, height: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let data = vec![200; (width * height * 3) as usize];
    image::codecs::jpeg::JpegEncoder::new(&mut out).write_image(&data, width, height, ExtendedColorType::Rgb8).unwrap();
    out
}

#[test]
fn every_kind_shows_red_beside_blue() {
    for (name, bytes) in FILES {
        let image = decode(bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!((image.width, image.height, image.data.len()), (24, 16, 24 * 16 * 3), "{name}");
        let (left, right) = (pixel(&image, 2, 15), pixel(&image, 21, 15));
        match name {
            "grey.jpg" | "bits.png" => assert!(left[0] == left[1] && left[1] == left[2], "{name}: {left:?}"),
            _ => assert!(near(left, [255, 0, 0]) && near(right, [0, 0, 255]), "{name}: {left:?} {right:?}"),
        }
    }
}

#[test]
fn alpha_is_laid_over_white() {
    let image = decode(file("alpha.webp")).unwrap();
    assert!(near(pixel(&image, 2, 0), [255, 240, 240]), "{:?}", pixel(&image, 2, 0));
    let rgba = png(3, 1, &[0, 0, 0, 0, 0, 0, 0, 255, 10, 20, 30, 128], ExtendedColorType::Rgba8);
    assert_eq!(decode(&rgba).unwrap().data, [255, 255, 255, 0, 0, 0, 132, 137, 142]);
    let grey = png(2, 1, &[9, 0, 9, 255], ExtendedColorType::La8);
    assert_eq!(decode(&grey).unwrap().data, [255, 255, 255, 9, 9, 9]);
}

#[test]
fn sixteen_bits_and_grey_become_eight_bits_of_colour() {
    let deep: Vec<u8> = [0xFFFF_u16, 0x8080, 0].iter().flat_map(|v| v.to_ne_bytes()).collect();
    assert_eq!(decode(&png(1, 1, &deep, ExtendedColorType::Rgb16)).unwrap().data, [255, 128, 0]);
    assert_eq!(decode(&png(1, 1, &deep[2..4], ExtendedColorType::L16)).unwrap().data, [128; 3]);
    assert_eq!(decode(&png(2, 1, &[7, 200], ExtendedColorType::L8)).unwrap().data, [7, 7, 7, 200, 200, 200]);
}

/// The orientation as a camera writes it, put behind the first mark of a JPEG.
fn turned(orientation: u8) -> Vec<u8> {
    let exif = [
        b"\xFF\xE1\0\x22Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".as_slice(),
        &[orientation],
        b"\0\0\0\0\0\0",
    ]
    .concat();
    let plain = file("optimised.jpg");
    [&plain[..2], &exif, &plain[2..]].concat()
}

#[test]
fn images_are_turned_as_the_camera_was() {
    let (red, blue) = ([255, 0, 0], [0, 0, 255]);
    // Where red is: left, right, right, left, then above and below of images on their side.
    for (orientation, red_first) in
        [(1, true), (2, false), (3, false), (4, true), (5, true), (6, true), (7, false), (8, false)]
    {
        let image = decode(&turned(orientation)).unwrap();
        let (size, last) = if orientation < 5 { ((24, 16), (21, 8)) } else { ((16, 24), (8, 21)) };
        assert_eq!((image.width, image.height), size, "{orientation}");
        let expected = if red_first { (red, blue) } else { (blue, red) };
        let found = (pixel(&image, 2, 2), pixel(&image, last.0, last.1));
        assert!(near(found.0, expected.0) && near(found.1, expected.1), "{orientation}: {found:?}");
    }
    for orientation in [0, 9, 255] {
        assert_eq!(decode(&turned(orientation)).unwrap().width, 24, "a note without meaning changes nothing");
    }
}

/// A cut file would be grey below the cut, and the model would describe that.
#[test]
fn a_file_that_is_cut_anywhere_is_an_error() {
    for (name, bytes) in FILES {
        for n in 0..bytes.len() {
            let told = decode(&bytes[..n]).err().unwrap_or_else(|| panic!("{name} cut at {n} of {}", bytes.len()));
            assert_ne!(told.fault, Fault::NotFetched, "{name} at {n}");
        }
        let longer = [bytes, b"trailing"].concat();
        assert!(decode(&longer).is_ok(), "{name}: what stands behind an image does not matter");
    }
    let large = jpeg(640, 480);
    for n in (0..large.len()).step_by(97) {
        assert!(decode(&large[..n]).is_err(), "a JPEG cut at {n}");
    }
}

fn crc(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _: i32| if crc & 1 == 1 { 0xEDB8_8320 ^ (crc >> 1) } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// A PNG with a whole, valid header of any size, and little data.
fn claiming(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = png(1, 1, &[0, 0, 0], ExtendedColorType::Rgb8);
    bytes[16..20].copy_from_slice(&width.to_be_bytes());
    bytes[20..24].copy_from_slice(&height.to_be_bytes());
    let sum = crc(&bytes[12..29]);
    bytes[29..33].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// Field report: a file of 300 bytes that claims 20000 x 20000 pixels took gigabytes.
#[test]
fn a_header_that_lies_costs_nothing() {
    for (width, height, fault) in [
        (20_000, 20_000, Fault::TooLarge),
        (16_384, 16_384, Fault::TooLarge),
        (1, 16_385, Fault::TooLarge),
        (0x7FFF_FFFF, 0x7FFF_FFFF, Fault::TooLarge),
        (0x7FFF_FFFF, 1, Fault::TooLarge),
        (0, 5, Fault::Invalid),
        (7000, 7000, Fault::Invalid),
    ] {
        let bytes = claiming(width, height);
        assert!(bytes.len() < 300);
        let told = decode(&bytes).unwrap_err();
        assert_eq!(told.fault, fault, "{width} x {height}: {told}");
    }
    let mut gif = file("still.gif").to_vec();
    gif[6..10].fill(0xFF);
    assert_eq!(decode(&gif).unwrap_err().fault, Fault::TooLarge);
    let mut bmp = file("rgb.bmp").to_vec();
    bmp[18..22].copy_from_slice(&60_000_u32.to_le_bytes());
    let told = decode(&bmp).unwrap_err();
    assert_eq!(told.fault, Fault::TooLarge, "{told}");
    // The decoder has a limit of its own, and says so.
    bmp[18..22].copy_from_slice(&0x7FFF_0000_u32.to_le_bytes());
    let told = decode(&bmp).unwrap_err();
    assert!(told.message.contains("too large"), "{told}");
    let mut jpg = jpeg(8, 8);
    let size = jpg.windows(2).position(|mark| mark == b"\xFF\xC0").unwrap() + 5;
    jpg[size..size + 4].fill(0xFF);
    let told = decode(&jpg).unwrap_err();
    assert_eq!(told.fault, Fault::TooLarge, "{told}");
}

#[test]
fn limits_hold_to_the_pixel() {
    let bytes = png(10, 4, &[0; 120], ExtendedColorType::Rgb8);
    let read = |limits: Limits| Probe::read(&bytes, &limits).map(|probe| probe.n_pixels());
    let exact = Limits { bytes: bytes.len() as u64, side: 10, pixels: 40 };
    assert_eq!(read(exact), Ok(40));
    for limits in
        [Limits { bytes: exact.bytes - 1, ..exact }, Limits { side: 9, ..exact }, Limits { pixels: 39, ..exact }]
    {
        assert_eq!(read(limits).unwrap_err().fault, Fault::TooLarge);
    }
}

#[test]
fn extreme_shapes_are_images_too() {
    for (width, height) in [(1, 1), (1, 16_000), (16_000, 1), (1, 4000), (4000, 1)] {
        let data = vec![120; (width * height * 3) as usize];
        let image = decode(&png(width, height, &data, ExtendedColorType::Rgb8)).unwrap();
        assert_eq!((image.width, image.height, image.data), (width, height, data));
    }
    assert!(decode(&jpeg(1, 1)).is_ok() && decode(&jpeg(1, 4000)).is_ok() && decode(&jpeg(4000, 1)).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Bounded by pixels and memory whatever the bytes say.
    #[test]
    fn no_change_of_a_file_makes_a_decoder_panic_or_hang(
        which in 0..FILES.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = FILES[which].1.to_vec();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let limits = Limits { pixels: 1_000_000, ..LIMITS };
        if let Ok(image) = Probe::read(&bytes, &limits).and_then(Probe::decode) {
            prop_assert_eq!(image.data.len() as u64, u64::from(image.width) * u64::from(image.height) * 3);
        }
    }

    #[test]
    fn no_bytes_behind_a_magic_make_a_decoder_panic(
        magic in prop::sample::select(vec![
            &b"\x89PNG\r\n\x1a\n"[..], b"\xFF\xD8\xFF", b"RIFF\x40\0\0\0WEBPVP8 ", b"RIFF\x40\0\0\0WEBPVP8L", b"GIF89a", b"BM",
        ]),
        bytes in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let _ = decode(&[magic, &bytes].concat());
    }
}
