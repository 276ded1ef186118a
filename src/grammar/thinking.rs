//! What makes a grammar fit for thinking: that it ends by itself.
//!
//! A bound on lines is none while a line may be endless. This says how long a text of a grammar can become; where that is
//! not bounded, only a token budget is, and whoever takes the grammar must set one.

use super::gbnf::{Expr, Grammar};

/// Characters of the longest text of the grammar, a token by name counted as one. Nothing: texts have no bound.
pub fn longest(grammar: &Grammar) -> Option<u64> {
    let mut known = vec![State::Unseen; grammar.rules.len()];
    rule(grammar, grammar.root, &mut known)
}

#[derive(Clone, Copy)]
enum State {
    Unseen,
    /// Being looked at: naming it again is a recursion, and each round of it has a character.
    Open,
    Known(Option<u64>),
}

/// Chains of rules are bounded by the parser, so that recursion is safe.
fn rule(grammar: &Grammar, index: usize, known: &mut [State]) -> Option<u64> {
    match known[index] {
        State::Known(length) => length,
        State::Open => None,
        State::Unseen => {
            known[index] = State::Open;
            let length = expr(grammar, &grammar.rules[index].expr, known);
            known[index] = State::Known(length);
            length
        }
    }
}

fn expr(grammar: &Grammar, of: &Expr, known: &mut [State]) -> Option<u64> {
    match of {
        Expr::Empty => Some(0),
        Expr::Text(text) => Some(text.chars().count() as u64),
        Expr::Class(_) | Expr::Token(_) => Some(1),
        Expr::Rule(index) => rule(grammar, *index, known),
        Expr::Seq(items) => {
            items.iter().try_fold(0_u64, |sum, item| Some(sum.saturating_add(expr(grammar, item, known)?)))
        }
        Expr::Alt(items) => items.iter().try_fold(0_u64, |most, item| Some(most.max(expr(grammar, item, known)?))),
        Expr::Repeat(inner, _, max) => match (expr(grammar, inner, known)?, max) {
            (0, _) => Some(0),
            (length, Some(max)) => Some(length.saturating_mul((*max).into())),
            (_, None) => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grammar::catalogue::SHIPPED;
    use crate::grammar::gbnf::parse;

    #[test]
    fn bounded_lines_of_unbounded_length_are_no_bound() {
        let longest = |text: &str| longest(&parse(text).unwrap());
        assert_eq!(longest("root ::= \"PLAN: \" line\nline ::= [a-z]+ \"\\n\""), None);
        assert_eq!(longest("root ::= \"PLAN: \" line\nline ::= [a-z]{1,20} \"\\n\""), Some(27));
        assert_eq!(longest("root ::= \"a\" root | \"b\""), None);
        assert_eq!(longest("root ::= (\"a\" | \"bcd\" (\"\")*){3} | <think>"), Some(9));
    }

    #[test]
    fn every_shipped_grammar_says_what_it_is_and_is_bounded() {
        for shipped in SHIPPED {
            let longest = longest(&parse(shipped.text).unwrap_or_else(|error| panic!("{}: {error}", shipped.name)));
            assert!(longest.is_some_and(|n| n < 5_000), "{}: {longest:?}", shipped.name);
            assert!(shipped.text.starts_with("# ") && shipped.doc().ends_with('.'), "{}", shipped.name);
        }
    }
}
