//! References inside one schema: JSON pointers, anchors and the names of embedded resources. Nothing is fetched.

use serde_json::Value;

use super::clean::{MAX_DEPTH, join};
use crate::grammar::error::GrammarError;

/// The pointer and the schema that a reference at `at` means.
pub(super) fn resolve<'a>(root: &'a Value, reference: &str, at: &str) -> Result<(String, &'a Value), GrammarError> {
    let (name, fragment) = reference.split_once('#').unwrap_or((reference, ""));
    let base = if name.is_empty() { Some(resource_around(root, at)) } else { named(root, name, String::new(), 0) };
    let Some((base, resource)) = base else {
        let message =
            format!("the reference {reference:?} leads out of the schema, and nothing is fetched; copy it in");
        return Err(GrammarError::schema(at, message));
    };
    let fragment = percent_decoded(fragment);
    let found = if fragment.is_empty() {
        Some((base, resource))
    } else if fragment.starts_with('/') {
        // llguidance's own form of the root, `#/`, is taken as the standard takes it: a property without a name.
        resource.pointer(&fragment).map(|value| (format!("{base}{fragment}"), value))
    } else {
        anchor(resource, &fragment, base, 0)
    };
    found.ok_or_else(|| GrammarError::schema(at, format!("the reference {reference:?} leads nowhere")))
}

/// How many schemas have this value at this keyword.
pub(super) fn count(value: &Value, key: &str, wanted: &Value, depth: usize) -> usize {
    if depth > MAX_DEPTH {
        return 0;
    }
    let inside = |value: &Value| count(value, key, wanted, depth + 1);
    match value {
        Value::Object(map) => usize::from(map.get(key) == Some(wanted)) + map.values().map(inside).sum::<usize>(),
        Value::Array(items) => items.iter().map(inside).sum(),
        _ => 0,
    }
}

fn id(value: &Value) -> Option<&str> {
    let id = value.get("$id").or_else(|| value.get("id")).and_then(Value::as_str)?;
    let name = id.trim_end_matches('#');
    (!name.is_empty() && !name.starts_with('#')).then_some(name)
}

/// The innermost schema with a name of its own that a place is in.
fn resource_around<'a>(root: &'a Value, at: &str) -> (String, &'a Value) {
    let ends = at.char_indices().filter(|(_, c)| *c == '/').map(|(end, _)| end).chain([at.len()]);
    let mut found = (String::new(), root);
    for end in ends {
        // Before draft 6 `id` was the name; a property may be called so too.
        if let Some(value) = root.pointer(&at[..end]).filter(|value| value.get("$id").is_some() && id(value).is_some())
        {
            found = (at[..end].to_owned(), value);
        }
    }
    found
}

/// The schema of this name, whole or as the end of its address.
fn named<'a>(value: &'a Value, name: &str, pointer: String, depth: usize) -> Option<(String, &'a Value)> {
    if depth > MAX_DEPTH {
        return None;
    }
    let is_named = |id: &str| id == name || id.strip_suffix(name).is_some_and(|start| start.ends_with('/'));
    if id(value).is_some_and(is_named) {
        return Some((pointer, value));
    }
    inside(value, pointer, |value, pointer| named(value, name, pointer, depth + 1))
}

fn anchor<'a>(value: &'a Value, name: &str, pointer: String, depth: usize) -> Option<(String, &'a Value)> {
    if depth > MAX_DEPTH {
        return None;
    }
    let is_named = |key| value.get(key).and_then(Value::as_str) == Some(name);
    let is_old = |key| value.get(key).and_then(Value::as_str).and_then(|id| id.strip_prefix('#')) == Some(name);
    if is_named("$anchor") || is_named("$dynamicAnchor") || is_old("$id") || is_old("id") {
        return Some((pointer, value));
    }
    inside(value, pointer, |value, pointer| anchor(value, name, pointer, depth + 1))
}

fn inside<'a>(
    value: &'a Value,
    pointer: String,
    find: impl Fn(&'a Value, String) -> Option<(String, &'a Value)>,
) -> Option<(String, &'a Value)> {
    match value {
        Value::Object(map) => map.iter().find_map(|(key, value)| find(value, join(&pointer, key))),
        Value::Array(items) => {
            items.iter().enumerate().find_map(|(i, value)| find(value, join(&pointer, &i.to_string())))
        }
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
