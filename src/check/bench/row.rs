//! A row of Markdown for a table of measurements: appended, never rewritten, and of one server alone.

use std::path::Path;

use serde_json::Value;

use crate::check::ceiling::grouped;
use crate::check::results::{RunError, append};
use crate::check::verdict::{Report, Status, Verdict};

const HEAD: &str = "| Profile | Rig | KV | Max ctx (filled) | Narr / code tok/s | PP tok/s at depths | Peak MiB | AL | Checks | \
    Date | Version | Command |\n|---|---|---|---|---|---|---|---|---|---|---|---|";
/// What the names of the folders of results begin or end with.
const KINDS: [(&str, &str); 3] = [("check full", "full"), ("check stress", "stress"), ("check soak", "soak")];

/// What the report does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowFacts {
    pub profile: String,
    /// Types of K and V.
    pub kv: String,
    pub command: String,
}

/// Adds the row of a bench to a file, with a head where the file is new.
///
/// # Errors
/// A report without its two tasks, and a file that cannot be written.
pub fn append_row(path: &Path, report: &Report, facts: &RowFacts, root: &Path) -> Result<(), RunError> {
    let row = row(report, facts, root)?;
    if !path.exists() {
        append(path, HEAD)?;
    }
    append(path, &row)
}

fn row(report: &Report, facts: &RowFacts, root: &Path) -> Result<String, RunError> {
    let measured = |name: &str| {
        let check = report.checks.iter().find(|check| check.name == name);
        check.filter(|check| check.status != Status::Fail).map(|check| &check.measured)
    };
    let (Some(narrative), Some(code)) = (measured("narrative"), measured("code")) else {
        return Err(RunError::Unavailable("no row: narrative and code were not both measured".to_owned()));
    };
    let rate = |value: &Value| value["decode"]["mean"].as_f64().map_or("-".to_owned(), |rate| format!("{rate:.1}"));
    let prefill = report.checks.iter().filter(|check| check.name.starts_with("prefill "));
    let prefill: Vec<String> = prefill
        .filter_map(|check| {
            let rate = check.measured["prefill"]["mean"].as_f64()?;
            Some(format!("{rate:.0} @ {}", check.measured["tokens"].as_f64()?))
        })
        .collect();
    let length = [narrative, code].map(|v| v["acceptance_length"].as_f64());
    let length = length.map(|length| length.map_or("-".to_owned(), |length| format!("{length:.2}")));
    let fingerprint = report.server["fingerprint"].as_str().unwrap_or_default();
    let n_ctx = report.server["n_ctx"].as_u64().map_or("?".to_owned(), |n| grouped(n as f64));
    let filled = filled_of(root, fingerprint).map_or("not measured".to_owned(), |n| grouped(n as f64));
    let peak = report.measured["peak_mib"].as_f64().map_or("-".to_owned(), |mib| format!("{mib:.0}"));
    let cells = [
        facts.profile.clone(),
        rig(&report.rig),
        facts.kv.clone(),
        format!("{n_ctx} ({filled})"),
        format!("{} / {}", rate(narrative), rate(code)),
        if prefill.is_empty() { "-".to_owned() } else { prefill.join(", ") },
        peak,
        length.join(" / "),
        checks_of(root, fingerprint),
        report.started.chars().take(10).collect(),
        report.server["build"].as_str().unwrap_or("?").to_owned(),
        format!("`{}`", facts.command),
    ];
    let cells = cells.map(|cell| cell.replace('|', "\\|").replace('\n', " "));
    Ok(format!("| {} |", cells.join(" | ")))
}

fn rig(rig: &Value) -> String {
    let gpu = &rig["gpu"];
    match (gpu["name"].as_str(), rig["local"].as_bool()) {
        (Some(name), _) => {
            let watts = gpu["power_limit_watts"].as_f64().map_or(String::new(), |watts| format!(", {watts:.0} W"));
            format!("1x {name}{watts}")
        }
        (None, Some(true)) => "CPU".to_owned(),
        _ => "remote".to_owned(),
    }
}

