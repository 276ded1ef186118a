//! Takes a conjunction of schemas apart: for each kind of value the alternatives, each without any schema for the same value.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::draft::{ArrayGroup, Blame, Change, Draft, Fork, Group, Todo};
use super::node::{Condition, Id, KINDS, Kind, KindSet, Node, Rule, Words, target};
use super::refute::{Refuted, Ways};
use super::shape::{Known, Shape, Sign};
use super::{finish, object};
use crate::grammar::relaxed::Relaxed;

/// Alternatives of one kind of value that are kept apart.
const MAX_BRANCHES: usize = 96;
/// The same where only one list of options is met.
const MAX_OPTIONS: usize = 4_000;
/// Options of a `oneOf` that are compared with one another.
const MAX_ONE_OF: usize = 64;
/// `unevaluated` keywords over one value.
const MAX_SCOPES: usize = 60;

pub(super) fn expand(known: &mut dyn Known, conj: &[(Id, Sign)]) -> Shape {
    let mut shape = Shape::default();
    for kind in KINDS {
        let nodes = known.nodes();
        let mut expansion = Expansion { nodes: &nodes, known: &mut *known };
        for draft in expansion.branches(Draft::new(&nodes, kind, conj)) {
            if draft.typed || draft.spoken.single().is_none_or(|spoken| spoken == kind) {
                match kind {
                    Kind::Object if draft.values.is_none() => object::finish(&nodes, known, draft, &mut shape),
                    _ => finish::finish(&nodes, known, draft, conj, &mut shape),
                }
            }
        }
    }
    shape
}

struct Expansion<'a> {
    nodes: &'a Rc<[Node]>,
    known: &'a mut dyn Known,
}

