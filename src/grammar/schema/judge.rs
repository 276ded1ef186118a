//! Does a value that is known fit a schema? Members of an `enum` and names of properties are judged so, by every keyword.

use std::cell::Cell;

use serde_json::{Map, Value};

use super::keywords::{is_inside, is_multiple};
use super::node::{Contains, Id, Kind, Node, ObjectWords, Rule, Words, same};
use super::patterns;

/// References followed and schemas entered, one inside another.
const MAX_DEPTH: usize = 100;
/// Schemas entered for one value.
const MAX_STEPS: u32 = 20_000;

/// Nothing where it cannot be told.
type Verdict = Option<bool>;

pub(super) fn fits(nodes: &[Node], id: Id, value: &Value) -> Verdict {
    let steps = Cell::new(MAX_STEPS);
    Judge { nodes, depth: 0, steps: &steps }.fits(id, value)
}

#[derive(Clone, Copy)]
struct Judge<'a> {
    nodes: &'a [Node],
    depth: usize,
    /// Schemas that may still be entered.
    steps: &'a Cell<u32>,
}

/// True where all are, false where one is not.
fn all(verdicts: impl Iterator<Item = Verdict>) -> Verdict {
    let mut sure = true;
    for verdict in verdicts {
        match verdict {
            Some(false) => return Some(false),
            Some(true) => {}
            None => sure = false,
        }
    }
    sure.then_some(true)
}

fn not(verdict: Verdict) -> Verdict {
    verdict.map(|fits| !fits)
}

fn any(verdicts: impl Iterator<Item = Verdict>) -> Verdict {
    not(all(verdicts.map(not)))
}

