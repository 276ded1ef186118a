//! The KV cache is promised once: admission by tokens, setting back, and what happens when memory runs out all the same.

#![allow(clippy::unwrap_used, reason = "a failure in a helper of a test is a failed test")]

mod scripted;

use plateau::engine::fake::{Call, Fault};
use plateau::engine::{
    EngineError, EngineSettings, FakeRunner, FinishReason, GenerationRequest, RunnerErrorKind, SubmitError,
};
use proptest::prelude::*;
use scripted::*;

fn sized(prompt: &str, max_tokens: u32) -> GenerationRequest {
    GenerationRequest { max_tokens: Some(max_tokens), ignore_eos: true, ..request(prompt) }
}

#[tokio::test]
async fn four_requests_of_400_tokens_share_a_context_of_1024() {
    let (runner, mut calls) = FakeRunner::saying("abc").with_facts(|f| f.n_ctx = 1024).recorded();
    let (runner, gate) = runner.gated();
    let rig = start(runner);
    let streams: Vec<_> = (0..4).map(|i| rig.handle.submit(sized(&format!("prompt {i}"), 400)).unwrap()).collect();
    drop(gate);
    for stream in streams {
        let answer = read(stream).await;
        assert_eq!((answer.reason(), answer.text.len()), (FinishReason::MaxTokens, 400));
    }
    assert!(rig.metric("plateau_preemptions_total 0"));
    rig.close().await;
    assert_room(&calls.drain());
}

#[tokio::test]
async fn elastic_requests_that_outgrow_the_cache_are_set_back_and_lose_nothing() {
    let text = "0123456789".repeat(40);
    let (runner, mut calls) = FakeRunner::saying(&text).with_facts(|f| f.n_ctx = 1024).recorded();
    let (runner, gate) = runner.gated();
    let rig = start(runner);
    let streams: Vec<_> = (0..4).map(|i| rig.handle.submit(request(&format!("prompt {i}"))).unwrap()).collect();
    drop(gate);
    for stream in streams {
        let answer = read(stream).await;
        assert_eq!(answer.text, text);
        assert_eq!(answer.finish().usage.completion, 401);
    }
    assert!(!rig.metric("plateau_preemptions_total 0"));
    rig.close().await;
    assert_room(&calls.drain());
}

#[tokio::test]
async fn who_was_set_back_comes_before_who_has_not_begun() {
    let text = "0123456789".repeat(20);
    let (runner, mut calls) = FakeRunner::saying(&text).with_facts(|f| f.n_ctx = 320).recorded();
    let (runner, gate) = runner.gated();
    let rig = start(runner.with_facts(|f| f.n_seq_max = 2));
    let streams = ["aaaa", "bbbb", "cccc"].map(|prompt| rig.handle.submit(request(prompt)).unwrap());
    drop(gate);
    for stream in streams {
        assert_eq!(read(stream).await.text, text);
    }
    assert!(rig.metric("plateau_preemptions_total 1"));
    rig.close().await;
    let mut begins = Vec::new();
    for call in calls.drain() {
        if let Call::Step(rows) = call {
            begins.extend(
                rows.iter()
                    .filter(|row| row.pos.0 == 0)
                    .filter_map(|row| row.item.token())
                    .map(|t| char::from(t.0 as u8)),
            );
        }
    }
    assert_eq!(begins, ['a', 'b', 'b', 'c']);
}

#[tokio::test]
async fn an_elastic_request_gives_way_to_what_was_promised_to_another() {
    let text = "0123456789".repeat(30);
    let (runner, gate) = FakeRunner::saying(&text).with_facts(|f| f.n_ctx = 512).gated();
    let rig = start(runner);
    let elastic = rig.handle.submit(request("elastic")).unwrap();
    let promised = rig.handle.submit(sized("promised", 300)).unwrap();
    drop(gate);
    let (elastic, promised) = tokio::join!(read(elastic), read(promised));
    assert_eq!((elastic.text.as_str(), promised.text.as_str()), (text.as_str(), text.as_str()));
    assert!(!rig.metric("plateau_preemptions_total 0"));
    rig.close().await;
}