impl Expansion<'_> {
    fn branches(&mut self, first: Draft) -> Vec<Draft> {
        let (mut work, mut done) = (vec![first], Vec::new());
        while let Some(mut draft) = work.pop() {
            if !self.settle(&mut draft) {
                continue;
            }
            let Some(fork) = draft.forks.pop_front() else {
                done.push(draft);
                continue;
            };
            let mut open = Vec::new();
            for option in fork.options {
                let mut next = draft.clone();
                if option.into_iter().all(|change| next.change(change)) && self.settle(&mut next) {
                    open.push(next);
                }
            }
            let others = work.len() + done.len();
            let limit = if others == 0 { MAX_OPTIONS } else { MAX_BRANCHES };
            if open.len() > 1 && others + open.len() > limit {
                draft.notes.extend(fork.said.as_deref().cloned());
                work.push(draft);
            } else {
                work.extend(open.into_iter().rev());
            }
        }
        done
    }

    /// Looks at all that needs no choice. False where no value is left.
    fn settle(&mut self, draft: &mut Draft) -> bool {
        while let Some(todo) = draft.todo.pop() {
            if !self.apply(draft, &todo) {
                return false;
            }
        }
        true
    }

    fn apply(&mut self, draft: &mut Draft, todo: &Todo) -> bool {
        if todo.is_circle() {
            // Only what is certain without it holds.
            return todo.sign == Sign::No;
        }
        if !draft.done.insert((todo.id, todo.sign)) {
            return true;
        }
        let is_no = todo.sign == Sign::No;
        let opposites: &[Sign] = if is_no { &[Sign::Yes, Sign::Also] } else { &[Sign::No] };
        if opposites.iter().any(|sign| draft.done.contains(&(todo.id, *sign))) {
            return false;
        }
        let nodes = self.nodes.clone();
        match &nodes[todo.id].rule {
            Rule::Always => !is_no,
            Rule::Never => is_no,
            Rule::Words(words) if is_no => self.refute(draft, words, todo),
            Rule::Words(words) => self.hold(draft, words, todo),
        }
    }

    fn refute(&mut self, draft: &mut Draft, words: &Words, todo: &Todo) -> bool {
        let refuted = Refuted { nodes: self.nodes, words, kind: draft.kind, todo };
        match refuted.ways() {
            Ways::Always => true,
            Ways::Unknown => {
                draft.notes.extend(todo.blame.as_deref().cloned());
                true
            }
            Ways::Of(mut ways) if ways.len() < 2 => {
                ways.pop().is_some_and(|way| way.into_iter().all(|change| draft.change(change)))
            }
            Ways::Of(options) => {
                draft.forks.push_back(Fork { options, said: todo.blame.clone() });
                true
            }
        }
    }

    fn hold(&mut self, draft: &mut Draft, words: &Words, todo: &Todo) -> bool {
        if words.nullable && draft.kind == Kind::Null {
            draft.typed |= todo.sign == Sign::Yes;
            return true;
        }
        let pointer = self.nodes[todo.id].pointer.clone();
        let place = Place { pointer: &pointer, todo };
        if words.is_old_reference && todo.sign == Sign::Also {
            draft.todo.extend(words.reference.map(|id| Todo { id, via: todo.link(), ..todo.clone() }));
            return true;
        }
        let is_main = todo.sign == Sign::Yes;
        draft.typed |= is_main && (words.types.is_some() || !words.values.is_empty());
        if is_main {
            draft.spoken.add(words.spoken);
            let lost = words.lost.iter().filter(|lost| lost.kind.is_none_or(|kind| kind == draft.kind));
            draft.notes.extend(lost.map(|lost| lost.said.clone()));
        }
        if words.types.is_some_and(|types| !types.kinds.has(draft.kind)) {
            return false;
        }
        draft.number.integer |= words.types.is_some_and(|types| types.integer);
        words.values.iter().all(|values| draft.limit(values))
            && place.own(draft, words)
            && self.applied(draft, words, &place)
    }

    /// The schemas for the same value.
    fn applied(&mut self, draft: &mut Draft, words: &Words, place: &Place) -> bool {
        let scope = place.scope(draft, words);
        let via = place.todo.link();
        let todo = |id: Id, sign: Sign, blame: Blame| Todo { id, sign, scope, blame, via: via.clone() };
        let (sign, blame) = (place.todo.sign, &place.todo.blame);
        let same = |id: Id| todo(id, sign, blame.clone());
        draft.todo.extend(words.all.iter().rev().map(|id| same(*id)));
        draft.todo.extend(words.reference.map(same));
        if let Some(id) = words.not {
            draft.todo.push(todo(id, Sign::No, place.said("not", "not cannot be enforced here", "without it")));
        }
        if let Some(ids) = &words.any {
            // Options that lead to the same are one.
            let unique: BTreeSet<Id> = ids.iter().map(|id| target(self.nodes, *id).unwrap_or(*id)).collect();
            let options = unique.into_iter().map(|id| vec![Change::Hold(same(id))]).collect();
            draft.forks.push_back(Fork { options, said: place.said("anyOf", TOO_MANY, "without it") });
        }
        if let Some(ids) = &words.one {
            if ids.len() > MAX_ONE_OF {
                let what = "oneOf of too many options to compare them all";
                draft.notes.extend(place.said("oneOf", what, "anyOf").as_deref().cloned());
            }
            let alone = self.is_alone(draft, words, ids);
            let options = self.one(ids, place, (draft.kind, alone), &todo);
            draft.forks.push_back(Fork { options, said: place.said("oneOf", TOO_MANY, "without it") });
        }
        if let Some(Condition { test, then, otherwise }) = words.condition {
            let said = place.said("if", "if is not enforced", "neither then nor else");
            let branch = |test: Todo, id: Option<Id>| {
                [Some(test), id.map(same)].into_iter().flatten().map(Change::Hold).collect::<Vec<_>>()
            };
            let options = vec![branch(same(test), then), branch(todo(test, Sign::No, said.clone()), otherwise)];
            draft.forks.push_back(Fork { options, said });
        }
        if draft.kind == Kind::Object {
            let given = |name: &String| Change::Present(name.clone(), false);
            for (name, others) in words.object.dependent_names.iter().filter(|(_, others)| !others.is_empty()) {
                let both = std::iter::once(name).chain(others).map(given).collect();
                let options = vec![vec![Change::Absent(name.clone())], both];
                draft.forks.push_back(Fork { options, said: place.said("dependentRequired", TOO_MANY, "without it") });
            }
            for (name, id) in &words.object.dependent_schemas {
                let options = vec![vec![Change::Absent(name.clone())], vec![given(name), Change::Hold(same(*id))]];
                draft.forks.push_back(Fork { options, said: place.said("dependentSchemas", TOO_MANY, "without it") });
            }
        }
        true
    }

    /// Does nothing but one of these options hold for the value?
    fn is_alone(&self, draft: &Draft, words: &Words, ids: &[Id]) -> bool {
        let is_plain = words.reference.is_none()
            && words.all.is_empty()
            && words.any.is_none()
            && words.not.is_none()
            && words.condition.is_none();
        let of = |id: Id| match &self.nodes[id].rule {
            Rule::Words(words) => Some(words),
            Rule::Always | Rule::Never => None,
        };
        let speak = |id: &Id| {
            let option = target(self.nodes, *id).and_then(of);
            option.is_some_and(|words| words.types.is_some() || words.spoken.has(draft.kind))
        };
        let mut others = draft.done.iter().filter_map(|(id, _)| of(*id));
        let is_free = others.all(|words| {
            words.spoken == KindSet::default()
                && words.values.is_empty()
                && (words.types.is_none() || ids.iter().all(speak))
        });
        is_plain && is_free && draft.todo.is_empty() && draft.forks.is_empty()
    }

    /// Each option, without the others that it overlaps with.
    fn one(
        &mut self,
        ids: &[Id],
        place: &Place,
        (kind, alone): (Kind, bool),
        todo: &dyn Fn(Id, Sign, Blame) -> Todo,
    ) -> Vec<Vec<Change>> {
        let same = |id: Id| todo(id, place.todo.sign, place.todo.blame.clone());
        let option = |i: usize, known: &mut dyn Known| {
            let mut changes = vec![Change::Hold(same(ids[i]))];
            for (j, other) in ids.iter().enumerate().filter(|(j, _)| *j != i) {
                if place.todo.sign != Sign::Also && known.overlap(ids[i], *other, kind, alone) {
                    let what = format!("oneOf: a value that fits option {i} may fit option {j} too");
                    changes.push(Change::Hold(todo(*other, Sign::No, place.said("oneOf", &what, "anyOf"))));
                }
            }
            changes
        };
        if ids.len() > MAX_ONE_OF && place.todo.sign == Sign::Yes {
            let simple = |i: usize| vec![Change::Hold(same(ids[i]))];
            return (0..ids.len()).map(simple).collect();
        }
        (0..ids.len()).map(|i| option(i, self.known)).collect()
    }
}

