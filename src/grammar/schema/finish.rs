//! What is known of one kind of value becomes a part of the shape: values, numbers, texts, arrays.

use serde_json::Value;

use super::draft::{ArrayDraft, Draft};
use super::judge;
use super::node::{Bound, Id, Kind, Node, all_of, same};
use super::patterns;
use super::shape::{ArraySet, Conj, Known, Noted, NumberSet, Shape, Sign, TextSet};

/// Numbers that are left out of a range, one by one.
const MAX_GAPS: usize = 16;

pub(super) fn finish(nodes: &[Node], known: &mut dyn Known, draft: Draft, conj: &[(Id, Sign)], shape: &mut Shape) {
    match (&draft.values, draft.kind) {
        (Some(values), _) => finite(nodes, values.clone(), conj, shape),
        (None, Kind::Null | Kind::Boolean) => finite(nodes, all_of(draft.kind), conj, shape),
        (None, Kind::Number) => numbers(nodes, draft, conj, shape),
        (None, Kind::Text) => texts(nodes, draft, conj, shape),
        (None, _) => array(known, draft, shape),
    }
}

/// Values that are known one by one are judged by all that has to hold, whatever the keywords.
fn finite(nodes: &[Node], values: Vec<Value>, conj: &[(Id, Sign)], shape: &mut Shape) {
    for value in values {
        if shape.values.iter().any(|other| same(&other.shape, &value)) {
            continue;
        }
        let mut notes = Vec::new();
        let fits = conj.iter().all(|(id, sign)| match judge::fits(nodes, *id, &value) {
            Some(fits) => fits == (*sign != Sign::No),
            None => {
                notes.push(crate::grammar::relaxed::Relaxed {
                    pointer: nodes[*id].pointer.clone(),
                    what: "a value of an enum cannot be judged by all keywords".to_owned(),
                    to: "it may come".to_owned(),
                });
                true
            }
        });
        if fits {
            shape.values.push(Noted { shape: value, notes });
        }
    }
}

fn pointer(nodes: &[Node], conj: &[(Id, Sign)]) -> String {
    conj.first().map_or_else(String::new, |(id, _)| nodes[*id].pointer.clone())
}

fn numbers(nodes: &[Node], mut draft: Draft, conj: &[(Id, Sign)], shape: &mut Shape) {
    if let Some(said) = draft.fraction.take() {
        if draft.number.integer {
            return;
        }
        draft.notes.extend(said.as_deref().cloned());
    }
    let mut gaps: Vec<f64> = draft.excluded.iter().filter_map(Value::as_f64).collect();
    gaps.sort_by(f64::total_cmp);
    gaps.dedup();
    if gaps.len() > MAX_GAPS {
        draft.note(pointer(nodes, conj), "too many numbers are left out", "they may come");
        gaps.clear();
    }
    let mut low = draft.number.low;
    for gap in gaps {
        let is_inside = low.is_none_or(|low| gap >= low.at);
        if is_inside {
            let below = Some(Bound { at: gap, open: true });
            let is_lower = draft.number.high.is_none_or(|high| gap <= high.at);
            push_number(
                NumberSet { low, high: if is_lower { below } else { draft.number.high }, ..draft.number },
                &draft,
                shape,
            );
            low = below;
        }
    }
    push_number(NumberSet { low, ..draft.number }, &draft, shape);
}

fn push_number(set: NumberSet, draft: &Draft, shape: &mut Shape) {
    if set.is_open() {
        shape.numbers.push(Noted { shape: set, notes: draft.notes.clone() });
    }
}

fn texts(nodes: &[Node], mut draft: Draft, conj: &[(Id, Sign)], shape: &mut Shape) {
    let mut set: TextSet = draft.text.clone();
    set.patterns.sort_unstable();
    set.patterns.dedup();
    let out: Vec<&str> = draft.excluded.iter().filter_map(Value::as_str).collect();
    if !out.is_empty() {
        match patterns::all_but(&out) {
            Some(pattern) => set.patterns.push(pattern),
            None => draft.note(pointer(nodes, conj), "too many strings are left out", "they may come"),
        }
    }
    let parts = set.patterns.len() + usize::from(set.min > 0 || set.max.is_some());
    let may_be_empty = parts > 1 || !set.patterns.is_empty();
    if !may_be_empty || !patterns::is_empty(set.patterns.iter().map(String::as_str), set.min, set.max) {
        shape.texts.push(Noted { shape: set, notes: draft.notes });
    }
}

fn array(known: &mut dyn Known, mut draft: Draft, shape: &mut Shape) {
    let array = std::mem::take(&mut draft.array);
    if let Some(said) = array.unique.clone()
        && array.max.is_none_or(|max| max > 1)
    {
        draft.notes.push(said);
    }
    if !draft.excluded.is_empty() {
        let what = "an array that must not come is not told from others";
        draft.note(String::new(), what, "it may come");
    }
    let n = array.groups.iter().map(|group| group.prefix.len());
    let n = n.chain(array.extra.iter().map(|(at, ..)| at + 1)).max().unwrap_or(0);
    let n = array.max.map_or(n, |max| n.min(usize::try_from(max).unwrap_or(usize::MAX)));
    let lengths: Vec<Option<usize>> = (0..draft.unevaluated.len()).map(|bit| evaluated(&array, bit)).collect();
    let mut state = |at: Option<usize>| {
        let mut conj: Conj = array.every.clone();
        for group in &array.groups {
            let id = at.and_then(|at| group.prefix.get(at).copied());
            conj.extend(id.or(group.items).map(|id| (id, group.sign)));
        }
        conj.extend(array.extra.iter().filter(|(i, ..)| Some(*i) == at).map(|(_, id, sign)| (*id, *sign)));
        for (bit, length) in lengths.iter().enumerate() {
            if length.is_some_and(|length| at.is_none_or(|at| at >= length)) {
                conj.push(draft.unevaluated[bit]);
            }
        }
        known.state(conj)
    };
    // What is not evaluated begins behind the longest tuple that is.
    let n = lengths.iter().flatten().copied().max().unwrap_or(0).max(n);
    let n = array.max.map_or(n, |max| n.min(usize::try_from(max).unwrap_or(usize::MAX)));
    let prefix = (0..n).map(|at| state(Some(at))).collect();
    let set = ArraySet { prefix, rest: state(None), min: array.min, max: array.max };
    shape.arrays.push(Noted { shape: set, notes: draft.notes });
}

/// How many items other keywords evaluate; nothing for all of them.
fn evaluated(array: &ArrayDraft, bit: usize) -> Option<usize> {
    let inside: Vec<_> = array.groups.iter().filter(|group| group.scope >> bit & 1 == 1).collect();
    if inside.iter().any(|group| group.items.is_some()) {
        return None;
    }
    Some(inside.iter().map(|group| group.prefix.len()).max().unwrap_or(0))
}
