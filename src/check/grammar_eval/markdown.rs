//! The report for people.

use std::fmt::Write as _;

use super::report::{Report, Row};
use super::statistics::Spread;

impl Report {
    pub fn markdown(&self) -> String {
        let settings = &self.settings;
        let budget = settings.budget_tokens.map_or("no budget".to_owned(), |n| format!("budget {n}"));
        let yes = |is: bool| if is { "yes" } else { "no" };
        let mut out = format!(
            "# Thinking under grammars: {} on {} problems\n\nGrammars by `{}`, {budget}, max_tokens {}, temperature {}. \
             Programs without a network: {}; as another user: {}.\n\n",
            if settings.model.is_empty() { "no model" } else { &settings.model },
            self.problems,
            settings.dialect,
            settings.max_tokens,
            settings.temperature,
            yes(self.sandbox.no_network),
            yes(self.sandbox.other_user),
        );
        out += "| condition | pass@1 | 95 % | won, lost | p | thinking tokens: mean, median, p95 | fewer | not in shape | cut | no code | s a problem: mean, median |\n";
        out += "|---|---|---|---|---|---|---|---|---|---|---|\n";
        self.rows.iter().for_each(|row| out += &line(row));
        list(&mut out, "Verdict", &self.verdict);
        list(&mut out, "Faults", &self.faults);
        if self.is_clean() {
            out += "\nNo fault: every request was answered, every shape held, no tag of thinking in an answer.\n";
        }
        list(&mut out, "What this does not prove", &self.not_proven);
        out
    }
}

fn list(out: &mut String, title: &str, items: &[String]) {
    if !items.is_empty() {
        let _ = write!(out, "\n## {title}\n\n");
        items.iter().for_each(|item| _ = writeln!(out, "- {item}"));
    }
}

fn line(row: &Row) -> String {
    let none = || "-".to_owned();
    let percent = |share: f64| format!("{:.1}", share * 100.0);
    let share = row.pass_at_1.map_or_else(none, |share| format!("{} % ({})", percent(share), row.passed));
    let interval = row.interval.map_or_else(none, |(low, high)| format!("{}-{}", percent(low), percent(high)));
    let against = row.against_free.as_ref();
    let won = against.map_or_else(none, |against| format!("{}, {}", against.won, against.lost));
    let p = against.map_or_else(none, |against| format!("{:.2}", against.p));
    let fewer = against.and_then(|against| against.times_fewer_tokens);
    let tokens = |spread: Spread| format!("{:.0}, {}, {}", spread.mean, spread.median, spread.p95);
    let seconds = |spread: Spread| format!("{:.1}, {:.1}", spread.mean / 1e3, spread.median as f64 / 1e3);
    format!(
        "| {} | {share} | {interval} | {won} | {p} | {} | {} | {} | {} | {} | {} |\n",
        row.condition,
        row.thinking_tokens.map_or_else(none, tokens),
        fewer.map_or_else(none, |times| format!("{times:.1}x")),
        row.shape_violations.map_or_else(none, |n| n.to_string()),
        row.cut,
        row.no_code,
        row.request_ms.map_or_else(none, seconds),
    )
}
