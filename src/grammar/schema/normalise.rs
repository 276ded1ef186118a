//! Keeps what is known to work, resolves references, notes what is left out.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::exclusive::are_exclusive;
use super::keywords::{self, Kept};
use super::{Clean, join, refs};
use crate::grammar::error::GrammarError;

/// Schemas inside one another.
pub(super) const MAX_DEPTH: usize = 64;
/// Schemas, references resolved once.
const MAX_SCHEMAS: usize = 20_000;

/// Keywords that bring in other schemas for the same value.
const APPLICATORS: [&str; 4] = ["$ref", "anyOf", "oneOf", "allOf"];

/// Keywords that speak of one type of value.
const OF_TYPE: [(&str, &[&str]); 4] = [
    (
        "object",
        &["properties", "additionalProperties", "patternProperties", "required", "minProperties", "maxProperties"],
    ),
    ("array", &["items", "prefixItems", "additionalItems", "minItems", "maxItems"]),
    ("string", &["minLength", "maxLength", "pattern", "format"]),
    ("number", &["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]),
];

pub(super) fn normalise(root: &Value) -> Result<Clean, GrammarError> {
    let clean = Clean { root: Value::Null, defs: Vec::new(), widened: Vec::new() };
    let mut pass = Pass { root, clean, by_target: HashMap::new(), done: 0, schemas: 0, steps: (1, 0) };
    let here = Place { pointer: String::new(), depth: 0, joined: false };
    pass.clean.root = pass.schema(root, &here)?;
    if pass.clean.root == Value::Bool(false) {
        return Err(GrammarError::schema("", "`false` accepts no value"));
    }
    while pass.done < pass.clean.defs.len() {
        let (pointer, joined) = pass.target(pass.done);
        let target = root.pointer(&pointer).unwrap_or(&Value::Null);
        pass.clean.defs[pass.done].1 = pass.schema(target, &Place { pointer, depth: 0, joined })?;
        pass.done += 1;
    }
    Ok(pass.clean)
}

struct Place {
    pointer: String,
    depth: usize,
    /// The value has to satisfy another schema beside this one, so that nothing may be forbidden that is not forbidden here.
    joined: bool,
}

impl Place {
    fn inside(&self, key: &str, joined: bool) -> Place {
        Place { pointer: join(&self.pointer, key), depth: self.depth + 1, joined }
    }
}

struct Pass<'a> {
    root: &'a Value,
    clean: Clean,
    /// The number of a reference's target. One that is joined with other schemas is another one.
    by_target: HashMap<(String, bool), usize>,
    done: usize,
    schemas: usize,
    /// The steps that may be joined with one another, multiplied, and the most decimals of one.
    steps: (u32, u32),
}

impl Pass<'_> {
    fn target(&self, index: usize) -> (String, bool) {
        let pointer = self.clean.defs[index].0.clone();
        let joined = self.by_target.get(&(pointer.clone(), true)) == Some(&index);
        (pointer, joined)
    }

    fn schema(&mut self, schema: &Value, place: &Place) -> Result<Value, GrammarError> {
        self.schemas += 1;
        GrammarError::within("schemas of the schema", self.schemas, MAX_SCHEMAS)?;
        GrammarError::within("schemas inside one another", place.depth, MAX_DEPTH)?;
        let map = match schema {
            Value::Bool(_) => return Ok(schema.clone()),
            Value::Object(map) => map,
            other => {
                let message = format!("a schema is an object, true or false, not {}", keywords::shown(other));
                return Err(GrammarError::schema(&place.pointer, message));
            }
        };
        let mut out = Map::new();
        for (key, value) in map {
            let inside = join(&place.pointer, key);
            match key.as_str() {
                "$ref" | "anyOf" | "oneOf" | "allOf" => self.applicator(key, map, place, &mut out)?,
                "properties" | "patternProperties" => self.named(key, value, place, &mut out)?,
                "items" | "prefixItems" if value.is_array() => {
                    let items = self.list(value, &place.inside(key, false))?;
                    out.insert(key.clone(), items);
                }
                "items" | "additionalItems" | "additionalProperties" => {
                    let part = self.schema(value, &place.inside(key, false))?;
                    out.insert(key.clone(), part);
                }
                "multipleOf" if (place.joined || has_any(map, &APPLICATORS)) && !self.can_join(value) => {
                    self.clean.note(
                        &inside,
                        "multipleOf beside other schemas: too many remainders together",
                        "any number",
                    );
                }
                "unevaluatedProperties" if *value == Value::Bool(false) && !has_any(map, &APPLICATORS) => {
                    out.entry("additionalProperties").or_insert(Value::Bool(false));
                }
                _ => match keywords::keyword(key, value, map, &inside)? {
                    Kept::Unknown => {}
                    Kept::As(value) => _ = out.insert(key.clone(), value),
                    Kept::Pattern(pattern) => _ = out.insert("pattern".to_owned(), pattern.into()),
                    Kept::Widened { value, what, to } => {
                        self.clean.note(&inside, what, to);
                        out.extend(value);
                    }
                },
            }
        }
        keywords::check_bounds(&out, &place.pointer)?;
        if !has_any(map, &APPLICATORS) && !place.joined {
            infer_type(&mut out);
            close(&mut out);
        }
        if map.get("nullable") == Some(&Value::Bool(true)) {
            return Ok(json!({"anyOf": [out, {"type": "null"}]}));
        }
        Ok(Value::Object(out))
    }

    /// Counts a step that the library may join with others, which it does by their least common multiple without a limit.
    fn can_join(&mut self, step: &Value) -> bool {
        // What is no step is refused by `keywords`.
        let Some(step) = step.as_f64().filter(|step| *step > 0.0) else { return true };
        let Some((whole, decimals)) = keywords::decimal(step) else { return true };
        let joined = (self.steps.0.saturating_mul(whole), self.steps.1.max(decimals));
        let fits = joined.0.saturating_mul(10_u32.pow(joined.1)) <= keywords::MAX_STEP;
        if fits {
            self.steps = joined;
        }
        fits
    }

    fn applicator(
        &mut self,
        key: &str,
        map: &Map<String, Value>,
        place: &Place,
        out: &mut Map<String, Value>,
    ) -> Result<(), GrammarError> {
        let joined = place.joined || map.keys().any(|other| other != key && constrains(other));
        let value = &map[key];
        if key == "$ref" {
            let Some(reference) = value.as_str() else {
                return Err(GrammarError::schema(&join(&place.pointer, key), "a reference is a string"));
            };
            let number = self.reference(reference, &join(&place.pointer, key), joined)?;
            out.insert("$ref".to_owned(), format!("#/$defs/{number}").into());
            return Ok(());
        }
        let joined = joined || (key == "allOf" && value.as_array().is_some_and(|all| all.len() > 1));
        let inside = place.inside(key, joined);
        if value.as_array().is_some_and(Vec::is_empty) {
            return Err(GrammarError::schema(&inside.pointer, "the list is empty"));
        }
        let list = self.list(value, &inside)?;
        if key == "oneOf" {
            let options = list.as_array().map_or(&[][..], Vec::as_slice);
            let overlap =
                (0..options.len()).find(|&i| options[..i].iter().any(|other| !are_exclusive(other, &options[i])));
            if let Some(i) = overlap {
                let what = format!("oneOf: a value that fits option {i} may fit an earlier one too");
                self.clean.note(&inside.pointer, what, "anyOf");
            }
        }
        out.insert(key.to_owned(), list);
        Ok(())
    }

    fn reference(&mut self, reference: &str, at: &str, joined: bool) -> Result<usize, GrammarError> {
        let (pointer, _) = refs::resolve(self.root, reference, at)?;
        let next = self.clean.defs.len();
        let number = *self.by_target.entry((pointer.clone(), joined)).or_insert(next);
        if number == next {
            self.clean.defs.push((pointer, Value::Null));
        }
        Ok(number)
    }

    fn list(&mut self, value: &Value, place: &Place) -> Result<Value, GrammarError> {
        let Some(items) = value.as_array() else {
            return Err(GrammarError::schema(&place.pointer, "a list of schemas was expected"));
        };
        let items = items.iter().enumerate();
        items.map(|(i, item)| self.schema(item, &place.inside(&i.to_string(), place.joined))).collect()
    }

    fn named(
        &mut self,
        key: &str,
        value: &Value,
        place: &Place,
        out: &mut Map<String, Value>,
    ) -> Result<(), GrammarError> {
        let inside = place.inside(key, false);
        let Some(map) = value.as_object() else {
            return Err(GrammarError::schema(&inside.pointer, "an object of schemas was expected"));
        };
        let mut named = Map::new();
        for (name, schema) in map {
            let place = inside.inside(name, false);
            match keywords::pattern_problem(name) {
                Some(problem) if key == "patternProperties" => {
                    self.clean.note(&place.pointer, format!("pattern {name:?}: {problem}"), "any other property");
                    // What the pattern would have allowed must stay possible.
                    out.insert("additionalProperties".to_owned(), Value::Bool(true));
                }
                _ => _ = named.insert(name.clone(), self.schema(schema, &place)?),
            }
        }
        out.insert(key.to_owned(), Value::Object(named));
        Ok(())
    }
}

