//! The arguments of a call, for ways of writing in which each has a place of its own: the objects that fit, and what a
//! parameter may hold.

use std::rc::Rc;

use serde_json::Value;

use super::node::{KINDS, Kind};
use super::patterns;
use super::shape::{Known, Names, ObjectSet, Shape, StateId, TextSet};
use super::states::{States, object_has_value};
use super::weaken;
use super::write::{self, Reached};
use crate::grammar::error::GrammarError;
use crate::grammar::relaxed::Relaxed;

/// The schema of some arguments, read.
pub(in crate::grammar) struct Arguments {
    states: States,
    reached: Reached,
    root: StateId,
}

/// One kind of arguments: all that are required are given, no other than these.
#[derive(Clone, Debug)]
pub(in crate::grammar) struct Form {
    pub given: Vec<Given>,
    pub others: Vec<Others>,
    /// How many that are not listed are needed, and how many there may be.
    pub others_min: u64,
    pub others_max: Option<u64>,
    pub notes: Vec<Relaxed>,
}

#[derive(Clone, Debug)]
pub(in crate::grammar) struct Given {
    pub name: String,
    pub required: bool,
    pub value: StateId,
}

/// Names that are not listed.
#[derive(Clone, Debug)]
pub(in crate::grammar) struct Others {
    /// What the name matches, and what it does not, as expressions of whole texts.
    pub matching: Vec<String>,
    pub but: Vec<String>,
    pub value: StateId,
}

/// What a parameter may hold: a union.
#[derive(Clone, Debug, Default)]
pub(in crate::grammar) struct Content {
    pub is_any: bool,
    /// Expressions of which a text has to match all.
    pub texts: Vec<Vec<String>>,
    pub values: Vec<Value>,
    /// Numbers, arrays, objects: none, some or all of them.
    pub numbers: Extent,
    pub arrays: Extent,
    pub objects: Extent,
    /// What of the texts does not hold.
    pub notes: Vec<Relaxed>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::grammar) enum Extent {
    #[default]
    None,
    Some,
    All,
}

impl Extent {
    fn of(n: usize, is_all: bool) -> Extent {
        match (n, is_all) {
            (0, _) => Extent::None,
            (_, true) => Extent::All,
            (_, false) => Extent::Some,
        }
    }
}

impl Arguments {
    pub(in crate::grammar) fn read(schema: &Value) -> Result<Arguments, GrammarError> {
        let (mut states, root) = super::read(schema)?;
        let reached = Reached::of(&mut states, root)?;
        if states.shape(root).objects.is_empty() {
            let has_objects = states.shape(root).values.iter().any(|value| value.shape.is_object());
            let message = if has_objects { "whole objects are listed" } else { "no object fits" };
            return Err(GrammarError::schema("", message));
        }
        Ok(Arguments { states, reached, root })
    }

    pub(in crate::grammar) fn forms(&mut self) -> Vec<Form> {
        let shape = self.states.shape(self.root);
        let listed = shape.values.iter().filter(|value| value.shape.is_object()).map(|_| Relaxed {
            pointer: String::new(),
            what: "whole objects are listed beside others".to_owned(),
            to: "the others alone".to_owned(),
        });
        let mut listed: Vec<Relaxed> = listed.take(1).collect();
        let sets = shape.objects.iter().filter(|set| object_has_value(&set.shape, &|part| self.reached.is_alive(part)));
        let mut forms: Vec<Form> = sets.map(|set| self.form(&set.shape, &set.notes)).collect();
        forms.iter_mut().take(1).for_each(|form| form.notes.append(&mut listed));
        forms
    }

    fn form(&self, set: &ObjectSet, notes: &[Relaxed]) -> Form {
        let alive = |state: StateId| self.reached.is_alive(state);
        let given = set.properties.iter().filter(|(_, property)| !property.absent && alive(property.state));
        let given: Vec<Given> = given
            .map(|(name, property)| Given { name: name.clone(), required: property.required, value: property.state })
            .collect();
        let required = given.iter().filter(|given| given.required).count() as u64;
        let mut notes = notes.to_vec();
        let taken: Vec<&str> = set.properties.keys().map(String::as_str).collect();
        let mut others = Vec::new();
        for free in set.free.iter().filter(|free| alive(free.state)) {
            let mut but: Vec<String> = taken.iter().map(|name| patterns::literal(name)).collect();
            let matching = match &free.names {
                Names::Matching(pattern) => patterns::whole(pattern).map(|pattern| vec![pattern]),
                Names::Others => {
                    let patterns = set.free.iter().filter_map(|free| match &free.names {
                        Names::Matching(pattern) => Some(patterns::whole(pattern)),
                        Names::Others => None,
                    });
                    patterns.collect::<Option<Vec<_>>>().map(|patterns| {
                        but.extend(patterns);
                        Vec::new()
                    })
                }
            };
            match matching {
                Some(matching) => others.push(Others { matching, but, value: free.state }),
                None if set.min > required => notes.push(Relaxed {
                    pointer: self.states.pointer(self.root).to_owned(),
                    what: "a pattern of names has anchors inside a group".to_owned(),
                    to: "calls without such names".to_owned(),
                }),
                None => {}
            }
        }
        Form {
            given,
            others,
            others_min: set.min.saturating_sub(required),
            others_max: set.max.map(|max| max.saturating_sub(required)),
            notes,
        }
    }

