//! Writes shapes as schemas of simple keywords alone, which `llguidance` compiles: `anyOf` of one kind of value each.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use super::clean::{Clean, join};
use super::node::Kind;
use super::patterns;
use super::shape::{ArraySet, Free, Known, Names, Noted, NumberSet, ObjectSet, Shape, StateId, TextSet};
use super::states::{States, array_has_value, object_has_value, uses};
use crate::grammar::error::GrammarError;

/// Schemas inside one another before one is put among the definitions.
const MAX_INLINE: usize = 24;

/// The states of a schema that have values.
pub(super) struct Reached {
    alive: HashSet<StateId>,
    uses: HashMap<StateId, usize>,
}

impl Reached {
    /// # Errors
    /// No value fits, or the states are too many.
    pub(super) fn of(states: &mut States, root: StateId) -> Result<Reached, GrammarError> {
        let all = states.reach(&[root])?;
        let alive = states.alive(&all);
        if !alive.contains(&root) {
            let (pointer, is_circle) = states.blame(root, &alive);
            let message = if is_circle {
                "no finite value fits: the schema requires itself; make the reference optional"
            } else if pointer.is_empty() && states.is_false(root) {
                "`false` accepts no value"
            } else {
                "unsatisfiable: no value fits"
            };
            return Err(GrammarError::schema(&pointer, message));
        }
        Ok(Reached { alive, uses: uses(states, root, &all) })
    }

    pub(super) fn is_alive(&self, state: StateId) -> bool {
        self.alive.contains(&state)
    }
}

/// The kinds of values that are written.
pub(super) type Wanted<'a> = &'a dyn Fn(Kind) -> bool;

/// A state as a document of its own.
pub(super) fn document(states: &mut States, reached: &Reached, root: StateId, wanted: Wanted) -> Clean {
    let clean = Clean::new();
    let mut writer = Writer { states, reached, clean, numbers: HashMap::new(), queue: Vec::new() };
    let shape = writer.states.shape(root);
    let place = Place { def: None, pointer: String::new(), depth: 0 };
    let is_whole = super::node::KINDS.into_iter().all(wanted);
    // Where it is inside itself, the whole is a definition too.
    writer.clean.root = if is_whole && writer.is_definition(root) {
        writer.reference(root)
    } else {
        writer.shape(root, &shape, &place, wanted)
    };
    while let Some((number, state)) = writer.queue.pop() {
        let place = Place { def: Some(number), pointer: String::new(), depth: 0 };
        let shape = writer.states.shape(state);
        let value = writer.shape(state, &shape, &place, &|_| true);
        writer.clean.defs[number].1 = value;
    }
    writer.clean
}

struct Writer<'a> {
    states: &'a mut States,
    reached: &'a Reached,
    clean: Clean,
    /// Definitions of states.
    numbers: HashMap<StateId, usize>,
    queue: Vec<(usize, StateId)>,
}

struct Place {
    def: Option<usize>,
    pointer: String,
    depth: usize,
}

impl Place {
    fn inside(&self, step: &str) -> Place {
        Place { def: self.def, pointer: join(&self.pointer, step), depth: self.depth }
    }
}

