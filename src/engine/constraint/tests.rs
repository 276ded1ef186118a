//! Properties and symptoms of following rules, over a vocabulary of bytes.

use std::cell::RefCell;

use proptest::prelude::*;

use super::rules::{AnswerRule, CallRule, Constraint, ThinkingRule};
use super::state::{Allowed, ConstraintState};
use crate::grammar::{Compiled, Engine, Matcher, Source, Vocabulary};
use crate::text::{ByteCodec, Tokenizer};
use crate::units::Token;

const OPEN: Token = Token(258);
const CLOSE: Token = Token(259);
const CALL: Token = Token(260);
const CALL_END: Token = Token(261);
const EOG: [Token; 2] = [Token(257), Token(262)];
const N_VOCAB: usize = 266;

fn tokenizer() -> Tokenizer {
    Tokenizer::bytes_for_tests()
}

/// Compiled once: it is slow without optimisation.
fn compiled(source: &Source) -> Compiled {
    thread_local! {
        static KNOWN: RefCell<Vec<(Source, Compiled)>> = const { RefCell::new(Vec::new()) };
    }
    KNOWN.with_borrow_mut(|known| {
        if let Some((_, compiled)) = known.iter().find(|(of, _)| of == source) {
            return compiled.clone();
        }
        let compiled = compile(source);
        known.push((source.clone(), compiled.clone()));
        compiled
    })
}

fn compile(source: &Source) -> Compiled {
    let facts = ByteCodec::vocab();
    let pieces = (0..N_VOCAB as u32).map(|id| tokenizer().piece(Token(id)).to_vec()).collect();
    let special = (0..N_VOCAB).map(|id| id >= 256).collect();
    let vocabulary = Vocabulary { pieces, special, end: facts.eog, tokenize: None };
    Engine::new(vocabulary).unwrap().compile(source).unwrap()
}

fn gbnf(text: &str) -> Matcher {
    compiled(&Source::Gbnf(text.to_owned())).matcher()
}

fn bytes(text: &str) -> Vec<Token> {
    text.bytes().map(|byte| Token(byte.into())).collect()
}

fn thinking() -> ThinkingRule {
    ThinkingRule {
        is_open: true,
        open: OPEN,
        close: CLOSE,
        grammar: None,
        budget_tokens: None,
        message: bytes("!"),
        separator: bytes("\n"),
        calls_end_it: true,
    }
}

fn answering(grammar: Option<Matcher>) -> AnswerRule {
    AnswerRule { grammar, ..AnswerRule::default() }
}

fn calling(required: bool, many: bool) -> AnswerRule {
    let grammar = gbnf("root ::= \"(\" [a-z]{1,3} \")\" <[261]>");
    let calls = CallRule { trigger: CALL, grammar, required, many, separator: bytes("\n") };
    AnswerRule { calls: Some(calls), ..AnswerRule::default() }
}

fn constraint(thinking: Option<ThinkingRule>, answer: AnswerRule) -> ConstraintState {
    ConstraintState::new(Constraint { thinking, answer }, N_VOCAB, &EOG).unwrap()
}

/// What may come next, as a set of ids; all of them where nothing is forbidden.
fn next(constraint: &mut ConstraintState) -> Vec<u32> {
    match constraint.allowed() {
        Err(error) => panic!("{error}"),
        Ok(Allowed::Any) => (0..N_VOCAB as u32).collect(),
        Ok(Allowed::Only(token)) => vec![token.0],
        Ok(Allowed::Among(mask)) => (0..N_VOCAB as u32).filter(|id| mask.allows(*id)).collect(),
    }
}

fn take(constraint: &mut ConstraintState, tokens: &[Token]) {
    for token in tokens {
        assert!(next(constraint).contains(&token.0), "{} is not allowed", token.0);
        constraint.take(*token, &tokenizer()).unwrap();
    }
}

/// Follows the constraint where it leaves no choice.
fn follow(constraint: &mut ConstraintState) -> Vec<Token> {
    let mut all = Vec::new();
    while !constraint.is_done()
        && let [only] = next(constraint)[..]
    {
        constraint.take(Token(only), &tokenizer()).unwrap();
        all.push(Token(only));
    }
    all
}

