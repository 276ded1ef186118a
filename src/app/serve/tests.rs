//! The life of a server over a scripted model: drain, second signal, death of the engine.

use std::time::Instant;

use super::*;
use crate::api::{BuildInfo, ModelInfo};
use crate::chat::{ChatTemplate, TemplateOrigin};
use crate::engine::fake::Fault;
use crate::engine::{
    Engine, EngineError, EngineSettings, Event, EventStream, FakeRunner, GenerationRequest, Handle, PromptItem,
    RunnerErrorKind, SpeculativeParams,
};
use crate::sampling::SamplingParams;
use crate::telemetry::Metrics;
use crate::units::{Bytes, Token};

async fn engine(runner: FakeRunner) -> (Handle, Joiner) {
    let settings = EngineSettings { queue_capacity: 4, prefill_chunk_tokens: 8 };
    let spawn = move || Engine::spawn(move || Ok::<_, String>(runner.loaded()), settings, Metrics::new());
    tokio::task::spawn_blocking(spawn).await.unwrap().unwrap()
}

/// A server on a free port without routes; its signals are sent by the test.
async fn server(runner: FakeRunner, grace: Duration) -> (Server, Handle, mpsc::Sender<()>, SocketAddr) {
    let (handle, joiner) = engine(runner).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, signals) = mpsc::channel(2);
    let router = axum::Router::new();
    (Server { listener, router, joiner, signals, grace }, handle, sender, address)
}

fn submit(handle: &Handle) -> EventStream {
    let request = GenerationRequest {
        id: "test".to_owned(),
        prompt: vec![PromptItem::Token(Token(65)), PromptItem::Token(Token(66))],
        sampling: SamplingParams::greedy(),
        stop: Vec::new(),
        max_tokens: None,
        ignore_eos: false,
        logprobs: None,
        cache_prompt: true,
        progress: false,
        show_control: false,
        speculative: SpeculativeParams::OFF,
        arrived: Instant::now(),
    };
    handle.submit(request).unwrap()
}

#[test]
fn the_announced_address_can_be_called() {
    let of = |text: &str| url(text.parse().unwrap());
    assert_eq!(of("0.0.0.0:8020"), "http://127.0.0.1:8020");
    assert_eq!(of("[::]:1"), "http://[::1]:1");
    assert_eq!(of("192.168.1.2:80"), "http://192.168.1.2:80");
}

