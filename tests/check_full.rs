//! `check quick` and `check full` against a scripted server: each check fails on the server that has the fault, and is
//! skipped where it cannot know.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod chat_server;

use std::process::{Command, Output};

use chat_server::{Config, Kind, Server, report, serve, verdict};
use plateau::check::full::{self, Extent};
use plateau::check::verdict::{Report, Status, Verdict};

fn full_of(config: Config) -> Report {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(config);
    report(&server, dir.path(), async |session, run| full::run(session, run, Extent::Full).await)
}

fn with(fault: &'static str) -> Config {
    Config { fault, ..Config::default() }
}

#[test]
fn a_good_server_passes_all_nine() {
    let report = full_of(with(""));
    assert_eq!((report.verdict, report.n(Status::Pass)), (Verdict::Pass, 9), "{}", report.text());
    let names: Vec<&str> = report.checks.iter().map(|check| check.name.as_str()).collect();
    assert_eq!(names[..3], ["reachable", "features", "completion"]);
    assert!(report.text().contains("not proved: long prompts"), "{}", report.text());
}

/// (fault of the server, check, verdict, words of it)
const FAULTS: &[(&str, &str, Status, &str)] = &[
    ("no model", "reachable", Status::Fail, "lists no model"),
    ("no context", "reachable", Status::Skip, "--ctx"),
    ("idle kernel", "features", Status::Fail, "never called: gdn"),
    ("wrong capital", "completion", Status::Fail, "Lyon"),
    ("500", "completion", Status::Fail, "status 500"),
    ("hangs", "completion", Status::Fail, "no answer within"),
    ("no call", "tool call", Status::Fail, "no call of get_weather"),
    ("inlined call", "tool call", Status::Fail, "left in the text"),
    ("broken arguments", "tool call", Status::Fail, "no JSON object"),
    ("one piece", "stream", Status::Fail, "1 events"),
    ("cut", "stream", Status::Fail, "connection was lost"),
    ("no usage", "stream", Status::Fail, "no usage"),
    ("inlined call", "streamed tool call", Status::Fail, "left in the text"),
    ("broken arguments", "streamed tool call", Status::Fail, "no JSON object"),
    ("finish", "streamed tool call", Status::Fail, "not tool_calls"),
    ("no thinking", "thinking", Status::Fail, "0 characters"),
    ("thinking without end", "thinking", Status::Fail, "no answer"),
    ("thinking cut", "thinking", Status::Warn, "cut before an answer"),
    ("loop", "essay", Status::Fail, "the same line 60 times"),
    ("poor words", "essay", Status::Fail, "variety 0.01"),
    ("empty essay", "essay", Status::Fail, "no text"),
    ("short essay", "essay", Status::Warn, "too short to judge"),
    ("no drafts", "drafts", Status::Fail, "nothing was drafted"),
    ("poor drafts", "drafts", Status::Fail, "2 at least"),
];

