//! Every error that a client can meet before and inside an answer, in one envelope.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod common;

use futures_util::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use common::{answer, chat, start, start_with, with};
use plateau::api::ErrorCode;
use plateau::engine::fake::Fault;
use plateau::engine::{FakeRunner, RunnerErrorKind};
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";

fn check_envelope(body: &Value) {
    let error = body["error"].as_object().unwrap_or_else(|| panic!("{body}"));
    assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{body}");
    assert!(error["type"].is_string() && error.contains_key("param") && error.contains_key("code"), "{body}");
}

#[tokio::test]
async fn broken_bodies_are_told_what_is_wrong() {
    let server = start_with(FakeRunner::saying("x"), |profile| profile.limits.body_bytes = 10_000).await;
    let deep = format!("{{\"messages\":{}{}}}", "[".repeat(4000), "]".repeat(4000));
    let endless = "[".repeat(9000);
    let cases = [
        ("", 400, "invalid_json"),
        ("{", 400, "invalid_json"),
        ("[]", 400, "invalid_json"),
        ("{\"messages\": [\u{0}]}", 400, "invalid_json"),
        (deep.as_str(), 400, "json_too_deep"),
        (endless.as_str(), 400, "json_too_deep"),
        ("{}", 400, "invalid_request"),
        ("{\"messages\": []}", 400, "invalid_request"),
        ("{\"messages\": {}}", 400, "invalid_request"),
    ];
    for (body, status, code) in cases {
        let told = answer(server.client.post(server.path(CHAT)).body(body.to_owned())).await;
        assert_eq!((told.status, told.error("code")), (status, &json!(code)), "{body:.40}");
        check_envelope(&told.body);
    }
    let latin = answer(server.client.post(server.path(CHAT)).body(b"{\"a\":\"\xe9\"}".to_vec())).await;
    assert_eq!(latin.error("code"), "invalid_json");
    let large = answer(server.client.post(server.path(CHAT)).body(" ".repeat(10_001))).await;
    assert_eq!((large.status, large.error("code")), (413, &json!("body_too_large")));
    // Without a length in front the bytes are counted as they come.
    let pieces = futures_util::stream::iter((0..20).map(|_| Ok::<_, std::io::Error>(" ".repeat(1000))));
    let chunked = answer(server.client.post(server.path(CHAT)).body(reqwest::Body::wrap_stream(pieces))).await;
    assert_eq!((chunked.status, chunked.error("code")), (413, &json!("body_too_large")));
    let alive = server.post(CHAT, chat("still there")).await;
    assert_eq!(alive.status, 200);
}

