//! Verdicts: of one check, and of a whole run; the report that is kept as JSON (schema plateau-check/1).

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The schema of a report.
pub const SCHEMA: &str = "plateau-check/1";

/// What one check came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Status {
    Pass,
    Fail,
    /// No fault of the server, or one that is not sure; does not fail a run.
    Warn,
    /// Not run, with the reason.
    Skip,
    /// Run, but what would decide it could not be measured.
    Inconclusive,
}

impl Status {
    pub fn word(self) -> &'static str {
        match self {
            Status::Pass => "PASS",
            Status::Fail => "FAIL",
            Status::Warn => "WARN",
            Status::Skip => "SKIP",
            Status::Inconclusive => "INCONCLUSIVE",
        }
    }
}

/// What a run came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    Pass,
    Fail,
    /// Nothing failed, but a check that is needed was skipped or could not be measured.
    Inconclusive,
}

impl Verdict {
    /// The one that outweighs the other.
    pub fn worse(self, other: Verdict) -> Verdict {
        [Verdict::Fail, Verdict::Inconclusive].into_iter().find(|v| [self, other].contains(v)).unwrap_or(Verdict::Pass)
    }

    pub fn word(self) -> &'static str {
        match self {
            Verdict::Pass => "PASS",
            Verdict::Fail => "FAIL",
            Verdict::Inconclusive => "INCONCLUSIVE",
        }
    }
}

/// One check with its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    pub name: String,
    pub status: Status,
    /// A run in which it is skipped is not a PASS.
    pub required: bool,
    /// What was seen, for people.
    pub detail: String,
    pub seconds: f64,
    /// Figures, for programs.
    pub measured: Value,
}

impl Check {
    pub fn new(name: &str, status: Status, detail: impl Into<String>) -> Check {
        let (name, detail) = (name.to_owned(), detail.into());
        Check { name, status, required: true, detail, seconds: 0.0, measured: Value::Null }
    }

    pub fn pass(name: &str, detail: impl Into<String>) -> Check {
        Check::new(name, Status::Pass, detail)
    }

    pub fn fail(name: &str, detail: impl Into<String>) -> Check {
        Check::new(name, Status::Fail, detail)
    }

    pub fn warn(name: &str, detail: impl Into<String>) -> Check {
        Check::new(name, Status::Warn, detail)
    }

    /// Left out because the server says that it lacks what is checked, or because it does not fit: no fault, no claim.
    pub fn absent(name: &str, why: impl Into<String>) -> Check {
        Check { required: false, ..Check::new(name, Status::Skip, why) }
    }

    /// Left out because the server does not tell what is needed to judge.
    pub fn unknown(name: &str, why: impl Into<String>) -> Check {
        Check::new(name, Status::Skip, why)
    }

    pub fn with(self, measured: Value) -> Check {
        Check { measured, ..self }
    }
}

/// Figures to draw: named lines of points over one another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plot {
    pub title: String,
    pub x: String,
    pub y: String,
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// A run as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub schema: String,
    pub command: String,
    pub verdict: Verdict,
    /// UTC.
    pub started: String,
    pub seconds: f64,
    pub server: Value,
    pub rig: Value,
    pub settings: Value,
    pub checks: Vec<Check>,
    pub not_proved: Vec<String>,
    /// Sentences that belong to the result whatever it is.
    pub notes: Vec<String>,
    /// Figures of the whole run.
    pub measured: Value,
    pub plots: Vec<Plot>,
    /// Ctrl-C, or a failure of ours: what was measured until then is here.
    pub interrupted: bool,
    /// The server went away and did not come back.
    pub lost: bool,
}

impl Report {
    pub fn new(command: &str, settings: Value) -> Report {
        Report {
            schema: SCHEMA.to_owned(),
            command: command.to_owned(),
            verdict: Verdict::Inconclusive,
            started: chrono::Utc::now().format("%Y-%m-%dT%H:%M:%SZ").to_string(),
            seconds: 0.0,
            server: Value::Null,
            rig: Value::Null,
            settings,
            checks: Vec::new(),
            not_proved: Vec::new(),
            notes: Vec::new(),
            measured: json!({}),
            plots: Vec::new(),
            // Until it is finished.
            interrupted: true,
            lost: false,
        }
    }

