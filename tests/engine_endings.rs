//! However a request ends, it ends once: cancelled in the queue, in prefill or in decode, by a fault, a stop or a panic.

#![allow(clippy::unwrap_used, reason = "a failure in a helper of a test is a failed test")]

mod scripted;

use plateau::engine::fake::{Call, Fault, Next};
use plateau::engine::{
    Engine, EngineError, EngineStartError, Event, FakeRunner, FinishReason, GenerationRequest, Health, RunnerErrorKind,
    Shutdown, SubmitError,
};
use plateau::units::Token;
use proptest::prelude::*;
use scripted::*;
use tokio::task::yield_now;

fn endless(prompt: &str) -> GenerationRequest {
    GenerationRequest { ignore_eos: true, max_tokens: Some(3000), ..request(prompt) }
}

#[tokio::test]
async fn a_queued_client_that_leaves_hurts_nobody_and_never_starts() {
    let (runner, mut calls) = FakeRunner::saying("a").with_facts(|f| f.n_seq_max = 1).recorded();
    let (runner, gate) = runner.gated();
    let rig = start(runner);
    let mut running =
        rig.handle.submit(GenerationRequest { ignore_eos: true, max_tokens: Some(50), ..request("running") }).unwrap();
    gate.allow(2);
    first_text(&mut running).await;
    let leaves = rig.handle.submit(request("ZZZ")).unwrap();
    let stays = rig.handle.submit(request("stays")).unwrap();
    drop(leaves);
    drop(gate);
    assert_eq!(read(running).await.finish().usage.completion, 50);
    assert_eq!(read(stays).await.text, "a");
    assert!(rig.metric("plateau_requests_total{outcome=\"cancelled\"} 1"));
    rig.close().await;
    let began = |call: &Call| matches!(call, Call::Step(rows) if rows.iter().any(|row| row.item.token() == Some(Token(u32::from(b'Z')))));
    assert!(!calls.drain().iter().any(began));
}

#[tokio::test]
async fn a_client_that_leaves_in_prefill_frees_its_sequence_within_one_device_pass() {
    let (runner, mut calls) = FakeRunner::saying("a").recorded();
    let (runner, gate) = runner.gated();
    let rig = start(runner);
    let reader = rig.handle.submit(request(&"x".repeat(3000))).unwrap();
    assert_eq!(calls.next_step().await.unwrap().len(), 128, "one micro-batch, whatever the batch takes");
    drop(reader);
    let next = rig.handle.submit(request("next")).unwrap();
    drop(gate);
    let answer = read(next).await;
    rig.close().await;
    assert_eq!(answer.text, "a");
    assert_eq!(calls.next_step().await.unwrap().len(), 4, "no further prefill of the one that left");
}

#[tokio::test]
async fn a_client_that_leaves_in_decode_frees_its_sequence_within_one_step() {
    let (runner, mut calls) = FakeRunner::saying("a").recorded();
    let (runner, gate) = runner.gated();
    let rig = start(runner);
    let mut talker = rig.handle.submit(endless("talk")).unwrap();
    gate.allow(3);
    first_text(&mut talker).await;
    drop(talker);
    let next = rig.handle.submit(request("next")).unwrap();
    drop(gate);
    assert_eq!(read(next).await.text, "a");
    assert!(rig.handle.stats().sequences.iter().all(|s| s.request.is_none()));
    rig.close().await;
    let n_decode_rows = calls.drain().iter().filter(|c| matches!(c, Call::Step(rows) if rows[0].seq.0 == 0)).count();
    assert!(n_decode_rows <= 4, "{n_decode_rows} steps, three were let through while the client was there");
}

#[tokio::test]
async fn five_hundred_random_aborts_leave_no_stuck_sequence() {
    let rig = start(hashing(300).with_facts(|f| f.n_ctx = 600));
    let mut state = 1_u64;
    for i in 0..500 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let prompt = "p".repeat(1 + (state >> 33) as usize % 400);
        let Ok(mut stream) = rig.handle.submit(request(&format!("{i}{prompt}"))) else { continue };
        for _ in 0..(state >> 50) % 4 {
            if stream.next().await.is_none() {
                break;
            }
        }
    }
    let (text, _) = alone(&tokens("are you well"), None, 600, 300);
    assert_eq!(rig.ask(request("are you well")).await.text, text);
    let stats = rig.handle.stats();
    assert!(stats.sequences.iter().all(|s| s.request.is_none()) && stats.n_queued == 0, "{stats:?}");
    rig.close().await;
}

#[tokio::test]
async fn a_client_that_reads_nothing_until_the_end_gets_all_text_and_holds_up_nobody() {
    let rig = start(FakeRunner::saying(&"0123456789".repeat(100)));
    let slow = rig.handle.submit(GenerationRequest { logprobs: Some(1), ..request("slow") }).unwrap();
    assert_eq!(rig.ask(request("quick")).await.text.len(), 1000);
    assert_eq!(rig.ask(request("again")).await.text.len(), 1000);
    let slow = read(slow).await;
    assert_eq!(slow.text, "0123456789".repeat(100));
    assert_eq!((slow.tokens.len(), slow.logprobs.len()), (1000, 1000));
    assert!(slow.n_deltas < 100, "{} deltas for a client that did not read", slow.n_deltas);
    rig.close().await;
}

