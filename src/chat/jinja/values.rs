//! JSON of a request -> template values, keys in the order in which they came.

use minijinja::Value;

/// Converts; depth is bounded by the JSON parser that made `json`.
pub fn from_json(json: &serde_json::Value) -> Value {
    use serde_json::Value as Json;
    match json {
        Json::Null => Value::from(()),
        Json::Bool(flag) => Value::from(*flag),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(int), _) => Value::from(int),
            (None, Some(int)) => Value::from(int),
            (None, None) => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => items.iter().map(from_json).collect(),
        Json::Object(map) => Value::from_pairs(map.iter().map(|(key, value)| (key.as_str(), from_json(value)))),
    }
}
