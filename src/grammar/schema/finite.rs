//! Refuses schemas of which every value is endless: a reference that means itself, an object that must contain itself.

use serde_json::Value;

use super::Clean;
use crate::grammar::error::GrammarError;

pub(super) fn check(clean: &Clean) -> Result<(), GrammarError> {
    let mut known = vec![false; clean.defs.len()];
    loop {
        let open: Vec<usize> = (0..known.len()).filter(|&index| !known[index]).collect();
        let found: Vec<usize> = open.into_iter().filter(|&index| ends(&clean.defs[index].1, &known)).collect();
        if found.is_empty() {
            break;
        }
        found.into_iter().for_each(|index| known[index] = true);
    }
    if ends(&clean.root, &known) {
        return Ok(());
    }
    let endless = clean.defs.iter().zip(&known).find(|(_, known)| !**known);
    let pointer = endless.map_or("", |((pointer, _), _)| pointer.as_str());
    Err(GrammarError::schema(pointer, "no finite value fits: the schema requires itself; make the reference optional"))
}

/// Is there a finite value, as far as is known of the references?
fn ends(schema: &Value, known: &[bool]) -> bool {
    let Value::Object(map) = schema else { return true };
    let list = |key: &str| map.get(key).and_then(Value::as_array);
    let reference = map.get("$ref").and_then(Value::as_str).and_then(index);
    let applied = reference.is_none_or(|index| known.get(index).copied().unwrap_or(false))
        && list("allOf").is_none_or(|all| all.iter().all(|schema| ends(schema, known)))
        && ["anyOf", "oneOf"]
            .iter()
            .all(|key| list(key).is_none_or(|any| any.iter().any(|schema| ends(schema, known))));
    applied && own_value_ends(map, known)
}

fn own_value_ends(map: &serde_json::Map<String, Value>, known: &[bool]) -> bool {
    let can_be = |wanted: &str| match map.get("type") {
        Some(Value::String(name)) => name == wanted,
        Some(Value::Array(names)) => names.iter().any(|name| name == wanted),
        _ => true,
    };
    let simple = ["null", "boolean", "number", "integer", "string"].into_iter().any(can_be);
    if simple || map.contains_key("const") || map.contains_key("enum") {
        return true;
    }
    let object = || {
        let required = map.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        let property = |name: &str| map.get("properties").and_then(|properties| properties.get(name));
        required.filter_map(property).all(|schema| ends(schema, known))
    };
    let array = || {
        let needed = map.get("minItems").and_then(Value::as_u64).unwrap_or(0) as usize;
        let first = map.get("prefixItems").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        first.iter().take(needed).all(|schema| ends(schema, known))
            && (needed <= first.len() || map.get("items").is_none_or(|schema| ends(schema, known)))
    };
    (can_be("object") && object()) || (can_be("array") && array())
}

/// The number of a reference of ours.
pub(super) fn index(reference: &str) -> Option<usize> {
    reference.strip_prefix("#/$defs/")?.parse().ok()
}