#[tokio::test]
async fn an_idle_engine_stops_at_once() {
    let rig = start(FakeRunner::saying("ok"));
    let handle = rig.handle.clone();
    assert_eq!(rig.joiner.shutdown(NEVER).await, Shutdown::Clean);
    assert_eq!(handle.submit(request("late")).err(), Some(SubmitError::Stopping));
}

#[tokio::test]
async fn a_stop_lets_running_generations_end_and_fails_the_queue() {
    let (runner, gate) = FakeRunner::saying("to the end").with_facts(|f| f.n_seq_max = 1).gated();
    let rig = start(runner);
    let mut running = rig.handle.submit(request("running")).unwrap();
    gate.allow(1);
    assert_eq!(first_text(&mut running).await, "t");
    let queued = rig.handle.submit(request("queued")).unwrap();
    let stop = tokio::spawn(rig.joiner.shutdown(NEVER));
    yield_now().await;
    drop(gate);
    assert_eq!(read(running).await.text, "o the end");
    assert!(matches!(read(queued).await.error, Some(EngineError::Stopping)));
    assert_eq!(stop.await.unwrap(), Shutdown::Clean);
}

#[tokio::test]
async fn a_stop_without_grace_fails_running_generations() {
    let (runner, gate) = FakeRunner::saying("a").gated();
    let rig = start(runner);
    let mut running = rig.handle.submit(endless("running")).unwrap();
    gate.allow(1);
    first_text(&mut running).await;
    let stop = tokio::spawn(rig.joiner.shutdown(AT_ONCE));
    yield_now().await;
    drop(gate);
    assert!(matches!(read(running).await.error, Some(EngineError::Stopping)));
    assert_eq!(stop.await.unwrap(), Shutdown::Clean);
}

#[tokio::test]
async fn the_last_handle_dropped_ends_the_thread_after_the_streams() {
    let rig = start(FakeRunner::saying("to the end"));
    let stream = rig.handle.submit(request("last words")).unwrap();
    drop(rig.handle);
    assert_eq!(read(stream).await.text, "to the end");
    assert_eq!(rig.joiner.shutdown(NEVER).await, Shutdown::Clean);
}

async fn dies_of(runner: FakeRunner, reason: &str) {
    let (runner, gate) = runner.gated();
    let rig = start(runner);
    let streams: Vec<_> = (0..6).map(|i| rig.handle.submit(endless(&format!("{i}"))).unwrap()).collect();
    drop(gate);
    for stream in streams {
        assert!(matches!(read(stream).await.error, Some(EngineError::Dead)));
        assert!(matches!(rig.handle.health(), Health::Dead(_)), "health is known before the first client hears of it");
    }
    assert!(rig.handle.died().await.contains(reason));
    assert!(rig.joiner.died().await.contains(reason));
    assert_eq!(rig.handle.submit(request("late")).err(), Some(SubmitError::Dead));
    assert!(matches!(rig.joiner.shutdown(NEVER).await, Shutdown::Died(why) if why.contains(reason)));
}

#[tokio::test]
async fn a_panic_ends_everybody_once_and_is_seen_in_health() {
    dies_of(FakeRunner::saying("a").with_fault(7, Fault::Panic), "fault injected at step 7").await;
}

#[tokio::test]
async fn a_lost_device_ends_everybody_once_and_is_seen_in_health() {
    dies_of(FakeRunner::saying("a").with_fault(7, Fault::Error(RunnerErrorKind::Fatal)), "device error").await;
}

#[tokio::test]
async fn an_aborted_step_fails_its_sequences_and_the_engine_goes_on() {
    let rig = start(FakeRunner::saying("fine").with_fault(2, Fault::Error(RunnerErrorKind::Aborted)));
    let answer = rig.ask(request("hit")).await;
    assert!(matches!(answer.error, Some(EngineError::Runner(e)) if e.kind == RunnerErrorKind::Aborted));
    let next = rig.ask(request("hit")).await;
    assert_eq!((next.text.as_str(), next.cached()), ("fine", 0));
    rig.close().await;
}

#[tokio::test]
async fn a_refused_batch_fails_only_the_request_that_is_to_blame() {
    let (runner, gate) = FakeRunner::saying("fine").gated();
    let rig = start(runner);
    let prompts = [tokens("one"), vec![Token(5000)], tokens("three")];
    let streams: Vec<_> = prompts.into_iter().map(|p| rig.handle.submit(request_of(p)).unwrap()).collect();
    drop(gate);
    let mut answers = Vec::new();
    for stream in streams {
        answers.push(read(stream).await);
    }
    assert_eq!((answers[0].text.as_str(), answers[2].text.as_str()), ("fine", "fine"));
    assert!(matches!(&answers[1].error, Some(EngineError::Runner(e)) if e.kind == RunnerErrorKind::InvalidBatch));
    rig.close().await;
}

