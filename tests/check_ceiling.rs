//! `check ceiling` against a server whose memory falls as that of a GPU did: what boots does not fill.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod chat_server;

use chat_server::{Config, report, serve, verdict};
use plateau::check::ceiling::{self, Ladder, RUNGS_FILE};
use plateau::check::verdict::{Report, Status, Verdict};
use serde_json::Value;

/// MiB that are free on a GPU of 24 GB at `context` and `fill`, both in K tokens. Fitted to three measured anchors.
fn gpu(context: f64, fill: f64) -> f64 {
    2623.0 - 25.0 * (context - 200.0) - 7.9 * fill
}

fn config(n_ctx: u64, free: Option<fn(f64) -> f64>, fault: &'static str) -> Config {
    Config { n_ctx, free, fault, ..Config::default() }
}

fn climbed(config: Config, ladder: &Ladder) -> Report {
    let dir = tempfile::tempdir().unwrap();
    report(&serve(config), dir.path(), async |session, run| ceiling::run(session, run, ladder).await)
}

fn rungs(report: &Report) -> Vec<(String, u64)> {
    let rungs = report.measured["rungs"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    rungs.iter().map(|rung| (text(&rung["outcome"]), rung["target"].as_u64().unwrap())).collect()
}

#[test]
fn what_262k_boots_is_filled_to_125k_and_walls_at_155k() {
    let report = climbed(config(262_000, Some(|fill| gpu(262.0, fill)), ""), &Ladder::default());
    let expected = [("recalled", 95_000), ("recalled", 125_000), ("wall", 155_000)];
    assert_eq!(rungs(&report), expected.map(|(outcome, at)| (outcome.to_owned(), at)));
    let (status, detail) = verdict(&report, "BOUNDARY");
    assert!(status == Status::Fail && detail.contains("wall at 155,000"), "{detail}");
    let filled = report.checks[0].measured["filled_tokens"].as_u64().unwrap();
    assert!((124_500..=125_500).contains(&filled), "{detail}");
    assert_eq!(report.verdict, Verdict::Fail);
    assert!(!report.lost, "the server answers after its wall");
}

#[test]
fn two_hundred_k_fill_and_the_slope_is_the_gpus() {
    let report = climbed(config(200_000, Some(|fill| gpu(200.0, fill)), ""), &Ladder::default());
    let (status, detail) = verdict(&report, "BOUNDARY");
    assert!(status == Status::Pass && detail.contains("slope 7.9 MiB/1K"), "{detail}");
    assert_eq!(rungs(&report).last().unwrap().1, 184_000);
    assert_eq!((verdict(&report, "RECALL").0, report.verdict), (Status::Pass, Verdict::Pass));
    assert!(report.plots[0].lines[0].1.len() == 4 && report.text().contains("not proved: a deeper context"));
}

#[test]
fn two_hundred_and_twenty_four_k_leave_too_little() {
    let report = climbed(config(224_000, Some(|fill| gpu(224.0, fill)), ""), &Ladder::default());
    let (status, detail) = verdict(&report, "BOUNDARY");
    assert!(status == Status::Fail && detail.contains("MiB free at 206,080, less than 1,024"), "{detail}");
    let free = report.checks[0].measured["lowest_free_mib"].as_f64().unwrap();
    assert!((393.0..400.0).contains(&free), "{detail}");
    // What is allowed to be tight is allowed to pass.
    let report = climbed(
        config(224_000, Some(|fill| gpu(224.0, fill)), ""),
        &Ladder { margin_mib: 300.0, fast: true, ..Ladder::default() },
    );
    assert_eq!((report.verdict, rungs(&report).len()), (Verdict::Pass, 2), "{}", report.text());
}

#[test]
fn each_fault_has_its_verdict_and_what_cannot_be_known_is_none() {
    let plenty: Option<fn(f64) -> f64> = Some(|_| 9000.0);
    let cases = [
        ("sizing", plenty, "BOUNDARY", Status::Fail, "sizing", Verdict::Fail),
        ("500", plenty, "BOUNDARY", Status::Skip, "could not be measured", Verdict::Inconclusive),
        ("misses", plenty, "RECALL", Status::Warn, "0 of 4", Verdict::Pass),
        ("cached", plenty, "BOUNDARY", Status::Inconclusive, "came from a cache", Verdict::Inconclusive),
        ("no usage", plenty, "BOUNDARY", Status::Skip, "no usage.prompt_tokens", Verdict::Inconclusive),
        ("", None, "BOUNDARY", Status::Inconclusive, "memory was not measured", Verdict::Inconclusive),
    ];
    let mut wrong = Vec::new();
    for (fault, free, name, status, words, run) in cases {
        let report = climbed(config(32_768, free, fault), &Ladder::default());
        let found = verdict(&report, name);
        if found.0 != status || !found.1.contains(words) || report.verdict != run {
            wrong.push(format!("{fault}: {found:?}\n{}", report.text()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let report = climbed(config(32_768, plenty, "dies"), &Ladder::default());
    assert!(report.lost && verdict(&report, "BOUNDARY").0 == Status::Fail, "{}", report.text());
}

#[test]
fn a_run_that_was_stopped_goes_on_after_its_last_whole_rung() {
    let (server, dir) = (serve(config(32_768, Some(|_| 9000.0), "")), tempfile::tempdir().unwrap());
    let climb = || {
        let ladder = Ladder::default();
        report(&server, dir.path(), async |session, run| ceiling::run(session, run, &ladder).await)
    };
    climb();
    // Two probes and four rungs.
    assert_eq!(server.requests().len(), 6);
    let path = dir.path().join(RUNGS_FILE);
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    std::fs::write(&path, format!("{}\n{}\n{}", lines[0], lines[1], &lines[2][..30])).unwrap();
    let report = climb();
    assert_eq!((rungs(&report).len(), report.verdict), (4, Verdict::Pass), "{}", report.text());
    assert_eq!(server.requests().len(), 10, "two probes and the two rungs that were missing");
    climb();
    assert_eq!(server.requests().len(), 10, "nothing is left to do");
}
