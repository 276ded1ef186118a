//! All conjunctions of schemas that were asked for, each taken apart once.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::expand::expand;
use super::node::{Id, Kind, Node, Rule, target};
use super::shape::{ArraySet, Conj, Known, ObjectSet, Shape, Sign, StateId};
use crate::grammar::error::GrammarError;

/// Conjunctions.
const MAX_STATES: usize = 20_000;
/// How deep it is looked whether there is a value.
const MAX_LOOK: usize = 6;
/// Pairs of options that are compared.
const MAX_PAIRS: usize = 4_000;

pub(super) struct States {
    nodes: Rc<[Node]>,
    by_conj: HashMap<Conj, StateId>,
    conjs: Vec<Conj>,
    shapes: Vec<Option<Rc<Shape>>>,
    /// What is being expanded.
    open: HashSet<StateId>,
    pairs_left: usize,
}

impl States {
    pub(super) fn new(nodes: Vec<Node>) -> States {
        States {
            nodes: nodes.into(),
            by_conj: HashMap::new(),
            conjs: Vec::new(),
            shapes: Vec::new(),
            open: HashSet::new(),
            pairs_left: MAX_PAIRS,
        }
    }

    pub(super) fn root(&mut self) -> StateId {
        self.state(vec![(0, Sign::Yes)])
    }

    /// Where the first of its schemas stands.
    pub(super) fn pointer(&self, state: StateId) -> &str {
        self.conjs[state].first().map_or("", |(id, _)| self.nodes[*id].pointer.as_str())
    }

    /// The schema is `false`.
    pub(super) fn is_false(&self, state: StateId) -> bool {
        matches!(self.conjs[state].as_slice(), [(id, _)] if matches!(self.nodes[*id].rule, Rule::Never))
    }

    /// Every value fits.
    pub(super) fn is_any(&self, state: StateId) -> bool {
        self.conjs[state].is_empty()
    }

    /// The states that can be reached, expanded.
    ///
    /// # Errors
    /// They are too many.
    pub(super) fn reach(&mut self, roots: &[StateId]) -> Result<Vec<StateId>, GrammarError> {
        let mut all: Vec<StateId> = Vec::new();
        let mut seen: HashSet<StateId> = HashSet::new();
        let mut queue: Vec<StateId> = roots.to_vec();
        while let Some(state) = queue.pop() {
            if !seen.insert(state) {
                continue;
            }
            all.push(state);
            GrammarError::within("schemas joined with one another", self.conjs.len(), MAX_STATES)?;
            queue.extend(parts(&self.shape(state)));
        }
        Ok(all)
    }

    /// Of these states those that have a finite value.
    pub(super) fn alive(&mut self, states: &[StateId]) -> HashSet<StateId> {
        let mut alive = HashSet::new();
        loop {
            let before = alive.len();
            for state in states {
                if !alive.contains(state) && has_value(&self.shape(*state), &|part| alive.contains(&part)) {
                    alive.insert(*state);
                }
            }
            if alive.len() == before {
                return alive;
            }
        }
    }

    /// The innermost part for which there is no value, and whether the schema requires itself.
    pub(super) fn blame(&mut self, state: StateId, alive: &HashSet<StateId>) -> (String, bool) {
        let (mut at, mut seen) = (state, HashSet::new());
        while seen.insert(at) {
            let shape = self.shape(at);
            let needed = shape.objects.iter().flat_map(|object| {
                object.shape.properties.values().filter(|property| property.required).map(|property| property.state)
            });
            let items = shape.arrays.iter().flat_map(|array| needed_items(&array.shape));
            match needed.chain(items).find(|part| !alive.contains(part)) {
                Some(part) => at = part,
                None => {
                    if let Some(id) = self.conjs[at].iter().find_map(|(id, _)| self.circle(*id)) {
                        return (self.nodes[id].pointer.clone(), true);
                    }
                    return (self.pointer(at).to_owned(), false);
                }
            }
        }
        (self.pointer(at).to_owned(), true)
    }

    /// The first schema that means itself, where this one leads to such.
    fn circle(&self, id: Id) -> Option<Id> {
        let (mut at, mut seen) = (id, Vec::new());
        loop {
            if seen.contains(&at) {
                return Some(at);
            }
            seen.push(at);
            let Rule::Words(words) = &self.nodes[at].rule else { return None };
            at = *words.reference.iter().chain(&words.all).chain(words.any.iter().flatten()).next()?;
        }
    }