#[test]
fn each_check_fails_on_the_server_that_has_the_fault() {
    let mut wrong = Vec::new();
    for (fault, name, status, words) in FAULTS {
        let report = full_of(with(fault));
        let found = verdict(&report, name);
        if found.0 != *status || !found.1.contains(words) {
            wrong.push(format!("{fault}: {name} is {found:?}, not {status:?} with {words:?}"));
        }
        let expected = match status {
            Status::Fail => Verdict::Fail,
            Status::Skip => Verdict::Inconclusive,
            _ => Verdict::Pass,
        };
        if report.verdict != expected {
            wrong.push(format!("{fault}: the run is {:?}\n{}", report.verdict, report.text()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_a_server_does_not_tell_is_skipped_and_never_passed() {
    let cases = [
        (Config { tools: false, ..with("") }, "tool call", "does not mention tools", Verdict::Pass),
        (Config { tools: false, ..with("") }, "streamed tool call", "does not mention tools", Verdict::Pass),
        (Config { thinking: false, ..with("") }, "thinking", "does not think", Verdict::Pass),
        (Config { mtp: Some(false), ..with("") }, "drafts", "speculative.mtp is off", Verdict::Pass),
        (Config { kind: Kind::LlamaServer, ..with("") }, "features", "does not tell", Verdict::Pass),
        (Config { kind: Kind::LlamaServer, mtp: None, ..with("") }, "drafts", "does not tell", Verdict::Pass),
        (Config { kind: Kind::Unknown, ..with("") }, "thinking", "does not tell", Verdict::Inconclusive),
        (Config { kind: Kind::Unknown, ..with("") }, "reachable", "--ctx", Verdict::Inconclusive),
    ];
    for (config, name, words, run) in cases {
        let report = full_of(config);
        let (status, detail) = verdict(&report, name);
        assert!(status == Status::Skip && detail.contains(words), "{name}: {status:?} {detail}");
        assert_eq!(report.verdict, run, "{}", report.text());
    }
    let off = full_of(Config { mtp: Some(false), ..with("no reason") });
    assert_eq!(verdict(&off, "features").0, Status::Fail, "{}", off.text());
}

#[test]
fn a_server_that_goes_away_ends_the_run_and_what_was_measured_is_kept() {
    let report = full_of(with("dies"));
    assert!(report.lost && report.verdict == Verdict::Fail, "{}", report.text());
    assert!(report.n(Status::Pass) >= 2 && report.checks.len() < 9, "{}", report.text());
}

fn plateau(server: &str, dir: &std::path::Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plateau"));
    command.arg("check").args(args).args(["--url", server, "--results"]).arg(dir.join("results"));
    command.arg("--json").arg(dir.join("out.json")).arg("--html").arg(dir.join("out.html"));
    command.output().unwrap()
}

fn code(server: &Server, args: &[&str]) -> (i32, String) {
    let dir = tempfile::tempdir().unwrap();
    let output = plateau(&server.url, dir.path(), args);
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap(), text)
}

#[test]
fn exit_codes_say_what_a_run_came_to() {
    for (fault, args, expected) in [
        ("", &["quick"][..], 0),
        ("", &["full"], 0),
        ("no call", &["quick"], 1),
        ("no context", &["quick"], 1),
        ("no context", &["quick", "--ctx", "4096"], 0),
        ("dies", &["full"], 69),
        ("", &["full", "--timeout-scale", "0"], 64),
        ("", &["full", "--ctx", "0"], 64),
    ] {
        if fault == "dies" {
            // Waits two minutes for the server in earnest: the library's test covers it.
            continue;
        }
        let (found, text) = code(&serve(with(fault)), args);
        assert_eq!(found, expected, "{fault} {args:?}: {text}");
    }
    let dir = tempfile::tempdir().unwrap();
    let output = plateau("http://127.0.0.1:1", dir.path(), &["quick"]);
    assert_eq!(output.status.code(), Some(69));
    let output = plateau("https://localhost", dir.path(), &["quick"]);
    assert_eq!(output.status.code(), Some(64));
}

#[test]
fn files_of_a_run_are_the_report_and_a_page() {
    let (server, dir) = (serve(with("")), tempfile::tempdir().unwrap());
    let output = plateau(&format!("{}/v1", server.url), dir.path(), &["quick", "--seed", "5"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    let json: Report = serde_json::from_str(&read("out.json")).unwrap();
    assert_eq!((json.schema.as_str(), json.verdict, json.interrupted), ("plateau-check/1", Verdict::Pass, false));
    assert_eq!(json.settings["seed"], 5);
    assert_eq!(json, serde_json::from_str(&read("results/run.json")).unwrap());
    assert!(read("out.html").contains("<svg") || read("out.html").contains("PASS"));
    // Plain lines where nobody looks.
    assert!(String::from_utf8_lossy(&output.stderr).contains("PASS  completion"), "{output:?}");
    let other = plateau(&server.url, dir.path(), &["quick", "--seed", "6"]);
    assert_eq!(other.status.code(), Some(64), "{}", String::from_utf8_lossy(&other.stderr));
}
