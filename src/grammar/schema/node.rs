//! A schema as it was read: one node for each subschema that can be reached, with its keywords checked.

use indexmap::IndexMap;
use serde_json::Value;

use crate::grammar::relaxed::Relaxed;

/// The number of a node.
pub(super) type Id = usize;

/// The kinds of JSON values. An integer is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    Null,
    Boolean,
    Number,
    Text,
    Array,
    Object,
}

pub(super) const KINDS: [Kind; 6] = [Kind::Null, Kind::Boolean, Kind::Number, Kind::Text, Kind::Array, Kind::Object];

impl Kind {
    pub(super) fn of(value: &Value) -> Kind {
        match value {
            Value::Null => Kind::Null,
            Value::Bool(_) => Kind::Boolean,
            Value::Number(_) => Kind::Number,
            Value::String(_) => Kind::Text,
            Value::Array(_) => Kind::Array,
            Value::Object(_) => Kind::Object,
        }
    }
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KindSet(u8);

impl KindSet {
    pub(super) fn one(kind: Kind) -> KindSet {
        KindSet(1 << kind as u8)
    }

    pub(super) fn insert(&mut self, kind: Kind) {
        self.0 |= 1 << kind as u8;
    }

    pub(super) fn add(&mut self, other: KindSet) {
        self.0 |= other.0;
    }

    pub(super) fn has(self, kind: Kind) -> bool {
        self.0 >> kind as u8 & 1 == 1
    }

    /// The kind, where it is one.
    pub(super) fn single(self) -> Option<Kind> {
        KINDS.into_iter().find(|kind| self == KindSet::one(*kind))
    }
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    /// A JSON pointer into the schema as sent.
    pub pointer: String,
    pub rule: Rule,
}

#[derive(Clone, Debug)]
pub(super) enum Rule {
    Always,
    Never,
    Words(Box<Words>),
}

/// The keywords of one schema. What could not be read into them is in `lost`.
#[derive(Clone, Debug, Default)]
pub(super) struct Words {
    pub types: Option<Types>,
    /// The lists of `enum` and `const`.
    pub values: Vec<Vec<Value>>,
    pub reference: Option<Id>,
    /// By an old draft the keywords beside `$ref` say nothing.
    pub is_old_reference: bool,
    pub all: Vec<Id>,
    pub any: Option<Vec<Id>>,
    pub one: Option<Vec<Id>>,
    pub not: Option<Id>,
    pub condition: Option<Condition>,
    pub number: NumberWords,
    pub text: TextWords,
    pub array: ArrayWords,
    pub object: ObjectWords,
    /// OpenAPI's `nullable`.
    pub nullable: bool,
    /// The kinds of values that the keywords speak of.
    pub spoken: KindSet,
    pub lost: Vec<Lost>,
}

/// A keyword that does not hold, for the kinds of values that it speaks of.
#[derive(Clone, Debug)]
pub(super) struct Lost {
    pub kind: Option<Kind>,
    pub said: Relaxed,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Types {
    pub kinds: KindSet,
    /// Of the numbers only integers.
    pub integer: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Condition {
    pub test: Id,
    pub then: Option<Id>,
    pub otherwise: Option<Id>,
}

/// A bound, and whether it is out of the range itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bound {
    pub at: f64,
    pub open: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct NumberWords {
    pub low: Vec<Bound>,
    pub high: Vec<Bound>,
    pub step: Option<f64>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct TextWords {
    pub min: Option<u64>,
    pub max: Option<u64>,
    /// `pattern`, as it is searched for.
    pub pattern: Option<String>,
    /// `format`, as the expression of its texts and the most characters that they have.
    pub format: Option<(String, Option<u64>)>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ArrayWords {
    pub prefix: Vec<Id>,
    pub items: Option<Id>,
    pub min: Option<u64>,
    pub max: Option<u64>,
    pub contains: Option<Contains>,
    pub unique: bool,
    pub unevaluated: Option<Id>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Contains {
    pub item: Id,
    pub min: u64,
    pub max: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ObjectWords {
    /// `properties` stands there, be it empty.
    pub lists: bool,
    pub properties: IndexMap<String, Id>,
    pub patterns: Vec<(String, Id)>,
    pub additional: Option<Id>,
    /// A pattern that cannot be followed: other properties may be anything.
    pub any_others: bool,
    pub required: Vec<String>,
    pub min: Option<u64>,
    pub max: Option<u64>,
    pub names: Option<Id>,
    pub dependent_names: Vec<(String, Vec<String>)>,
    pub dependent_schemas: Vec<(String, Id)>,
    pub unevaluated: Option<Id>,
}

impl Words {
    /// Nothing but a reference.
    pub(super) fn only_reference(&self) -> Option<Id> {
        let has_more = self.types.is_some()
            || !self.values.is_empty()
            || !self.all.is_empty()
            || self.any.is_some()
            || self.one.is_some()
            || self.not.is_some()
            || self.condition.is_some()
            || self.spoken != KindSet::default()
            || self.nullable
            || !self.lost.is_empty();
        self.reference.filter(|_| !has_more)
    }
}

/// The node that references lead to in the end; nothing where they lead in a circle.
pub(super) fn target(nodes: &[Node], id: Id) -> Option<Id> {
    let mut at = id;
    for _ in 0..=nodes.len() {
        match &nodes[at].rule {
            Rule::Words(words) => match words.only_reference() {
                Some(next) => at = next,
                None => return Some(at),
            },
            _ => return Some(at),
        }
    }
    None
}

/// Are these the same to JSON Schema? A number is the same however it is written.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => x == y || (x.as_f64().is_some() && x.as_f64() == y.as_f64()),
        (Value::Array(x), Value::Array(y)) => x.len() == y.len() && x.iter().zip(y).all(|(x, y)| same(x, y)),
        (Value::Object(x), Value::Object(y)) => {
            x.len() == y.len() && x.iter().all(|(key, x)| y.get(key).is_some_and(|y| same(x, y)))
        }
        _ => a == b,
    }
}

/// All booleans, or `null`.
pub(super) fn all_of(kind: Kind) -> Vec<Value> {
    match kind {
        Kind::Boolean => vec![Value::Bool(true), Value::Bool(false)],
        _ => vec![Value::Null],
    }
}
