//! Drafts and their verification over the scripted model: the same answers with and without, whatever is drafted.

#![allow(clippy::unwrap_used, reason = "a failure in a helper of a test is a failed test")]

mod scripted;

use plateau::engine::fake::{Call, IM_END, Next};
use plateau::engine::{FakeRunner, FinishReason, GenerationRequest, MAX_DRAFT_TOKENS, SpeculativeParams};
use plateau::sampling::SamplingParams;
use plateau::units::Token;
use proptest::prelude::*;
use scripted::*;

/// Always the most, from both sources.
fn drafts(mtp_max: u32, lookup_max: u32) -> SpeculativeParams {
    SpeculativeParams { mtp_max, lookup_max, adaptive: false, n_min: 0, p_min: 0.0 }
}

/// A model with an opinion on every token, of which the next one follows from all before; ends now and then.
fn row(tokens: &[Token]) -> Vec<f32> {
    let mut state = hash(tokens);
    let mut row: Vec<f32> = (0..266)
        .map(|_| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 40) as f32 / (1u64 << 24) as f32 * 6.0
        })
        .collect();
    // Only letters, and an end that comes rarely.
    for (token, logit) in row.iter_mut().enumerate() {
        if !(97..123).contains(&token) {
            *logit = f32::NEG_INFINITY;
        }
    }
    row[IM_END.index()] = if state >> 59 == 0 { 5.5 } else { f32::NEG_INFINITY };
    row
}

#[derive(Clone, Debug)]
struct Case {
    n_max: usize,
    percent: u64,
    lookup: u32,
    seeds: Vec<u64>,
    temperature: f32,
    penalty: f32,
    max_tokens: Option<u32>,
    stop: bool,
    adaptive: bool,
    p_min: f32,
    n_min: u32,
}

fn case() -> impl Strategy<Value = Case> {
    let drafting = (1usize..=6, 0u64..=100, 0u32..=6, any::<bool>(), prop_oneof![Just(0.0f32), Just(0.3)], 0u32..3);
    let sampling = (prop::collection::vec(any::<u64>(), 1..5), prop_oneof![Just(0.0f32), Just(0.7), Just(1.0)]);
    let limits = (prop_oneof![Just(0.0f32), Just(1.5)], prop::option::of(0u32..40), any::<bool>());
    (drafting, sampling, limits).prop_map(|(drafting, (seeds, temperature), (penalty, max_tokens, stop))| {
        let (n_max, percent, lookup, adaptive, p_min, n_min) = drafting;
        Case { n_max, percent, lookup, seeds, temperature, penalty, max_tokens, stop, adaptive, p_min, n_min }
    })
}

impl Case {
    fn request(&self, seed: u64, speculative: SpeculativeParams) -> GenerationRequest {
        let sampling = SamplingParams {
            temperature: self.temperature,
            presence_penalty: self.penalty,
            seed,
            ..SamplingParams::greedy()
        };
        GenerationRequest {
            sampling,
            speculative,
            max_tokens: self.max_tokens.or(Some(120)),
            stop: if self.stop { vec!["ab".into(), "q".into()] } else { Vec::new() },
            logprobs: Some(2),
            ..request(&format!("prompt {}", seed % 7))
        }
    }

    async fn answers(&self, speculative: SpeculativeParams) -> Vec<Answer> {
        let runner = FakeRunner::function(|tokens: &[Token]| Next::Row(row(tokens)));
        let rig = start(runner.verifying(self.n_max).drafting(agreeing(row, self.percent)));
        let ask = |seed: &u64| rig.handle.submit(self.request(*seed, speculative)).unwrap();
        read_all(self.seeds.iter().map(ask).collect()).await
    }