const ENDS: [u32; 2] = [257, 262];

#[test]
fn without_rules_there_is_no_guide() {
    assert!(ConstraintState::new(Constraint::default(), N_VOCAB, &EOG).is_none());
}

#[test]
fn a_grammar_holds_from_the_first_token_to_the_end() {
    let mut constraint = constraint(None, answering(Some(gbnf("root ::= \"ab\" \"c\"?"))));
    assert_eq!(next(&mut constraint), [97]);
    take(&mut constraint, &bytes("ab"));
    assert_eq!(next(&mut constraint), [99, ENDS[0], ENDS[1]]);
    take(&mut constraint, &bytes("c"));
    assert!(constraint.is_done(), "nothing can follow, so that no token has to say so");
}

#[test]
fn a_grammar_for_the_answer_leaves_the_thought_alone() {
    let mut constraint = constraint(Some(thinking()), answering(Some(gbnf("root ::= \"ab\""))));
    take(&mut constraint, &bytes("zz"));
    assert_eq!(next(&mut constraint).len(), N_VOCAB);
    take(&mut constraint, &[CLOSE]);
    assert_eq!(follow(&mut constraint), bytes("\nab"));
    assert!(constraint.is_done());
}

#[test]
fn a_model_that_thinks_by_itself_may_or_may_not() {
    let possible = || Some(ThinkingRule { is_open: false, ..thinking() });
    let mut quiet = constraint(possible(), answering(Some(gbnf("root ::= \"ab\""))));
    assert_eq!(next(&mut quiet), [97, OPEN.0]);
    assert_eq!(
        {
            take(&mut quiet, &bytes("a"));
            follow(&mut quiet)
        },
        bytes("b")
    );
    let mut thinks = constraint(possible(), answering(Some(gbnf("root ::= \"ab\""))));
    take(&mut thinks, &[OPEN, Token(120), CLOSE]);
    assert_eq!(follow(&mut thinks), bytes("\nab"));
    let mut free = constraint(possible(), AnswerRule::default());
    take(&mut free, &[Token(10), OPEN]);
    assert_eq!(free.meant(EOG[0]), CLOSE);
}

#[test]
fn a_thought_cannot_end_the_generation() {
    let mut constraint = constraint(Some(thinking()), AnswerRule::default());
    take(&mut constraint, &bytes("hm"));
    assert_eq!(
        (constraint.meant(EOG[0]), constraint.meant(EOG[1]), constraint.meant(Token(97))),
        (CLOSE, CLOSE, Token(97))
    );
    take(&mut constraint, &[CLOSE]);
    assert_eq!(constraint.meant(EOG[0]), EOG[0]);
}

#[test]
fn a_spent_budget_closes_the_thought_once_and_says_so() {
    for budget in [0, 1, 7] {
        let rule = ThinkingRule { budget_tokens: Some(budget), ..thinking() };
        let mut constraint = constraint(Some(rule), AnswerRule::default());
        take(&mut constraint, &vec![Token(97); budget as usize]);
        let closing: Vec<Token> = [bytes("!"), vec![CLOSE], bytes("\n")].concat();
        assert_eq!(follow(&mut constraint), closing);
        let answer = next(&mut constraint);
        assert!(!answer.contains(&CLOSE.0) && !answer.contains(&OPEN.0), "it would be closed again in the answer");
        assert_eq!(answer.len(), N_VOCAB - 2);
    }
}

#[test]
fn a_thought_that_ends_in_time_has_no_forced_end() {
    let mut constraint = constraint(Some(ThinkingRule { budget_tokens: Some(3), ..thinking() }), AnswerRule::default());
    take(&mut constraint, &[Token(97), CLOSE]);
    assert_eq!(next(&mut constraint).len(), N_VOCAB);
}

