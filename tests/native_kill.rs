//! The real server killed while it saves states: the next one serves, what it restores is right, and nearly nothing is lost.
//!
//! `PLATEAU_FULL_SWEEP=1` kills it 100 times instead of 8.
#![cfg(feature = "native")]
#![allow(clippy::unwrap_used, reason = "a failure in a helper of a test is a failed test")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use plateau::check::client::Client;
use serde_json::{Value, json};

/// Longer than any answer here takes.
const LIMIT: Duration = Duration::from_secs(300);

struct Server {
    child: Child,
    client: Client,
}

/// Starts a server over `folder` and waits until it says where it listens.
fn start(folder: &Path) -> Server {
    let mut child = Command::new(env!("CARGO_BIN_EXE_plateau"))
        .args(["serve", "--port", "0", "--ctx", "2048", "--parallel", "1", "--engine-threads", "1"])
        .args(["--cache-ram", "256", "--log", "warn"])
        .arg("--cache-dir")
        .arg(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let url = lines.find_map(|line| {
        let line = line.unwrap();
        let at = line.find("http://127.0.0.1:")?;
        Some(line[at..].split(|c: char| c.is_whitespace() || c == '/').take(3).collect::<Vec<_>>().join("/"))
    });
    let Some(url) = url else { panic!("the server ended before it listened: {}", child.wait().unwrap()) };
    Server { child, client: Client::new(&url, None).unwrap() }
}

impl Server {
    async fn ask(&self, prompt: &str, cached: bool) -> Option<Value> {
        let body = json!({ "prompt": prompt, "max_tokens": 4, "temperature": 0, "cache_prompt": cached, "ignore_eos": true,
                           "speculative": { "n_max": 0, "lookup": false }, "logprobs": 1 });
        self.client.post("/v1/completions", &body, LIMIT).await.ok()
    }

    fn kill(mut self) {
        // SIGKILL: nothing of the server runs after it.
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn prompt(i: usize) -> String {
    let words = ["river", "stone", "lamp", "bird", "tree", "box", "dog"];
    (0..60 + i % 90).fold(format!("{i}"), |text, k| format!("{text} {}", words[(k * k + i * k) % words.len()]))
}

fn said(answer: &Value) -> (Value, Value) {
    let choice = &answer["choices"][0];
    (choice["text"].clone(), choice["logprobs"]["token_logprobs"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_while_it_writes_restores_nothing_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let n_runs = if std::env::vars_os().any(|(name, _)| name == "PLATEAU_FULL_SWEEP") { 100 } else { 8 };
    // What each prompt is answered with, cold.
    let mut known: Vec<(Value, Value)> = Vec::new();
    let mut n_restored = 0;
    for run in 0..n_runs {
        let server = start(dir.path());
        // The last state before the kill may be lost, and those before it may not.
        let first = known.len().saturating_sub(4);
        for (i, expected) in known.iter().enumerate().skip(first) {
            let answer = server.ask(&prompt(i), true).await.unwrap();
            assert_eq!(&said(&answer), expected, "run {run}, prompt {i}: {}", answer["timings"]["cache"]);
            let n_cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
            n_restored += usize::from(n_cached > 0);
            assert!(n_cached > 0 || i + 1 >= known.len(), "run {run}: prompt {i} of {} was lost", known.len());
        }
        // New states until the kill, at another point of their writing each time.
        for _ in 0..1 + run % 3 {
            let i = known.len();
            let cold = server.ask(&prompt(i), false).await.unwrap();
            let saving = server.ask(&prompt(i), true).await.unwrap();
            assert_eq!(said(&saving), said(&cold), "run {run}, prompt {i}");
            known.push(said(&cold));
        }
        let client = server.client.clone();
        let body = json!({ "prompt": prompt(9000 + run), "max_tokens": 1 + run % 7 });
        let in_flight = tokio::spawn(async move { client.post("/v1/completions", &body, LIMIT).await });
        if run % 2 == 0 {
            let _ = server.client.get("/cache", LIMIT).await;
        }
        server.kill();
        drop(in_flight.await);
    }
    println!("{n_runs} kills, {} prompts, {n_restored} answers restored, all as cold ones", known.len());
    assert!(n_restored > 0);
}
