//! `plateau bench` against scripted servers: what is asked, when nothing is claimed, and the row of the table.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod chat_server;

use std::process::{Command, Output};

use chat_server::{Config, Kind, report, serve, verdict};
use plateau::check::bench::{self, Bench};
use plateau::check::verdict::{Report, Status, Verdict};

fn measured(config: Config) -> Report {
    let dir = tempfile::tempdir().unwrap();
    let settings = Bench { runs: 3, warm: 1, depths: vec![0, 4000, 90_000] };
    let server = serve(config);
    report(&server, dir.path(), async |session, run| bench::run(session, None, run, &settings, &|| None).await)
}

#[test]
fn rates_are_measured_and_what_does_not_fit_is_left_out() {
    let report = measured(Config::default());
    let names: Vec<&str> = report.checks.iter().map(|check| check.name.as_str()).collect();
    assert_eq!(names, ["narrative", "code", "prefill 0", "prefill 4000", "prefill 90000"]);
    assert_eq!(
        (verdict(&report, "prefill 90000").0, report.verdict),
        (Status::Skip, Verdict::Pass),
        "{}",
        report.text()
    );
    let deep = &report.checks[3].measured;
    assert!((3500.0..=4000.0).contains(&deep["tokens"].as_f64().unwrap()), "{deep}");
    assert_eq!(deep["told"], 1000.0);
    assert!(report.checks[0].measured["acceptance_length"].as_f64().unwrap() >= 2.0, "{}", report.text());
}

#[test]
fn each_measurement_fails_or_is_left_out_where_it_cannot_be_made() {
    let unknown = Config { kind: Kind::Unknown, ..Config::default() };
    let cases = [
        (Config { fault: "500", ..Config::default() }, "narrative", Status::Fail, "status 500"),
        (Config { fault: "500", ..Config::default() }, "prefill 4000", Status::Fail, "status 500"),
        (Config { fault: "cut", ..Config::default() }, "code", Status::Fail, "connection was lost"),
        (Config { fault: "no usage", ..Config::default() }, "narrative", Status::Fail, "usage"),
        (Config { fault: "no usage", ..Config::default() }, "prefill 4000", Status::Skip, "does not tell"),
        (Config { fault: "cached", ..Config::default() }, "prefill 4000", Status::Warn, "came from a cache"),
        (unknown, "prefill 4000", Status::Pass, "tok/s"),
    ];
    let mut wrong = Vec::new();
    for (config, name, status, words) in cases {
        let found = verdict(&measured(config.clone()), name);
        // Times of a scripted server are noise: a spread that is too wide is no fault here.
        let is_noise = status == Status::Pass && found.1.contains("spread");
        if (found.0 != status && !is_noise) || !found.1.contains(words) {
            wrong.push(format!("{}: {name} is {found:?}", config.fault));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn plateau(dir: &std::path::Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plateau"));
    let common = ["bench", "--runs", "2", "--warm", "0", "--depths", "0"];
    command.current_dir(dir).args(common).args(args).output().unwrap()
}

#[test]
fn rounds_ask_both_servers_in_turns_and_a_row_is_added() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (serve(Config::default()), serve(Config::default()));
    let args = ["--url", &one.url, "--against", &two.url, "--row", "rows.md", "--profile", "agent"];
    for rows in 1..=2 {
        let output = plateau(dir.path(), &args);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&output.stderr));
        assert!(text.contains("times the other ("), "{text}");
        // Two runs of two tasks and three prompts.
        assert_eq!((one.requests().len(), two.requests().len()), (7 * rows, 7 * rows));
        let table = std::fs::read_to_string(dir.path().join("rows.md")).unwrap();
        assert_eq!(table.lines().count(), 2 + rows, "{table}");
        assert!(
            table.lines().last().unwrap().contains("| agent |") && table.contains("| full -, stress -, soak - |"),
            "{table}"
        );
    }
    let dead = plateau(dir.path(), &["--url", &one.url, "--profile", "no-such-profile", "--row", "rows.md"]);
    assert_eq!(dead.status.code(), Some(64), "{}", String::from_utf8_lossy(&dead.stderr));
    let alone = plateau(dir.path(), &["--url", &one.url, "--against", "http://127.0.0.1:1"]);
    assert_eq!(alone.status.code(), Some(69), "{}", String::from_utf8_lossy(&alone.stderr));
}
