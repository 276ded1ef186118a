//! One table of every request field of the generation endpoints with its verdict, and the sorting of a body by it.
//!
//! A field is consumed, refused by name, or passed over; what is passed over or unknown is reported to the client in the
//! header `x-plateau-ignored`, so nothing is ever dropped without a word. `docs/api.md` holds this table.

mod table;

use serde_json::{Map, Value};

use super::error::{ApiError, ErrorCode};

pub use table::FIELDS;

/// Which endpoints know a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Both,
    Chat,
    Completions,
}

/// One of the two generation endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    Chat,
    Completions,
}

impl Scope {
    pub fn covers(self, endpoint: Endpoint) -> bool {
        match self {
            Scope::Both => true,
            Scope::Chat => endpoint == Endpoint::Chat,
            Scope::Completions => endpoint == Endpoint::Completions,
        }
    }
}

/// What happens to a field. JSON texts, so that the table is a constant.
#[derive(Clone, Copy, Debug)]
pub enum Verdict {
    /// It changes the generation or the answer. `default` is for people; `sample` is a value that is not the default; `bad`
    /// one that is refused.
    Consumed { default: &'static str, sample: &'static str, bad: &'static str },
    /// Refused by name, except for null and for the values that ask for nothing (a list in JSON). `sample` is refused.
    Refused { neutral: &'static str, sample: &'static str },
    /// Accepted without effect and reported.
    PassedOver { sample: &'static str },
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub name: &'static str,
    pub scope: Scope,
    pub verdict: Verdict,
    pub doc: &'static str,
}

/// A body by what becomes of its fields.
#[derive(Clone, Debug, Default)]
pub struct Sorted {
    /// For `GenerationBody`, `SamplingFields` and `ConstraintFields`.
    pub shared: Map<String, Value>,
    /// For the endpoint's own body.
    pub own: Map<String, Value>,
    /// Passed over or unknown.
    pub ignored: Vec<String>,
}

/// The row of `name` at `endpoint`.
pub fn find(name: &str, endpoint: Endpoint) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.name == name && field.scope.covers(endpoint))
}

/// Sorts a body; the first refused field ends it.
pub fn sort(body: Map<String, Value>, endpoint: Endpoint) -> Result<Sorted, ApiError> {
    let mut sorted = Sorted::default();
    for (name, value) in body {
        match find(&name, endpoint) {
            Some(Field { verdict: Verdict::Consumed { .. }, scope: Scope::Both, .. }) => {
                sorted.shared.insert(name, value);
            }
            Some(Field { verdict: Verdict::Consumed { .. }, .. }) => {
                sorted.own.insert(name, value);
            }
            Some(Field { verdict: Verdict::Refused { neutral, .. }, doc, .. }) => {
                if !asks_for_nothing(&value, neutral) {
                    return Err(refusal(&name, doc));
                }
            }
            Some(Field { verdict: Verdict::PassedOver { .. }, .. }) | None if value.is_null() => {}
            Some(Field { verdict: Verdict::PassedOver { .. }, .. }) | None => sorted.ignored.push(name),
        }
    }
    Ok(sorted)
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

    use serde::Serialize;

    use super::super::wire::{ChatBody, CompletionBody, GenerationBody};
    use super::*;
    use crate::chat::request::{ConstraintFields, SamplingFields};

    fn members(body: impl Serialize) -> BTreeSet<String> {
        let value = serde_json::to_value(body).unwrap();
        value.as_object().unwrap().keys().cloned().collect()
    }

    fn consumed(scope: Scope) -> BTreeSet<String> {
        let rows = FIELDS.iter().filter(|f| f.scope == scope && matches!(f.verdict, Verdict::Consumed { .. }));
        rows.map(|f| f.name.to_owned()).collect()
    }

    #[test]
    fn the_table_and_the_wire_types_know_the_same_fields() {
        let (body, sampling) = (members(GenerationBody::default()), members(SamplingFields::default()));
        let constraint = members(ConstraintFields::default());
        let read = &(&body | &sampling) | &constraint;
        assert_eq!(read.len(), body.len() + sampling.len() + constraint.len(), "a field would be read twice");
        assert_eq!(read, consumed(Scope::Both));
        assert_eq!(members(ChatBody::default()), consumed(Scope::Chat));
        assert_eq!(members(CompletionBody::default()), consumed(Scope::Completions));
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
