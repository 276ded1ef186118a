//! One table of every request field of the generation endpoints with its verdict, and a body judged
//! by it.
//!
//! A field is consumed, refused by name, or passed over; what is passed over or unknown is reported
//! to the client in the header `x-plateau-ignored`, so nothing is ever dropped without a word.
//! `docs/api.md` holds this table.

mod field;
mod table;

use serde_json::{Map, Value};

use super::error::{ApiError, ErrorCode};

pub use field::{Endpoint, Field, Scope, Verdict};
pub use table::FIELDS;

/// The row of `name` at `endpoint`.
pub fn find(name: &str, endpoint: Endpoint) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.name == name && field.scope.covers(endpoint))
}

/// Leaves in `body` what is consumed at `endpoint`, in its order; the names of what is passed over
/// or unknown go to `ignored`.
///
/// # Errors
/// The first field that is refused.
pub fn judge(
    body: Map<String, Value>,
    endpoint: Endpoint,
    ignored: &mut Vec<String>,
) -> Result<Map<String, Value>, ApiError> {
    let mut consumed = Map::with_capacity(body.len());
    for (name, value) in body {
        match find(&name, endpoint) {
            Some(Field { verdict: Verdict::Consumed { .. }, .. }) => {
                consumed.insert(name, value);
            }
            Some(Field { verdict: Verdict::Refused { neutral, .. }, doc, .. }) => {
                if !asks_for_nothing(&value, neutral) {
                    return Err(refusal(&name, doc));
                }
            }
            Some(Field { verdict: Verdict::PassedOver { .. }, .. }) | None if value.is_null() => {}
            Some(Field { verdict: Verdict::PassedOver { .. }, .. }) | None => ignored.push(name),
        }
    }
    Ok(consumed)
}

fn refusal(name: &str, doc: &str) -> ApiError {
    let message = format!("`{name}` is not served by this build: {doc} Leave the field out.");
    ApiError::new(ErrorCode::UnsupportedParameter, message).with_param(name)
}

/// Null, or one of the listed values; numbers are compared as numbers.
fn asks_for_nothing(value: &Value, neutral: &str) -> bool {
    let listed = serde_json::from_str::<Vec<Value>>(neutral).unwrap_or_default();
    value.is_null()
        || listed.iter().any(|entry| match (entry.as_f64(), value.as_f64()) {
            (Some(a), Some(b)) => a == b,
            _ => entry == value,
        })
}

/// The table of `docs/api.md`.
pub fn docs() -> String {
    let mut out = String::from("| field | endpoint | verdict | default | what it does |\n|---|---|---|---|---|\n");
    for Field { name, scope, verdict, doc } in FIELDS {
        let endpoint = match scope {
            Scope::Both => "both",
            Scope::Chat => "chat",
            Scope::Completions => "completions",
        };
        let (verdict, default) = match verdict {
            Verdict::Consumed { default, .. } => ("consumed".to_owned(), *default),
            Verdict::Refused { neutral: "[]", .. } => ("refused".to_owned(), ""),
            Verdict::Refused { neutral, .. } => (format!("refused, except `{}`", inner(neutral)), ""),
            Verdict::PassedOver { .. } => ("passed over".to_owned(), ""),
        };
        out.push_str(&format!("| `{name}` | {endpoint} | {verdict} | {default} | {doc} |\n"));
    }
    out
}

/// The list without its brackets.
fn inner(list: &str) -> &str {
    list.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(list)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::wire::{ChatBody, CompletionBody};
    use super::*;
    use crate::chat::fields::Fields;

    fn consumed(endpoint: Endpoint) -> BTreeSet<&'static str> {
        let consumed = |f: &&Field| f.scope.covers(endpoint) && matches!(f.verdict, Verdict::Consumed { .. });
        FIELDS.iter().filter(consumed).map(|f| f.name).collect()
    }

    #[test]
    fn the_table_and_the_wire_types_know_the_same_fields() {
        for (endpoint, names) in [(Endpoint::Chat, ChatBody::names()), (Endpoint::Completions, CompletionBody::names())]
        {
            let read: BTreeSet<&str> = names.iter().copied().collect();
            assert_eq!(read.len(), names.len(), "a field would be read twice at {endpoint:?}");
            assert_eq!(read, consumed(endpoint), "{endpoint:?}");
        }
    }

    #[test]
    fn no_field_has_two_rows_at_one_endpoint() {
        for endpoint in [Endpoint::Chat, Endpoint::Completions] {
            let mut seen = BTreeSet::new();
            for field in FIELDS.iter().filter(|f| f.scope.covers(endpoint)) {
                assert!(seen.insert(field.name), "{} at {endpoint:?}", field.name);
            }
        }
    }

    #[test]
    fn every_json_text_of_the_table_parses() {
        let parse = |name: &str, text: &str| {
            serde_json::from_str::<Value>(text).unwrap_or_else(|e| panic!("{name}: {text}: {e}"));
        };
        for field in FIELDS {
            match field.verdict {
                Verdict::Consumed { sample, bad, .. } => [sample, bad].map(|t| parse(field.name, t)).iter().count(),
                Verdict::Refused { neutral, sample } => [neutral, sample].map(|t| parse(field.name, t)).iter().count(),
                Verdict::PassedOver { sample } => [sample].map(|t| parse(field.name, t)).iter().count(),
            };
        }
    }
}
