//! References inside one schema: JSON pointers and anchors. Nothing is fetched.

use serde_json::Value;

use super::join;
use crate::grammar::error::GrammarError;

/// The pointer and the schema that a reference at `at` means.
pub(super) fn resolve<'a>(root: &'a Value, reference: &str, at: &str) -> Result<(String, &'a Value), GrammarError> {
    let own = root.get("$id").or_else(|| root.get("id")).and_then(Value::as_str);
    let local = own.and_then(|own| reference.strip_prefix(own.trim_end_matches('#'))).unwrap_or(reference);
    let Some(fragment) = local.strip_prefix('#') else {
        let message =
            format!("the reference {reference:?} leads out of the schema, and nothing is fetched; copy it in");
        return Err(GrammarError::schema(at, message));
    };
    let fragment = percent_decoded(fragment);
    let found = if fragment.is_empty() {
        Some((String::new(), root))
    } else if fragment.starts_with('/') {
        // llguidance's own form of the root, `#/`, is taken as the standard takes it: a property without a name.
        root.pointer(&fragment).map(|value| (fragment.clone(), value))
    } else {
        anchor(root, &fragment, String::new(), 0)
    };
    found.ok_or_else(|| GrammarError::schema(at, format!("the reference {reference:?} leads nowhere")))
}

fn anchor<'a>(value: &'a Value, name: &str, pointer: String, depth: usize) -> Option<(String, &'a Value)> {
    if depth > super::normalise::MAX_DEPTH {
        return None;
    }
    let is_named = |key| value.get(key).and_then(Value::as_str) == Some(name);
    if is_named("$anchor") || is_named("$dynamicAnchor") {
        return Some((pointer, value));
    }
    match value {
        Value::Object(map) => map.iter().find_map(|(key, value)| anchor(value, name, join(&pointer, key), depth + 1)),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(i, value)| anchor(value, name, join(&pointer, &i.to_string()), depth + 1)),
        _ => None,
    }
}

fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let hex =
            text.get(at + 1..at + 3).filter(|_| bytes[at] == b'%').and_then(|hex| u8::from_str_radix(hex, 16).ok());
        out.push(hex.unwrap_or(bytes[at]));
        at += if hex.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}
