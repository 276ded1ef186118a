//! The ways in which a value of one kind can fail a schema.

use super::draft::{Change, Todo};
use super::node::{Id, Kind, Node, Rule, Words};
use super::shape::Sign;

/// Options of a `oneOf` that are paired with one another, for values that fit two.
const MAX_PAIRS_OF: usize = 4;

pub(super) enum Ways {
    /// No value of this kind fits the schema.
    Always,
    /// One of these; none means that every value fits.
    Of(Vec<Vec<Change>>),
    /// There are some that cannot be written down.
    Unknown,
}

pub(super) struct Refuted<'a> {
    pub nodes: &'a [Node],
    pub words: &'a Words,
    pub kind: Kind,
    pub todo: &'a Todo,
}

impl Refuted<'_> {
    pub(super) fn ways(&self) -> Ways {
        let words = self.words;
        if words.nullable && self.kind == Kind::Null {
            return Ways::Of(Vec::new());
        }
        if words.is_old_reference {
            return Ways::Of(words.reference.iter().map(|id| vec![self.hold(*id, Sign::No)]).collect());
        }
        let other_type = words.types.is_some_and(|types| !types.kinds.has(self.kind));
        let no_values = words.values.iter().any(|values| !values.iter().any(|value| Kind::of(value) == self.kind));
        if other_type || no_values {
            return Ways::Always;
        }
        if words.lost.iter().any(|lost| lost.kind.is_none_or(|kind| kind == self.kind)) {
            return Ways::Unknown;
        }
        let mut ways = Vec::new();
        if self.kind == Kind::Number && words.types.is_some_and(|types| types.integer) {
            ways.push(vec![Change::Fraction(self.todo.blame.clone())]);
        }
        for values in &words.values {
            let own = values.iter().filter(|value| Kind::of(value) == self.kind).cloned().collect();
            ways.push(vec![Change::Except(own)]);
        }
        if !self.applied(&mut ways) || !self.own(&mut ways) {
            return Ways::Unknown;
        }
        Ways::Of(ways)
    }

    fn hold(&self, id: Id, sign: Sign) -> Change {
        Change::Hold(Todo { id, sign, scope: self.todo.scope, blame: self.todo.blame.clone(), via: self.todo.link() })
    }

    /// False where a way cannot be written down.
    fn applied(&self, ways: &mut Vec<Vec<Change>>) -> bool {
        let words = self.words;
        ways.extend(words.reference.iter().chain(&words.all).map(|id| vec![self.hold(*id, Sign::No)]));
        ways.extend(words.not.iter().map(|id| vec![self.hold(*id, Sign::Yes)]));
        let none = |ids: &[Id]| ids.iter().map(|id| self.hold(*id, Sign::No)).collect::<Vec<_>>();
        ways.extend(words.any.iter().map(|ids| none(ids)));
        if let Some(ids) = &words.one {
            if ids.len() > MAX_PAIRS_OF {
                return false;
            }
            ways.push(none(ids));
            for (i, a) in ids.iter().enumerate() {
                ways.extend(ids[..i].iter().map(|b| vec![self.hold(*a, Sign::Yes), self.hold(*b, Sign::Yes)]));
            }
        }
        if let Some(condition) = words.condition {
            let mut branch = |sign, id: Option<Id>| {
                ways.extend(id.map(|id| vec![self.hold(condition.test, sign), self.hold(id, Sign::No)]));
            };
            branch(Sign::Yes, condition.then);
            branch(Sign::No, condition.otherwise);
        }
        true
    }

    fn own(&self, ways: &mut Vec<Vec<Change>>) -> bool {
        let words = self.words;
        match self.kind {
            Kind::Null | Kind::Boolean => true,
            Kind::Number => {
                let turned = |bound: &super::node::Bound| super::node::Bound { at: bound.at, open: !bound.open };
                ways.extend(words.number.low.iter().map(|low| vec![Change::High(turned(low))]));
                ways.extend(words.number.high.iter().map(|high| vec![Change::Low(turned(high))]));
                words.number.step.is_none()
            }
            Kind::Text => {
                ways.extend(words.text.min.filter(|n| *n > 0).map(|n| vec![Change::MaxLength(n - 1)]));
                ways.extend(words.text.max.map(|n| vec![Change::MinLength(n + 1)]));
                words.text.pattern.is_none() && words.text.format.is_none()
            }
            Kind::Array => self.array(ways),
            Kind::Object => self.object(ways),
        }
    }

    fn is_anything(&self, id: Id) -> bool {
        matches!(self.nodes[id].rule, Rule::Always)
    }

    fn array(&self, ways: &mut Vec<Vec<Change>>) -> bool {
        let array = &self.words.array;
        ways.extend(array.min.filter(|n| *n > 0).map(|n| vec![Change::MaxItems(n - 1)]));
        ways.extend(array.max.map(|n| vec![Change::MinItems(n + 1)]));
        for (i, id) in array.prefix.iter().enumerate().filter(|(_, id)| !self.is_anything(**id)) {
            ways.push(vec![Change::MinItems(i as u64 + 1), Change::Item(i, *id, Sign::No)]);
        }
        let items = match array.items {
            None => true,
            Some(id) if self.is_anything(id) => true,
            Some(id) if matches!(self.nodes[id].rule, Rule::Never) => {
                ways.push(vec![Change::MinItems(array.prefix.len() as u64 + 1)]);
                true
            }
            Some(_) => false,
        };
        let contains = match array.contains {
            None => true,
            Some(contains) if contains.min <= 1 && contains.max.is_none() => {
                ways.extend((contains.min == 1).then(|| vec![Change::EveryItem(contains.item, Sign::No)]));
                true
            }
            Some(_) => false,
        };
        items && contains && !array.unique && array.unevaluated.is_none()
    }

    fn object(&self, ways: &mut Vec<Vec<Change>>) -> bool {
        let object = &self.words.object;
        ways.extend(object.required.iter().map(|name| vec![Change::Absent(name.clone())]));
        let present = |name: &String| Change::Present(name.clone(), true);
        for (name, id) in object.properties.iter().filter(|(_, id)| !self.is_anything(**id)) {
            ways.push(vec![present(name), Change::Property(name.clone(), *id, Sign::No)]);
        }
        ways.extend(object.min.filter(|n| *n > 0).map(|n| vec![Change::MaxProperties(n - 1)]));
        ways.extend(object.max.map(|n| vec![Change::MinProperties(n + 1)]));
        for (name, others) in &object.dependent_names {
            ways.extend(others.iter().map(|other| vec![present(name), Change::Absent(other.clone())]));
        }
        for (name, id) in &object.dependent_schemas {
            ways.push(vec![present(name), self.hold(*id, Sign::No)]);
        }
        let free = |id: Option<Id>| id.is_none_or(|id| self.is_anything(id));
        object.patterns.iter().all(|(_, id)| self.is_anything(*id))
            && free(object.additional)
            && object.names.is_none()
            && object.unevaluated.is_none()
            && !object.any_others
    }
}
