//! The life of a server over a scripted model: drain, second signal, death of the engine.

use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::api::{BuildInfo, ModelInfo};
use crate::chat::constraint::grammars;
use crate::chat::{ChatTemplate, TemplateOrigin};
use crate::engine::fake::Fault;
use crate::engine::{
    CacheUse, Constraint, Engine, EngineError, EngineSettings, Event, EventStream, FakeRunner, GenerationRequest,
    Handle, PromptItem, RunnerErrorKind, SpeculativeParams,
};
use crate::sampling::SamplingParams;
use crate::telemetry::Metrics;
use crate::units::{Bytes, Token};

/// Longer than any test.
const LONG: Duration = Duration::from_secs(3600);
/// Sooner over than any test.
const SHORT: Duration = Duration::from_millis(20);

async fn engine(runner: FakeRunner) -> (Handle, Joiner) {
    let settings = EngineSettings { queue_capacity: 4, prefill_chunk_tokens: 8, image_cache_bytes: 0 };
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
    (Server { listener, router, joiner, signals, grace, read_timeout: LONG }, handle, sender, address)
}

fn submit(handle: &Handle) -> EventStream {
    let request = GenerationRequest {
        id: "test".to_owned(),
        prompt: [65, 66].map(|id| PromptItem::Token(Token(id))).into(),
        images: vec![],
        sampling: SamplingParams::greedy(),
        stop: Vec::new(),
        max_tokens: None,
        ignore_eos: false,
        logprobs: None,
        cache_prompt: true,
        cache: CacheUse::NO_BREAKPOINTS,
        progress: false,
        show_control: false,
        speculative: SpeculativeParams::OFF,
        constraint: Constraint::default(),
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
    assert!(TcpStream::connect(address).await.is_err(), "the port is still open");
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

/// Each would hold its file descriptor for ever.
#[tokio::test]
async fn silent_clients_are_disconnected() {
    let (server, _handle, signals, address) = server(FakeRunner::saying("hello"), LONG).await;
    let serving = tokio::spawn(run(Server { read_timeout: SHORT, ..server }));
    let cases = [
        ("nothing sent", "", ""),
        ("half a head", "GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow", ""),
        ("kept open after an answer", "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 404 Not Found\r\n"),
    ];
    for (what, sent, answer) in cases {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(sent.as_bytes()).await.unwrap();
        let mut got = String::new();
        client.read_to_string(&mut got).await.unwrap();
        assert!(got.starts_with(answer) && got.is_empty() == answer.is_empty(), "{what}: {got}");
    }
    signals.send(()).await.unwrap();
    serving.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_answer_that_takes_longer_than_the_read_timeout_is_not_cut() {
    let (server, _handle, signals, address) = server(FakeRunner::saying("hello"), LONG).await;
    let slow = async || {
        let pieces = futures_util::stream::unfold(0, |n| async move {
            tokio::time::sleep(SHORT).await;
            (n < 5).then(|| (Ok::<_, std::io::Error>(n.to_string()), n + 1))
        });
        axum::body::Body::from_stream(pieces)
    };
    let router = axum::Router::new().route("/", axum::routing::get(slow));
    let serving = tokio::spawn(run(Server { router, read_timeout: SHORT, ..server }));
    let answer = reqwest::get(format!("http://{address}/")).await.unwrap();
    assert_eq!(answer.text().await.unwrap(), "01234");
    signals.send(()).await.unwrap();
    serving.await.unwrap().unwrap();
}

/// It cannot be told from a client that has gone; docs/api.md says so.
#[tokio::test]
async fn a_client_that_closes_its_sending_side_gets_no_answer() {
    let (server, _handle, signals, address) = server(FakeRunner::saying("hello"), LONG).await;
    let never = async || std::future::pending::<&str>().await;
    let router = axum::Router::new().route("/", axum::routing::get(never));
    let serving = tokio::spawn(run(Server { router, ..server }));
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    client.shutdown().await.unwrap();
    let mut got = Vec::new();
    client.read_to_end(&mut got).await.unwrap();
    assert_eq!(got, b"");
    signals.send(()).await.unwrap();
    serving.await.unwrap().unwrap();
}

/// With neither end nor time limit of their own they would hold up the shutdown.
#[tokio::test]
async fn connections_that_ask_nothing_do_not_outlive_the_port() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let until = async move { drop(stopped.await) };
    let serving = tokio::spawn(connections::serve(listener, axum::Router::new(), LONG, until));
    let mut asked = TcpStream::connect(address).await.unwrap();
    asked.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut first = [0; 12];
    asked.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 404");
    let mut silent = TcpStream::connect(address).await.unwrap();
    drop(stop);
    serving.await.unwrap();
    let mut rest = Vec::new();
    asked.read_to_end(&mut rest).await.unwrap();
    // A connection that was not accepted yet is reset instead.
    let _ = silent.read_to_end(&mut rest).await;
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
    let (metrics, grammars) = (Metrics::new(), grammars(handle.tokenizer()).unwrap());
    let started = Started { profile, model, build, handle, joiner, metrics, template, grammars };
    let line = announcement(&started, listener.local_addr().unwrap());
    assert_eq!(line.lines().count(), 1);
    let mut words = line.split_once("curl ").unwrap().1.splitn(2, ' ');
    let (url, arguments) = (words.next().unwrap().to_owned(), words.next().unwrap());
    let body = arguments.split("-d '").nth(1).unwrap().trim_end().trim_end_matches('\'').to_owned();

    let (router, joiner) = compose(started);
    let (sender, signals) = mpsc::channel(2);
    let serving = tokio::spawn(run(Server { listener, router, joiner, signals, grace: LONG, read_timeout: LONG }));
    let request = reqwest::Client::new().post(url).header("content-type", "application/json").body(body);
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    let answer: serde_json::Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    assert_eq!(answer["choices"][0]["message"]["content"], "hello");
    assert_eq!(answer["model"], "scripted");
    sender.send(()).await.unwrap();
    serving.await.unwrap().unwrap();
}
