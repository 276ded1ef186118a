//! A second opinion on GBNF: which texts a parsed grammar matches and begins, by trying everything.

use std::collections::BTreeSet;

use plateau::grammar::gbnf::{Expr, Grammar};

pub struct Reference<'a> {
    grammar: &'a Grammar,
    text: Vec<char>,
    /// An item wanted a character after the last one: the text is the beginning of a longer one.
    wants_more: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No text of the grammar begins so.
    Impossible,
    Beginning,
    /// Whole, whatever may follow.
    Whole,
}

/// Every rule of a parsed grammar matches something, so a beginning can always be completed.
pub fn judge(grammar: &Grammar, text: &str) -> Verdict {
    let mut reference = Reference { grammar, text: text.chars().collect(), wants_more: false };
    let ends = reference.ends(&grammar.rules[grammar.root].expr, 0);
    match (ends.contains(&reference.text.len()), reference.wants_more) {
        (true, _) => Verdict::Whole,
        (false, true) => Verdict::Beginning,
        (false, false) => Verdict::Impossible,
    }
}

impl Reference<'_> {
    fn ends(&mut self, expr: &Expr, at: usize) -> BTreeSet<usize> {
        match expr {
            Expr::Empty => BTreeSet::from([at]),
            Expr::Class(set) => match self.text.get(at) {
                Some(c) if set.contains(*c) => BTreeSet::from([at + 1]),
                Some(_) => BTreeSet::new(),
                None => {
                    self.wants_more = true;
                    BTreeSet::new()
                }
            },
            Expr::Text(text) => {
                for (offset, c) in text.chars().enumerate() {
                    match self.text.get(at + offset) {
                        Some(here) if *here == c => {}
                        Some(_) => return BTreeSet::new(),
                        None => {
                            self.wants_more = true;
                            return BTreeSet::new();
                        }
                    }
                }
                BTreeSet::from([at + text.chars().count()])
            }
            Expr::Token(_) => panic!("tokens are no text"),
            Expr::Rule(rule) => self.ends(&self.grammar.rules[*rule].expr, at),
            Expr::Alt(items) => items.iter().flat_map(|item| self.ends(item, at)).collect(),
            Expr::Seq(items) => items.iter().fold(BTreeSet::from([at]), |from, item| self.step(item, &from)),
            Expr::Repeat(inner, min, max) => {
                let (mut all, mut from, mut count) = (BTreeSet::new(), BTreeSet::from([at]), 0);
                loop {
                    if count >= *min {
                        let before = all.len();
                        all.extend(from.iter().copied());
                        if all.len() == before || max.is_some_and(|max| count >= max) {
                            return all;
                        }
                    }
                    from = self.step(inner, &from);
                    count += 1;
                }
            }
        }
    }

    fn step(&mut self, expr: &Expr, from: &BTreeSet<usize>) -> BTreeSet<usize> {
        from.iter().flat_map(|&at| self.ends(expr, at)).collect()
    }
}
