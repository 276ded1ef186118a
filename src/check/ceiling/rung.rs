//! One rung of the ladder: what was sent, what came of it, what was free.

use serde::{Deserialize, Serialize};

use crate::check::answer::Answer;
use crate::check::client::ClientError;
use crate::check::prompts::holds_secret;

/// How a rung ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Recalled,
    /// Answered, and wrong: no matter of memory.
    Missed,
    /// Answered from a cache: the context was not filled by this request.
    Cached,
    /// The server says that the prompt is too long, although it is shorter than the context that it states.
    Refused,
    /// A failed request or a lost connection: memory, as a rule.
    #[default]
    Wall,
    Timeout,
}

impl Outcome {
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Recalled => "recalled",
            Outcome::Missed => "missed",
            Outcome::Cached => "cached",
            Outcome::Refused => "refused",
            Outcome::Wall => "wall",
            Outcome::Timeout => "timeout",
        }
    }

    pub fn of(error: &ClientError) -> Outcome {
        match error {
            ClientError::Timeout { .. } => Outcome::Timeout,
            ClientError::Status { status: 400 | 413 | 422, body, .. } if !speaks_of_memory(body) => Outcome::Refused,
            _ => Outcome::Wall,
        }
    }
}

fn speaks_of_memory(body: &str) -> bool {
    let body = body.to_ascii_lowercase();
    ["out of memory", "out_of_memory", "oom", "failed to allocate", "cumemcreate"]
        .iter()
        .any(|part| body.contains(part))
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rung {
    pub target: u64,
    /// Tokens of the prompt, as the server counted them.
    pub tokens: Option<u64>,
    pub cached: Option<u64>,
    pub outcome: Outcome,
    pub detail: String,
    /// Where the fact was, as a share of the filler.
    pub depth: f64,
    pub seconds: f64,
    pub prefill_tps: Option<f64>,
    pub decode_tps: Option<f64>,
    /// In MiB.
    pub free_before: Option<f64>,
    pub free_lowest: Option<f64>,
    pub free_after: Option<f64>,
}

impl Rung {
    pub(super) fn take(&mut self, answer: &Answer, secret: &str) {
        self.tokens = answer.prompt_tokens;
        self.cached = answer.cached_tokens;
        self.prefill_tps = answer.prefill_rate();
        self.decode_tps = answer.decode_rate();
        let said = format!("{} {}", answer.thinking, answer.content);
        self.outcome = match (answer.cached_tokens.unwrap_or(0), holds_secret(&said, secret)) {
            // A template's own beginning may be in a cache; the filler may not.
            (cached, _) if cached * 100 > answer.prompt_tokens.unwrap_or(0) => Outcome::Cached,
            (_, true) => Outcome::Recalled,
            (_, false) => Outcome::Missed,
        };
        if self.outcome == Outcome::Missed {
            self.detail = format!("said {:?}", answer.content.chars().take(60).collect::<String>());
        }
    }

    /// The prompt was processed to its end.
    pub fn is_filled(&self) -> bool {
        matches!(self.outcome, Outcome::Recalled | Outcome::Missed)
    }

    /// No rung comes after this one.
    pub fn is_end(&self) -> bool {
        matches!(self.outcome, Outcome::Refused | Outcome::Wall | Outcome::Timeout)
    }

    /// For people: `rung 183,000  recalled  prefill 457 tok/s  free 1,177 (lowest 1,102) MiB`.
    pub fn line(&self) -> String {
        let rate = self.prefill_tps.map_or(String::new(), |rate| format!("  prefill {rate:.0} tok/s"));
        let free = match (self.free_after, self.free_lowest) {
            (Some(after), Some(lowest)) => format!("  free {} (lowest {}) MiB", grouped(after), grouped(lowest)),
            _ => "  memory not measured".to_owned(),
        };
        let tokens = grouped(self.tokens.unwrap_or(self.target) as f64);
        let detail = if self.detail.is_empty() { String::new() } else { format!("  {}", self.detail) };
        format!("rung {tokens}  {}{rate}{free}{detail}", self.outcome.name())
    }
}

/// 183000 as 183,000.
pub fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if value <= -0.5 { format!("-{out}") } else { out }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn errors_are_walls_unless_they_say_otherwise() {
        let status = |status, body: &str| ClientError::Status { url: String::new(), status, body: body.to_owned() };
        for (error, outcome) in [
            (status(400, "exceeds the context"), Outcome::Refused),
            (status(400, "CUDA out of memory"), Outcome::Wall),
            (status(500, "x"), Outcome::Wall),
            (status(503, "out_of_memory"), Outcome::Wall),
            (ClientError::Timeout { url: String::new(), elapsed: Duration::ZERO }, Outcome::Timeout),
            (ClientError::Cut { url: String::new(), n_events: 0, cause: String::new() }, Outcome::Wall),
        ] {
            assert_eq!(Outcome::of(&error), outcome, "{error}");
        }
    }

    #[test]
    fn numbers_are_grouped_and_a_line_says_what_was_measured() {
        let texts = [0.0, 999.0, 1000.0, 1_234_567.0, -1177.4].map(grouped);
        assert_eq!(texts, ["0", "999", "1,000", "1,234,567", "-1,177"]);
        let rung = Rung {
            tokens: Some(183_000),
            outcome: Outcome::Recalled,
            prefill_tps: Some(457.2),
            free_after: Some(1177.0),
            free_lowest: Some(1102.0),
            ..Rung::default()
        };
        assert_eq!(rung.line(), "rung 183,000  recalled  prefill 457 tok/s  free 1,177 (lowest 1,102) MiB");
    }
}