impl Writer<'_> {
    fn is_definition(&mut self, state: StateId) -> bool {
        let shape = self.states.shape(state);
        let has_parts = !shape.arrays.is_empty() || !shape.objects.is_empty();
        let is_shared = self.reached.uses.get(&state).is_some_and(|n| *n > 1);
        has_parts && !self.states.is_any(state) && (is_shared || self.numbers.contains_key(&state))
    }

    fn reference(&mut self, state: StateId) -> Value {
        let next = self.clean.defs.len();
        let number = *self.numbers.entry(state).or_insert(next);
        if number == next {
            self.clean.defs.push((self.states.pointer(state).to_owned(), Value::Null));
            self.queue.push((number, state));
        }
        json!({"$ref": format!("#/$defs/{number}")})
    }

    fn state(&mut self, state: StateId, place: &Place) -> Value {
        if !self.reached.is_alive(state) {
            return Value::Bool(false);
        }
        if self.states.is_any(state) {
            return Value::Bool(true);
        }
        if self.is_definition(state) || (place.depth > MAX_INLINE) {
            return self.reference(state);
        }
        let shape = self.states.shape(state);
        let inner = Place { def: place.def, pointer: place.pointer.clone(), depth: place.depth + 1 };
        self.shape(state, &shape, &inner, &|_| true)
    }

    fn shape(&mut self, state: StateId, shape: &Shape, place: &Place, wanted: Wanted) -> Value {
        let origin = self.states.pointer(state).to_owned();
        self.clean.origins.insert((place.def, place.pointer.clone()), origin);
        if self.states.is_any(state) && super::node::KINDS.into_iter().all(wanted) {
            return json!({});
        }
        let count = |wanted: bool, n: usize| if wanted { n } else { 0 };
        let values = shape.values.iter().filter(|value| wanted(Kind::of(&value.shape)));
        let values: Vec<&Noted<Value>> = values.collect();
        let n = usize::from(!values.is_empty())
            + count(wanted(Kind::Number), shape.numbers.len())
            + count(wanted(Kind::Text), shape.texts.len())
            + count(wanted(Kind::Array), shape.arrays.len())
            + count(wanted(Kind::Object), shape.objects.len());
        let mut options = Vec::new();
        if !values.is_empty() {
            values.iter().for_each(|value| self.clean.tell(&value.notes));
            let values: Vec<Value> = values.iter().map(|value| value.shape.clone()).collect();
            options.push(finite(values));
        }
        for set in shape.numbers.iter().filter(|_| wanted(Kind::Number)) {
            self.clean.tell(&set.notes);
            options.push(number(&set.shape));
        }
        for set in shape.texts.iter().filter(|_| wanted(Kind::Text)) {
            self.clean.tell(&set.notes);
            options.push(text(&set.shape));
        }
        for set in shape.arrays.iter().filter(|_| wanted(Kind::Array)) {
            if array_has_value(&set.shape, &|part| self.reached.is_alive(part)) {
                self.clean.tell(&set.notes);
                let place = self.option(place, n, options.len());
                options.push(self.array(&set.shape, &place));
            }
        }
        for set in shape.objects.iter().filter(|_| wanted(Kind::Object)) {
            if object_has_value(&set.shape, &|part| self.reached.is_alive(part)) {
                self.clean.tell(&set.notes);
                let place = self.option(place, n, options.len());
                options.push(self.object(&set.shape, &place));
            }
        }
        match options.len() {
            1 if n == 1 => options.remove(0),
            _ => json!({"anyOf": options}),
        }
    }

    fn option(&self, place: &Place, n: usize, at: usize) -> Place {
        if n == 1 { place.inside_nothing() } else { place.inside("anyOf").inside(&at.to_string()) }
    }

    fn array(&mut self, set: &ArraySet, place: &Place) -> Value {
        let mut out = Map::new();
        out.insert("type".to_owned(), "array".into());
        let mut prefix = Vec::new();
        for (i, part) in set.prefix.iter().enumerate() {
            let place = place.inside("prefixItems").inside(&i.to_string());
            prefix.push(self.state(*part, &place));
        }
        if !prefix.is_empty() {
            out.insert("prefixItems".to_owned(), prefix.into());
        }
        let rest = self.state(set.rest, &place.inside("items"));
        if rest != Value::Bool(true) {
            out.insert("items".to_owned(), rest);
        }
        if set.min > 0 {
            out.insert("minItems".to_owned(), set.min.into());
        }
        out.extend(set.max.map(|max| ("maxItems".to_owned(), max.into())));
        Value::Object(out)
    }

    fn object(&mut self, set: &ObjectSet, place: &Place) -> Value {
        let mut out = Map::new();
        out.insert("type".to_owned(), "object".into());
        let mut properties = Map::new();
        let mut required: Vec<Value> = Vec::new();
        for (name, property) in &set.properties {
            let place = place.inside("properties").inside(name);
            let value = if property.absent { Value::Bool(false) } else { self.state(property.state, &place) };
            required.extend(property.required.then(|| name.clone().into()));
            properties.insert(name.clone(), value);
        }
        let names: Vec<&str> = set.properties.keys().map(String::as_str).collect();
        if !properties.is_empty() {
            out.insert("properties".to_owned(), properties.into());
        }
        let mut by_pattern = Map::new();
        let mut others = Value::Bool(false);
        let has_patterns = set.free.iter().any(|free| free.names != Names::Others);
        for Free { names: class, state } in &set.free {
            match class {
                Names::Matching(pattern) => {
                    let value = self.state(*state, &place.inside("patternProperties").inside(pattern));
                    by_pattern.insert(pattern.clone(), value);
                }
                Names::Others => {
                    let pattern = patterns::all_but(&names).filter(|_| !has_patterns && !names.is_empty());
                    let is_exact = pattern.is_some() || (!has_patterns && names.is_empty());
                    // The library takes an escaped letter of a name for another letter.
                    self.clean.no_escapes |= !is_exact;
                    match pattern {
                        Some(pattern) => {
                            let value = self.state(*state, &place.inside("patternProperties").inside(&pattern));
                            by_pattern.insert(pattern, value);
                        }
                        None => others = self.state(*state, &place.inside("additionalProperties")),
                    }
                }
            }
        }
        if !by_pattern.is_empty() {
            out.insert("patternProperties".to_owned(), by_pattern.into());
        }
        if others != Value::Bool(true) || !names.is_empty() {
            out.insert("additionalProperties".to_owned(), others);
        }
        if !required.is_empty() {
            out.insert("required".to_owned(), required.into());
        }
        if set.min > 0 {
            out.insert("minProperties".to_owned(), set.min.into());
        }
        out.extend(set.max.map(|max| ("maxProperties".to_owned(), max.into())));
        Value::Object(out)
    }
}