    /// A fault outweighs everything; without one, what is missing does.
    pub fn judge(&self) -> Verdict {
        let any = |status: Status| self.checks.iter().any(|check| check.status == status);
        let is_missing = self.checks.iter().any(|check| check.required && check.status == Status::Skip);
        let has_claim = any(Status::Pass) || any(Status::Warn);
        if any(Status::Fail) {
            Verdict::Fail
        } else if any(Status::Inconclusive) || is_missing || !has_claim || self.interrupted || self.lost {
            Verdict::Inconclusive
        } else {
            Verdict::Pass
        }
    }

    pub fn n(&self, status: Status) -> usize {
        self.checks.iter().filter(|check| check.status == status).count()
    }

    /// The report for people.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let server = |key: &str| self.server[key].as_str().unwrap_or("?").to_owned();
        if !self.server.is_null() {
            let n_ctx = self.server["n_ctx"].as_u64().map_or("not stated".to_owned(), |n| n.to_string());
            let (url, kind, model) = (server("url"), server("kind"), server("model"));
            let _ = writeln!(out, "{} of {url}: {kind}, model {model}, context {n_ctx}", self.command);
        }
        let width = self.checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
        for (i, check) in self.checks.iter().enumerate() {
            let (n, word, name) = (i + 1, check.status.word(), &check.name);
            let _ = writeln!(out, "{n:>2}  {word:<4}  {name:<width$}  {}", check.detail);
        }
        let _ = writeln!(out, "{}", self.summary());
        for line in &self.not_proved {
            let _ = writeln!(out, "not proved: {line}");
        }
        for line in &self.notes {
            let _ = writeln!(out, "{line}");
        }
        out
    }

    /// The verdict in one line.
    pub fn summary(&self) -> String {
        let (word, n, all) = (self.verdict.word(), self.n(Status::Pass), self.checks.len());
        let others = [
            (Status::Fail, "failed"),
            (Status::Warn, "warned"),
            (Status::Skip, "skipped"),
            (Status::Inconclusive, "not measurable"),
        ];
        let others = others.into_iter().map(|(status, word)| (self.n(status), word)).filter(|(n, _)| *n > 0);
        let others: String = others.map(|(n, word)| format!(", {n} {word}")).collect();
        let end = match (self.lost, self.interrupted) {
            (true, _) => "; the server was lost",
            (_, true) => "; interrupted, what was measured is kept",
            _ => "",
        };
        format!("{word}: {n} of {all} passed{others}{end}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(checks: Vec<Check>) -> Verdict {
        Report { checks, interrupted: false, ..Report::new("x", Value::Null) }.judge()
    }

    #[test]
    fn what_is_missing_is_no_pass_and_a_fault_is_a_fault() {
        let (pass, warn, fail) = (Check::pass("a", ""), Check::warn("b", ""), Check::fail("c", ""));
        let (absent, unknown) = (Check::absent("d", ""), Check::unknown("e", ""));
        let unmeasured = Check::new("f", Status::Inconclusive, "");
        assert_eq!(verdict(vec![pass.clone(), warn.clone(), absent.clone()]), Verdict::Pass);
        assert_eq!(verdict(vec![pass.clone(), unknown]), Verdict::Inconclusive);
        assert_eq!(verdict(vec![pass.clone(), unmeasured.clone()]), Verdict::Inconclusive);
        assert_eq!(verdict(vec![absent]), Verdict::Inconclusive, "nothing was claimed");
        assert_eq!(verdict(vec![]), Verdict::Inconclusive);
        assert_eq!(verdict(vec![pass.clone(), unmeasured, fail]), Verdict::Fail);
        let cut = Report { checks: vec![pass], ..Report::new("x", Value::Null) };
        assert_eq!(cut.judge(), Verdict::Inconclusive, "interrupted");
    }

    #[test]
    fn a_report_is_read_back_as_it_was_written() {
        let plot =
            Plot { title: "t".into(), x: "x".into(), y: "y".into(), lines: vec![("l".into(), vec![(1.0, 2.5)])] };
        let mut report = Report::new("full", json!({"seed": 1}));
        report.checks.push(Check::pass("a", "fine").with(json!({"n": 1})));
        report.plots.push(plot);
        let text = serde_json::to_string(&report).unwrap();
        assert!(text.contains(r#""schema":"plateau-check/1""#) && text.contains(r#""status":"PASS""#), "{text}");
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
        assert!(report.text().contains("INCONCLUSIVE: 1 of 1 passed; interrupted"), "{}", report.text());
    }
}