    /// Where the first schema of a state stands.
    pub(in crate::grammar) fn pointer(&self, state: StateId) -> String {
        self.states.pointer(state).to_owned()
    }

    pub(in crate::grammar) fn content(&mut self, state: StateId) -> Content {
        let shape: Rc<Shape> = self.states.shape(state);
        let mut content = Content { is_any: self.states.is_any(state), ..Content::default() };
        for text in &shape.texts {
            let (expressions, mut lost) = self.expressions(state, &text.shape);
            content.texts.push(expressions);
            content.notes.extend(text.notes.iter().cloned());
            content.notes.append(&mut lost);
        }
        for value in &shape.values {
            content.values.push(value.shape.clone());
            content.notes.extend(value.notes.iter().cloned());
        }
        // Where a text may be read as one of these, what does not hold of them does not hold of the text.
        content.notes.extend(shape.numbers.iter().flat_map(|set| set.notes.iter().cloned()));
        content.notes.extend(shape.arrays.iter().flat_map(|set| set.notes.iter().cloned()));
        content.notes.extend(shape.objects.iter().flat_map(|set| set.notes.iter().cloned()));
        let whole_number = |set: &super::shape::NumberSet| *set == super::shape::NumberSet::default();
        content.numbers = Extent::of(shape.numbers.len(), shape.numbers.iter().any(|set| whole_number(&set.shape)));
        let any_array = shape.arrays.iter().any(|set| {
            let set = &set.shape;
            set.prefix.is_empty() && set.min == 0 && set.max.is_none() && self.states.is_any(set.rest)
        });
        content.arrays = Extent::of(shape.arrays.len(), any_array);
        let any_object = shape.objects.iter().any(|set| {
            let set = &set.shape;
            let is_free =
                matches!(set.free.as_slice(), [free] if free.names == Names::Others && self.states.is_any(free.state));
            set.properties.is_empty() && set.min == 0 && set.max.is_none() && is_free
        });
        content.objects = Extent::of(shape.objects.len(), any_object);
        content
    }

    fn expressions(&self, state: StateId, set: &TextSet) -> (Vec<String>, Vec<Relaxed>) {
        let (mut all, mut lost) = (Vec::new(), Vec::new());
        for pattern in &set.patterns {
            match patterns::whole(pattern) {
                Some(pattern) => all.push(pattern),
                None => lost.push(Relaxed {
                    pointer: self.states.pointer(state).to_owned(),
                    what: format!("pattern {pattern:?}: anchors inside a group"),
                    to: "any text".to_owned(),
                }),
            }
        }
        if set.min > 0 || set.max.is_some() {
            let max = set.max.map_or(String::new(), |max| max.to_string());
            all.push(format!("(?s:.{{{},{max}}})", set.min));
        }
        (all, lost)
    }

    /// A schema for `llguidance` of what is no string, of the kinds that are asked for: by a value of each.
    pub(in crate::grammar) fn json(
        &mut self,
        state: StateId,
        wanted: &dyn Fn(&Value) -> bool,
    ) -> Result<(Value, Vec<Relaxed>), GrammarError> {
        let examples = [
            Value::Null,
            false.into(),
            0.into(),
            "".into(),
            Value::Array(Vec::new()),
            Value::Object(serde_json::Map::new()),
        ];
        let kinds: Vec<Kind> = KINDS
            .into_iter()
            .filter(|kind| examples.iter().any(|value| Kind::of(value) == *kind && wanted(value)))
            .collect();
        let mut clean = write::document(&mut self.states, &self.reached, state, &|kind| kinds.contains(&kind));
        weaken::weaken(&mut clean)?;
        Ok((clean.document(), clean.relaxed))
    }
}
