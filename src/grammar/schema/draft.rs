//! A conjunction while it is taken apart: what is known so far of one kind of value.

use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use indexmap::{IndexMap, IndexSet};
use serde_json::Value;

use super::keywords::{common_step, is_inside};
use super::node::{Bound, Id, Kind, KindSet, Node, same};
use super::shape::{NumberSet, Sign, TextSet};
use crate::grammar::relaxed::Relaxed;

/// What to say where a schema that must not fit cannot be kept from it.
pub(super) type Blame = Option<Rc<Relaxed>>;

/// A schema that is still to be looked at.
#[derive(Clone, Debug)]
pub(super) struct Todo {
    pub id: Id,
    pub sign: Sign,
    /// The `unevaluated` keywords that it is under, a bit each.
    pub scope: u64,
    pub blame: Blame,
    /// The schemas that led here.
    pub via: Option<Rc<Link>>,
}

/// A schema that another is in, for the same value.
#[derive(Debug)]
pub(super) struct Link {
    pub id: Id,
    pub sign: Sign,
    pub up: Option<Rc<Link>>,
}

impl Todo {
    /// Has the schema led to itself, for the same value?
    pub(super) fn is_circle(&self) -> bool {
        let mut link = self.via.as_deref();
        while let Some(at) = link {
            if (at.id, at.sign) == (self.id, self.sign) {
                return true;
            }
            link = at.up.as_deref();
        }
        false
    }

    /// What led to the schemas inside this one.
    pub(super) fn link(&self) -> Option<Rc<Link>> {
        Some(Rc::new(Link { id: self.id, sign: self.sign, up: self.via.clone() }))
    }
}

/// Something more that holds.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Hold(Todo),
    Absent(String),
    /// The name is given; whether it counts as listed.
    Present(String, bool),
    Property(String, Id, Sign),
    MinProperties(u64),
    MaxProperties(u64),
    MinItems(u64),
    MaxItems(u64),
    Item(usize, Id, Sign),
    EveryItem(Id, Sign),
    Low(Bound),
    High(Bound),
    /// A number that is no integer; what to say where that is all that is known.
    Fraction(Blame),
    MinLength(u64),
    MaxLength(u64),
    Except(Vec<Value>),
}

/// One of the options holds; what to say where they are too many to be told apart.
#[derive(Clone, Debug)]
pub(super) struct Fork {
    pub options: Vec<Vec<Change>>,
    pub said: Blame,
}

/// The object keywords of one schema.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub sign: Sign,
    pub scope: u64,
    pub lists: bool,
    pub named: IndexMap<String, Id>,
    pub patterns: Vec<(String, Id)>,
    pub additional: Option<Id>,
    pub any_others: bool,
}