const TOO_MANY: &str = "too many combinations with other schemas";

/// Where a schema stands.
struct Place<'a> {
    pointer: &'a str,
    todo: &'a Todo,
}

impl Place<'_> {
    /// What to say of a keyword that cannot be kept; nothing where only a question is asked.
    fn said(&self, key: &str, what: &str, to: &str) -> Blame {
        let pointer = format!("{}/{key}", self.pointer);
        let said = || Rc::new(Relaxed { pointer, what: what.to_owned(), to: to.to_owned() });
        (self.todo.sign != Sign::Also).then(said)
    }

    /// The scope of the schemas for the same value.
    fn scope(&self, draft: &mut Draft, words: &Words) -> u64 {
        let unevaluated = match draft.kind {
            Kind::Object => words.object.unevaluated,
            Kind::Array => words.array.unevaluated,
            _ => None,
        };
        let Some(id) = unevaluated.filter(|_| self.todo.sign == Sign::Yes) else { return self.todo.scope };
        let bit = draft.unevaluated.len();
        if bit >= MAX_SCOPES {
            draft.note(self.pointer.to_owned(), "too many unevaluated keywords", "without it");
            return self.todo.scope;
        }
        draft.unevaluated.push((id, self.todo.sign));
        // The group of the schema itself was pushed before.
        let scope = self.todo.scope | 1_u64 << bit;
        match draft.kind {
            Kind::Object => draft.object.groups.last_mut().into_iter().for_each(|group| group.scope = scope),
            _ => draft.array.groups.last_mut().into_iter().for_each(|group| group.scope = scope),
        }
        scope
    }

    /// The keywords of the kind of value itself.
    fn own(&self, draft: &mut Draft, words: &Words) -> bool {
        match draft.kind {
            Kind::Null | Kind::Boolean => true,
            Kind::Number => self.number(draft, words),
            Kind::Text => self.text(draft, words),
            Kind::Array => self.array(draft, words),
            Kind::Object => self.object(draft, words),
        }
    }

    fn number(&self, draft: &mut Draft, words: &Words) -> bool {
        let number = &words.number;
        if let Some(step) = number.step.filter(|_| self.todo.sign == Sign::Yes)
            && !draft.step(step)
        {
            let what = "multipleOf beside other schemas: too many remainders together";
            draft.note(format!("{}/multipleOf", self.pointer), what, "any number");
        }
        let bounds = number.low.iter().map(|low| Change::Low(*low)).chain(number.high.iter().map(|h| Change::High(*h)));
        bounds.collect::<Vec<_>>().into_iter().all(|change| draft.change(change))
    }

    fn text(&self, draft: &mut Draft, words: &Words) -> bool {
        let text = &words.text;
        draft.text.patterns.extend(text.pattern.clone());
        if let Some((pattern, max)) = &text.format {
            draft.text.patterns.push(pattern.clone());
            draft.text.max = max.map_or(draft.text.max, |max| super::draft::least(draft.text.max, max));
        }
        draft.change(Change::MinLength(text.min.unwrap_or(0)))
            && text.max.is_none_or(|max| draft.change(Change::MaxLength(max)))
    }

    fn array(&self, draft: &mut Draft, words: &Words) -> bool {
        let array = &words.array;
        draft.array.groups.push(ArrayGroup {
            sign: self.todo.sign,
            scope: self.todo.scope,
            prefix: array.prefix.clone(),
            items: array.items,
        });
        let said = |key: &str| Relaxed {
            pointer: format!("{}/{key}", self.pointer),
            what: format!("{key} is not enforced"),
            to: "without it".to_owned(),
        };
        if self.todo.sign == Sign::Yes {
            if array.unique {
                draft.array.unique = Some(said("uniqueItems"));
            }
            if array.contains.is_some_and(|contains| contains.min > 0 || contains.max.is_some()) {
                draft.notes.push(said("contains"));
            }
        }
        draft.change(Change::MinItems(array.min.unwrap_or(0)))
            && array.max.is_none_or(|max| draft.change(Change::MaxItems(max)))
    }

    fn object(&self, draft: &mut Draft, words: &Words) -> bool {
        let object = &words.object;
        draft.object.groups.push(Group {
            sign: self.todo.sign,
            scope: self.todo.scope,
            lists: object.lists,
            named: object.properties.clone(),
            patterns: object.patterns.clone(),
            additional: object.additional.filter(|_| !object.any_others),
            any_others: object.any_others || object.additional.is_some(),
        });
        draft.object.names.extend(object.names.map(|id| (id, self.todo.sign)));
        let is_main = self.todo.sign == Sign::Yes;
        let names = object.required.iter().map(|name| Change::Present(name.clone(), is_main));
        if object.min.is_some() || object.max.is_some() {
            let key = if object.min.is_some() { "minProperties" } else { "maxProperties" };
            draft.object.count_pointer = format!("{}/{key}", self.pointer);
        }
        names.collect::<Vec<_>>().into_iter().all(|change| draft.change(change))
            && draft.change(Change::MinProperties(object.min.unwrap_or(0)))
            && object.max.is_none_or(|max| draft.change(Change::MaxProperties(max)))
    }
}
