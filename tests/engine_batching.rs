//! Many sequences in one context: the same answers as alone, nobody starves, and what is left is reused.

#![allow(clippy::unwrap_used, reason = "a failure in a helper of a test is a failed test")]

mod scripted;

use plateau::engine::fake::{Call, Fault};
use plateau::engine::{
    BatchRow, EngineSettings, FakeRunner, FinishReason, GenerationRequest, PromptItem, RunnerErrorKind,
};
use plateau::units::{Pos, SeqId, Token};
use proptest::prelude::*;
use scripted::*;

#[derive(Clone, Debug)]
struct Load {
    prompts: Vec<(Vec<u32>, Option<u32>, bool)>,
    /// Steps let through after each submission.
    ticks: Vec<usize>,
    n_seq_max: usize,
    n_batch: usize,
    chunk: usize,
    n_ctx: usize,
    hybrid: bool,
}

fn load() -> impl Strategy<Value = Load> {
    let prompt = (prop::collection::vec(97u32..100, 1..90), prop::option::of(0u32..60), any::<bool>());
    let prompts = prop::collection::vec(prompt, 1..10);
    let shape = (1usize..=8, 9usize..80, 1usize..40, 96usize..400, any::<bool>());
    (prompts, prop::collection::vec(0usize..12, 10), shape).prop_map(|(prompts, ticks, shape)| {
        let (n_seq_max, n_batch, chunk, n_ctx, hybrid) = shape;
        Load { prompts, ticks, n_seq_max, n_batch, chunk, n_ctx, hybrid }
    })
}

impl Load {
    fn runner(&self) -> FakeRunner {
        hashing(40).with_facts(|f| {
            f.n_ctx = self.n_ctx;
            f.n_seq_max = self.n_seq_max;
            f.n_batch = self.n_batch;
            f.n_outputs_max = self.n_seq_max;
            f.hybrid = self.hybrid;
        })
    }

    async fn check(&self) {
        let (runner, mut calls) = self.runner().recorded();
        let (runner, gate) = runner.gated();
        let rig = start_with(runner, EngineSettings { prefill_chunk_tokens: self.chunk, ..SETTINGS });
        let mut streams = Vec::new();
        for ((prompt, max_tokens, cache_prompt), &ticks) in self.prompts.iter().zip(&self.ticks) {
            let prompt = prompt.iter().map(|&t| Token(t)).collect();
            let request =
                GenerationRequest { max_tokens: *max_tokens, cache_prompt: *cache_prompt, ..request_of(prompt) };
            streams.push(rig.handle.submit(request).unwrap());
            gate.allow(ticks);
            tokio::task::yield_now().await;
        }
        drop(gate);
        for (stream, (prompt, max_tokens, _)) in streams.into_iter().zip(&self.prompts) {
            let answer = read(stream).await;
            let prompt: Vec<Token> = prompt.iter().map(|&t| Token(t)).collect();
            let (text, reason) = alone(&prompt, *max_tokens, self.n_ctx, 40);
            assert_eq!((answer.text.as_str(), answer.reason()), (text.as_str(), reason));
            let n_end = usize::from(matches!(answer.reason(), FinishReason::Eos(_)));
            assert_eq!(answer.finish().usage.completion, text.len() + n_end);
            assert_eq!(answer.tokens.len(), text.len());
            assert_eq!(answer.finish().usage.prompt, prompt.len());
        }
        rig.close().await;
        assert_room(&calls.drain());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn every_request_gets_the_answer_it_gets_alone(load in load()) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(load.check());
    }
}

#[tokio::test]
async fn four_identical_prompts_at_once_give_one_answer() {
    let rig = start(hashing(60));
    let streams: Vec<_> = (0..4).map(|_| rig.handle.submit(request("the same question")).unwrap()).collect();
    let (expected, _) = alone(&tokens("the same question"), None, 4096, 60);
    for stream in streams {
        assert_eq!(read(stream).await.text, expected);
    }
    rig.close().await;
}

fn rows_of(step: &[BatchRow], seq: u32) -> usize {
    step.iter().filter(|row| row.seq == SeqId(seq)).count()
}