#[tokio::test]
async fn an_empty_prompt_fails_and_does_not_wait_for_ever() {
    let rig = start(FakeRunner::saying("fine"));
    let answer = rig.ask(request("")).await;
    assert!(matches!(answer.error, Some(EngineError::Runner(e)) if e.kind == RunnerErrorKind::InvalidBatch));
    rig.close().await;
}

#[tokio::test]
async fn logits_that_are_no_numbers_fail_only_their_sequence() {
    let runner = FakeRunner::function(|history| {
        if history.first() == Some(&Token(u32::from(b'!'))) && history.len() > 6 {
            Next::Row(vec![f32::NAN; 266])
        } else {
            Next::Token(next_of(history, 50))
        }
    });
    let rig = start(runner);
    let (bad, good) = (rig.handle.submit(request("!bad")).unwrap(), rig.handle.submit(request("good")).unwrap());
    assert!(matches!(read(bad).await.error, Some(EngineError::Sample(_))));
    assert_eq!(read(good).await.text, alone(&tokens("good"), None, 4096, 50).0);
    assert!(rig.metric("plateau_requests_total{outcome=\"failed\"} 1"));
    rig.close().await;
}

#[test]
fn a_model_that_does_not_load_is_an_error_with_its_text() {
    let metrics = plateau::telemetry::Metrics::new;
    let start = |factory: fn() -> Result<plateau::engine::Loaded, String>| {
        Engine::spawn(factory, SETTINGS, metrics()).err().unwrap()
    };
    let error = start(|| Err("no such file".to_owned()));
    assert_eq!(error.to_string(), "cannot load the model: no such file");
    assert!(
        matches!(start(|| panic!("in the loader")), EngineStartError::Panicked(why) if why.contains("in the loader"))
    );
    let error = start(|| Ok(FakeRunner::saying("a").with_facts(|f| f.n_outputs_max = 1).loaded()));
    assert!(error.to_string().contains("1 outputs a step for 4 sequences"), "{error}");
}

#[derive(Clone, Debug)]
enum Action {
    Submit {
        len: usize,
        max_tokens: Option<u32>,
    },
    /// Drop the stream with this number, if it is there.
    Leave(usize),
    Tick(usize),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        3 => (1usize..100, prop::option::of(1u32..50)).prop_map(|(len, max_tokens)| Action::Submit { len, max_tokens }),
        1 => (0usize..12).prop_map(Action::Leave),
        2 => (1usize..8).prop_map(Action::Tick),
    ]
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        Just(Fault::Panic),
        Just(Fault::Error(RunnerErrorKind::Fatal)),
        Just(Fault::Error(RunnerErrorKind::NoRoom)),
        Just(Fault::Error(RunnerErrorKind::NoRoom)),
        Just(Fault::Error(RunnerErrorKind::InvalidBatch)),
        Just(Fault::Error(RunnerErrorKind::OutOfMemory)),
        Just(Fault::Error(RunnerErrorKind::OutOfMemory)),
        Just(Fault::Error(RunnerErrorKind::Aborted)),
    ]
}

async fn live_through(actions: Vec<Action>, faults: Vec<(u64, Fault)>, grace: bool) {
    let mut runner = hashing(40).with_facts(|f| {
        f.n_ctx = 200;
        f.n_seq_max = 3;
        f.n_batch = 40;
    });
    for (step, fault) in faults {
        runner = runner.with_fault(step, fault);
    }
    let (runner, gate) = runner.gated();
    let rig = start(runner);
    let mut streams = Vec::new();
    for action in actions {
        match action {
            Action::Submit { len, max_tokens } => {
                let request = GenerationRequest { max_tokens, ..request(&"p".repeat(len)) };
                streams.extend(rig.handle.submit(request).ok());
            }
            Action::Leave(i) if i < streams.len() => drop(streams.remove(i)),
            Action::Leave(_) => {}
            Action::Tick(n) => gate.allow(n),
        }
        yield_now().await;
    }
    drop(gate);
    let stop = tokio::spawn(rig.joiner.shutdown(if grace { NEVER } else { AT_ONCE }));
    for stream in streams {
        // Asserts that there is one terminal event and that it is the last.
        read(stream).await;
    }
    assert_ne!(stop.await.unwrap(), Shutdown::Stuck);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]
    #[test]
    fn every_accepted_request_ends_exactly_once(
        actions in prop::collection::vec(action(), 1..25),
        faults in prop::collection::btree_map(1u64..80, fault(), 0..4),
        grace: bool,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(live_through(actions, faults.into_iter().collect(), grace));
    }
}

#[tokio::test]
async fn a_stream_is_over_after_its_terminal_event() {
    let rig = start(FakeRunner::saying("x"));
    let mut stream = rig.handle.submit(request("q")).unwrap();
    let mut last = None;
    while let Some(event) = stream.next().await {
        last = Some(event);
    }
    assert!(matches!(last, Some(Event::Finished(finish)) if matches!(finish.reason, FinishReason::Eos(_))));
    assert!(stream.next().await.is_none());
    rig.close().await;
}
