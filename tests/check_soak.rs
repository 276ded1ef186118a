//! `check soak` against a scripted server and over rows: every signal fails where the fault is, and nothing is claimed where
//! it was not measured.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod chat_server;

use std::time::Duration;

use chat_server::{Config, report, serve, verdict};
use plateau::check::soak::{self, LEDGER_FILE, Mode, Row, Seen, Soak};
use plateau::check::verdict::{Report, Status, Verdict};

fn standard(mode: Mode) -> Soak {
    Soak { silent_after: Duration::ZERO, ..Soak::new(mode) }
}

fn soaked(config: Config, soak: &Soak) -> Report {
    let dir = tempfile::tempdir().unwrap();
    report(&serve(config), dir.path(), async |session, run| soak::run(session, run, soak).await)
}

fn config(fault: &'static str) -> Config {
    Config { fault, free: Some(|_| 9000.0), ..Config::default() }
}

#[test]
fn a_good_server_passes_in_both_modes_and_leaves_its_ledger() {
    let dir = tempfile::tempdir().unwrap();
    let soak = standard(Mode::Continuous);
    let server = serve(config(""));
    let report = report(&server, dir.path(), async |session, run| soak::run(session, run, &soak).await);
    assert_eq!(report.verdict, Verdict::Pass, "{}", report.text());
    let ledger = std::fs::read_to_string(dir.path().join(LEDGER_FILE)).unwrap();
    assert_eq!((ledger.lines().count(), ledger.lines().next().unwrap()), (26, Row::HEAD));
    let summary = std::fs::read_to_string(dir.path().join("summary.md")).unwrap();
    assert!(summary.starts_with("# Soak, continuous: PASS") && summary.contains("with the kernel off"), "{summary}");
    assert!(dir.path().join("run.json").exists() && report.plots.iter().all(|plot| !plot.lines[0].1.is_empty()));
    let (_, depth) = verdict(&report, "depth");
    assert!(depth.starts_with("25") || depth.starts_with("26"), "{depth}");
    // A conversation grows by calls and results: its last request has four of each.
    let requests = server.requests();
    let last = requests.iter().rfind(|body| body["max_tokens"] == 1500).unwrap();
    let roles: Vec<&str> =
        last["messages"].as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles.iter().filter(|role| **role == "tool").count(), 4, "{roles:?}");

    let fresh = soaked(config(""), &Soak { sessions: 4, ..standard(Mode::Fresh) });
    assert_eq!(fresh.verdict, Verdict::Pass, "{}", fresh.text());
    let aborted = soaked(config(""), &Soak { aborts: 0.5, ..standard(Mode::Fresh) });
    assert!(verdict(&aborted, "requests").1.contains("aborted by us"), "{}", aborted.text());
    assert!(
        !verdict(&aborted, "requests").1.contains(" 0 aborted") && aborted.n(Status::Fail) == 0,
        "{}",
        aborted.text()
    );
}

