//! `check stress` against a scripted server: each probe fails on the server that has the fault, and is skipped where it does
//! not fit or cannot be judged.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod chat_server;

use chat_server::{Config, report, serve, verdict};
use plateau::check::stress::{self, Stress};
use plateau::check::verdict::{Report, Status, Verdict};

fn stressed(config: Config, stress: &Stress) -> Report {
    let dir = tempfile::tempdir().unwrap();
    report(&serve(config), dir.path(), async |session, run| stress::run(session, run, stress).await)
}

fn config(n_ctx: u64, fault: &'static str) -> Config {
    Config { n_ctx, fault, free: Some(|_| 9000.0), ..Config::default() }
}

#[test]
fn a_good_server_passes_all_probes_and_both_verdicts() {
    let report = stressed(config(131_072, ""), &Stress::default());
    assert_eq!((report.verdict, report.n(Status::Pass)), (Verdict::Pass, 9), "{}", report.text());
    assert!(report.text().contains("needles do not test KV precision"), "{}", report.text());
    let fast = stressed(config(131_072, ""), &Stress { fast: true, ..Stress::default() });
    assert_eq!((fast.verdict, fast.checks.len()), (Verdict::Pass, 8), "{}", fast.text());
    assert_eq!(fast.measured["rungs"].as_array().unwrap().len(), 2);
}

#[test]
fn each_probe_fails_on_the_server_that_has_the_fault() {
    let large = 131_072;
    let cases = [
        ("500", "needles 10K, 30K", large, Status::Fail, "status 500"),
        ("500", "BOUNDARY", large, Status::Skip, "could not be measured"),
        ("misses", "needles 10K, 30K", large, Status::Warn, "missed at"),
        ("misses", "RECALL", large, Status::Warn, "0 of"),
        ("cut", "large tool result", large, Status::Fail, "connection was lost"),
        ("mute", "large tool result", large, Status::Fail, "no answer"),
        ("mute", "agent, several turns", large, Status::Fail, "no answer"),
        ("empty essay", "ten tools, one shot", large, Status::Fail, "no answer"),
        ("empty essay", "coding with a plan", large, Status::Fail, "no answer"),
        ("cut short", "long reasoning", large, Status::Fail, "500 at least"),
        ("short essay", "long reasoning", large, Status::Warn, "ended by itself"),
        ("no usage", "needles 10K, 30K", large, Status::Skip, "does not tell"),
        ("no usage", "long reasoning", large, Status::Skip, "does not tell"),
        ("", "needles 60K, 90K", 32_768, Status::Skip, "do not fit"),
        ("", "needles 10K, 30K", 8192, Status::Skip, "do not fit"),
        ("", "large tool result", 8192, Status::Skip, "do not fit"),
        ("", "long reasoning", 8192, Status::Skip, "do not fit"),
    ];
    let mut wrong = Vec::new();
    for (fault, name, n_ctx, status, words) in cases {
        let report = stressed(config(n_ctx, fault), &Stress::default());
        let found = verdict(&report, name);
        if found.0 != status || !found.1.contains(words) {
            wrong.push(format!("{fault} {n_ctx}: {name} is {found:?}\n{}", report.text()));
        }
        let failed = report.n(Status::Fail) > 0;
        if failed != (report.verdict == Verdict::Fail) || (fault == "no usage" && report.verdict == Verdict::Pass) {
            wrong.push(format!("{fault}: the run is {:?}\n{}", report.verdict, report.text()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let report = stressed(Config { tools: false, ..config(131_072, "") }, &Stress::default());
    assert_eq!((report.n(Status::Skip), report.verdict), (3, Verdict::Pass), "{}", report.text());
    let report = stressed(config(131_072, "dies"), &Stress::default());
    assert!(report.lost && report.verdict == Verdict::Fail, "{}", report.text());
}