impl Place {
    fn inside_nothing(&self) -> Place {
        Place { def: self.def, pointer: self.pointer.clone(), depth: self.depth }
    }
}

fn finite(mut values: Vec<Value>) -> Value {
    let both = [json!(true), json!(false)];
    match values.as_slice() {
        [Value::Null] => json!({"type": "null"}),
        [a, b] if [a, b].into_iter().all(|value| both.contains(value)) => json!({"type": "boolean"}),
        [_] => json!({"const": values.remove(0)}),
        _ => json!({"enum": values}),
    }
}

fn number(set: &NumberSet) -> Value {
    let mut out = Map::new();
    out.insert("type".to_owned(), if set.integer { "integer" } else { "number" }.into());
    let mut bound = |key: &str, open: &str, bound: Option<super::node::Bound>| {
        out.extend(bound.map(|bound| (if bound.open { open } else { key }.to_owned(), plain(bound.at))));
    };
    bound("minimum", "exclusiveMinimum", set.low);
    bound("maximum", "exclusiveMaximum", set.high);
    out.extend(set.step.map(|step| ("multipleOf".to_owned(), plain(step))));
    Value::Object(out)
}

/// 3 and not 3.0.
fn plain(n: f64) -> Value {
    if n.fract() == 0.0 && n.abs() < 9e15 { json!(n as i64) } else { json!(n) }
}

fn text(set: &TextSet) -> Value {
    let mut out = Map::new();
    out.insert("type".to_owned(), "string".into());
    if set.min > 0 {
        out.insert("minLength".to_owned(), set.min.into());
    }
    out.extend(set.max.map(|max| ("maxLength".to_owned(), max.into())));
    let mut patterns = set.patterns.iter();
    out.extend(patterns.next().map(|pattern| ("pattern".to_owned(), pattern.clone().into())));
    let more: Vec<Value> = patterns.map(|pattern| json!({"type": "string", "pattern": pattern})).collect();
    if !more.is_empty() {
        out.insert("allOf".to_owned(), more.into());
    }
    Value::Object(out)
}
