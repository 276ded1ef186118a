//! From JSON to nodes: every subschema that can be reached, its keywords checked, its references resolved.

use std::collections::{HashMap, VecDeque};

use serde_json::{Map, Value};

use super::clean::{MAX_DEPTH, join};
use super::keywords::{self, Read};
use super::node::{Bound, Condition, Contains, Id, Kind, Lost, Node, Rule, Words};
use super::{formats, patterns, refs};
use crate::grammar::error::GrammarError;
use crate::grammar::relaxed::Relaxed;

/// Schemas, references resolved once.
const MAX_SCHEMAS: usize = 20_000;

/// Keywords that speak of one kind of value.
const OF_KIND: [(Kind, &[&str]); 4] = [
    (
        Kind::Object,
        &[
            "properties",
            "additionalProperties",
            "patternProperties",
            "required",
            "minProperties",
            "maxProperties",
            "propertyNames",
            "dependentRequired",
            "dependentSchemas",
            "dependencies",
            "unevaluatedProperties",
        ],
    ),
    (Kind::Array, &["items", "prefixItems", "additionalItems", "minItems", "maxItems", "contains", "uniqueItems"]),
    (Kind::Text, &["minLength", "maxLength", "pattern"]),
    (Kind::Number, &["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]),
];

/// All nodes; the first is the whole schema.
pub(super) fn read(root: &Value) -> Result<Vec<Node>, GrammarError> {
    let draft = root.get("$schema").and_then(Value::as_str).unwrap_or_default();
    let is_old = ["draft-03", "draft-04", "draft-06", "draft-07"].iter().any(|name| draft.contains(name));
    let mut reader = Reader { root, is_old, nodes: Vec::new(), by_pointer: HashMap::new(), queue: VecDeque::new() };
    reader.id(String::new(), root, 0)?;
    while let Some((id, value, depth)) = reader.queue.pop_front() {
        let pointer = reader.nodes[id].pointer.clone();
        let rule = match value {
            Value::Bool(true) => Rule::Always,
            Value::Bool(false) => Rule::Never,
            Value::Object(map) => {
                let mut place = Place { reader: &mut reader, map, pointer: &pointer, depth, words: Words::default() };
                place.words()?;
                Rule::Words(Box::new(place.words))
            }
            other => {
                let message = format!("a schema is an object, true or false, not {}", keywords::shown(other));
                return Err(GrammarError::schema(&pointer, message));
            }
        };
        reader.nodes[id].rule = rule;
    }
    Ok(reader.nodes)
}

struct Reader<'a> {
    root: &'a Value,
    /// A draft in which `$ref` stands alone.
    is_old: bool,
    nodes: Vec<Node>,
    by_pointer: HashMap<String, Id>,
    queue: VecDeque<(Id, &'a Value, usize)>,
}

impl<'a> Reader<'a> {
    fn id(&mut self, pointer: String, value: &'a Value, depth: usize) -> Result<Id, GrammarError> {
        if let Some(id) = self.by_pointer.get(&pointer) {
            return Ok(*id);
        }
        let id = self.nodes.len();
        GrammarError::within("schemas of the schema", id + 1, MAX_SCHEMAS)?;
        GrammarError::within("schemas inside one another", depth, MAX_DEPTH)?;
        self.by_pointer.insert(pointer.clone(), id);
        self.nodes.push(Node { pointer, rule: Rule::Always });
        self.queue.push_back((id, value, depth));
        Ok(id)
    }
}

/// The schema that is being read.
struct Place<'r, 'a> {
    reader: &'r mut Reader<'a>,
    map: &'a Map<String, Value>,
    pointer: &'r str,
    depth: usize,
    words: Words,
}

impl<'a> Place<'_, 'a> {
    fn words(&mut self) -> Result<(), GrammarError> {
        for (key, value) in self.map {
            let at = join(self.pointer, key);
            self.keyword(key, value, &at)?;
        }
        for (kind, keys) in OF_KIND {
            if keys.iter().any(|key| self.map.contains_key(*key)) {
                self.words.spoken.insert(kind);
            }
        }
        if self.words.text.format.is_some() {
            self.words.spoken.insert(Kind::Text);
        }
        self.words.is_old_reference = self.reader.is_old && self.words.reference.is_some();
        self.bounds()
    }

    fn keyword(&mut self, key: &str, value: &'a Value, at: &str) -> Result<(), GrammarError> {
        match key {
            "type" => self.words.types = Some(keywords::types(value, at)?),
            "enum" => {
                let read = keywords::members(value, at)?;
                self.values(read, at);
            }
            "const" => self.values(keywords::constant(value), at),
            "nullable" => self.words.nullable = *value == Value::Bool(true),
            "$ref" => self.reference(value, at)?,
            "$dynamicRef" | "$recursiveRef" => self.dynamic_reference(key, value, at)?,
            "allOf" | "anyOf" | "oneOf" => {
                let list = self.list(value, at)?;
                if list.is_empty() {
                    return Err(GrammarError::schema(at, "the list is empty"));
                }
                match key {
                    "allOf" => self.words.all = list,
                    "anyOf" => self.words.any = Some(list),
                    _ => self.words.one = Some(list),
                }
            }
            "not" => self.words.not = Some(self.part(value, at)?),
            "if" => {
                let mut branch = |key: &str| match self.map.get(key) {
                    Some(value) => self.part(value, &join(self.pointer, key)).map(Some),
                    None => Ok(None),
                };
                let (then, otherwise) = (branch("then")?, branch("else")?);
                let test = self.part(value, at)?;
                if then.is_some() || otherwise.is_some() {
                    self.words.condition = Some(Condition { test, then, otherwise });
                }
            }
            "minLength" | "maxLength" | "pattern" | "format" | "contentSchema" => self.text(key, value, at)?,
            "multipleOf" => {
                let read = keywords::step(value, at)?;
                self.words.number.step = self.kept(read, Kind::Number, at);
            }
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => self.number(key, value, at)?,
            _ if OF_KIND[0].1.contains(&key) => self.object(key, value, at)?,
            _ if OF_KIND[1].1.contains(&key) || key == "unevaluatedItems" => self.array(key, value, at)?,
            // An annotation, or no keyword of the standard: it forbids nothing.
            _ => {}
        }
        Ok(())
    }

    fn part(&mut self, value: &'a Value, at: &str) -> Result<Id, GrammarError> {
        self.reader.id(at.to_owned(), value, self.depth + 1)
    }

    fn list(&mut self, value: &'a Value, at: &str) -> Result<Vec<Id>, GrammarError> {
        let Some(items) = value.as_array() else {
            return Err(GrammarError::schema(at, "a list of schemas was expected"));
        };
        items.iter().enumerate().map(|(i, item)| self.part(item, &join(at, &i.to_string()))).collect()
    }

    fn named(&mut self, value: &'a Value, at: &str) -> Result<Vec<(String, Id)>, GrammarError> {
        let Some(map) = value.as_object() else {
            return Err(GrammarError::schema(at, "an object of schemas was expected"));
        };
        map.iter().map(|(name, schema)| Ok((name.clone(), self.part(schema, &join(at, name))?))).collect()
    }

    fn lose(&mut self, kind: Option<Kind>, at: &str, what: impl Into<String>, to: impl Into<String>) {
        let said = Relaxed { pointer: at.to_owned(), what: what.into(), to: to.into() };
        self.words.lost.push(Lost { kind, said });
    }

    fn kept<T>(&mut self, read: Read<T>, kind: Kind, at: &str) -> Option<T> {
        match read {
            Read::As(value) => Some(value),
            Read::Less(value, what, to) => {
                self.lose(Some(kind), at, what, to);
                value
            }
        }
    }

    fn values(&mut self, read: keywords::Members, at: &str) {
        match read {
            Ok(values) => self.words.values.push(values),
            Err((types, what, to)) => {
                self.lose(None, at, what, to);
                if !self.map.contains_key("type") {
                    self.words.types = Some(types);
                }
            }
        }
    }

    fn reference(&mut self, value: &Value, at: &str) -> Result<(), GrammarError> {
        let Some(reference) = value.as_str() else {
            return Err(GrammarError::schema(at, "a reference is a string"));
        };
        let (pointer, target) = refs::resolve(self.reader.root, reference, at)?;
        let id = self.reader.id(pointer, target, 0)?;
        match self.words.reference {
            None => self.words.reference = Some(id),
            Some(_) => self.words.all.push(id),
        }
        Ok(())
    }

    /// Where there is one place to lead to, it is a plain reference.
    fn dynamic_reference(&mut self, key: &str, value: &Value, at: &str) -> Result<(), GrammarError> {
        let root = self.reader.root;
        let is_plain = match (key, value.as_str()) {
            ("$recursiveRef", _) => refs::count(root, "$recursiveAnchor", &Value::Bool(true), 0) == 0,
            (_, Some(text)) => {
                let name = text.trim_start_matches('#');
                text.contains('/') || refs::count(root, "$dynamicAnchor", &name.into(), 0) <= 1
            }
            _ => false,
        };
        if is_plain {
            return self.reference(value, at);
        }
        self.lose(None, at, format!("{key} is not enforced"), "without it");
        Ok(())
    }

    fn text(&mut self, key: &str, value: &Value, at: &str) -> Result<(), GrammarError> {
        match key {
            "minLength" => {
                let read = keywords::count(key, value, at)?;
                self.words.text.min = self.kept(read, Kind::Text, at);
            }
            "maxLength" => {
                let read = keywords::count(key, value, at)?;
                self.words.text.max = self.kept(read, Kind::Text, at);
            }
            "pattern" => {
                let Some(pattern) = value.as_str() else {
                    return Err(GrammarError::schema(at, "a pattern is a string"));
                };
                match patterns::problem(pattern) {
                    None => self.words.text.pattern = Some(patterns::ecma(pattern)),
                    Some(problem) => {
                        let what = format!("pattern {}: {problem}", keywords::shown(value));
                        self.lose(Some(Kind::Text), at, what, "any string");
                    }
                }
            }
            "format" => match value.as_str().and_then(formats::find) {
                Some(format) => self.words.text.format = Some(format),
                None => {
                    let what = format!("format {} is not known", keywords::shown(value));
                    self.lose(Some(Kind::Text), at, what, "any string");
                }
            },
            _ => self.lose(Some(Kind::Text), at, format!("{key} is not enforced"), "without it"),
        }
        Ok(())
    }

    fn number(&mut self, key: &str, value: &Value, at: &str) -> Result<(), GrammarError> {
        let is_low = key.ends_with("inimum");
        // Draft 4 had booleans here, which speak of `minimum` and `maximum`.
        if let (Value::Bool(open), true) = (value, key.starts_with("exclusive")) {
            let bound = self.map.get(if is_low { "minimum" } else { "maximum" }).and_then(Value::as_f64);
            if let Some(at) = bound.filter(|_| *open) {
                let into = if is_low { &mut self.words.number.low } else { &mut self.words.number.high };
                into.push(Bound { at, open: true });
            }
            return Ok(());
        }
        let read = keywords::number(key, value, at)?;
        if let Some(at) = self.kept(read, Kind::Number, at) {
            let into = if is_low { &mut self.words.number.low } else { &mut self.words.number.high };
            into.push(Bound { at, open: key.starts_with("exclusive") });
        }
        Ok(())
    }

    fn array(&mut self, key: &str, value: &'a Value, at: &str) -> Result<(), GrammarError> {
        // Before 2020 tuples were lists in `items`, and `additionalItems` said what follows them.
        let is_old_tuple = self.map.get("items").is_some_and(Value::is_array);
        match key {
            "prefixItems" if is_old_tuple => {}
            "prefixItems" => self.words.array.prefix = self.list(value, at)?,
            "items" if is_old_tuple => self.words.array.prefix = self.list(value, at)?,
            "items" => self.words.array.items = Some(self.part(value, at)?),
            "additionalItems" if is_old_tuple => self.words.array.items = Some(self.part(value, at)?),
            "minItems" => {
                let read = keywords::count(key, value, at)?;
                self.words.array.min = self.kept(read, Kind::Array, at);
            }
            "maxItems" => {
                let read = keywords::count(key, value, at)?;
                self.words.array.max = self.kept(read, Kind::Array, at);
            }
            "uniqueItems" => self.words.array.unique = *value == Value::Bool(true),
            "contains" => {
                let bound = |key: &str| match self.map.get(key) {
                    None => Ok(None),
                    Some(value) => keywords::count(key, value, &join(self.pointer, key)).map(|read| match read {
                        Read::As(n) => Some(n),
                        Read::Less(n, ..) => n,
                    }),
                };
                let (min, max) = (bound("minContains")?.unwrap_or(1), bound("maxContains")?);
                self.words.array.contains = Some(Contains { item: self.part(value, at)?, min, max });
            }
            "unevaluatedItems" => self.words.array.unevaluated = Some(self.part(value, at)?),
            _ => {}
        }
        Ok(())
    }

    fn object(&mut self, key: &str, value: &'a Value, at: &str) -> Result<(), GrammarError> {
        match key {
            "properties" => {
                self.words.object.lists = true;
                self.words.object.properties = self.named(value, at)?.into_iter().collect();
            }
            "patternProperties" => {
                for (pattern, id) in self.named(value, at)? {
                    match patterns::problem(&pattern) {
                        None => self.words.object.patterns.push((patterns::ecma(&pattern), id)),
                        Some(problem) => {
                            let what = format!("pattern {pattern:?}: {problem}");
                            self.lose(Some(Kind::Object), self.pointer, what, "any other property");
                            // What the pattern would have allowed must stay possible.
                            self.words.object.any_others = true;
                        }
                    }
                }
            }
            "additionalProperties" => self.words.object.additional = Some(self.part(value, at)?),
            "required" => self.words.object.required = keywords::names(value, at)?,
            "minProperties" => {
                let read = keywords::count(key, value, at)?;
                self.words.object.min = self.kept(read, Kind::Object, at);
            }
            "maxProperties" => {
                let read = keywords::count(key, value, at)?;
                self.words.object.max = self.kept(read, Kind::Object, at);
            }
            "propertyNames" => self.words.object.names = Some(self.part(value, at)?),
            "unevaluatedProperties" => self.words.object.unevaluated = Some(self.part(value, at)?),
            _ => self.dependent(value, at)?,
        }
        Ok(())
    }

    /// `dependentRequired`, `dependentSchemas`, and `dependencies`, which was both.
    fn dependent(&mut self, value: &'a Value, at: &str) -> Result<(), GrammarError> {
        let Some(map) = value.as_object() else {
            return Err(GrammarError::schema(at, "an object was expected"));
        };
        for (name, value) in map {
            let inside = join(at, name);
            match value {
                Value::Array(_) => {
                    self.words.object.dependent_names.push((name.clone(), keywords::names(value, &inside)?));
                }
                // Draft 3 named one property without a list.
                Value::String(other) => {
                    self.words.object.dependent_names.push((name.clone(), vec![other.clone()]));
                }
                _ => {
                    let id = self.part(value, &inside)?;
                    self.words.object.dependent_schemas.push((name.clone(), id));
                }
            }
        }
        Ok(())
    }

    /// A lower bound above its upper bound: no value fits, and saying so is better than a search for what fails.
    fn bounds(&self) -> Result<(), GrammarError> {
        let pairs = [
            ("minLength", "maxLength"),
            ("minItems", "maxItems"),
            ("minProperties", "maxProperties"),
            ("minimum", "maximum"),
        ];
        for (low, high) in pairs {
            let bound = |key: &str| self.map.get(key).and_then(Value::as_f64);
            if let (Some(a), Some(b)) = (bound(low), bound(high))
                && a > b
            {
                let message = format!("{low} {} is more than {high} {}; no value fits", self.map[low], self.map[high]);
                return Err(GrammarError::schema(self.pointer, message));
            }
        }
        Ok(())
    }
}
