//! A parsed GBNF grammar. Plain data; made by `parse` alone, so that every instance is within the limits.

use std::fmt;

use crate::grammar::error::Position;

/// Rules in the order in which their names appear. All references are defined.
#[derive(Clone, Debug)]
pub struct Grammar {
    pub rules: Vec<Rule>,
    /// The rule called `root`.
    pub root: usize,
}

#[derive(Clone, Debug)]
pub struct Rule {
    pub name: String,
    /// Where the rule is defined.
    pub at: Position,
    pub expr: Expr,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Expr {
    Empty,
    /// Never empty.
    Text(String),
    /// One character.
    Class(CharSet),
    /// One token of the vocabulary.
    Token(TokenRef),
    Rule(usize),
    /// Two or more.
    Seq(Vec<Expr>),
    /// Two or more.
    Alt(Vec<Expr>),
    /// At least `.1` and at most `.2` times.
    Repeat(Box<Expr>, u32, Option<u32>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TokenRef {
    pub name: TokenName,
    /// `!<...>`: any one token but this.
    pub negated: bool,
    pub at: Position,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TokenName {
    /// `<think>`, with the angle brackets.
    Named(String),
    /// `<[123]>`.
    Id(u32),
}

impl fmt::Display for TokenName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TokenName::Named(name) => f.write_str(name),
            TokenName::Id(id) => write!(f, "<[{id}]>"),
        }
    }
}

impl Expr {
    pub fn seq(mut items: Vec<Expr>) -> Expr {
        items.retain(|item| *item != Expr::Empty);
        match items.len() {
            0 => Expr::Empty,
            1 => items.swap_remove(0),
            _ => Expr::Seq(items),
        }
    }

    /// Of one or more alternatives.
    pub fn alt(mut items: Vec<Expr>) -> Expr {
        if items.len() == 1 { items.swap_remove(0) } else { Expr::Alt(items) }
    }

    pub fn text(text: &str) -> Expr {
        if text.is_empty() { Expr::Empty } else { Expr::Text(text.to_owned()) }
    }

    pub fn repeat(inner: Expr, min: u32, max: Option<u32>) -> Expr {
        match (min, max) {
            (_, Some(0)) => Expr::Empty,
            (1, Some(1)) => inner,
            _ if inner == Expr::Empty => Expr::Empty,
            _ => Expr::Repeat(Box::new(inner), min, max),
        }
    }

    pub fn children(&self) -> &[Expr] {
        match self {
            Expr::Seq(items) | Expr::Alt(items) => items,
            Expr::Repeat(inner, ..) => std::slice::from_ref(inner),
            _ => &[],
        }
    }

    /// Calls `visit` for this expression and everything inside.
    pub fn walk<'a>(&'a self, visit: &mut impl FnMut(&'a Expr)) {
        visit(self);
        for child in self.children() {
            child.walk(visit);
        }
    }

    /// The rules that are named, with repetitions.
    pub fn rules(&self) -> Vec<usize> {
        let mut rules = Vec::new();
        self.walk(&mut |expr| {
            if let Expr::Rule(rule) = expr {
                rules.push(*rule);
            }
        });
        rules
    }
}

/// A set of Unicode scalar values: sorted ranges with gaps between them, surrogates left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CharSet(Vec<(u32, u32)>);

const SURROGATES: (u32, u32) = (0xD800, 0xDFFF);
const LAST: u32 = 0x10_FFFF;

impl CharSet {
    /// From ranges in any order, overlapping or not. What is not a scalar value is left out.
    pub fn new(mut ranges: Vec<(u32, u32)>) -> CharSet {
        ranges.sort_unstable();
        let mut merged: Vec<(u32, u32)> = Vec::new();
        for (low, high) in ranges {
            match merged.last_mut() {
                Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
                _ => merged.push((low, high)),
            }
        }
        let scalar =
            |(low, high): (u32, u32)| [(low, high.min(SURROGATES.0 - 1)), (low.max(SURROGATES.1 + 1), high.min(LAST))];
        CharSet(merged.into_iter().flat_map(scalar).filter(|(low, high)| low <= high).collect())
    }

    pub fn of(c: char) -> CharSet {
        CharSet(vec![(c.into(), c.into())])
    }

    pub fn any() -> CharSet {
        CharSet::new(vec![(0, LAST)])
    }

    pub fn complement(&self) -> CharSet {
        let (mut gaps, mut next) = (Vec::new(), 0);
        for &(low, high) in &self.0 {
            if low > next {
                gaps.push((next, low - 1));
            }
            next = high + 1;
        }
        gaps.push((next, LAST));
        CharSet::new(gaps.into_iter().filter(|(low, high)| low <= high).collect())
    }

    pub fn ranges(&self) -> &[(u32, u32)] {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains(&self, c: char) -> bool {
        self.0.iter().any(|&(low, high)| (low..=high).contains(&c.into()))
    }

    pub fn overlaps(&self, other: &CharSet) -> bool {
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
            if x.0 <= y.1 && y.0 <= x.1 {
                return true;
            }
            if x.1 < y.1 {
                a.next()
            } else {
                b.next()
            };
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complement_leaves_out_surrogates_and_is_its_own_inverse() {
        let set = CharSet::new(vec![(0x61, 0x7A), (0x30, 0x39), (0x62, 0x7F)]);
        assert_eq!(set.ranges(), [(0x30, 0x39), (0x61, 0x7F)]);
        let rest = set.complement();
        assert_eq!(rest.ranges(), [(0, 0x2F), (0x3A, 0x60), (0x80, 0xD7FF), (0xE000, 0x10_FFFF)]);
        assert_eq!(rest.complement(), set);
        assert!(CharSet::any().complement().is_empty());
        assert!(!set.overlaps(&rest) && set.overlaps(&CharSet::of('z')) && !set.overlaps(&CharSet::of('A')));
    }
}