fn steps(calls: Vec<Call>) -> Vec<Vec<BatchRow>> {
    calls.into_iter().filter_map(|call| if let Call::Step(rows) = call { Some(rows) } else { None }).collect()
}

#[tokio::test]
async fn a_long_prefill_does_not_starve_decoding() {
    let (runner, mut calls) = FakeRunner::saying("on and on").recorded();
    let (runner, gate) = runner.gated();
    let rig = start(runner);
    let endless = GenerationRequest { ignore_eos: true, max_tokens: Some(300), ..request("talk") };
    let mut talker = rig.handle.submit(endless).unwrap();
    gate.allow(3);
    first_text(&mut talker).await;
    let reader = rig.handle.submit(request(&"x".repeat(1500))).unwrap();
    drop(gate);
    assert_eq!(read(talker).await.finish().usage.completion, 300);
    assert_eq!(read(reader).await.text, "on and on");
    let steps = steps(calls.drain());
    let mixed: Vec<_> = steps.iter().filter(|step| rows_of(step, 1) > 1).collect();
    assert!(mixed.len() >= 1500 / 63, "{} steps", mixed.len());
    for step in mixed {
        assert_eq!(rows_of(step, 0), 1, "a decode row in every step");
        assert!(step.len() <= SETTINGS.prefill_chunk_tokens);
    }
    rig.close().await;
}

#[tokio::test]
async fn several_long_prompts_progress_together() {
    let (runner, mut calls) = FakeRunner::saying("ok").recorded();
    let (runner, gate) = runner.gated();
    let rig = start(runner);
    let mut streams = vec![rig.handle.submit(request(&"a".repeat(900))).unwrap()];
    assert_eq!(calls.next_step().await.unwrap().len(), 128, "alone, a prompt gets one device pass");
    streams.push(rig.handle.submit(request(&"b".repeat(900))).unwrap());
    streams.push(rig.handle.submit(request(&"c".repeat(900))).unwrap());
    gate.allow(1);
    let step = calls.next_step().await.unwrap();
    assert_eq!([rows_of(&step, 0), rows_of(&step, 1), rows_of(&step, 2)], [43, 43, 42]);
    drop(gate);
    for stream in streams {
        assert_eq!(read(stream).await.text, "ok");
    }
    rig.close().await;
}

#[tokio::test]
async fn only_the_last_prompt_row_has_output() {
    let (runner, mut calls) = FakeRunner::saying("ok").recorded();
    let rig = start(runner);
    rig.ask(request(&"p".repeat(1000))).await;
    rig.close().await;
    let rows: Vec<BatchRow> = steps(calls.drain()).concat();
    let outputs: Vec<u32> = rows.iter().filter(|row| row.output).map(|row| row.pos.0).collect();
    assert_eq!(outputs, [999, 1000, 1001]);
}

#[tokio::test]
async fn requests_are_served_in_order_of_arrival() {
    let (runner, mut calls) = FakeRunner::saying("ok").with_facts(|f| f.n_seq_max = 1).recorded();
    let rig = start(runner);
    let streams: Vec<_> = (1..6).map(|n| rig.handle.submit(request(&"q".repeat(n * 3))).unwrap()).collect();
    for stream in streams {
        read(stream).await;
    }
    rig.close().await;
    let ends: Vec<u32> = steps(calls.drain())
        .concat()
        .iter()
        .filter(|r| r.output && r.item == PromptItem::Token(Token(113)))
        .map(|r| r.pos.0)
        .collect();
    assert_eq!(ends, [2, 5, 8, 11, 14]);
}