#[tokio::test]
async fn a_context_that_is_full_ends_the_generation_and_never_loops() {
    let rig = start(FakeRunner::saying("abc").with_facts(|f| f.n_ctx = 256));
    let answer = rig.ask(sized(&"p".repeat(250), 100)).await;
    assert_eq!((answer.reason(), answer.text.as_str()), (FinishReason::ContextFull, "abcabc"));
    let usage = answer.finish().usage;
    assert_eq!(usage.prompt + usage.completion, 256, "clients are never told of more tokens than the context has");
    let elastic = rig.ask(GenerationRequest { ignore_eos: true, ..request(&"p".repeat(250)) }).await;
    assert_eq!((elastic.reason(), elastic.text.as_str()), (FinishReason::ContextFull, "abcabc"));
    rig.close().await;
}

#[tokio::test]
async fn a_prompt_that_leaves_no_room_is_refused_with_both_numbers() {
    let rig = start(FakeRunner::saying("abc").with_facts(|f| f.n_ctx = 256));
    let error = rig.handle.submit(request(&"p".repeat(256))).err().unwrap();
    assert_eq!(error, SubmitError::TooLong { n_prompt: 256, n_ctx: 256 });
    let message = "request (256 tokens) exceeds the available context size (256 tokens), try increasing it";
    assert_eq!(error.to_string(), message);
    assert_eq!(rig.ask(sized(&"p".repeat(255), 2)).await.text, "a");
    rig.close().await;
}

#[tokio::test]
async fn a_full_queue_is_busy_and_frees_a_place_at_each_end() {
    let (runner, gate) = FakeRunner::saying("ok").with_facts(|f| f.n_seq_max = 2).gated();
    let rig = start_with(runner, EngineSettings { queue_capacity: 3, prefill_chunk_tokens: 64, image_cache_bytes: 0 });
    let mut streams: Vec<_> = (0..5).map(|_| rig.handle.submit(request("hi")).unwrap()).collect();
    assert_eq!(rig.handle.submit(request("hi")).err(), Some(SubmitError::Busy));
    drop(gate);
    assert_eq!(read(streams.remove(0)).await.text, "ok");
    assert_eq!(rig.ask(request("hi")).await.text, "ok");
    for stream in streams {
        assert_eq!(read(stream).await.text, "ok");
    }
    rig.close().await;
}

#[tokio::test]
async fn idle_state_is_dropped_before_anybody_gives_way() {
    let (runner, mut calls) = FakeRunner::saying("ok").with_facts(|f| f.n_ctx = 300).recorded();
    let rig = start(runner);
    for i in 0..6 {
        let prompt = format!("{i}{}", "p".repeat(120));
        assert_eq!(rig.ask(GenerationRequest { max_tokens: Some(10), ..request(&prompt) }).await.text, "ok");
    }
    assert!(rig.handle.stats().n_fill > 120, "the last state is kept");
    assert!(rig.metric("plateau_preemptions_total 0"));
    rig.close().await;
    assert_room(&calls.drain());
}

#[tokio::test]
async fn a_cache_smaller_than_it_says_serves_all_and_ends_the_last_one_full() {
    let text = "0123456789".repeat(6);
    let (runner, gate) = FakeRunner::saying(&text).with_facts(|f| f.n_ctx = 512).with_cells(160).gated();
    let rig = start(runner);
    let streams: Vec<_> =
        (0..4).map(|i| rig.handle.submit(sized(&format!("{i} {}", "p".repeat(50)), 60)).unwrap()).collect();
    drop(gate);
    for stream in streams {
        assert_eq!(read(stream).await.text, text);
    }
    assert!(!rig.metric("plateau_preemptions_total 0"));
    let long = rig.ask(sized("long", 400)).await;
    assert_eq!(long.reason(), FinishReason::ContextFull);
    assert_eq!(long.finish().usage.completion, 160 - 4 + 1);
    let error = rig.ask(request(&"p".repeat(200))).await.error;
    assert!(matches!(error, Some(EngineError::Runner(e)) if e.kind == RunnerErrorKind::NoRoom));
    assert_eq!(rig.ask(request("short")).await.text, text);
    rig.close().await;
}