#[tokio::test]
async fn a_signal_lets_the_running_answer_end_and_frees_the_port() {
    let (runner, gate) = FakeRunner::saying("hello").gated();
    let (runner, mut calls) = runner.recorded();
    let (server, handle, signals, address) = server(runner, Duration::from_secs(60)).await;
    let mut answer = submit(&handle);
    // It runs now: a request that still waits would be refused at the signal.
    calls.next_step().await.unwrap();
    signals.send(()).await.unwrap();
    let serving = tokio::spawn(run(server));
    drop(gate);
    let mut text = String::new();
    loop {
        match answer.next().await.unwrap() {
            Event::Delta { text: piece, .. } => text.push_str(&piece),
            Event::Finished(finish) => break text.push_str(&finish.text),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(text, "hello");
    serving.await.unwrap().unwrap();
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "the port is still open");
}

/// The grace is an hour; the context is freed before the process goes.
#[tokio::test]
async fn a_second_signal_ends_the_running_answer_and_waits_for_its_step_alone() {
    let (runner, gate) = FakeRunner::saying("hello").gated();
    let (runner, mut calls) = runner.recorded();
    let (server, handle, signals, _) = server(runner, Duration::from_secs(3600)).await;
    let mut answer = submit(&handle);
    calls.next_step().await.unwrap();
    signals.send(()).await.unwrap();
    signals.send(()).await.unwrap();
    let serving = tokio::spawn(run(server));
    // Both were taken and acted upon: tasks of this runtime give way only where they wait.
    while signals.capacity() < signals.max_capacity() {
        tokio::task::yield_now().await;
    }
    drop(gate);
    let last = loop {
        match answer.next().await.unwrap() {
            Event::Delta { .. } => {}
            last => break last,
        }
    };
    assert!(matches!(last, Event::Failed(EngineError::Stopping)), "{last:?}");
    serving.await.unwrap().unwrap();
    assert_eq!(calls.drain(), [], "no step after the one that ran");
    assert_eq!(calls.next().await, None, "the runner is gone");
}

/// The gate stays shut: the step cannot end by itself.
#[tokio::test]
async fn a_third_signal_leaves_a_step_that_hangs_behind() {
    let (runner, gate) = FakeRunner::saying("hello").gated();
    let (runner, mut calls) = runner.recorded();
    let (server, handle, signals, _) = server(runner, Duration::from_secs(3600)).await;
    let answer = submit(&handle);
    calls.next_step().await.unwrap();
    let serving = tokio::spawn(run(server));
    for _ in 0..3 {
        signals.send(()).await.unwrap();
    }
    let failure = serving.await.unwrap().unwrap_err();
    assert!(matches!(failure, Failure::Stuck(_)), "{failure}");
    assert_eq!(failure.exit_code(), 70);
    drop((answer, gate));
}

#[tokio::test]
async fn the_death_of_the_engine_ends_the_server_with_70() {
    for fault in [Fault::Panic, Fault::Error(RunnerErrorKind::Fatal)] {
        let runner = FakeRunner::saying("hello").with_fault(0, fault);
        let (server, handle, _signals, _) = server(runner, Duration::from_secs(60)).await;
        let _answer = submit(&handle);
        let failure = run(server).await.unwrap_err();
        assert_eq!(failure.exit_code(), 70, "{failure}");
    }
}

#[tokio::test]
async fn a_taken_port_is_69_and_names_the_flags() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = Profile::demo().server;
    config.port = taken.local_addr().unwrap().port();
    let failure = bind(&config).await.unwrap_err();
    assert_eq!(failure.exit_code(), 69);
    assert!(failure.to_string().contains("--port"), "{failure}");
}

/// What the start-up line tells people to do works.
#[tokio::test]
async fn the_announced_first_request_is_answered() {
    let (handle, joiner) = engine(FakeRunner::saying("hello")).await;
    let mut profile = Profile::demo();
    profile.server.port = 0;
    let model = ModelInfo {
        id: "scripted".to_owned(),
        created: 0,
        architecture: "none".to_owned(),
        n_ctx: handle.facts().n_ctx,
        n_ctx_train: 1,
        n_params: 1,
        size: Bytes(1),
        quantization: "none".to_owned(),
        n_layer_mtp: 0,
        template: TemplateOrigin::File,
    };
    let source = "{% for m in messages %}{{ m.content }}{% endfor %}".to_owned();
    let template = ChatTemplate::new(source, "", "", profile.limits.template_fuel).unwrap();
    let build = BuildInfo { version: "0".to_owned(), backend: "none".to_owned() };
    let listener = bind(&profile.server).await.unwrap();
    let started = Started { profile, model, build, handle, joiner, metrics: Metrics::new(), template };
    let line = announcement(&started, listener.local_addr().unwrap());
    assert_eq!(line.lines().count(), 1);
    let mut words = line.split_once("curl ").unwrap().1.splitn(2, ' ');
    let (url, arguments) = (words.next().unwrap().to_owned(), words.next().unwrap());
    let body = arguments.split("-d '").nth(1).unwrap().trim_end().trim_end_matches('\'').to_owned();

    let (router, joiner) = compose(started);
    let (sender, signals) = mpsc::channel(2);
    let serving = tokio::spawn(run(Server { listener, router, joiner, signals, grace: Duration::from_secs(60) }));
    let request = reqwest::Client::new().post(url).header("content-type", "application/json").body(body);
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    let answer: serde_json::Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    assert_eq!(answer["choices"][0]["message"]["content"], "hello");
    assert_eq!(answer["model"], "scripted");
    sender.send(()).await.unwrap();
    serving.await.unwrap().unwrap();
}
