//! What a file is, told by its first bytes and never by a label.

use super::error::ImageRefusal;

/// Kinds that are decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Png,
    Jpeg,
    WebP,
    Gif,
    Bmp,
}

/// For messages.
pub const TAKEN: &str = "PNG, JPEG, WebP, GIF and BMP are taken";

impl Kind {
    pub const ALL: [Kind; 5] = [Kind::Png, Kind::Jpeg, Kind::WebP, Kind::Gif, Kind::Bmp];

    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Png => "png",
            Kind::Jpeg => "jpeg",
            Kind::WebP => "webp",
            Kind::Gif => "gif",
            Kind::Bmp => "bmp",
        }
    }

    pub(super) fn format(self) -> image::ImageFormat {
        match self {
            Kind::Png => image::ImageFormat::Png,
            Kind::Jpeg => image::ImageFormat::Jpeg,
            Kind::WebP => image::ImageFormat::WebP,
            Kind::Gif => image::ImageFormat::Gif,
            Kind::Bmp => image::ImageFormat::Bmp,
        }
    }

    /// # Errors
    /// Names what the file is instead.
    pub fn of(bytes: &[u8]) -> Result<Kind, ImageRefusal> {
        let begins = |magic: &[u8]| bytes.starts_with(magic);
        let riff = |kind: &[u8]| begins(b"RIFF") && bytes.get(8..12) == Some(kind);
        if begins(b"\x89PNG\r\n\x1a\n") {
            return Ok(Kind::Png);
        }
        if begins(b"\xFF\xD8\xFF") {
            return Ok(Kind::Jpeg);
        }
        if riff(b"WEBP") {
            return Ok(Kind::WebP);
        }
        if begins(b"GIF87a") || begins(b"GIF89a") {
            return Ok(Kind::Gif);
        }
        // Two letters are little: the size of a header that there is must follow.
        if begins(b"BM")
            && bytes.get(14..18).is_some_and(|size| matches!(size, [12 | 40 | 52 | 56 | 64 | 108 | 124, 0, 0, 0]))
        {
            return Ok(Kind::Bmp);
        }
        let found = foreign(bytes).unwrap_or("not an image of a known kind");
        Err(ImageRefusal::invalid(format!("the data is {found}; {TAKEN}")))
    }
}

/// What else people send.
fn foreign(bytes: &[u8]) -> Option<&'static str> {
    if bytes.is_empty() {
        return Some("empty");
    }
    if let Some(brand) = bytes.get(4..12).and_then(|head| head.strip_prefix(b"ftyp")) {
        return Some(match brand {
            b"avif" | b"avis" => "AVIF",
            b"heic" | b"heix" | b"heim" | b"heis" | b"hevc" | b"hevx" | b"mif1" | b"msf1" => "HEIC (HEIF)",
            _ => "a video",
        });
    }
    let magics: [(&[u8], &str); 16] = [
        (b"II*\0", "TIFF"),
        (b"MM\0*", "TIFF"),
        (b"II+\0", "TIFF"),
        (b"%PDF", "PDF"),
        (b"\xFF\x0A", "JPEG XL"),
        (b"\0\0\0\x0CJXL ", "JPEG XL"),
        (b"\0\0\0\x0CjP  ", "JPEG 2000"),
        (b"\0\0\x01\0", "an icon (ICO)"),
        (b"8BPS", "a Photoshop file"),
        (b"RIFF", "a RIFF file other than WebP"),
        (b"\x1A\x45\xDF\xA3", "a video"),
        (b"PK\x03\x04", "a zip archive"),
        (b"\x1F\x8B", "gzip"),
        (b"\x89PNG", "a PNG file altered by a text conversion"),
        (b"GIF8", "a GIF file of an unknown version"),
        (b"BM", "a BMP file with an unknown header"),
    ];
    if let Some((_, name)) = magics.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return Some(name);
    }
    text(bytes)
}

fn text(bytes: &[u8]) -> Option<&'static str> {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(1024)]).to_ascii_lowercase();
    let head = head.trim_start_matches(['\u{FEFF}', ' ', '\t', '\r', '\n']);
    if head.contains("<svg") {
        return Some("SVG");
    }
    if head.starts_with("<!doctype html") || head.starts_with("<html") {
        return Some("a web page");
    }
    let is_text = !head.is_empty() && !head.contains(char::REPLACEMENT_CHARACTER);
    (is_text && head.chars().all(|c| !c.is_control() || c.is_ascii_whitespace())).then_some("text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_are_not_taken_are_named() {
        for (bytes, name) in [
            (&b""[..], "empty"),
            (b"\0\0\0\x18ftypheic\0\0\0\0", "HEIC"),
            (b"\0\0\0\x18ftypmif1", "HEIC"),
            (b"\0\0\0\x1Cftypavif", "AVIF"),
            (b"\0\0\0\x18ftypmp42", "a video"),
            (b"<?xml version='1.0'?>\n<svg xmlns=", "SVG"),
            (b"\xEF\xBB\xBF <SVG>", "SVG"),
            (b"II*\0\x08", "TIFF"),
            (b"MM\0*\0", "TIFF"),
            (b"%PDF-1.7", "PDF"),
            (b"RIFF\x10\0\0\0AVI ", "RIFF"),
            (b"RIFF", "RIFF"),
            (b"<!DOCTYPE HTML><p>", "a web page"),
            (b"{\"error\": 404}", "text"),
            (b"BMP is a format", "BMP file with an unknown header"),
            (b"\x00\x01\x02\x03", "not an image"),
        ] {
            let told = Kind::of(bytes).unwrap_err().message;
            assert!(told.contains(name) && told.contains("WebP, GIF and BMP are taken"), "{told}");
        }
    }
}
