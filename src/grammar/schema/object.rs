//! What is known of an object becomes a part of the shape: named properties, classes of other names, how many.

use std::rc::Rc;

use indexmap::{IndexMap, IndexSet};
use serde_json::Value;

use super::draft::{Draft, ObjectDraft};
use super::judge;
use super::node::{Id, Node};
use super::patterns;
use super::shape::{Conj, Free, Known, Names, Noted, ObjectSet, Property, Shape, Sign};
use crate::grammar::relaxed::Relaxed;

/// Properties of which it is counted how many are given.
const MAX_COUNTED: usize = 6;
/// Combinations of them.
const MAX_COMBINATIONS: usize = 64;

pub(super) fn finish(nodes: &[Node], known: &mut dyn Known, mut draft: Draft, shape: &mut Shape) {
    let object = std::mem::take(&mut draft.object);
    if !draft.excluded.is_empty() {
        draft.note(String::new(), "an object that must not come is not told from others", "it may come");
    }
    let main = || object.groups.iter().filter(|group| group.sign == Sign::Yes);
    // An object that lists its properties has no others, unless it says so.
    let is_closed = main().any(|group| group.lists)
        && !main().any(|group| group.any_others || !group.patterns.is_empty())
        && draft.unevaluated.is_empty();
    let mut merge = Merge { nodes, known, unevaluated: &draft.unevaluated, object: &object, notes: Vec::new() };
    let Some(set) = merge.set(is_closed) else { return };
    let notes = std::mem::take(&mut merge.notes);
    draft.notes.extend(notes);
    counted(known, &set, &object.count_pointer, &draft.notes, shape);
}

struct Merge<'a> {
    nodes: &'a [Node],
    known: &'a mut dyn Known,
    unevaluated: &'a [(Id, Sign)],
    object: &'a ObjectDraft,
    notes: Vec<Relaxed>,
}