impl Judge<'_> {
    fn fits(self, id: Id, value: &Value) -> Verdict {
        if self.depth > MAX_DEPTH || self.steps.get() == 0 {
            return None;
        }
        self.steps.set(self.steps.get() - 1);
        let deeper = Judge { depth: self.depth + 1, ..self };
        match &self.nodes[id].rule {
            Rule::Always => Some(true),
            Rule::Never => Some(false),
            Rule::Words(words) => deeper.words(words, value),
        }
    }

    fn words(self, words: &Words, value: &Value) -> Verdict {
        if words.nullable && value.is_null() {
            return Some(true);
        }
        let reference = words.reference.map_or(Some(true), |id| self.fits(id, value));
        if words.is_old_reference && reference != Some(true) {
            return reference;
        }
        let kind = Kind::of(value);
        let is_lost = words.lost.iter().any(|lost| lost.kind.is_none_or(|lost| lost == kind));
        let own = [
            reference,
            Some(words.types.is_none_or(|types| {
                types.kinds.has(kind) && (!types.integer || value.as_f64().is_none_or(|n| n.fract() == 0.0))
            })),
            Some(words.values.iter().all(|values| values.iter().any(|other| same(other, value)))),
            match value {
                Value::Number(_) => number(words, value),
                Value::String(text) => string(words, text),
                Value::Array(items) => self.array(words, items),
                Value::Object(map) => self.object(&words.object, map),
                _ => Some(true),
            },
            self.applied(words, value),
            if is_lost { None } else { Some(true) },
        ];
        match (all(own.into_iter()), words.is_old_reference) {
            // The keywords beside an old reference are enforced, and no reason to call a value wrong.
            (Some(false), true) => None,
            (verdict, _) => verdict,
        }
    }

    fn applied(self, words: &Words, value: &Value) -> Verdict {
        let each = |ids: &[Id]| ids.iter().map(|id| self.fits(*id, value)).collect::<Vec<_>>();
        let one = words.one.as_ref().map_or(Some(true), |ids| {
            let verdicts = each(ids);
            match verdicts.iter().filter(|verdict| **verdict == Some(true)).count() {
                0 | 1 if verdicts.contains(&None) => None,
                n => Some(n == 1),
            }
        });
        let condition = words.condition.map_or(Some(true), |condition| {
            let branch = |id: Option<Id>| id.map_or(Some(true), |id| self.fits(id, value));
            match self.fits(condition.test, value) {
                Some(true) => branch(condition.then),
                Some(false) => branch(condition.otherwise),
                None => all([branch(condition.then), branch(condition.otherwise)].into_iter()).filter(|both| *both),
            }
        });
        all([
            all(words.all.iter().map(|id| self.fits(*id, value))),
            words.any.as_ref().map_or(Some(true), |ids| any(ids.iter().map(|id| self.fits(*id, value)))),
            one,
            words.not.map_or(Some(true), |id| not(self.fits(id, value))),
            condition,
        ]
        .into_iter())
    }

    fn array(self, words: &Words, items: &[Value]) -> Verdict {
        let array = &words.array;
        let n = items.len() as u64;
        let counted = array.min.is_none_or(|min| n >= min) && array.max.is_none_or(|max| n <= max);
        let rest = |i: usize| array.prefix.get(i).copied().or(array.items);
        let parts = all(items.iter().enumerate().map(|(i, item)| rest(i).map_or(Some(true), |id| self.fits(id, item))));
        let is_unique = || items.iter().enumerate().all(|(i, a)| !items[..i].iter().any(|b| same(a, b)));
        let contains = array.contains.map_or(Some(true), |contains| self.contains(contains, items));
        let all_evaluated = array.unevaluated.is_none() || items.len() <= array.prefix.len() || array.items.is_some();
        all([
            Some(counted && (!array.unique || is_unique())),
            parts,
            contains,
            if all_evaluated { Some(true) } else { None },
        ]
        .into_iter())
    }

    fn contains(self, contains: Contains, items: &[Value]) -> Verdict {
        let verdicts: Vec<Verdict> = items.iter().map(|item| self.fits(contains.item, item)).collect();
        if verdicts.contains(&None) {
            return None;
        }
        let n = verdicts.iter().filter(|verdict| **verdict == Some(true)).count() as u64;
        Some(n >= contains.min && contains.max.is_none_or(|max| n <= max))
    }

    fn object(self, words: &ObjectWords, map: &Map<String, Value>) -> Verdict {
        let n = map.len() as u64;
        let counted = words.min.is_none_or(|min| n >= min) && words.max.is_none_or(|max| n <= max);
        let has = |name: &String| map.contains_key(name);
        let names = words.required.iter().all(has)
            && words.dependent_names.iter().all(|(name, others)| !has(name) || others.iter().all(has));
        let value = Value::Object(map.clone());
        let dependent = words.dependent_schemas.iter().filter(|(name, _)| has(name));
        let mut verdicts = vec![Some(counted && names)];
        verdicts.extend(dependent.map(|(_, id)| self.fits(*id, &value)));
        let mut all_evaluated = true;
        for (name, value) in map {
            let mut is_known = false;
            if let Some(id) = words.properties.get(name) {
                is_known = true;
                verdicts.push(self.fits(*id, value));
            }
            for (pattern, id) in &words.patterns {
                match patterns::matches(pattern, name) {
                    Some(true) => {
                        is_known = true;
                        verdicts.push(self.fits(*id, value));
                    }
                    Some(false) => {}
                    None => verdicts.push(None),
                }
            }
            match words.additional.filter(|_| !is_known) {
                Some(_) if words.any_others => verdicts.push(None),
                Some(id) => verdicts.push(self.fits(id, value)),
                None => all_evaluated &= is_known || words.additional.is_some(),
            }
            if let Some(id) = words.names {
                verdicts.push(self.fits(id, &Value::String(name.clone())));
            }
        }
        if words.unevaluated.is_some() && !all_evaluated {
            verdicts.push(None);
        }
        all(verdicts.into_iter())
    }
}

fn number(words: &Words, value: &Value) -> Verdict {
    let n = value.as_f64()?;
    let number = &words.number;
    let inside = number.low.iter().all(|low| is_inside(n, Some(*low), None))
        && number.high.iter().all(|high| is_inside(n, None, Some(*high)));
    let multiple = number.step.map_or(Some(true), |step| is_multiple(n, step));
    all([Some(inside), multiple].into_iter())
}

fn string(words: &Words, text: &str) -> Verdict {
    let n = text.chars().count() as u64;
    let rule = &words.text;
    let counted = rule.min.is_none_or(|min| n >= min) && rule.max.is_none_or(|max| n <= max);
    let pattern = rule.pattern.as_ref().map_or(Some(true), |pattern| patterns::matches(pattern, text));
    // Our expressions of formats are narrower than the formats.
    let format = rule.format.as_ref().map_or(Some(true), |(pattern, max)| {
        patterns::matches(pattern, text).filter(|fits| *fits && max.is_none_or(|max| n <= max))
    });
    all([Some(counted), pattern, format].into_iter())
}
