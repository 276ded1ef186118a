//! Does a file go on to its end? Decoders stop at what they need and fill in what they miss: a cut JPEG would become grey
//! pixels. These walks look at the frame of a file alone; they read each byte once at most.

use super::kind::Kind;

/// Is the end mark of the file there. What stands behind it does not matter.
pub(super) fn is_whole(kind: Kind, bytes: &[u8]) -> bool {
    let walked = match kind {
        Kind::Png => png(bytes),
        Kind::Jpeg => jpeg(bytes),
        Kind::Gif => gif(bytes),
        Kind::WebP => webp(bytes),
        // Without an end mark; its decoder misses every pixel that is not there.
        Kind::Bmp => Some(()),
    };
    walked.is_some()
}

fn number(bytes: Option<&[u8]>) -> Option<usize> {
    bytes.map(|bytes| bytes.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)))
}

/// Chunks of length, name, data and checksum, up to `IEND`.
fn png(bytes: &[u8]) -> Option<()> {
    let mut at = 8;
    loop {
        let length = number(bytes.get(at..at + 4))?;
        let last = bytes.get(at + 4..at + 8)? == b"IEND";
        at = at.checked_add(length)?.checked_add(12)?;
        if at > bytes.len() {
            return None;
        }
        if last {
            return Some(());
        }
    }
}

/// Segments, and the coded data behind each `SOS`, up to `EOI`.
fn jpeg(bytes: &[u8]) -> Option<()> {
    let mut at = 2;
    loop {
        at += bytes.get(at..)?.iter().position(|byte| *byte == 0xFF)? + 1;
        match *bytes.get(at)? {
            0xD9 => return Some(()),
            // A fill byte, a coded FF, marks without a segment: also inside coded data.
            0xFF => {}
            0x00 | 0x01 | 0xD0..=0xD8 => at += 1,
            _ => {
                let length = number(bytes.get(at + 1..at + 3))?;
                at += 1 + length.max(2);
            }
        }
    }
}

/// The screen, then blocks of sub-blocks, up to the trailer.
fn gif(bytes: &[u8]) -> Option<()> {
    let table = |flags: u8| if flags & 0x80 == 0 { 0 } else { 3 << (usize::from(flags & 7) + 1) };
    let mut at = 13 + table(*bytes.get(10)?);
    loop {
        at = match *bytes.get(at)? {
            b';' => return Some(()),
            b'!' => sub_blocks(bytes, at + 2)?,
            b',' => sub_blocks(bytes, at + 11 + table(*bytes.get(at + 9)?))?,
            _ => return None,
        };
    }
}

/// The place behind a run of sub-blocks: each has its length in front, the last has none.
fn sub_blocks(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let length = usize::from(*bytes.get(at)?);
        at += 1 + length;
        if length == 0 {
            return Some(at);
        }
    }
}

/// The length stands at the beginning.
fn webp(bytes: &[u8]) -> Option<()> {
    let length = bytes.get(4..8)?.iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    (bytes.len() >= length.checked_add(8)?).then_some(())
}
