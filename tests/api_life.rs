//! The life of a request: clients that leave, long silences, full queues, progress.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod common;

use common::{chat, start_with, with};
use plateau::engine::FakeRunner;
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";

fn is_idle(state: &Value) -> bool {
    state["n_queued"] == 0 && state["sequences"].as_array().unwrap().iter().all(|s| s["phase"] == "idle")
}

fn is_busy(state: &Value) -> bool {
    state["sequences"].as_array().unwrap().iter().any(|s| s["phase"] != "idle")
}

#[tokio::test]
async fn a_client_that_leaves_a_stream_frees_its_sequence() {
    let (runner, gate) = FakeRunner::saying("</think>hello hello hello").gated();
    let server = start_with(runner, |_| {}).await;
    let body = with(chat("hi"), json!({ "stream": true, "ignore_eos": true }));
    let mut lines = server.open(CHAT, body).await;
    gate.allow(12);
    // The role, and then at least one word of the answer.
    lines.data().await;
    lines.data().await;
    drop(lines);
    // The engine can only see it when a step is over.
    drop(gate);
    server.until(is_idle).await;
    let line = "plateau_requests_total{outcome=\"cancelled\"} 1";
    server.until(|_| server.metrics.render().lines().any(|l| l == line)).await;
}

#[tokio::test]
async fn a_client_that_leaves_before_a_whole_answer_frees_its_sequence() {
    let (runner, gate) = FakeRunner::saying("</think>hello").gated();
    let server = start_with(runner, |_| {}).await;
    let request = server.client.post(server.path(CHAT)).json(&with(chat("hi"), json!({ "ignore_eos": true }))).send();
    let request = tokio::spawn(request);
    gate.allow(3);
    server.until(is_busy).await;
    request.abort();
    let _ = request.await;
    drop(gate);
    server.until(is_idle).await;
    let line = "plateau_requests_total{outcome=\"cancelled\"} 1";
    server.until(|_| server.metrics.render().lines().any(|l| l == line)).await;
}

#[tokio::test]
async fn nothing_is_silent_while_the_prompt_is_processed() {
    let (runner, gate) = FakeRunner::saying("</think>hello").gated();
    let server = start_with(runner, |profile| profile.server.ping_seconds = 1).await;
    let mut lines = server.open(CHAT, with(chat("hi"), json!({ "stream": true }))).await;
    assert_eq!(lines.data().await["choices"][0]["delta"]["role"], "assistant", "headers and role come at once");
    assert_eq!(lines.next().await.as_deref(), Some(": ping"));
    drop(gate);
    let mut text = String::new();
    loop {
        let chunk = lines.data().await;
        text.push_str(chunk["choices"][0]["delta"]["content"].as_str().unwrap_or(""));
        if chunk["choices"][0]["finish_reason"] == "stop" {
            break;
        }
    }
    assert_eq!(text, "hello");
}

#[tokio::test]
async fn progress_is_reported_on_request() {
    let server = start_with(FakeRunner::saying("</think>hello"), |_| {}).await;
    let long = "x".repeat(1000);
    let quiet = server.stream(CHAT, chat(&long)).await;
    assert!(quiet.iter().all(|chunk| chunk.get("prompt_progress").is_none()));
    let body = with(chat(&long), json!({ "return_progress": true, "cache_prompt": false }));
    let chunks = server.stream(CHAT, body.clone()).await;
    let progress: Vec<&Value> = chunks.iter().filter_map(|chunk| chunk.get("prompt_progress")).collect();
    let last = progress.last().expect("a long prompt reports");
    assert!(last["total"].as_u64().unwrap() > 1000 && last["cache"] == 0 && last["time_ms"].is_number(), "{last}");
    assert!(progress.windows(2).all(|w| w[0]["processed"].as_u64() <= w[1]["processed"].as_u64()), "{progress:?}");
    let whole = server.post(CHAT, body).await;
    assert_eq!(whole.ignored(), ["return_progress"], "a whole answer cannot report");
}

#[tokio::test]
async fn a_full_queue_turns_clients_away_with_a_time_to_come_back() {
    let (runner, gate) = FakeRunner::saying("</think>hello").with_facts(|facts| facts.n_seq_max = 1).gated();
    let server = start_with(runner, |profile| profile.engine.queue_capacity = 1).await;
    let mut open = Vec::new();
    for _ in 0..2 {
        open.push(server.open(CHAT, with(chat("hi"), json!({ "stream": true }))).await);
    }
    let told = server.post(CHAT, chat("one too many")).await;
    assert_eq!((told.status, told.error("code")), (503, &json!("engine_busy")));
    assert_eq!(told.headers["retry-after"], "1");
    drop(gate);
    for mut lines in open {
        while lines.data().await != "[DONE]" {}
    }
    assert_eq!(server.post(CHAT, chat("now")).await.status, 200);
}

#[tokio::test]
async fn choices_that_do_not_all_fit_leave_nothing_behind() {
    let (runner, gate) = FakeRunner::saying("</think>hello").with_facts(|facts| facts.n_seq_max = 1).gated();
    let server = start_with(runner, |profile| (profile.engine.parallel, profile.engine.queue_capacity) = (1, 1)).await;
    let first = server.open(CHAT, with(chat("hi"), json!({ "stream": true, "ignore_eos": true }))).await;
    // One of the two finds a place.
    let told = server.post(CHAT, with(chat("hi"), json!({ "n": 2, "ignore_eos": true }))).await;
    assert_eq!((told.status, told.error("code")), (503, &json!("engine_busy")));
    drop(first);
    drop(gate);
    server.until(is_idle).await;
}

#[tokio::test]
async fn a_client_that_wants_more_choices_than_there_are_places_is_not_told_to_come_back() {
    let server = start_with(FakeRunner::saying("</think>hello"), |profile| {
        (profile.engine.parallel, profile.engine.queue_capacity) = (2, 1);
    })
    .await;
    for (path, body) in [(CHAT, chat("hi")), ("/v1/completions", json!({ "prompt": "hi" }))] {
        let told = server.post(path, with(body.clone(), json!({ "n": 4 }))).await;
        assert_eq!(
            (told.status, told.error("code"), told.error("param")),
            (400, &json!("limit_exceeded"), &json!("n"))
        );
        assert!(!told.headers.contains_key("retry-after"));
        assert_eq!(server.post(path, with(body, json!({ "n": 3, "max_tokens": 2 }))).await.status, 200);
    }
}

#[tokio::test]
async fn at_shutdown_running_answers_are_told() {
    let (runner, gate) = FakeRunner::saying("</think>hello").gated();
    let server = start_with(runner, |_| {}).await;
    let mut lines = server.open(CHAT, with(chat("hi"), json!({ "stream": true, "ignore_eos": true }))).await;
    lines.data().await;
    gate.allow(2);
    server.until(is_busy).await;
    let stop = tokio::spawn(server.joiner.shutdown(std::time::Duration::ZERO));
    drop(gate);
    let mut last = Value::Null;
    while let Some(line) = lines.next().await {
        if let Some(data) = line.strip_prefix("data: ") {
            last = serde_json::from_str(data).unwrap();
        }
    }
    assert_eq!(last["error"]["code"], "engine_stopping", "{last}");
    let _ = stop.await;
}