impl Merge<'_> {
    /// Nothing where no object fits.
    fn set(&mut self, is_closed: bool) -> Option<ObjectSet> {
        let object = self.object;
        let mut listed: IndexSet<&String> = IndexSet::new();
        for group in object.groups.iter().filter(|group| group.sign == Sign::Yes) {
            listed.extend(group.named.keys());
        }
        let is_unlisted = |(name, counts): (&String, &bool)| !counts && !listed.contains(name);
        if is_closed && object.present.iter().any(is_unlisted) {
            return None;
        }
        listed.extend(object.present.keys());
        if !is_closed {
            listed.extend(object.groups.iter().flat_map(|group| group.named.keys()));
            listed.extend(object.extra.iter().map(|(name, ..)| name));
            listed.extend(&object.absent);
        }
        let mut properties = IndexMap::new();
        for name in listed {
            let property = self.property(name)?;
            properties.insert(name.clone(), property);
        }
        let free = if is_closed { Vec::new() } else { self.free(&mut properties)? };
        Some(ObjectSet { properties, free, min: object.min, max: object.max })
    }

    fn property(&mut self, name: &str) -> Option<Property> {
        let conj = self.conj(name);
        let state = self.known.state(conj);
        let required = self.object.present.contains_key(name);
        let is_named = self.may_be_named(name);
        let absent = self.object.absent.contains(name) || !is_named || (!required && !self.known.possible(state));
        (!(absent && required)).then_some(Property { state, required, absent })
    }

    /// Does the name fit `propertyNames`?
    fn may_be_named(&mut self, name: &str) -> bool {
        for (id, sign) in &self.object.names {
            match judge::fits(self.nodes, *id, &Value::String(name.to_owned())) {
                Some(fits) if fits == (*sign == Sign::No) => return false,
                Some(_) => {}
                None => self.lose(*id, format!("the name {name:?} cannot be judged"), "it may come"),
            }
        }
        true
    }

    fn lose(&mut self, id: Id, what: String, to: &str) {
        self.notes.push(Relaxed { pointer: self.nodes[id].pointer.clone(), what, to: to.to_owned() });
    }

    /// All that has to hold for the property of this name.
    fn conj(&mut self, name: &str) -> Conj {
        let mut conj: Conj = Vec::new();
        let mut evaluated = 0_u64;
        for group in &self.object.groups {
            let mut is_known = false;
            if let Some(id) = group.named.get(name) {
                is_known = true;
                conj.push((*id, group.sign));
            }
            for (pattern, id) in &group.patterns {
                // What cannot be told is held to both.
                if patterns::matches(pattern, name) != Some(false) {
                    is_known = true;
                    conj.push((*id, group.sign));
                }
            }
            if !is_known {
                conj.extend(group.additional.map(|id| (id, group.sign)));
            }
            if is_known || group.any_others {
                evaluated |= group.scope;
            }
        }
        conj.extend(self.object.extra.iter().filter(|(other, ..)| other == name).map(|(_, id, sign)| (*id, *sign)));
        self.not_evaluated(&mut conj, evaluated);
        conj
    }

    fn not_evaluated(&self, conj: &mut Conj, evaluated: u64) {
        let all = self.unevaluated.iter().enumerate();
        conj.extend(all.filter(|(bit, _)| evaluated >> bit & 1 == 0).map(|(_, rule)| *rule));
    }

    /// All that has to hold for names that are not listed, and match this pattern alone or none.
    fn free_conj(&self, matched: Option<&str>) -> Conj {
        let mut conj: Conj = Vec::new();
        let mut evaluated = 0_u64;
        for group in &self.object.groups {
            let own = group.patterns.iter().find(|(pattern, _)| Some(pattern.as_str()) == matched);
            conj.extend(own.map(|(_, id)| *id).or(group.additional).map(|id| (id, group.sign)));
            if own.is_some() || group.any_others {
                evaluated |= group.scope;
            }
        }
        self.not_evaluated(&mut conj, evaluated);
        conj
    }

    fn free(&mut self, properties: &mut IndexMap<String, Property>) -> Option<Vec<Free>> {
        let mut all: Vec<&str> = Vec::new();
        for (pattern, _) in self.object.groups.iter().flat_map(|group| &group.patterns) {
            if !all.contains(&pattern.as_str()) {
                all.push(pattern);
            }
        }
        let mut classes = self.classes(&all);
        let others = self.free_conj(None);
        classes.push((Names::Others, self.known.state(others)));
        // A class without values stays: its names may not come as others.
        classes.retain(|(names, state)| *names != Names::Others || self.known.possible(*state));
        if !self.object.names.is_empty() && !classes.is_empty() {
            classes = self.named_so(properties, classes, all.is_empty())?;
        }
        Some(classes.into_iter().map(|(names, state)| Free { names, state }).collect())
    }

    /// Patterns that no name has in common; those that share names are one class.
    fn classes(&mut self, all: &[&str]) -> Vec<(Names, usize)> {
        let mut clusters: Vec<Vec<&str>> = Vec::new();
        for pattern in all {
            let meets = |cluster: &Vec<&str>| cluster.iter().any(|other| !patterns::are_disjoint(other, pattern));
            let (mut joined, apart): (Vec<_>, Vec<_>) = clusters.into_iter().partition(meets);
            joined.push(vec![pattern]);
            clusters = apart;
            clusters.push(joined.concat());
        }
        let mut classes = Vec::new();
        for cluster in clusters {
            let mut states: Vec<usize> = Vec::new();
            for pattern in &cluster {
                let conj = self.free_conj(Some(pattern));
                states.push(self.known.state(conj));
            }
            let is_one = states.iter().all(|state| *state == states[0]);
            if !is_one {
                let group = self.object.groups.iter().flat_map(|group| &group.patterns);
                let first = group.clone().find(|(pattern, _)| pattern == cluster[0]).map_or(0, |(_, id)| *id);
                let what = format!("patternProperties: {:?} and {:?} have names in common", cluster[0], cluster[1]);
                self.lose(first, what, "any value under such a name");
            }
            let state = if is_one { states[0] } else { self.known.state(Vec::new()) };
            classes.push((Names::Matching(cluster.join("|")), state));
        }
        classes
    }

    /// Holds the classes to `propertyNames`.
    fn named_so(
        &mut self,
        properties: &mut IndexMap<String, Property>,
        mut classes: Vec<(Names, usize)>,
        is_plain: bool,
    ) -> Option<Vec<(Names, usize)>> {
        let state = self.known.state(self.object.names.clone());
        let names: Rc<Shape> = self.known.shape(state);
        let values = || names.values.iter().filter_map(|value| value.shape.as_str());
        let notes = names.texts.iter().flat_map(|text| &text.notes);
        self.notes.extend(notes.chain(names.values.iter().flat_map(|value| &value.notes)).cloned());
        if names.texts.is_empty() {
            for name in values() {
                if !properties.contains_key(name) {
                    let property = self.property(name)?;
                    properties.insert(name.to_owned(), property);
                }
            }
            return Some(Vec::new());
        }
        let pattern = match names.texts.as_slice() {
            [one] if values().next().is_none() => {
                let text = &one.shape;
                let max = text.max.map_or(String::new(), |max| max.to_string());
                let has_length = text.min > 0 || text.max.is_some();
                match text.patterns.as_slice() {
                    [] if has_length => Some(format!("^(?s:.{{{},{max}}})$", text.min)),
                    [] => return Some(classes),
                    [pattern] if !has_length => Some(pattern.clone()),
                    _ => None,
                }
            }
            _ => None,
        };
        match pattern.filter(|_| is_plain) {
            Some(pattern) => classes.iter_mut().for_each(|(names, _)| *names = Names::Matching(pattern.clone())),
            None => {
                let id = self.object.names[0].0;
                self.lose(id, "propertyNames is not enforced for names that are not listed".to_owned(), "any name");
            }
        }
        Some(classes)
    }
}