/// Reports under the folder of results, of one server, the latest first.
fn reports(root: &Path, fingerprint: &str) -> Vec<Report> {
    let folders = std::fs::read_dir(root).into_iter().flatten().flatten();
    let texts = folders.filter_map(|folder| std::fs::read_to_string(folder.path().join("run.json")).ok());
    let read = texts.filter_map(|text| serde_json::from_str::<Report>(&text).ok());
    let mut reports: Vec<Report> =
        read.filter(|report| report.server["fingerprint"] == fingerprint && !fingerprint.is_empty()).collect();
    reports.sort_by(|a, b| b.started.cmp(&a.started));
    reports
}

/// `full 9/9, stress 8/8, soak PASS`, with `-` for what was not run on this very server.
pub fn checks_of(root: &Path, fingerprint: &str) -> String {
    let reports = reports(root, fingerprint);
    let text = |(command, name): (&str, &str)| {
        let latest = reports.iter().find(|report| report.command == command);
        let result = latest.map_or("-".to_owned(), |report| match (name, report.verdict) {
            ("soak", verdict) => verdict.word().to_owned(),
            (_, Verdict::Pass | Verdict::Fail | Verdict::Inconclusive) => {
                format!("{}/{}", report.n(Status::Pass), report.checks.len())
            }
        });
        format!("{name} {result}")
    };
    KINDS.map(text).join(", ")
}

/// Tokens that were really filled on this very server.
pub fn filled_of(root: &Path, fingerprint: &str) -> Option<u64> {
    let reports = reports(root, fingerprint);
    let ceilings = reports.iter().filter(|report| report.command == "check ceiling");
    ceilings
        .filter_map(|report| report.checks.iter().find(|check| check.name == "BOUNDARY"))
        .find_map(|check| check.measured["filled_tokens"].as_u64())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::check::verdict::Check;

    fn kept(root: &Path, name: &str, report: &Report) {
        let dir = root.join(name);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("run.json"), serde_json::to_string(report).unwrap()).unwrap();
    }

    fn of_server(command: &str, fingerprint: &str, started: &str) -> Report {
        let server = json!({"fingerprint": fingerprint, "n_ctx": 204_800, "build": "b1"});
        Report { server, started: started.to_owned(), ..Report::new(command, json!({})) }
    }

    #[test]
    fn a_row_takes_the_latest_checks_of_this_server_alone() {
        let root = tempfile::tempdir().unwrap();
        let mut old = of_server("check full", "a", "2026-01-01");
        old.checks = vec![Check::fail("x", "")];
        let mut new = of_server("check full", "a", "2026-01-02");
        new.checks = vec![Check::pass("x", ""), Check::pass("y", "")];
        kept(root.path(), "1", &old);
        kept(root.path(), "2", &new);
        kept(root.path(), "3", &of_server("check soak", "b", "2026-01-03"));
        let mut ceiling = of_server("check ceiling", "a", "2026-01-01");
        ceiling.checks = vec![Check::pass("BOUNDARY", "").with(json!({"filled_tokens": 183_000}))];
        kept(root.path(), "4", &ceiling);
        assert_eq!(checks_of(root.path(), "a"), "full 2/2, stress -, soak -");
        assert_eq!(checks_of(root.path(), "b"), "full -, stress -, soak INCONCLUSIVE");
        assert_eq!((filled_of(root.path(), "a"), filled_of(root.path(), "b")), (Some(183_000), None));

        let mut bench = of_server("bench", "a", "2026-02-03T01:02:03Z");
        let figures = json!({"decode": {"mean": 50.27}, "acceptance_length": 2.5});
        bench.checks = vec![Check::pass("narrative", "").with(figures.clone()), Check::pass("code", "").with(figures)];
        let facts = RowFacts { profile: "agent".into(), kv: "q4_0/q4_0".into(), command: "plateau bench".into() };
        let path = root.path().join("rows.md");
        append_row(&path, &bench, &facts, root.path()).unwrap();
        append_row(&path, &bench, &facts, root.path()).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!((text.lines().count(), text.matches("| Profile |").count()), (4, 1), "{text}");
        assert!(text.contains("204,800 (183,000) | 50.3 / 50.3 |") && text.contains("| 2026-02-03 | b1 |"), "{text}");
        bench.checks.pop();
        assert!(append_row(&path, &bench, &facts, root.path()).is_err());
    }
}