#[test]
fn a_budget_never_cuts_a_character() {
    let rule = ThinkingRule { budget_tokens: Some(2), ..thinking() };
    let mut constraint = constraint(Some(rule), AnswerRule::default());
    take(&mut constraint, &bytes("a\u{20ac}"));
    assert_eq!(next(&mut constraint), [u32::from(b'!')]);
    let rule = ThinkingRule { budget_tokens: Some(1), ..thinking() };
    let mut broken = self::constraint(Some(rule), AnswerRule::default());
    take(&mut broken, &[0xE2, 0xE2, 0xE2, 0xE2].map(Token));
    assert_eq!(next(&mut broken), [u32::from(b'!')], "bytes that are no character are not waited for without end");
}

#[test]
fn the_end_of_a_thinking_grammar_is_the_closing_tag() {
    let rule = ThinkingRule { grammar: Some(gbnf("root ::= \"a\" \"b\"?")), ..thinking() };
    let mut constraint = constraint(Some(rule.clone()), AnswerRule::default());
    assert_eq!(next(&mut constraint), [97]);
    take(&mut constraint, &bytes("a"));
    assert_eq!(next(&mut constraint), [98, CLOSE.0]);
    take(&mut constraint, &bytes("b"));
    assert_eq!(next(&mut constraint), [CLOSE.0]);
    take(&mut constraint, &[CLOSE]);
    assert_eq!(next(&mut constraint).len(), N_VOCAB);
    let mut cut = self::constraint(Some(ThinkingRule { budget_tokens: Some(2), ..rule }), AnswerRule::default());
    take(&mut cut, &bytes("ab"));
    assert_eq!(follow(&mut cut)[..2], [CLOSE, Token(10)], "a thought that is whole needs no excuse");
}

#[test]
fn a_required_call_comes_first_and_alone() {
    let mut one = constraint(Some(thinking()), calling(true, false));
    take(&mut one, &[CLOSE]);
    assert_eq!(follow(&mut one), [bytes("\n"), vec![CALL], bytes("(")].concat());
    take(&mut one, &bytes("x)"));
    assert_eq!(follow(&mut one), [CALL_END]);
    assert!(one.is_done());
    let mut many = constraint(None, calling(true, true));
    take(&mut many, &[vec![CALL], bytes("(x)"), vec![CALL_END]].concat());
    assert_eq!(next(&mut many), [10, ENDS[0], ENDS[1]]);
    take(&mut many, &bytes("\n"));
    assert_eq!(follow(&mut many), [vec![CALL], bytes("(")].concat());
}

#[test]
fn a_call_is_bound_from_its_first_token_on_also_inside_a_thought() {
    let mut constraint = constraint(Some(thinking()), calling(false, true));
    take(&mut constraint, &[bytes("hm"), vec![CALL]].concat());
    assert_eq!(next(&mut constraint), [u32::from(b'(')]);
    take(&mut constraint, &[bytes("(x)"), vec![CALL_END]].concat());
    assert_eq!(next(&mut constraint).len(), N_VOCAB);
    assert_eq!(constraint.meant(EOG[0]), EOG[0], "the thought is over");
    take(&mut constraint, &[bytes("and "), vec![CALL], bytes("(")].concat());
    assert!(!next(&mut constraint).contains(&CALL.0));
}

#[test]
fn beside_a_shape_for_the_answer_a_call_can_only_be_all_of_it() {
    let answer = AnswerRule { grammar: Some(gbnf("root ::= \"ab\"")), ..calling(false, true) };
    let mut constraint = constraint(None, answer);
    assert_eq!(next(&mut constraint), [97, CALL.0]);
    take(&mut constraint, &[vec![CALL], bytes("(x)"), vec![CALL_END]].concat());
    assert_eq!(next(&mut constraint), [10, ENDS[0], ENDS[1]]);
}

#[test]
fn banned_tokens_never_come() {
    let mut constraint = constraint(None, AnswerRule { banned: vec![CALL], ..AnswerRule::default() });
    assert_eq!(next(&mut constraint).len(), N_VOCAB - 1);
    assert!(constraint.take(CALL, &tokenizer()).is_err());
}