/// It would hold its connection for ever.
#[tokio::test]
async fn a_body_that_stops_coming_is_answered_and_its_connection_closed() {
    let server = start_with(FakeRunner::saying("x"), |profile| profile.server.read_timeout_seconds = 1).await;
    let address = server.url.strip_prefix("http://").unwrap();
    for path in [CHAT, "/v1/completions", "/tokenize"] {
        let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
        let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{{\"messages\":");
        client.write_all(head.as_bytes()).await.unwrap();
        let mut told = String::new();
        // Ends because the server closes the connection.
        client.read_to_string(&mut told).await.unwrap();
        let (head, body) = told.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 408 ") && head.contains("connection: close"), "{head}");
        let body: Value = serde_json::from_str(body).unwrap();
        check_envelope(&body);
        assert_eq!(body["error"]["code"], "body_timeout");
    }
}

/// Every piece is in time; all of them together take longer than a piece may.
#[tokio::test]
async fn a_slow_body_that_keeps_coming_is_read_to_its_end() {
    let server = start_with(FakeRunner::saying("</think>x"), |profile| profile.server.read_timeout_seconds = 1).await;
    let text = chat("hi").to_string();
    let (start, end) = text.split_at(1);
    let pieces = [start, " ", " ", " ", " ", end].map(str::to_owned);
    let pieces = futures_util::stream::iter(pieces).then(async |piece| {
        tokio::time::sleep(std::time::Duration::from_millis(250)).await;
        Ok::<_, std::io::Error>(piece)
    });
    let told = answer(server.client.post(server.path(CHAT)).body(reqwest::Body::wrap_stream(pieces))).await;
    assert_eq!((told.status, told.content()), (200, "x"), "{}", told.body);
}

/// A client of a small vocabulary can do that; it is nothing that the model did.
#[tokio::test]
async fn a_logit_bias_that_bans_every_token_is_the_clients_error() {
    let end_tokens = [257, 262];
    let bans = |keep: &[u32]| -> Value {
        let ids = (0..266_u32).filter(|id| !keep.contains(id));
        ids.map(|id| (id.to_string(), json!(false))).collect::<serde_json::Map<_, _>>().into()
    };
    let server = start(FakeRunner::saying("x")).await;
    for stream in [false, true] {
        let told = server.post(CHAT, with(chat("hi"), json!({ "logit_bias": bans(&[]), "stream": stream }))).await;
        assert_eq!((told.status, told.error("param")), (400, &json!("logit_bias")), "before a stream begins");
        check_envelope(&told.body);
    }
    // The model's list of end tokens is longer than the file's, so that this is seen at the first
    // token.
    let body = with(chat("hi"), json!({ "logit_bias": bans(&end_tokens), "ignore_eos": true }));
    let told = server.post(CHAT, body.clone()).await;
    assert_eq!((told.status, told.error("param")), (400, &json!("logit_bias")), "{}", told.body);
    let mut lines = server.open(CHAT, with(body, json!({ "stream": true }))).await;
    let mut last = Value::Null;
    while let Some(line) = lines.next().await {
        last = serde_json::from_str(line.strip_prefix("data: ").unwrap()).unwrap();
    }
    assert_eq!((&last["error"]["code"], &last["error"]["param"]), (&json!("invalid_request"), &json!("logit_bias")));
    assert_eq!(server.post(CHAT, with(chat("hi"), json!({ "logit_bias": bans(&end_tokens) }))).await.status, 200);
}

#[tokio::test]
async fn a_model_id_that_is_not_utf_8_is_told_in_the_envelope() {
    let server = start(FakeRunner::saying("x")).await;
    for path in ["/v1/models/%ff", "/models/a/%ff"] {
        let told = server.get(path).await;
        assert_eq!((told.status, told.error("code")), (400, &json!("invalid_request")), "{path}: {}", told.body);
        check_envelope(&told.body);
    }
}

#[tokio::test]
async fn a_stop_of_the_wrong_type_is_told_what_is_taken() {
    let server = start(FakeRunner::saying("x")).await;
    for (stop, param, says) in [
        (json!(5), "stop", "`stop` must be a string or a list of strings, not 5"),
        (json!({ "a": 1 }), "stop", "a string or a list of strings"),
        (json!(["a", 5]), "stop[1]", "`stop[1]` must be a string, not 5"),
    ] {
        let told = server.post(CHAT, with(chat("hi"), json!({ "stop": stop }))).await;
        assert_eq!((told.status, told.error("param")), (400, &json!(param)));
        assert!(told.error("message").as_str().unwrap().contains(says), "{}", told.body);
    }
}

#[tokio::test]
async fn unknown_paths_and_methods_are_told() {
    let server = start(FakeRunner::saying("x")).await;
    let lost = server.get("/v1/nothing").await;
    assert_eq!((lost.status, lost.error("code")), (404, &json!("not_found")));
    check_envelope(&lost.body);
    let wrong = server.get(CHAT).await;
    assert_eq!((wrong.status, wrong.error("code")), (405, &json!("method_not_allowed")));
    assert_eq!(wrong.headers["allow"], "POST");
    let wrong = server.post("/health", json!({})).await;
    assert_eq!((wrong.status, &wrong.headers["allow"].to_str().unwrap().contains("GET")), (405, &true));
    let model = server.get("/v1/models/other").await;
    assert_eq!((model.status, model.error("code")), (404, &json!("model_not_found")));
}

#[tokio::test]
async fn a_prompt_that_does_not_fit_is_an_exact_error_also_for_streams() {
    let long = "x".repeat(5000);
    let server = start(FakeRunner::saying("x")).await;
    for stream in [false, true] {
        let told = server.post(CHAT, with(chat(&long), json!({ "stream": stream }))).await;
        assert_eq!(told.status, 400);
        let n = told.error("n_prompt_tokens").as_u64().unwrap();
        assert!(n > 5000);
        assert_eq!((told.error("code"), told.error("n_ctx")), (&json!(400), &json!(4096)));
        assert_eq!(told.error("type"), "exceed_context_size_error");
        let message =
            format!("request ({n} tokens) exceeds the available context size (4096 tokens), try increasing it");
        assert_eq!(told.error("message"), &json!(message));
    }
    let server = start_with(FakeRunner::saying("x"), |profile| profile.server.openai_overflow_code = true).await;
    let told = server.post("/v1/completions", json!({ "prompt": long })).await;
    assert_eq!(told.error("code"), "context_length_exceeded");
    assert_eq!(told.error("type"), "invalid_request_error");
}

#[tokio::test]
async fn a_failure_in_the_model_is_told_in_json_and_inside_a_stream() {
    let runner = FakeRunner::saying("</think>hello")
        .with_fault(4, Fault::Error(RunnerErrorKind::InvalidBatch))
        // The engine tries once more with less at a time; the second time the request fails.
        .with_fault(6, Fault::Error(RunnerErrorKind::OutOfMemory))
        .with_fault(7, Fault::Error(RunnerErrorKind::OutOfMemory));
    let server = start(runner).await;
    let mut lines = server.open(CHAT, with(chat("hi"), json!({ "stream": true }))).await;
    let (mut said, mut last) = (0, String::new());
    while let Some(line) = lines.next().await {
        (said, last) = (said + 1, line);
    }
    assert!(said > 1, "text came before the failure");
    let body: Value = serde_json::from_str(last.strip_prefix("data: ").unwrap()).unwrap();
    check_envelope(&body);
    assert_eq!(body["error"]["code"], "generation_failed");
    assert!(!body.to_string().contains("fake step"), "the cause is for the log");

    let told = server.post(CHAT, chat("hi")).await;
    assert_eq!((told.status, told.error("code")), (503, &json!("out_of_memory")));
    assert_eq!(server.post(CHAT, chat("hi")).await.status, 200, "the engine goes on");
    let metrics = server.metrics.render();
    assert!(metrics.contains("plateau_errors_total{code=\"generation_failed\"} 1\n"), "{metrics}");
    assert!(metrics.contains("plateau_errors_total{code=\"out_of_memory\"} 1\n"), "{metrics}");
}

#[tokio::test]
async fn a_dead_engine_is_told_everywhere() {
    let server = start(FakeRunner::saying("</think>hello").with_fault(3, Fault::Panic)).await;
    assert_eq!(server.get("/health").await.body, json!({ "status": "ok" }));
    let told = server.post(CHAT, chat("hi")).await;
    assert_eq!((told.status, told.error("code")), (503, &json!("engine_dead")));
    server.handle.died().await;
    let health = server.get("/health").await;
    assert_eq!((health.status, health.error("code")), (503, &json!("engine_dead")));
    let reason = server.handle.died().await;
    assert!(
        !reason.is_empty() && !health.body.to_string().contains(&reason),
        "the cause is for the log: {}",
        health.body
    );
    let told = server.post(CHAT, with(chat("hi"), json!({ "stream": true }))).await;
    assert_eq!((told.status, told.error("code")), (503, &json!("engine_dead")), "before a stream begins");
}

#[test]
fn docs_errors_md_is_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/errors.md");
    let fresh = ErrorCode::docs();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &fresh).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap();
    assert!(fresh == written, "docs/errors.md is out of date: UPDATE=1 cargo test --test api_errors");
}

#[test]
fn codes_have_names_of_their_own() {
    let names: std::collections::BTreeSet<&str> = ErrorCode::ALL.iter().map(|code| code.info().name).collect();
    assert_eq!(names.len(), ErrorCode::ALL.len());
}