#[tokio::test]
async fn out_of_memory_once_changes_no_answer() {
    let runner = hashing(50).with_fault(9, Fault::Error(RunnerErrorKind::OutOfMemory));
    let rig = start(runner);
    let prompts: Vec<String> = (0..4).map(|i| format!("{i} {}", "p".repeat(400))).collect();
    let streams: Vec<_> = prompts.iter().map(|p| rig.handle.submit(request(p)).unwrap()).collect();
    for (stream, prompt) in streams.into_iter().zip(&prompts) {
        assert_eq!(read(stream).await.text, alone(&tokens(prompt), None, 4096, 50).0);
    }
    rig.close().await;
}

#[tokio::test]
async fn out_of_memory_again_fails_the_newest_and_the_others_go_on() {
    let fault = Fault::Error(RunnerErrorKind::OutOfMemory);
    let (runner, mut calls) = FakeRunner::saying("fine").with_fault(2, fault).with_fault(3, fault).recorded();
    let (runner, gate) = runner.gated();
    let rig = start(runner);
    let older = rig.handle.submit(request("older")).unwrap();
    calls.next_step().await;
    let newer = rig.handle.submit(request("newer")).unwrap();
    drop(gate);
    let (older, newer) = tokio::join!(read(older), read(newer));
    assert_eq!(older.text, "fine");
    assert!(matches!(newer.error, Some(EngineError::Runner(e)) if e.kind == RunnerErrorKind::OutOfMemory));
    assert_eq!(rig.ask(request("later")).await.text, "fine");
    rig.close().await;
}

#[tokio::test]
async fn a_smaller_chunk_follows_when_memory_runs_out() {
    let fault = Fault::Error(RunnerErrorKind::OutOfMemory);
    let (runner, mut calls) = FakeRunner::saying("fine").with_fault(1, fault).recorded();
    let rig = start(runner);
    assert_eq!(rig.ask(request(&"p".repeat(500))).await.text, "fine");
    rig.close().await;
    let sizes: Vec<usize> =
        calls.drain().iter().filter_map(|c| if let Call::Step(rows) = c { Some(rows.len()) } else { None }).collect();
    assert_eq!(sizes[..3], [128, 64, 64]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn no_room_at_any_step_changes_no_answer(
        faults in prop::collection::btree_set(1u64..60, 0..6),
        prompts in prop::collection::vec("[ab]{1,80}", 1..6),
    ) {
        let mut runner = hashing(40).with_facts(|f| f.n_batch = 48);
        for step in faults {
            runner = runner.with_fault(step, Fault::Error(RunnerErrorKind::NoRoom));
        }
        let check = async move {
            // A sequence alone with one row and no room has no context left; a second one gives it somebody to outlive.
            let rig = start(runner);
            let streams: Vec<_> = prompts.iter().map(|p| rig.handle.submit(request(p)).unwrap()).collect();
            for (stream, prompt) in streams.into_iter().zip(&prompts) {
                let answer = read(stream).await;
                let (text, reason) = alone(&tokens(prompt), None, 4096, 40);
                match &answer.finish {
                    Some(finish) if finish.reason == FinishReason::ContextFull => assert!(text.starts_with(&answer.text)),
                    Some(finish) => assert_eq!((&answer.text, &finish.reason), (&text, &reason)),
                    None => assert!(matches!(&answer.error, Some(EngineError::Runner(e)) if e.kind == RunnerErrorKind::NoRoom)),
                }
            }
            rig.close().await;
        };
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(check);
    }
}
