//! Which rules are regular, so that a whole rule can be one lexeme.
//!
//! A rule is regular when it names only regular rules, or itself at its very end (`ws ::= [ \t] ws | ""`): that recursion is
//! rewritten as a repetition. Rules that name one another in a circle, and tokens, are left to the parser.

use super::ast::{Expr, Grammar};
use super::check::components;

/// Rewrites recursion at the end of a rule, and says for every rule whether it is regular now.
pub(super) fn regular_rules(grammar: &mut Grammar) -> Vec<bool> {
    let mut regular = vec![false; grammar.rules.len()];
    for group in components(grammar) {
        let [rule] = group[..] else { continue };
        if grammar.rules[rule].expr.rules().contains(&rule) {
            match without_tail(&grammar.rules[rule].expr, rule) {
                Some(expr) => grammar.rules[rule].expr = expr,
                None => continue,
            }
        }
        regular[rule] = is_regular(&grammar.rules[rule].expr, &regular);
    }
    regular
}

pub(super) fn is_regular(expr: &Expr, regular: &[bool]) -> bool {
    let mut all = true;
    expr.walk(&mut |expr| match expr {
        Expr::Token(_) => all = false,
        Expr::Rule(rule) => all &= regular[*rule],
        _ => {}
    });
    all
}

/// `x ::= a x | b` as `a* b`, or nothing where `x` is named elsewhere than at the end.
fn without_tail(expr: &Expr, rule: usize) -> Option<Expr> {
    let (before, rest) = split(expr, rule)?;
    // A rule that can end has a rest; `check` has made sure.
    Some(Expr::seq(vec![Expr::repeat(before?, 0, None), rest?]))
}

/// What comes before the rule's own name at the end, and what needs no such name.
fn split(expr: &Expr, rule: usize) -> Option<(Option<Expr>, Option<Expr>)> {
    if !expr.rules().contains(&rule) {
        return Some((None, Some(expr.clone())));
    }
    match expr {
        Expr::Rule(_) => Some((Some(Expr::Empty), None)),
        Expr::Seq(items) => {
            let (last, head) = items.split_last()?;
            if head.iter().any(|item| item.rules().contains(&rule)) {
                return None;
            }
            let (before, rest) = split(last, rule)?;
            let after_head =
                |tail: Option<Expr>| tail.map(|tail| Expr::seq(head.iter().cloned().chain([tail]).collect()));
            Some((after_head(before), after_head(rest)))
        }
        Expr::Alt(items) => {
            let (mut before, mut rest) = (Vec::new(), Vec::new());
            for item in items {
                let (a, b) = split(item, rule)?;
                before.extend(a);
                rest.extend(b);
            }
            let join = |items: Vec<Expr>| if items.is_empty() { None } else { Some(Expr::alt(items)) };
            Some((join(before), join(rest)))
        }
        Expr::Repeat(inner, 0, Some(1)) => {
            let (before, rest) = split(inner, rule)?;
            let rest = rest.map_or(Expr::Empty, |rest| Expr::Alt(vec![rest, Expr::Empty]));
            Some((before, Some(rest)))
        }
        _ => None,
    }
}
