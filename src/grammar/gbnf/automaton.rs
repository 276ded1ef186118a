//! Where taking the longest match would lose texts.
//!
//! The lexer under the parser ends a lexeme only when no lexeme that is possible here can go on. That is exact for a lexeme
//! `l` when no text of `l` can be continued, inside `l` or inside another lexeme `o`, by a byte that may also follow `l` in
//! the grammar. `can_swallow` decides this for a pair, never saying no wrongly.

use std::collections::HashSet;

use super::ast::{CharSet, Expr, Grammar};

/// States of one lexeme. Larger ones are not looked into: `Nfa::new` then gives nothing.
const MAX_STATES: usize = 1_000_000;
/// Copies of an item that a bounded repetition is written out to. Beyond it is taken as unbounded, which is safe here: it
/// adds texts and continuations, and removes none.
const MAX_COPIES: usize = 24;
/// Pairs of states that one question may look at.
const MAX_PAIRS: usize = 2_000_000;

/// A set of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bytes([u64; 4]);

impl Bytes {
    /// What special tokens begin with; in no text.
    pub(super) const TOKEN: Bytes = Bytes([0, 0, 0, 1 << 63]);

    pub(super) fn or(self, other: Bytes) -> Bytes {
        Bytes(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    pub(super) fn meets(self, other: Bytes) -> bool {
        (0..4).any(|i| self.0[i] & other.0[i] != 0)
    }

    /// The first bytes of the set's characters in UTF-8.
    pub(super) fn first(set: &CharSet) -> Bytes {
        let first = |code: u32| {
            let mut buffer = [0; 4];
            char::from_u32(code).map_or(0, |c| c.encode_utf8(&mut buffer).as_bytes()[0])
        };
        let mut bytes = Bytes::default();
        for &(low, high) in set.ranges() {
            (first(low)..=first(high)).for_each(|byte| bytes.0[usize::from(byte / 64)] |= 1 << (byte % 64));
        }
        bytes
    }
}

/// How often an item is written out.
struct Copies {
    min: usize,
    /// Nothing: the last copy may be taken again and again.
    max: Option<usize>,
}

impl Copies {
    fn new(min: u32, max: Option<u32>) -> Copies {
        let (min, max) = (min as usize, max.map(|max| max as usize));
        if min.max(max.unwrap_or(0)) > MAX_COPIES {
            return Copies { min: min.min(1), max: None };
        }
        Copies { min, max }
    }
}

#[derive(Default)]
struct State {
    /// Reached without a character.
    free: Vec<u32>,
    /// Reached by a character of the set. At most one a state.
    by: Option<(CharSet, u32)>,
}

/// A regular expression as states. Begins at 0, accepts at 1.
pub(super) struct Nfa {
    states: Vec<State>,
}

impl Nfa {
    /// Nothing when the expression is too large to be looked into.
    pub(super) fn new(grammar: &Grammar, expr: &Expr) -> Option<Nfa> {
        let mut nfa = Nfa { states: vec![State::default(), State::default()] };
        nfa.add(grammar, expr, 0, 1)?;
        Some(nfa)
    }

    fn state(&mut self) -> Option<u32> {
        self.states.push(State::default());
        (self.states.len() <= MAX_STATES).then_some(self.states.len() as u32 - 1)
    }

    fn free(&mut self, from: u32, to: u32) {
        self.states[from as usize].free.push(to);
    }

    fn by(&mut self, from: u32, set: CharSet, to: u32) -> Option<()> {
        let own = self.state()?;
        self.free(from, own);
        self.states[own as usize].by = Some((set, to));
        Some(())
    }

    fn add(&mut self, grammar: &Grammar, expr: &Expr, from: u32, to: u32) -> Option<()> {
        match expr {
            Expr::Empty | Expr::Token(_) => self.free(from, to),
            Expr::Class(set) => self.by(from, set.clone(), to)?,
            Expr::Text(text) => self.texts(&[text], from, to)?,
            Expr::Rule(rule) => self.add(grammar, &grammar.rules[*rule].expr, from, to)?,
            Expr::Alt(items) => {
                let text = |item: &Expr| if let Expr::Text(text) = item { Some(text.clone()) } else { None };
                let mut texts: Vec<String> = items.iter().filter_map(text).collect();
                texts.sort_unstable();
                self.texts(&texts.iter().map(String::as_str).collect::<Vec<_>>(), from, to)?;
                let rest = items.iter().filter(|item| !matches!(item, Expr::Text(_)));
                rest.into_iter().try_for_each(|item| self.add(grammar, item, from, to))?;
            }
            Expr::Seq(items) => {
                let mut at = from;
                for item in items {
                    let next = self.state()?;
                    self.add(grammar, item, at, next)?;
                    at = next;
                }
                self.free(at, to);
            }
            Expr::Repeat(inner, min, max) => self.repeat(grammar, inner, &Copies::new(*min, *max), (from, to))?,
        }
        Some(())
    }

    /// Sorted texts as a tree, so that what begins alike is looked at once.
    fn texts(&mut self, texts: &[&str], from: u32, to: u32) -> Option<()> {
        let mut open = vec![(texts, 0, from)];
        while let Some((texts, at, state)) = open.pop() {
            let next = |text: &str| text[at..].chars().next();
            for group in texts.chunk_by(|a, b| next(a) == next(b)) {
                match next(group[0]) {
                    None => self.free(state, to),
                    Some(c) => {
                        let after = self.state()?;
                        self.by(state, CharSet::of(c), after)?;
                        open.push((group, at + c.len_utf8(), after));
                    }
                }
            }
        }
        Some(())
    }

    fn repeat(&mut self, grammar: &Grammar, inner: &Expr, copies: &Copies, ends: (u32, u32)) -> Option<()> {
        let (mut at, to) = ends;
        for copy in 0..copies.max.unwrap_or(copies.min.max(1)) {
            if copy >= copies.min {
                self.free(at, to);
            }
            let (begin, end) = (self.state()?, self.state()?);
            self.free(at, begin);
            self.add(grammar, inner, begin, end)?;
            if copies.max.is_none() && copy + 1 >= copies.min {
                self.free(end, begin);
            }
            at = end;
        }
        self.free(at, to);
        Some(())
    }

    pub(super) fn states(&self) -> usize {
        self.states.len()
    }

    /// The first bytes of the texts.
    pub(super) fn first(&self) -> Bytes {
        let mut bytes = Bytes::default();
        for state in self.closure(0) {
            if let Some((set, _)) = &self.states[state as usize].by {
                bytes = bytes.or(Bytes::first(set));
            }
        }
        bytes
    }

    fn closure(&self, from: u32) -> HashSet<u32> {
        let (mut seen, mut open) = (HashSet::from([from]), vec![from]);
        while let Some(state) = open.pop() {
            open.extend(self.states[state as usize].free.iter().filter(|&&next| seen.insert(next)));
        }
        seen
    }
}

/// May a text of `ended` be the beginning of a text of `other` that goes on with one of the bytes `after`? True too when that
/// is not found out within the limits. Adds what it looked at to `work`.
pub(super) fn can_swallow(ended: &Nfa, other: &Nfa, after: Bytes, work: &mut usize) -> bool {
    // (state of `ended`, state of `other`, has a character been read?)
    let start = (0_u32, 0_u32, false);
    let (mut seen, mut open) = (HashSet::from([start]), vec![start]);
    while let Some((a, b, read)) = open.pop() {
        *work += 1;
        if seen.len() > MAX_PAIRS {
            return true;
        }
        let (at, bt) = (&ended.states[a as usize], &other.states[b as usize]);
        let mut go = |next| {
            if seen.insert(next) {
                open.push(next);
            }
        };
        at.free.iter().for_each(|&next| go((next, b, read)));
        bt.free.iter().for_each(|&next| go((a, next, read)));
        let Some((b_set, b_next)) = &bt.by else { continue };
        if read && a == 1 && Bytes::first(b_set).meets(after) {
            return true;
        }
        if let Some((a_set, a_next)) = &at.by
            && a_set.overlaps(b_set)
        {
            go((*a_next, *b_next, true));
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grammar::gbnf::parse;

    /// Is a text of rule `a` swallowed by rule `b` when `after` may follow?
    fn swallowed(rules: &str, after: &str) -> bool {
        let grammar = parse(&format!("root ::= a b\n{rules}")).unwrap();
        let nfa = |name: &str| {
            let rule = grammar.rules.iter().find(|rule| rule.name == name).unwrap();
            Nfa::new(&grammar, &rule.expr).unwrap()
        };
        let after = after.chars().map(|c| Bytes::first(&CharSet::of(c))).fold(Bytes::default(), Bytes::or);
        can_swallow(&nfa("a"), &nfa("b"), after, &mut 0)
    }

    #[test]
    fn a_longest_match_swallows_what_may_follow() {
        assert!(swallowed("a ::= [a-z]+\nb ::= [a-z]+", "x"));
        assert!(!swallowed("a ::= [a-z]+\nb ::= [a-z]+", " 1"));
        assert!(swallowed("a ::= \"i\"\nb ::= \"if\"", "f"));
        assert!(!swallowed("a ::= \"i\"\nb ::= \"if\"", "n"));
        // One is no beginning of the other.
        assert!(!swallowed("a ::= \"if\"\nb ::= \"i\"", "f"));
        assert!(!swallowed("a ::= [a-z]{3}\nb ::= [a-z]{3}", "x"));
        assert!(swallowed("a ::= [a-z]{2,3}\nb ::= [a-z]{3}", "x"));
        // A bound that is not written out is taken as none.
        assert!(swallowed("a ::= [a-z]{300}\nb ::= [a-z]{300}", "x"));
    }

    #[test]
    fn bytes_of_different_characters_meet() {
        assert!(swallowed("a ::= [\\u00E0]+\nb ::= [\\u00E0]+", "\u{E1}"));
        assert!(!swallowed("a ::= [\\u00E0]\nb ::= [\\u00E1]", "\u{E1}"));
    }
}
