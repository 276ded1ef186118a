//! What the values of some schemas together look like, by kind of value: the form between reading and writing.

use std::rc::Rc;

use indexmap::IndexMap;
use serde_json::Value;

use super::node::{Bound, Id, Kind, Node};
use crate::grammar::relaxed::Relaxed;

/// How a schema is to hold for a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Sign {
    /// It fits.
    Yes,
    /// It does not.
    No,
    /// It fits as the standard says: nothing is forbidden that the schema does not forbid. To ask whether two schemas overlap.
    Also,
}

/// Schemas that a value has to satisfy together: sorted, none twice.
pub(super) type Conj = Vec<(Id, Sign)>;

/// The number of a conjunction.
pub(in crate::grammar) type StateId = usize;

/// What expanding a conjunction needs of the others.
pub(super) trait Known {
    fn nodes(&self) -> Rc<[Node]>;
    fn state(&mut self, conj: Conj) -> StateId;
    fn shape(&mut self, state: StateId) -> Rc<Shape>;
    /// Is there a value, as far as is seen? False is certain.
    fn possible(&mut self, state: StateId) -> bool;
    /// May a value of this kind that is generated for one fit the other too? `alone`: nothing else holds for the value, so that
    /// what is stricter here than in the standard is sure.
    fn overlap(&mut self, generated: Id, other: Id, kind: Kind, alone: bool) -> bool;
}

/// A part of a shape with what is not enforced of it.
#[derive(Clone, Debug)]
pub(super) struct Noted<T> {
    pub shape: T,
    pub notes: Vec<Relaxed>,
}

/// The union of all that may stand there.
#[derive(Clone, Debug, Default)]
pub(super) struct Shape {
    pub values: Vec<Noted<Value>>,
    pub numbers: Vec<Noted<NumberSet>>,
    pub texts: Vec<Noted<TextSet>>,
    pub arrays: Vec<Noted<ArraySet>>,
    pub objects: Vec<Noted<ObjectSet>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct NumberSet {
    pub low: Option<Bound>,
    pub high: Option<Bound>,
    pub integer: bool,
    pub step: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TextSet {
    pub min: u64,
    pub max: Option<u64>,
    pub patterns: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ArraySet {
    pub prefix: Vec<StateId>,
    pub rest: StateId,
    pub min: u64,
    pub max: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ObjectSet {
    pub properties: IndexMap<String, Property>,
    pub free: Vec<Free>,
    pub min: u64,
    pub max: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Property {
    pub state: StateId,
    pub required: bool,
    /// It must not be given.
    pub absent: bool,
}

/// Names that are not listed.
#[derive(Clone, Debug)]
pub(super) struct Free {
    pub names: Names,
    pub state: StateId,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Names {
    /// All that are neither listed nor in another class.
    Others,
    Matching(String),
}
