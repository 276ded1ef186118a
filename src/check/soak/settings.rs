//! What a soak does, and what is seen of it.

use std::time::Duration;

use serde_json::{Value, json};

use super::ledger::Row;

/// What a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One conversation that grows by results of tools.
    Continuous,
    /// Requests that have nothing to do with one another.
    Fresh,
}

/// How long, how deep, and what is too much.
#[derive(Clone, Debug, PartialEq)]
pub struct Soak {
    pub mode: Mode,
    pub sessions: usize,
    pub turns: usize,
    /// Go on with sessions for so long.
    pub hours: Option<f64>,
    /// Growth of memory that fails, in MiB.
    pub growth_mib: f64,
    /// The share of the first sessions' decode rate that the last ones must keep.
    pub retention: f64,
    /// Tokens that the last turn of a conversation has.
    pub depth_tokens: Option<u64>,
    /// The share of requests whose stream is dropped.
    pub aborts: f64,
    /// An empty answer is a silent one when it took at least so long.
    pub silent_after: Duration,
}

impl Soak {
    pub fn new(mode: Mode) -> Soak {
        let sessions = if mode == Mode::Fresh { 20 } else { 5 };
        let silent_after = Duration::from_secs(1);
        let (turns, growth_mib, retention) = (5, 200.0, 0.80);
        Soak {
            mode,
            sessions,
            turns,
            hours: None,
            growth_mib,
            retention,
            depth_tokens: None,
            aborts: 0.0,
            silent_after,
        }
    }

    pub fn settings(&self) -> Value {
        json!({"mode": self.mode_name(), "sessions": self.sessions, "turns": self.turns, "hours": self.hours,
            "growth_mib": self.growth_mib, "retention": self.retention, "depth_tokens": self.depth_tokens,
            "aborts": self.aborts})
    }

    pub fn mode_name(&self) -> &'static str {
        match self.mode {
            Mode::Continuous => "continuous",
            Mode::Fresh => "fresh",
        }
    }

    /// Tokens that the last turn must have, or the run says nothing of what it is for.
    pub(super) fn min_depth(&self) -> u64 {
        self.depth_tokens.map_or(20_000, |depth| depth * 8 / 10)
    }
}

/// What is judged: the rows, and what was seen beside them.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub rows: Vec<Row>,
    /// Calls that the model should have made and that were put in for it.
    pub synthesised: usize,
    /// Is the engine at rest when nobody asks? Nothing: not looked at yet.
    pub at_rest: Option<Result<(), String>>,
}