#[derive(Clone, Debug)]
pub(super) struct ArrayGroup {
    pub sign: Sign,
    pub scope: u64,
    pub prefix: Vec<Id>,
    pub items: Option<Id>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ObjectDraft {
    pub groups: Vec<Group>,
    /// Names that are given, in order, and whether they count as listed.
    pub present: IndexMap<String, bool>,
    pub absent: IndexSet<String>,
    pub extra: Vec<(String, Id, Sign)>,
    pub min: u64,
    pub max: Option<u64>,
    /// Of `minProperties` and `maxProperties`, for what is said of them.
    pub count_pointer: String,
    pub names: Vec<(Id, Sign)>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ArrayDraft {
    pub groups: Vec<ArrayGroup>,
    pub extra: Vec<(usize, Id, Sign)>,
    pub every: Vec<(Id, Sign)>,
    pub min: u64,
    pub max: Option<u64>,
    pub unique: Option<Relaxed>,
}

#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub kind: Kind,
    pub todo: Vec<Todo>,
    pub forks: VecDeque<Fork>,
    pub done: BTreeSet<(Id, Sign)>,
    /// A `type`, `const` or `enum` was seen.
    pub typed: bool,
    pub spoken: KindSet,
    pub values: Option<Vec<Value>>,
    pub excluded: Vec<Value>,
    pub number: NumberSet,
    pub fraction: Option<Blame>,
    pub text: TextSet,
    pub array: ArrayDraft,
    pub object: ObjectDraft,
    /// The schemas of `unevaluated` keywords; the index is the bit of the scope.
    pub unevaluated: Vec<(Id, Sign)>,
    pub notes: Vec<Relaxed>,
}

impl Draft {
    pub(super) fn new(nodes: &[Node], kind: Kind, conj: &[(Id, Sign)]) -> Draft {
        let said = |id: Id| Relaxed {
            pointer: nodes[id].pointer.clone(),
            what: "that this must not fit cannot be enforced".to_owned(),
            to: "it may".to_owned(),
        };
        let blame = |id, sign| (sign == Sign::No).then(|| Rc::new(said(id)));
        let todo = conj.iter().rev().map(|&(id, sign)| Todo { id, sign, scope: 0, blame: blame(id, sign), via: None });
        Draft {
            kind,
            todo: todo.collect(),
            forks: VecDeque::new(),
            done: BTreeSet::new(),
            typed: false,
            spoken: KindSet::default(),
            values: None,
            excluded: Vec::new(),
            number: NumberSet::default(),
            fraction: None,
            text: TextSet::default(),
            array: ArrayDraft::default(),
            object: ObjectDraft::default(),
            unevaluated: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub(super) fn note(&mut self, pointer: String, what: &str, to: &str) {
        self.notes.push(Relaxed { pointer, what: what.to_owned(), to: to.to_owned() });
    }

    /// Can a value still fit?
    pub(super) fn change(&mut self, change: Change) -> bool {
        match change {
            Change::Hold(todo) => self.todo.push(todo),
            Change::Absent(name) => {
                let is_given = self.object.present.contains_key(&name);
                self.object.absent.insert(name);
                return !is_given;
            }
            Change::Present(name, listed) => {
                let is_absent = self.object.absent.contains(&name);
                *self.object.present.entry(name).or_insert(false) |= listed;
                return !is_absent;
            }
            Change::Property(name, id, sign) => self.object.extra.push((name, id, sign)),
            Change::MinProperties(n) => self.object.min = self.object.min.max(n),
            Change::MaxProperties(n) => self.object.max = least(self.object.max, n),
            Change::MinItems(n) => self.array.min = self.array.min.max(n),
            Change::MaxItems(n) => self.array.max = least(self.array.max, n),
            Change::Item(at, id, sign) => self.array.extra.push((at, id, sign)),
            Change::EveryItem(id, sign) => self.array.every.push((id, sign)),
            Change::Low(bound) => self.number.low = stricter(self.number.low, bound, true),
            Change::High(bound) => self.number.high = stricter(self.number.high, bound, false),
            Change::Fraction(said) => self.fraction = Some(said),
            Change::MinLength(n) => self.text.min = self.text.min.max(n),
            Change::MaxLength(n) => self.text.max = least(self.text.max, n),
            Change::Except(values) => self.excluded.extend(values),
        }
        self.is_open()
    }

    /// No two bounds exclude each other.
    fn is_open(&self) -> bool {
        let above = |max: Option<u64>, min: u64| max.is_none_or(|max| max >= min);
        above(self.object.max, self.object.min)
            && above(self.array.max, self.array.min)
            && above(self.text.max, self.text.min)
            && self.number.is_open()
    }

    /// Holds these values alone.
    pub(super) fn limit(&mut self, values: &[Value]) -> bool {
        let own = values.iter().filter(|value| Kind::of(value) == self.kind);
        let kept: Vec<Value> = match &self.values {
            None => own.cloned().collect(),
            Some(before) => {
                let own: Vec<&Value> = own.collect();
                before.iter().filter(|value| own.iter().any(|other| same(other, value))).cloned().collect()
            }
        };
        let is_open = !kept.is_empty();
        self.values = Some(kept);
        is_open
    }

    /// A step more; false where its remainders are too many with those before.
    pub(super) fn step(&mut self, step: f64) -> bool {
        match self.number.step.map_or(Some(step), |before| common_step(before, step)) {
            Some(both) => {
                self.number.step = Some(both);
                true
            }
            None => false,
        }
    }
}

impl NumberSet {
    /// Is there room between the bounds?
    pub(super) fn is_open(&self) -> bool {
        let (Some(low), Some(high)) = (self.low, self.high) else { return true };
        if !self.integer {
            return low.at < high.at || (low.at == high.at && !low.open && !high.open);
        }
        let first = if low.open { low.at.floor() + 1.0 } else { low.at.ceil() };
        is_inside(first, Some(low), Some(high))
    }
}

pub(super) fn least(before: Option<u64>, n: u64) -> Option<u64> {
    Some(before.map_or(n, |before| before.min(n)))
}

fn stricter(before: Option<Bound>, bound: Bound, is_low: bool) -> Option<Bound> {
    let Some(before) = before else { return Some(bound) };
    if before.at == bound.at {
        return Some(Bound { open: before.open || bound.open, ..bound });
    }
    let is_stricter = if is_low { bound.at > before.at } else { bound.at < before.at };
    Some(if is_stricter { bound } else { before })
}