    async fn check(&self) {
        let plain = self.answers(SpeculativeParams::OFF).await;
        let params = SpeculativeParams {
            mtp_max: self.n_max as u32,
            lookup_max: self.lookup,
            adaptive: self.adaptive,
            p_min: self.p_min,
            n_min: self.n_min,
        };
        let drafted = self.answers(params).await;
        for (a, b) in plain.iter().zip(&drafted) {
            assert_eq!(a.text, b.text);
            assert_eq!(a.tokens, b.tokens);
            assert_eq!(a.logprobs, b.logprobs);
            assert_eq!(a.reason(), b.reason());
            assert_eq!(a.finish().usage, b.finish().usage);
            let all = b.finish().drafts.all();
            assert!(all.accepted <= all.drafted);
            // A sampled token comes from a row of its own step, an accepted one saved a step.
            assert!(u64::from(b.finish().drafts.n_steps + all.accepted) <= b.finish().usage.completion as u64 + 1);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn answers_are_the_same_with_any_drafts(case in case()) {
        runtime().block_on(case.check());
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// The greedy answer to "hello", one letter after the other.
fn spelling() -> FakeRunner {
    FakeRunner::saying("abcdefghijklmnopqrstuvwxyz")
}

/// What a head says that knows the answer of `spelling` up to `n` drafted tokens of a step.
fn knowing(n: usize) -> impl FnMut(&[Token]) -> Next + Send {
    let mut last = 0;
    let mut n_drafted = 0;
    move |tokens| {
        n_drafted = if tokens.len() == last + 1 { n_drafted + 1 } else { 1 };
        last = tokens.len();
        let next = tokens.last().map_or(97, |t| if (97..122).contains(&t.0) { t.0 + 1 } else { 97 });
        Next::Token(Token(if n_drafted <= n { next } else { 65 }))
    }
}

#[tokio::test]
async fn a_good_head_gives_a_step_all_its_drafts_and_one_more() {
    let rig = start(spelling().verifying(3).drafting(knowing(3)));
    let answer = rig.ask(GenerationRequest { speculative: drafts(3, 0), ..request("hello") }).await;
    assert_eq!(answer.text, "abcdefghijklmnopqrstuvwxyz");
    let totals = answer.finish().drafts;
    // 27 tokens with the end: one by the prompt's step, then four a step.
    assert!(totals.n_steps <= 8, "{totals:?}");
    assert_eq!(totals.mtp.accepted, totals.by_position.iter().map(|p| p.accepted).sum::<u32>());
    assert_eq!(totals.by_position[0].drafted, totals.by_position[0].accepted);
    assert_eq!(totals.by_position[3].drafted, 0);
}

#[tokio::test]
async fn rows_of_sequences_that_decode_together_are_as_many_for_each() {
    let (runner, mut calls) = spelling().verifying(4).drafting(knowing(1)).recorded();
    let (runner, gate) = runner.gated();
    let rig = start(runner);
    let ask = |n: u32| {
        rig.handle.submit(GenerationRequest { speculative: drafts(n, 0), ..request(&format!("hello {n}")) }).unwrap()
    };
    let streams = [ask(4), ask(0), ask(2)];
    drop(gate);
    for stream in streams {
        assert_eq!(read(stream).await.text, "abcdefghijklmnopqrstuvwxyz");
    }
    let mut n_common = 0;
    for call in calls.drain() {
        if let Call::Step(rows) = call {
            let runs: Vec<usize> = rows.chunk_by(|a, b| a.seq == b.seq).map(<[_]>::len).collect();
            if rows.iter().all(|row| row.output) && runs.len() > 1 {
                assert!(runs.iter().all(|n| *n == runs[0]), "{runs:?}");
                n_common += usize::from(runs[0] > 1);
            }
        }
    }
    assert!(n_common > 0, "no step verified drafts of several sequences");
}

#[tokio::test]
async fn an_end_inside_a_draft_cuts_what_is_behind_it() {
    for (stop, text) in [(vec![], "abcdefghijklmnopqrstuvwxyz"), (vec!["cd".to_owned()], "ab")] {
        let (runner, mut calls) = spelling().verifying(5).drafting(knowing(5)).recorded();
        let rig = start(runner);
        let wanted = GenerationRequest { speculative: drafts(5, 0), stop, ..request("hello") };
        let answer = rig.ask(wanted.clone()).await;
        assert_eq!(answer.text, text);
        let cut = |call: &Call| matches!(call, Call::Truncate { kept: true, from, .. } if from.0 > 0);
        assert!(calls.drain().iter().any(cut), "nothing was rolled back");
        if answer.tokens.len() < 26 {
            continue;
        }
        // What is left is the state after the last token that stayed, so that the next turn goes on from it.
        let mut more = wanted.prompt.to_vec();
        more.extend(answer.tokens.iter().map(|t| plateau::engine::PromptItem::Token(*t)));
        more.extend(tokens("!").into_iter().map(plateau::engine::PromptItem::Token));
        let again = rig.ask(GenerationRequest { prompt: more.clone().into(), ..wanted }).await;
        assert!(again.cached() >= more.len() - 3, "{} of {} cached", again.cached(), more.len());
    }
}

#[tokio::test]
async fn max_tokens_is_never_overshot_by_a_draft() {
    for max in 0..12 {
        let rig = start(spelling().verifying(5).drafting(knowing(5)));
        let wanted = GenerationRequest { speculative: drafts(5, 0), max_tokens: Some(max), ..request("hello") };
        let answer = rig.ask(wanted).await;
        assert_eq!(answer.finish().usage.completion, max as usize);
        assert_eq!(answer.reason(), FinishReason::MaxTokens);
    }
}

#[tokio::test]
async fn drafts_stay_inside_a_nearly_full_context() {
    let runner = spelling().verifying(5).drafting(knowing(5)).with_facts(|f| f.n_ctx = 24);
    let rig = start(runner);
    let answer = rig.ask(GenerationRequest { speculative: drafts(5, 4), ..request("hello") }).await;
    let plain = start(spelling().with_facts(|f| f.n_ctx = 24)).ask(request("hello")).await;
    assert_eq!((answer.text.clone(), answer.reason()), (plain.text.clone(), plain.reason()));
    assert_eq!(answer.finish().usage, plain.finish().usage);
}

#[tokio::test]
async fn a_quotation_of_the_prompt_is_drafted_from_it() {
    let passage = "the quick brown fox jumps over the lazy dog and then runs away over the hills, far from here";
    let rig = start(FakeRunner::saying(passage).verifying(8));
    let wanted =
        GenerationRequest { speculative: drafts(0, 8), ..request(&format!("repeat this: {passage}\nanswer: ")) };
    let answer = rig.ask(wanted).await;
    assert_eq!(answer.text, passage);
    let totals = answer.finish().drafts;
    assert!(totals.n_steps < passage.len() as u32 / 5, "{totals:?}");
    assert_eq!(totals.mtp.drafted, 0);
}

#[tokio::test]
async fn without_rollback_nothing_is_drafted() {
    let (runner, mut calls) = spelling().with_facts(|f| f.hybrid = true).recorded();
    let rig = start(runner);
    let answer = rig.ask(GenerationRequest { speculative: drafts(3, 8), ..request("hello") }).await;
    assert_eq!(answer.finish().drafts.all().drafted, 0);
    assert!(calls.drain().iter().all(|call| !matches!(call, Call::Draft(_))));
    const { assert!(MAX_DRAFT_TOKENS >= 15, "the profile's limit of lookup drafts") };
}