#[test]
fn each_signal_fails_on_the_server_that_has_the_fault() {
    let cases = [
        ("500 later", "requests", Status::Fail, "status 500"),
        ("cut", "requests", Status::Fail, "connection was lost"),
        ("leak", "memory growth", Status::Fail, "+400 MiB"),
        ("slower", "decode retention", Status::Fail, "80 % asked"),
        ("silent", "silent answers", Status::Fail, "ended well and empty"),
        ("sometimes silent", "silent answers", Status::Warn, "ended well and empty"),
        ("stuck", "engine at rest", Status::Fail, "1 sequences run"),
        ("shrinks", "depth", Status::Inconclusive, "did not reach the depth"),
        ("cold", "turns from the cache", Status::Warn, "cliff 3"),
        ("late", "time to the first token", Status::Warn, "the first session"),
        ("no call", "requests", Status::Pass, "20 calls put in"),
        ("no usage", "depth", Status::Skip, "does not tell"),
    ];
    let mut wrong = Vec::new();
    for (fault, name, status, words) in cases {
        let report = soaked(config(fault), &standard(Mode::Continuous));
        let found = verdict(&report, name);
        if found.0 != status || !found.1.contains(words) {
            wrong.push(format!("{fault}: {name} is {found:?}\n{}", report.text()));
        }
        let expected = match status {
            Status::Fail => Verdict::Fail,
            Status::Inconclusive | Status::Skip => Verdict::Inconclusive,
            _ => Verdict::Pass,
        };
        if report.verdict != expected {
            wrong.push(format!("{fault}: the run is {:?}\n{}", report.verdict, report.text()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let dead = soaked(config("dies"), &standard(Mode::Continuous));
    assert!(dead.lost && dead.verdict == Verdict::Fail, "{}", dead.text());
}

#[test]
fn what_cannot_be_measured_or_does_not_fit_is_inconclusive() {
    let report = soaked(Config { free: None, ..config("") }, &standard(Mode::Continuous));
    let (status, detail) = verdict(&report, "memory growth");
    assert!(status == Status::Inconclusive && detail.contains("memory was not measured"), "{detail}");
    assert_eq!(report.verdict, Verdict::Inconclusive);
    let small = Config { n_ctx: 16_384, ..config("") };
    let report = soaked(small.clone(), &standard(Mode::Continuous));
    assert!(verdict(&report, "depth").1.contains("--depth-tokens"), "{}", report.text());
    let scaled = soaked(small, &Soak { depth_tokens: Some(8000), ..standard(Mode::Continuous) });
    assert_eq!(scaled.verdict, Verdict::Pass, "{}", scaled.text());
    let report = soaked(Config { tools: false, ..config("") }, &standard(Mode::Continuous));
    assert!(verdict(&report, "depth").1.contains("--mode fresh"), "{}", report.text());
    let one = soaked(config(""), &Soak { sessions: 1, ..standard(Mode::Fresh) });
    assert_eq!((verdict(&one, "decode retention").0, one.verdict), (Status::Inconclusive, Verdict::Inconclusive));
}

fn row(session: usize, turn: usize) -> Row {
    let status = "ok".to_owned();
    Row { session, turn, status, decode_tps: Some(10.0), gpu_after_mib: Some(100.0), ..Row::default() }
}

#[test]
fn rows_that_take_long_swing_or_grow_on_the_host_are_warned_of() {
    let rows = || (1..=8).map(|n| row(n, 1));
    let status = |rows: Vec<Row>, name: &str| {
        let seen = Seen { rows, at_rest: Some(Ok(())), ..Seen::default() };
        let soak = Soak { turns: 1, ..standard(Mode::Fresh) };
        soak::checks(&seen, &soak).into_iter().find(|check| check.name == name).unwrap().status
    };
    let long = rows().map(|row| Row { elapsed_ms: 31_000 * (row.session == 3) as u64, ..row }).collect();
    assert_eq!(status(long, "long turns"), Status::Warn);
    let swing = rows().map(|row| Row { gpu_after_mib: Some(600.0 * (row.session % 2) as f64), ..row });
    assert_eq!(status(swing.collect(), "memory swing"), Status::Warn);
    let host = rows().map(|row| {
        let at = row.session as u64;
        Row { host_mib: Some(100.0 * at as f64), t_ms: at * 60_000, ..row }
    });
    assert_eq!(status(host.collect(), "host memory"), Status::Warn);
    for name in ["long turns", "memory swing", "memory growth", "decode retention", "silent answers"] {
        assert_eq!(status(rows().collect(), name), Status::Pass, "{name}");
    }
    assert_eq!(status(rows().collect(), "host memory"), Status::Skip);
    // Where the host's memory is watched, what the prefix cache holds is no growth.
    let cached = rows().map(|row| {
        let mib = 100.0 * row.session as f64;
        Row { gpu_after_mib: Some(mib), host_mib: Some(mib), cache_bytes: Some(mib * f64::from(1 << 20)), ..row }
    });
    assert_eq!(status(cached.collect(), "memory growth"), Status::Pass);
}
