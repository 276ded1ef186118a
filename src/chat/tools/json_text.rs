//! JSON string text, written piece by piece. Every character is escaped on its own, so pieces join
//! at any place.

/// Appends `text` as the inside of a JSON string.
pub fn escape_into(json: &mut String, text: &str) {
    let mut plain = 0;
    for (i, byte) in text.bytes().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        // The byte is ASCII, so both sides of it are character borders.
        json.push_str(&text[plain..i]);
        plain = i + 1;
        match byte {
            b'"' => json.push_str("\\\""),
            b'\\' => json.push_str("\\\\"),
            b'\n' => json.push_str("\\n"),
            b'\r' => json.push_str("\\r"),
            b'\t' => json.push_str("\\t"),
            other => {
                json.push_str("\\u00");
                json.extend([other >> 4, other & 15].map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)])));
            }
        }
    }
    json.push_str(&text[plain..]);
}

/// Appends `text` as a whole JSON string.
pub fn quote_into(json: &mut String, text: &str) {
    json.push('"');
    escape_into(json, text);
    json.push('"');
}
