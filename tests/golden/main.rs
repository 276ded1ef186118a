//! Recorded requests to every endpoint with their recorded answers: what a client sees stays the same to the byte, but for
//! ids and times.
//!
//! `requests.jsonl` holds one request a line, `answers.jsonl` its answer under the same name. `UPDATE=1 cargo test --test
//! golden` records the answers again; the diff of that file is then the change that clients see. The servers are the real
//! router over the scripted runner. With `PLATEAU_GOLDEN_OLD` and `PLATEAU_GOLDEN_NEW`, URLs of two running servers, the
//! answers of these two are compared instead (`scripts/golden.sh`).
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

#[path = "../common/mod.rs"]
mod common;
mod diff;
mod normal;
mod request;
mod servers;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use normal::Told;
use request::Recorded;
use serde_json::{Value, json};
use servers::Servers;

const ANSWERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/answers.jsonl");
/// Failures that are shown; the rest is counted.
const SHOWN: usize = 12;

#[tokio::test]
async fn requests_are_answered_as_recorded() {
    let requests = request::all();
    let url = |name: &str| std::env::var_os(name).map(|url| url.into_string().unwrap());
    match (url("PLATEAU_GOLDEN_OLD"), url("PLATEAU_GOLDEN_NEW")) {
        (Some(old), Some(new)) => compare_servers(&requests, &old, &new).await,
        (None, None) => compare_recorded(&requests).await,
        _ => panic!("PLATEAU_GOLDEN_OLD and PLATEAU_GOLDEN_NEW come together"),
    }
}

async fn compare_recorded(requests: &[Recorded]) {
    let mut servers = Servers::default();
    let mut answers = BTreeMap::new();
    for request in requests {
        let url = servers.url(&request.to).await;
        if request.settle {
            servers.settle(&request.to).await;
        }
        answers.insert(request.name.clone(), request.send(servers.client(), &url, false).await);
    }
    if std::env::var_os("UPDATE").is_some() {
        return write(requests, &answers);
    }
    let mut recorded = read();
    let mut report = Report::default();
    for request in requests {
        match recorded.remove(&request.name) {
            Some(before) => report.compare(request, &before, &answers[&request.name]),
            None => report.add(request, "no answer is recorded; UPDATE=1 records it"),
        }
    }
    assert!(recorded.is_empty(), "answers to requests that are gone; UPDATE=1 drops them: {:?}", recorded.keys());
    report.end(requests.len());
}

/// Deltas are joined: how much text one of them carries depends on how fast the client reads.
async fn compare_servers(requests: &[Recorded], old: &str, new: &str) {
    let client = common::client();
    let mut report = Report::default();
    let mut n = 0;
    for request in requests.iter().filter(|request| request.real) {
        let before = request.send(&client, old, true).await;
        report.compare(request, &before, &request.send(&client, new, true).await);
        n += 1;
    }
    report.end(n);
}

#[derive(Default)]
struct Report {
    text: String,
    n: usize,
}

impl Report {
    fn compare(&mut self, request: &Recorded, before: &Told, now: &Told) {
        if before != now {
            self.add(request, &diff::short(&before.line(), &now.line()));
        }
    }

    fn add(&mut self, request: &Recorded, what: &str) {
        self.n += 1;
        if self.n <= SHOWN {
            writeln!(self.text, "{request}\n{what}\n").unwrap();
        }
    }

    fn end(self, of: usize) {
        assert!(self.n == 0, "{} of {of} answers differ, the first of them:\n\n{}", self.n, self.text);
    }
}

fn write(requests: &[Recorded], answers: &BTreeMap<String, Told>) {
    let mut out = String::new();
    for request in requests {
        writeln!(out, "{}", answers[&request.name].named(&request.name)).unwrap();
    }
    std::fs::write(ANSWERS, out).unwrap();
}

fn read() -> BTreeMap<String, Told> {
    let text = std::fs::read_to_string(ANSWERS).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.map(|line| (line["name"].as_str().unwrap().to_owned(), Told::from_line(&line))).collect()
}

#[test]
fn the_requests_reach_every_route_and_have_names_of_their_own() {
    let requests = request::all();
    let names: std::collections::BTreeSet<&str> = requests.iter().map(|request| request.name.as_str()).collect();
    assert_eq!(names.len(), requests.len());
    for route in plateau::api::routes::ROUTES {
        let unused =
            |path: &&&str| !path.contains("/metrics") && !requests.iter().any(|r| r.is_for(route.method, path));
        let unused: Vec<_> = route.paths.iter().filter(unused).collect();
        assert!(unused.is_empty(), "no request to {} {unused:?}", route.method);
    }
}

/// Errors that no recorded request can cause, with the test that does.
const ELSEWHERE: &[(&str, &str)] = &[
    ("body_unreadable", "the connection breaks"),
    ("body_timeout", "tests/api_errors.rs waits for it"),
    ("internal", "a fault of the server"),
];

#[test]
fn every_error_is_recorded() {
    let told: String = read().values().map(|told| told.line().to_string()).collect();
    for code in plateau::api::ErrorCode::ALL {
        let name = code.info().name;
        let is_recorded = told.contains(&json!({ "code": name }).to_string().replace(['{', '}'], ""));
        assert_eq!(is_recorded, !ELSEWHERE.iter().any(|(other, _)| *other == name), "{name}");
    }
}
