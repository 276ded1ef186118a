//! Rules and drafts together over the scripted model: whatever is drafted, and whether masks are worked out beside a step or
//! after it, the answer is the one without drafts.

#![allow(clippy::unwrap_used, reason = "a failure in a helper of a test is a failed test")]

mod scripted;

use std::cell::RefCell;

use plateau::engine::fake::Next;
use plateau::engine::{AnswerRule, Constraint, FakeRunner, GenerationRequest, SpeculativeParams, ThinkingRule};
use plateau::grammar::{Compiled, Engine, Source, Vocabulary};
use plateau::sampling::SamplingParams;
use plateau::text::{ByteCodec, Tokenizer};
use plateau::units::Token;
use proptest::prelude::*;
use scripted::*;

const N_VOCAB: usize = 266;
const OPEN: Token = Token(258);
const CLOSE: Token = Token(259);

/// Compiled once a thread: it is slow without optimisation.
fn grammar() -> Compiled {
    thread_local! {
        static KNOWN: RefCell<Option<Compiled>> = const { RefCell::new(None) };
    }
    KNOWN.with_borrow_mut(|known| known.get_or_insert_with(compile).clone())
}

fn compile() -> Compiled {
    let tokenizer = Tokenizer::bytes_for_tests();
    let pieces = (0..N_VOCAB as u32).map(|id| tokenizer.piece(Token(id)).to_vec()).collect();
    let special = (0..N_VOCAB).map(|id| id >= 256).collect();
    let vocabulary = Vocabulary { pieces, special, end: ByteCodec::vocab().eog, tokenize: None };
    let source = Source::Gbnf("root ::= (\"- \" [a-m]{1,6} \";\"){1,4} \"end\"".to_owned());
    Engine::new(vocabulary).unwrap().compile(&source).unwrap()
}

/// An answer with a shape; after a bounded thought; or only the thought has one.
fn rules(kind: usize) -> Constraint {
    let grammar = grammar();
    let thinking = ThinkingRule {
        is_open: true,
        open: OPEN,
        close: CLOSE,
        grammar: None,
        budget_tokens: Some(9),
        message: tokens("!"),
        separator: tokens("\n"),
        calls_end_it: true,
    };
    let shape = || Some(grammar.matcher());
    match kind {
        0 => Constraint { thinking: None, answer: AnswerRule { grammar: shape(), ..AnswerRule::default() } },
        1 => Constraint { thinking: Some(thinking), answer: AnswerRule { grammar: shape(), ..AnswerRule::default() } },
        _ => Constraint {
            thinking: Some(ThinkingRule { grammar: shape(), budget_tokens: None, ..thinking }),
            answer: AnswerRule::default(),
        },
    }
}

/// An opinion on every token, most of which the rules forbid; `end` is likely where it may come.
fn row(tokens: &[Token]) -> Vec<f32> {
    let mut state = hash(tokens);
    (0..N_VOCAB)
        .map(|token| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let bonus = if (97..123).contains(&token) || token == 32 { 4.0 } else { 0.0 };
            (state >> 40) as f32 / (1u64 << 24) as f32 * 6.0 + bonus
        })
        .collect()
}

#[derive(Clone, Debug)]
struct Case {
    kind: usize,
    n_max: usize,
    percent: u64,
    lookup: u32,
    seeds: Vec<u64>,
    temperature: f32,
}

fn case() -> impl Strategy<Value = Case> {
    let sampling = (prop::collection::vec(any::<u64>(), 1..4), prop_oneof![Just(0.0f32), Just(0.7)]);
    (0usize..3, 1usize..=5, 0u64..=100, 0u32..=4, sampling).prop_map(
        |(kind, n_max, percent, lookup, (seeds, temperature))| Case {
            kind,
            n_max,
            percent,
            lookup,
            seeds,
            temperature,
        },
    )
}

impl Case {
    async fn answers(&self, speculative: SpeculativeParams, asynchronous: bool) -> Vec<Answer> {
        let runner = FakeRunner::function(|tokens: &[Token]| Next::Row(row(tokens)));
        let runner = runner.verifying(self.n_max).drafting(agreeing(row, self.percent));
        let rig = start(runner.with_facts(|facts| facts.asynchronous = asynchronous));
        let ask = |seed: &u64| {
            let sampling = SamplingParams { temperature: self.temperature, seed: *seed, ..SamplingParams::greedy() };
            let of = request(&format!("prompt {}", seed % 7));
            let request = GenerationRequest {
                sampling,
                speculative,
                constraint: rules(self.kind),
                max_tokens: Some(80),
                logprobs: Some(2),
                ..of
            };
            rig.handle.submit(request).unwrap()
        };
        read_all(self.seeds.iter().map(ask).collect()).await
    }

    async fn check(&self) {
        let plain = self.answers(SpeculativeParams::OFF, false).await;
        let (mtp_max, lookup_max) = (self.n_max as u32, self.lookup);
        let drafting = SpeculativeParams { mtp_max, lookup_max, adaptive: false, n_min: 0, p_min: 0.0 };
        for (speculative, asynchronous) in [(SpeculativeParams::OFF, true), (drafting, false), (drafting, true)] {
            let others = self.answers(speculative, asynchronous).await;
            for (a, b) in plain.iter().zip(&others) {
                assert_eq!((&a.text, &a.tokens, &a.logprobs), (&b.text, &b.tokens, &b.logprobs));
                assert_eq!((a.reason(), a.finish().usage), (b.reason(), b.finish().usage));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn answers_under_rules_are_the_same_with_any_drafts(case in case()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(case.check());
    }
}

/// The head knows the model by heart, so what it guesses freely is mostly forbidden, and what it guesses by the rules is right.
#[tokio::test]
async fn a_head_that_knows_the_model_is_right_under_rules_too() {
    let case = Case { kind: 0, n_max: 3, percent: 100, lookup: 0, seeds: (0..8).collect(), temperature: 0.0 };
    let drafting = SpeculativeParams { mtp_max: 3, lookup_max: 0, adaptive: false, n_min: 0, p_min: 0.0 };
    for answer in case.answers(drafting, true).await {
        let mtp = answer.finish().drafts.mtp;
        // The token that ends the answer ends the step, before it is counted.
        assert!(mtp.accepted + 1 >= mtp.drafted && mtp.drafted > 0, "{mtp:?}");
    }
}
