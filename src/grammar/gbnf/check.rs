//! What must hold of a whole grammar: no left recursion, every rule can end, bounded when written out.

use super::ast::{Expr, Grammar};
use super::limits::{MAX_CHAIN, MAX_EXPANDED, MAX_ROW};
use crate::grammar::error::GrammarError;

pub(super) fn check(grammar: &Grammar) -> Result<(), GrammarError> {
    let nullable = nullable(grammar);
    left_recursion(grammar, &nullable)?;
    can_end(grammar)?;
    has_text(grammar)?;
    let groups = components(grammar);
    size(grammar, &groups)
}

/// Which rules match the empty text.
pub(super) fn nullable(grammar: &Grammar) -> Vec<bool> {
    fixpoint(grammar, &|expr, known| is_nullable(expr, &|rule| known[rule]))
}

/// Does the expression match the empty text, given which rules do?
pub(super) fn is_nullable(expr: &Expr, rule: &dyn Fn(usize) -> bool) -> bool {
    match expr {
        Expr::Empty => true,
        Expr::Text(_) | Expr::Class(_) | Expr::Token(_) => false,
        Expr::Rule(index) => rule(*index),
        Expr::Seq(items) => items.iter().all(|item| is_nullable(item, rule)),
        Expr::Alt(items) => items.iter().any(|item| is_nullable(item, rule)),
        Expr::Repeat(inner, min, _) => *min == 0 || is_nullable(inner, rule),
    }
}

/// A root of the empty text alone is a slip of the pen: every answer would be empty.
fn has_text(grammar: &Grammar) -> Result<(), GrammarError> {
    let is_text = |expr: &Expr, known: &[bool]| {
        let mut found = false;
        expr.walk(&mut |part| {
            found |= match part {
                Expr::Text(_) | Expr::Class(_) | Expr::Token(_) => true,
                Expr::Rule(index) => known[*index],
                _ => false,
            };
        });
        found
    };
    if fixpoint(grammar, &is_text)[grammar.root] {
        return Ok(());
    }
    let at = grammar.rules[grammar.root].at;
    Err(GrammarError::text(at, "rule `root` matches the empty text alone; nothing could be generated"))
}

/// The least set of rules for which `holds` given the set itself. A rule is looked at again when one that it names changed.
fn fixpoint(grammar: &Grammar, holds: &dyn Fn(&Expr, &[bool]) -> bool) -> Vec<bool> {
    let mut users = vec![Vec::new(); grammar.rules.len()];
    for (index, rule) in grammar.rules.iter().enumerate() {
        rule.expr.rules().into_iter().for_each(|named| users[named].push(index));
    }
    let mut known = vec![false; grammar.rules.len()];
    let mut open: Vec<usize> = (0..grammar.rules.len()).collect();
    while let Some(index) = open.pop() {
        if !known[index] && holds(&grammar.rules[index].expr, &known) {
            known[index] = true;
            open.extend(users[index].iter().filter(|&&user| !known[user]));
        }
    }
    known
}

/// Rules that the expression can begin with, before any character.
fn first_rules(expr: &Expr, nullable: &[bool], into: &mut Vec<usize>) {
    match expr {
        Expr::Empty | Expr::Text(_) | Expr::Class(_) | Expr::Token(_) => {}
        Expr::Rule(index) => into.push(*index),
        Expr::Alt(items) => items.iter().for_each(|item| first_rules(item, nullable, into)),
        Expr::Repeat(inner, ..) => first_rules(inner, nullable, into),
        Expr::Seq(items) => {
            for item in items {
                first_rules(item, nullable, into);
                if !is_nullable(item, &|rule| nullable[rule]) {
                    break;
                }
            }
        }
    }
}

fn left_recursion(grammar: &Grammar, nullable: &[bool]) -> Result<(), GrammarError> {
    let firsts: Vec<Vec<usize>> = grammar
        .rules
        .iter()
        .map(|rule| {
            let mut into = Vec::new();
            first_rules(&rule.expr, nullable, &mut into);
            into
        })
        .collect();
    let mut done = vec![false; firsts.len()];
    for start in 0..firsts.len() {
        // The path with how far each rule's list has been followed: no recursion, since chains can be long.
        let mut path: Vec<(usize, usize)> = vec![(start, 0)];
        let mut on_path = vec![start];
        while let Some((rule, next)) = path.last_mut() {
            let Some(&named) = firsts[*rule].get(*next) else {
                done[*rule] = true;
                path.pop();
                on_path.pop();
                continue;
            };
            *next += 1;
            if let Some(from) = on_path.iter().position(|&rule| rule == named) {
                let cycle: Vec<&str> = on_path[from..].iter().map(|&rule| grammar.rules[rule].name.as_str()).collect();
                return Err(left_recursive(grammar, named, &cycle));
            }
            if !done[named] {
                path.push((named, 0));
                on_path.push(named);
            }
        }
    }
    Ok(())
}

fn left_recursive(grammar: &Grammar, rule: usize, cycle: &[&str]) -> GrammarError {
    let rule = &grammar.rules[rule];
    // A long cycle is named by its ends.
    let shown = match cycle.len() {
        0..=8 => cycle.join(" -> "),
        n => format!("{} -> ... ({} more) ... -> {}", cycle[..4].join(" -> "), n - 5, cycle[n - 1]),
    };
    let message = format!(
        "left recursion: {shown} -> {}; let an item come before the name, or write a repetition (`x (\",\" x)*`)",
        rule.name
    );
    GrammarError::text(rule.at, message)
}