    /// Is there a value, or one of a kind, as far as is seen?
    fn look(&mut self, state: StateId, kind: Option<Kind>, depth: usize) -> bool {
        if depth > MAX_LOOK || self.open.contains(&state) {
            return true;
        }
        let shape = self.shape(state);
        let asked = |of: Kind| kind.is_none_or(|kind| kind == of);
        if shape.values.iter().any(|value| asked(Kind::of(&value.shape)))
            || (asked(Kind::Number) && !shape.numbers.is_empty())
            || (asked(Kind::Text) && !shape.texts.is_empty())
        {
            return true;
        }
        let arrays = shape.arrays.iter().filter(|_| asked(Kind::Array));
        let objects = shape.objects.iter().filter(|_| asked(Kind::Object));
        arrays.into_iter().any(|array| needed_items(&array.shape).all(|part| self.look(part, None, depth + 1)))
            || objects.into_iter().any(|object| {
                let mut required = object.shape.properties.values().filter(|property| property.required);
                required.all(|property| self.look(property.state, None, depth + 1))
            })
    }
}

impl Known for States {
    fn nodes(&self) -> Rc<[Node]> {
        self.nodes.clone()
    }

    fn state(&mut self, conj: Conj) -> StateId {
        let mut conj: Conj = conj
            .into_iter()
            .map(|(id, sign)| (target(&self.nodes, id).unwrap_or(id), sign))
            .filter(|(id, sign)| match self.nodes[*id].rule {
                Rule::Always => *sign == Sign::No,
                Rule::Never => *sign != Sign::No,
                Rule::Words(_) => true,
            })
            .collect();
        conj.sort_unstable();
        conj.dedup();
        if let Some(state) = self.by_conj.get(&conj) {
            return *state;
        }
        let state = self.conjs.len();
        self.by_conj.insert(conj.clone(), state);
        self.conjs.push(conj);
        self.shapes.push(None);
        state
    }

    fn shape(&mut self, state: StateId) -> Rc<Shape> {
        if let Some(shape) = &self.shapes[state] {
            return shape.clone();
        }
        if !self.open.insert(state) {
            // Only asked for by `propertyNames` of itself, whose names are texts.
            return Rc::new(Shape::default());
        }
        let conj = self.conjs[state].clone();
        let shape = Rc::new(expand(self, &conj));
        self.open.remove(&state);
        self.shapes[state] = Some(shape.clone());
        shape
    }

    fn possible(&mut self, state: StateId) -> bool {
        self.look(state, None, 0)
    }

    fn overlap(&mut self, generated: Id, other: Id, kind: Kind, alone: bool) -> bool {
        if self.pairs_left == 0 {
            return true;
        }
        self.pairs_left -= 1;
        let sign = if alone { Sign::Yes } else { Sign::Also };
        let state = self.state(vec![(generated, sign), (other, Sign::Also)]);
        self.look(state, Some(kind), 0)
    }
}

/// The states of items that must be there.
fn needed_items(array: &ArraySet) -> impl Iterator<Item = StateId> {
    let min = usize::try_from(array.min).unwrap_or(usize::MAX);
    let rest = (min > array.prefix.len()).then_some(array.rest);
    array.prefix.iter().take(min).copied().chain(rest).collect::<Vec<_>>().into_iter()
}

fn has_value(shape: &Shape, is_alive: &dyn Fn(StateId) -> bool) -> bool {
    !shape.values.is_empty()
        || !shape.numbers.is_empty()
        || !shape.texts.is_empty()
        || shape.arrays.iter().any(|array| array_has_value(&array.shape, is_alive))
        || shape.objects.iter().any(|object| object_has_value(&object.shape, is_alive))
}

pub(super) fn array_has_value(array: &ArraySet, is_alive: &dyn Fn(StateId) -> bool) -> bool {
    needed_items(array).all(is_alive)
}

pub(super) fn object_has_value(object: &ObjectSet, is_alive: &dyn Fn(StateId) -> bool) -> bool {
    let required = object.properties.values().filter(|property| property.required);
    let named = required.clone().count() as u64;
    required.clone().all(|property| is_alive(property.state))
        && (object.min <= named || object.free.iter().any(|free| is_alive(free.state)))
}

/// The states inside.
fn parts(shape: &Shape) -> Vec<StateId> {
    let arrays = shape.arrays.iter().flat_map(|array| array.shape.prefix.iter().copied().chain([array.shape.rest]));
    let objects = shape.objects.iter().flat_map(|object| {
        let given = object.shape.properties.values().filter(|property| !property.absent);
        given.map(|property| property.state).chain(object.shape.free.iter().map(|free| free.state))
    });
    arrays.chain(objects).collect()
}

/// How often each state stands inside another.
pub(super) fn uses(states: &mut States, root: StateId, all: &[StateId]) -> HashMap<StateId, usize> {
    let mut uses = HashMap::from([(root, 1)]);
    for state in all {
        for part in parts(&states.shape(*state)) {
            *uses.entry(part).or_insert(0) += 1;
        }
    }
    uses
}