/// Counts properties: as many objects as there are ways to give enough and not too many of them.
fn counted(known: &mut dyn Known, set: &ObjectSet, pointer: &str, notes: &[Relaxed], shape: &mut Shape) {
    let required = set.properties.values().filter(|property| property.required).count() as u64;
    let optional: Vec<usize> =
        (0..set.properties.len()).filter(|i| !set.properties[*i].required && !set.properties[*i].absent).collect();
    let mut push = |set: ObjectSet, more: Option<Relaxed>| {
        shape.objects.push(Noted { shape: set, notes: notes.iter().cloned().chain(more).collect() });
    };
    if set.max.is_some_and(|max| required > max) {
        return;
    }
    let has_free = set.free.iter().any(|free| known.possible(free.state));
    let most = required + optional.len() as u64;
    let is_bounded = set.max.is_some_and(|max| has_free || max < most);
    if set.min <= required && !is_bounded {
        return push(ObjectSet { min: 0, max: None, ..set.clone() }, None);
    }
    if !has_free && set.min > most {
        return;
    }
    let said =
        |what: &str, to: &str| Some(Relaxed { pointer: pointer.to_owned(), what: what.to_owned(), to: to.to_owned() });
    let repeated = || said("properties are counted, and a name that is not listed may come twice", "fewer names");
    if optional.is_empty() {
        let more = if set.min > required + 1 { repeated() } else { None };
        return push(set.clone(), more);
    }
    let wanted = usize::try_from(set.min.saturating_sub(required)).unwrap_or(usize::MAX);
    let room = set.max.map(|max| usize::try_from(max - required).unwrap_or(usize::MAX));
    let chosen = combinations(optional.len(), if room.is_none() { wanted } else { optional.len() });
    let Some(chosen) = chosen.filter(|_| optional.len() <= MAX_COUNTED || (room.is_none() && wanted <= 1)) else {
        let to = "without it";
        let more = said("too many optional properties are counted", to);
        return push(ObjectSet { min: 0, max: None, ..set.clone() }, more);
    };
    for given in chosen {
        let n = given.len();
        let is_enough = n >= wanted;
        if room.is_some_and(|room| n > room) || (!is_enough && !has_free) {
            continue;
        }
        let mut one = set.clone();
        for (place, i) in optional.iter().enumerate() {
            let is_given = given.contains(&place);
            one.properties[*i].required |= is_given;
            // Where there is no upper bound, the others may come once enough are there.
            one.properties[*i].absent |= !is_given && (room.is_some() || !is_enough);
        }
        let missing = wanted.saturating_sub(n);
        one.min = if missing > 0 { required + (n + missing) as u64 } else { 0 };
        if room == Some(n) {
            one.free.clear();
        }
        if one.free.is_empty() {
            (one.min, one.max) = (0, None);
        }
        push(one, if missing > 1 { repeated() } else { None });
    }
}

/// The choices of up to `most` of `n` things, if they are not too many.
fn combinations(n: usize, most: usize) -> Option<Vec<Vec<usize>>> {
    let mut all: Vec<Vec<usize>> = vec![Vec::new()];
    let mut last = all.clone();
    for _ in 0..most.min(n) {
        let mut next = Vec::new();
        for chosen in &last {
            for i in chosen.last().map_or(0, |last| last + 1)..n {
                next.push(chosen.iter().copied().chain([i]).collect::<Vec<_>>());
            }
        }
        if all.len() + next.len() > MAX_COMBINATIONS.max(n + 1) {
            return None;
        }
        all.extend(next.iter().cloned());
        last = next;
    }
    Some(all)
}