/// Every rule must match some finite text: else a generation that enters it could never stop.
fn can_end(grammar: &Grammar) -> Result<(), GrammarError> {
    fn ends(expr: &Expr, known: &[bool]) -> bool {
        match expr {
            Expr::Empty | Expr::Text(_) | Expr::Class(_) | Expr::Token(_) => true,
            Expr::Rule(index) => known[*index],
            Expr::Seq(items) => items.iter().all(|item| ends(item, known)),
            Expr::Alt(items) => items.iter().any(|item| ends(item, known)),
            Expr::Repeat(inner, min, _) => *min == 0 || ends(inner, known),
        }
    }
    let known = fixpoint(grammar, &ends);
    match grammar.rules.iter().zip(known).find(|(_, known)| !known) {
        None => Ok(()),
        Some((rule, _)) => Err(GrammarError::text(
            rule.at,
            format!(
                "rule `{}` can never end: all its alternatives need a rule without end; add one that does not",
                rule.name
            ),
        )),
    }
}

/// Strongly connected rules, those that name others after those that they name (Tarjan, without recursion).
pub(super) fn components(grammar: &Grammar) -> Vec<Vec<usize>> {
    let edges: Vec<Vec<usize>> = grammar.rules.iter().map(|rule| rule.expr.rules()).collect();
    let n = edges.len();
    let (mut order, mut low) = (vec![usize::MAX; n], vec![0; n]);
    let (mut waiting, mut is_waiting) = (Vec::new(), vec![false; n]);
    let (mut groups, mut count) = (Vec::new(), 0);
    for start in 0..n {
        if order[start] != usize::MAX {
            continue;
        }
        let mut path = vec![(start, 0)];
        while let Some(&mut (rule, ref mut next)) = path.last_mut() {
            if *next == 0 {
                (order[rule], low[rule]) = (count, count);
                count += 1;
                waiting.push(rule);
                is_waiting[rule] = true;
            }
            if let Some(&named) = edges[rule].get(*next) {
                *next += 1;
                if order[named] == usize::MAX {
                    path.push((named, 0));
                } else if is_waiting[named] {
                    low[rule] = low[rule].min(order[named]);
                }
                continue;
            }
            // A rule without names would be entered again at `next == 0`, but it is popped here.
            path.pop();
            if let Some(&(user, _)) = path.last() {
                low[user] = low[user].min(low[rule]);
            }
            if low[rule] == order[rule] {
                let from = waiting.iter().rposition(|&waiting| waiting == rule).unwrap_or(0);
                let group: Vec<usize> = waiting.drain(from..).collect();
                group.iter().for_each(|&rule| is_waiting[rule] = false);
                groups.push(group);
            }
        }
    }
    groups
}

/// Bounds what the grammar is when written out.
fn size(grammar: &Grammar, groups: &[Vec<usize>]) -> Result<(), GrammarError> {
    let mut sizes = vec![1_usize; grammar.rules.len()];
    let mut rows = sizes.clone();
    let mut chains = vec![0_usize; grammar.rules.len()];
    for group in groups {
        let named = group.iter().flat_map(|&rule| grammar.rules[rule].expr.rules());
        let chain = named.map(|rule| chains[rule]).max().unwrap_or(0) + group.len();
        GrammarError::within("rules that name one another in a line or a circle", chain, MAX_CHAIN)?;
        let measured: Vec<(usize, usize)> = group
            .iter()
            .map(|&rule| (expanded(&grammar.rules[rule].expr, &sizes), row(&grammar.rules[rule].expr, &rows)))
            .collect();
        for (&rule, (size, row)) in group.iter().zip(measured) {
            GrammarError::within("size of the grammar with its rules and repetitions written out", size, MAX_EXPANDED)?;
            GrammarError::within("items in a row with rules written out", row, MAX_ROW)?;
            (sizes[rule], rows[rule], chains[rule]) = (size, row, chain);
        }
    }
    Ok(())
}

/// Of what is not yet known a rule counts one.
fn row(expr: &Expr, rows: &[usize]) -> usize {
    match expr {
        Expr::Empty => 0,
        Expr::Text(_) | Expr::Class(_) | Expr::Token(_) => 1,
        Expr::Rule(index) => rows[*index],
        Expr::Seq(items) => items.iter().fold(0_usize, |sum, item| sum.saturating_add(row(item, rows))),
        Expr::Alt(items) => items.iter().map(|item| row(item, rows)).max().unwrap_or(0),
        Expr::Repeat(inner, ..) => row(inner, rows),
    }
}

/// Of what is not yet known a rule counts one.
fn expanded(expr: &Expr, sizes: &[usize]) -> usize {
    let sum = |items: &[Expr]| items.iter().fold(1_usize, |sum, item| sum.saturating_add(expanded(item, sizes)));
    match expr {
        Expr::Empty | Expr::Class(_) | Expr::Token(_) => 1,
        Expr::Text(text) => text.len(),
        Expr::Rule(index) => sizes[*index],
        Expr::Seq(items) | Expr::Alt(items) => sum(items),
        Expr::Repeat(inner, min, max) => {
            expanded(inner, sizes).saturating_mul(max.unwrap_or(min + 1).max(1) as usize).saturating_add(1)
        }
    }
}