#[tokio::test]
async fn a_big_request_is_not_overtaken_by_small_ones_for_ever() {
    let (runner, mut calls) = FakeRunner::saying("on and on").with_facts(|f| f.n_ctx = 512).recorded();
    let (runner, gate) = runner.gated();
    let rig = start(runner);
    let sized = |n, prompt| GenerationRequest { max_tokens: Some(n), ignore_eos: true, ..request(prompt) };
    let mut running = rig.handle.submit(sized(200, "first")).unwrap();
    gate.allow(2);
    first_text(&mut running).await;
    let big = rig.handle.submit(sized(400, "big one")).unwrap();
    let small = rig.handle.submit(sized(5, "small")).unwrap();
    drop(gate);
    let (big, small) = tokio::join!(read(big), read(small));
    assert_eq!((big.text.len(), small.text.len()), (400, 5));
    rig.close().await;
    let steps = steps(calls.drain());
    let begins = |first: char| {
        steps
            .iter()
            .position(|s| s.iter().any(|r| r.pos == Pos(0) && r.item == PromptItem::Token(Token(first as u32))))
            .unwrap()
    };
    assert!(begins('b') <= begins('s'), "the small one began first");
}

#[tokio::test]
async fn a_repeated_prompt_is_reused_but_for_its_last_token() {
    let rig = start(FakeRunner::saying("an answer"));
    assert_eq!(rig.ask(request("what is it")).await.cached(), 0);
    assert_eq!(rig.ask(request("what is it")).await.cached(), 9);
    let longer = rig.ask(request("what is that")).await;
    assert_eq!((longer.cached(), longer.text.as_str()), (8, "an answer"));
    assert!(rig.metric("plateau_cached_tokens_total 17"));
    rig.close().await;
}

#[tokio::test]
async fn a_hybrid_state_is_reused_only_where_the_prompt_goes_on_from_its_end() {
    let (runner, mut calls) = FakeRunner::saying("an answer").with_facts(|f| f.hybrid = true).recorded();
    let rig = start_with(runner, SETTINGS);
    assert_eq!(rig.ask(request("what is it")).await.cached(), 0);
    let next_turn = rig.ask(request("what is itan answer and then")).await;
    assert_eq!((next_turn.cached(), next_turn.text.as_str()), ("what is itan answer".len(), "an answer"));
    assert_eq!(rig.ask(request("what is itan")).await.cached(), 0);
    assert_eq!(rig.ask(request("what is it")).await.cached(), 0);
    rig.close().await;
    assert!(calls.drain().iter().all(|call| !matches!(call, Call::Truncate { from, .. } if *from != Pos(0))));
}

#[tokio::test]
async fn a_cut_that_the_model_refuses_means_to_start_over() {
    let (runner, mut calls) = FakeRunner::saying("an answer").never_cutting().recorded();
    let rig = start(runner);
    rig.ask(request("what is it")).await;
    let answer = rig.ask(request("what is that")).await;
    assert_eq!((answer.cached(), answer.text.as_str()), (0, "an answer"));
    rig.close().await;
    let cuts: Vec<_> = calls.drain().into_iter().filter(|call| matches!(call, Call::Truncate { .. })).collect();
    let cut = |from, kept| Call::Truncate { seq: SeqId(0), from: Pos(from), kept };
    assert_eq!(cuts, [cut(8, false), cut(0, true)]);
}

#[tokio::test]
async fn a_sequence_is_never_cut_twice_without_a_step_between() {
    // The refused step leaves the slot cut. The scripted model panics at a second cut.
    let runner = FakeRunner::saying("an answer").with_fault(11, Fault::Error(RunnerErrorKind::InvalidBatch));
    let rig = start(runner);
    assert_eq!(rig.ask(request("what is it")).await.text, "an answer");
    let refused = rig.ask(request("what is that")).await;
    assert!(refused.error.is_some(), "{refused:?}");
    assert_eq!(rig.ask(request("whatever")).await.text, "an answer");
    rig.close().await;
}

#[tokio::test]
async fn without_cache_prompt_nothing_is_reused_and_nothing_is_left() {
    let rig = start(FakeRunner::saying("an answer"));
    rig.ask(request("what is it")).await;
    let private = GenerationRequest { cache_prompt: false, ..request("what is it") };
    assert_eq!(rig.ask(private).await.cached(), 0);
    let fill: Vec<usize> = rig.handle.stats().sequences.iter().map(|s| s.n_fill).collect();
    assert_eq!(fill, [19, 0, 0, 0]);
    rig.close().await;
}