fn has_any(map: &Map<String, Value>, keys: &[&str]) -> bool {
    keys.iter().any(|key| map.contains_key(*key))
}

/// Does the keyword forbid values?
fn constrains(key: &str) -> bool {
    APPLICATORS.contains(&key)
        || matches!(key, "type" | "enum" | "const")
        || OF_TYPE.iter().any(|(_, keys)| keys.contains(&key))
}

/// Gives a schema that speaks of one type that type.
fn infer_type(out: &mut Map<String, Value>) {
    if has_any(out, &["type", "enum", "const"]) {
        return;
    }
    let mut spoken = OF_TYPE.iter().filter(|(_, keys)| has_any(out, keys)).map(|(name, _)| *name);
    if let (Some(name), None) = (spoken.next(), spoken.next()) {
        out.insert("type".to_owned(), name.into());
    }
}

/// An object that lists its properties has no others, unless it says so.
fn close(out: &mut Map<String, Value>) {
    let is_object = out.get("type").is_some_and(|kind| match kind {
        Value::Array(names) => names.iter().any(|name| name == "object"),
        kind => kind == "object",
    });
    if !is_object || has_any(out, &["additionalProperties", "patternProperties"]) {
        return;
    }
    let required: Vec<String> = match out.get("required") {
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    let Some(Value::Object(properties)) = out.get_mut("properties") else { return };
    for name in required {
        properties.entry(name).or_insert(Value::Bool(true));
    }
    out.insert("additionalProperties".to_owned(), Value::Bool(false));
}