#[test]
fn what_is_forced_is_offered_as_a_draft() {
    let mut constraint = constraint(Some(ThinkingRule { budget_tokens: Some(0), ..thinking() }), calling(true, false));
    let mut forced = Vec::new();
    constraint.forced(16, &tokenizer(), &mut forced);
    // A longer token may begin with the bracket.
    assert_eq!(forced, [bytes("!"), vec![CLOSE], bytes("\n"), vec![CALL]].concat());
    forced.clear();
    constraint.forced(2, &tokenizer(), &mut forced);
    assert_eq!(forced, [bytes("!"), vec![CLOSE]].concat());
    assert_eq!(follow(&mut constraint).len(), 5, "an offer takes nothing");
}

#[test]
fn masks_that_were_foreseen_are_at_hand_when_their_tokens_have_come() {
    let mut constraint = constraint(None, answering(Some(gbnf("root ::= \"a\" [b-d]{4} \"e\""))));
    let draft = bytes("abcb");
    constraint.precompute_masks(&draft, &tokenizer(), || true);
    for token in draft {
        assert!(constraint.masks.is_known(0));
        take(&mut constraint, &[token]);
    }
    assert!(constraint.masks.is_known(0));
    take(&mut constraint, &bytes("d"));
    assert!(!constraint.masks.is_known(0));
    assert_eq!(next(&mut constraint), [u32::from(b'e')]);
}

/// A constraint of every kind of rule, by number.
fn any_guide(kind: usize) -> ConstraintState {
    let grammar = || gbnf("root ::= (\"x\" [a-c]{1,2} \";\"){1,3} \"end\"");
    match kind {
        0 => constraint(None, answering(Some(grammar()))),
        1 => constraint(Some(ThinkingRule { budget_tokens: Some(4), ..thinking() }), answering(Some(grammar()))),
        2 => constraint(Some(ThinkingRule { grammar: Some(grammar()), ..thinking() }), calling(true, true)),
        3 => constraint(Some(ThinkingRule { is_open: false, ..thinking() }), calling(false, true)),
        _ => constraint(None, AnswerRule { grammar: Some(grammar()), ..calling(false, true) }),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn tried_tokens_leave_no_trace(
        kind in 0_usize..5,
        script in prop::collection::vec((any::<u32>(), prop::collection::vec((any::<u32>(), any::<bool>()), 0..5)), 1..24),
    ) {
        let (mut tries, mut plain) = (any_guide(kind), any_guide(kind));
        let tokenizer = tokenizer();
        for (pick, draft) in script {
            if tries.is_done() {
                break;
            }
            let foreseen: Vec<Token> = draft.iter().map(|(choice, _)| Token(choice % N_VOCAB as u32)).collect();
            let mut n_more = pick % 4;
            tries.precompute_masks(&foreseen, &tokenizer, || {
                n_more = n_more.saturating_sub(1);
                n_more > 0
            });
            for (choice, masked) in draft {
                if tries.is_done() {
                    break;
                }
                let allowed = if masked { next(&mut tries) } else { (0..N_VOCAB as u32).collect() };
                let token = Token(allowed[choice as usize % allowed.len()]);
                let possible = next(&mut tries).contains(&token.0) && !EOG.contains(&token);
                prop_assert_eq!(tries.try_token(token, &tokenizer), possible, "token {}", token.0);
            }
            tries.rollback();
            let allowed = next(&mut plain);
            prop_assert_eq!(next(&mut tries), allowed.clone());
            // Control tokens are rare among all ids; free phases should meet them often.
            let special = [OPEN.0, CLOSE.0, CALL.0].into_iter().filter(|id| pick % 3 == 0 && allowed.contains(id));
            let few: Vec<u32> = special.collect();
            let from = if few.is_empty() { &allowed } else { &few };
            let token = Token(from[pick as usize % from.len()]);
            let token = tries.meant(token);
            prop_assert_eq!(token, plain.meant(token));
            if EOG.contains(&token) {
                break;
            }
            tries.take(token, &tokenizer).unwrap();
            plain.take(token, &tokenizer).unwrap();
            prop_assert_eq!(tries.is_done(), plain.is_done());
        }
    }
}
