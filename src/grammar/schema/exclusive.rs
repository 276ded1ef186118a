//! Can two schemas accept the same value? Where they cannot, `oneOf` and `anyOf` are the same.

use serde_json::Value;

/// True only when it is certain.
pub(super) fn are_exclusive(a: &Value, b: &Value) -> bool {
    types_differ(a, b) || values_differ(a, b) || a_property_tells(a, b)
}

fn types(schema: &Value) -> Option<Vec<&str>> {
    match schema.get("type")? {
        Value::String(name) => Some(vec![name]),
        Value::Array(names) => Some(names.iter().filter_map(Value::as_str).collect()),
        _ => None,
    }
}

fn types_differ(a: &Value, b: &Value) -> bool {
    let (Some(a), Some(b)) = (types(a), types(b)) else { return false };
    // An integer is a number.
    let same = |x: &str, y: &str| x == y || matches!((x, y), ("integer", "number") | ("number", "integer"));
    !a.iter().any(|x| b.iter().any(|y| same(x, y)))
}

fn values(schema: &Value) -> Option<Vec<&Value>> {
    match (schema.get("const"), schema.get("enum")) {
        (Some(value), _) => Some(vec![value]),
        (None, Some(Value::Array(values))) => Some(values.iter().collect()),
        _ => None,
    }
}

fn values_differ(a: &Value, b: &Value) -> bool {
    let (Some(a), Some(b)) = (values(a), values(b)) else { return false };
    !a.iter().any(|value| b.contains(value))
}

/// A property that both require has different values, or one that one requires is forbidden by the other.
fn a_property_tells(a: &Value, b: &Value) -> bool {
    let required = |schema: &Value, name: &str| {
        let names = schema.get("required").and_then(Value::as_array);
        names.is_some_and(|names| names.iter().any(|other| other == name))
    };
    let is_object = |schema: &Value| types(schema).is_some_and(|types| types == ["object"]);
    let (Some(Value::Object(of_a)), Some(Value::Object(of_b))) = (a.get("properties"), b.get("properties")) else {
        return false;
    };
    if !is_object(a) || !is_object(b) {
        return false;
    }
    let differs = of_a.iter().any(|(name, value)| {
        let other = of_b.get(name).filter(|_| required(a, name) && required(b, name));
        other.is_some_and(|other| types_differ(value, other) || values_differ(value, other))
    });
    let is_closed = |schema: &Value| schema.get("additionalProperties") == Some(&Value::Bool(false));
    let forbids = |open: &Value, of_open: &serde_json::Map<String, Value>, closed: &serde_json::Map<String, Value>| {
        of_open.keys().any(|name| required(open, name) && !closed.contains_key(name))
    };
    differs || (is_closed(b) && forbids(a, of_a, of_b)) || (is_closed(a) && forbids(b, of_b, of_a))
}
