//! `data:` URIs and base64, in every spelling that clients send: RFC 2397 without a media type, with parameters, in capitals,
//! percent-encoded instead of base64; base64 with line breaks, in the URL-safe alphabet, without padding.
//!
//! What the URI says about the kind of image is not looked at: the bytes say it.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use percent_encoding::percent_decode;

use super::error::ImageRefusal;

const SCHEME: &str = "data:";
const BASE64: &str = "base64";

/// Leftover bits of the last character are not looked at: several encoders leave them set.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Does `text` begin as a data URI.
pub fn is_data_uri(text: &str) -> bool {
    text.get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME))
}

/// The bytes of a data URI.
///
/// # Errors
/// It has no comma, is not base64 where it says so, is empty, or holds more than `max_bytes`.
pub fn read(uri: &str, max_bytes: u64) -> Result<Vec<u8>, ImageRefusal> {
    let rest = uri.get(SCHEME.len()..).unwrap_or_default();
    let Some((head, body)) = rest.split_once(',') else {
        return Err(ImageRefusal::invalid(
            "the data URI has no comma before its data; write data:image/png;base64,...",
        ));
    };
    let base64 = head.rsplit(';').next().is_some_and(|last| last.trim().eq_ignore_ascii_case(BASE64));
    match (base64, body.contains('%')) {
        // A line break or a plus sign of base64 may be percent-encoded.
        (true, true) => decode(&percent_decode(body.as_bytes()).collect::<Vec<u8>>(), max_bytes),
        (true, false) => decode(body.as_bytes(), max_bytes),
        (false, _) => {
            let most = usize::try_from(max_bytes).unwrap_or(usize::MAX);
            let bytes: Vec<u8> = percent_decode(body.as_bytes()).take(most.saturating_add(1)).collect();
            bounded(bytes, max_bytes)
        }
    }
}

/// The bytes of bare base64, without a URI around it.
///
/// # Errors
/// As `read`.
pub fn read_base64(text: &str, max_bytes: u64) -> Result<Vec<u8>, ImageRefusal> {
    decode(text.as_bytes(), max_bytes)
}

fn decode(text: &[u8], max_bytes: u64) -> Result<Vec<u8>, ImageRefusal> {
    let mut clean = Vec::with_capacity(text.len());
    clean.extend(text.iter().filter(|byte| !byte.is_ascii_whitespace()).map(|byte| match byte {
        b'-' => b'+',
        b'_' => b'/',
        other => *other,
    }));
    // Before anything of that size is made.
    if clean.len() as u64 / 4 * 3 > max_bytes.saturating_add(2) {
        return Err(ImageRefusal::too_long(max_bytes));
    }
    let bytes = LENIENT
        .decode(&clean)
        .map_err(|error| ImageRefusal::invalid(format!("the data is not base64 ({error}, blanks not counted)")))?;
    bounded(bytes, max_bytes)
}

fn bounded(bytes: Vec<u8>, max_bytes: u64) -> Result<Vec<u8>, ImageRefusal> {
    if bytes.is_empty() {
        return Err(ImageRefusal::invalid("there is no data in it"));
    }
    if bytes.len() as u64 > max_bytes {
        return Err(ImageRefusal::too_long(max_bytes));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::error::Fault;
    use super::*;

    #[test]
    fn every_spelling_of_the_same_bytes_is_read() {
        // fb ff fe is "+//+" in the standard alphabet: every character that differs between the two.
        for uri in [
            "data:image/png;base64,+//+",
            "data:image/png;base64,-__-",
            "data:;base64,+//+",
            "data:base64,+//+",
            "DATA:IMAGE/PNG;BASE64,+//+",
            "data:image/png;charset=utf-8;name=\"a;b\";base64,+//+",
            "data:image/png; base64 ,+//+",
            "data:image/png;base64,%2B%2F%2f+",
            "data:image/png;base64, +/\r\n /+\t",
            "data:image/png;base64,+/%0A/+",
            "data:,%fb%ff%FE",
            "data:application/octet-stream,%fb%ff%fe",
        ] {
            assert_eq!(read(uri, 100).as_deref(), Ok(&[0xFB, 0xFF, 0xFE][..]), "{uri}");
        }
        for text in ["QQ==", "QQ", "QQ=", "QR=="] {
            assert_eq!(read_base64(text, 100).as_deref(), Ok(&b"A"[..]), "{text}");
        }
    }

    #[test]
    fn what_is_not_base64_says_so() {
        for uri in [
            "data:image/png;base64",
            "data:;base64,Q!==",
            "data:;base64,QQ==QQ==",
            "data:;base64,Q",
            "data:,",
            "data:;base64,",
        ] {
            assert_eq!(read(uri, 100).unwrap_err().fault, Fault::Invalid, "{uri}");
        }
    }

    #[test]
    fn a_limit_holds_to_the_byte() {
        let text = LENIENT.encode([7u8; 10]);
        for uri in [format!("data:;base64,{text}"), format!("data:,{}", "%07".repeat(10))] {
            assert_eq!(read(&uri, 10).map(|bytes| bytes.len()), Ok(10));
            assert_eq!(read(&uri, 9).unwrap_err().fault, Fault::TooLarge);
        }
        assert_eq!(read_base64(&"A".repeat(1 << 20), 100).unwrap_err().fault, Fault::TooLarge);
    }

    proptest! {
        #[test]
        fn whatever_was_encoded_is_read_back(bytes in prop::collection::vec(any::<u8>(), 1..200), cut in 1_usize..20) {
            let text = LENIENT.encode(&bytes);
            let broken: Vec<String> = text.as_bytes().chunks(cut).map(|c| String::from_utf8_lossy(c).into_owned()).collect();
            let safe = text.replace('+', "-").replace('/', "_");
            for uri in [
                format!("data:image/webp;base64,{text}"),
                format!("data:;base64,{}", broken.join("\n")),
                format!("data:;base64,{}", safe.trim_end_matches('=')),
            ] {
                prop_assert_eq!(read(&uri, 1000).unwrap(), bytes.clone());
            }
            let percent: String = bytes.iter().map(|byte| format!("%{byte:02x}")).collect();
            prop_assert_eq!(read(&format!("data:,{percent}"), 1000).unwrap(), bytes);
        }

        #[test]
        fn no_text_makes_it_panic(text in "(data:|DATA:)?[ -~]{0,60}") {
            let _ = (read(&text, 50), read_base64(&text, 50));
        }
    }
}
