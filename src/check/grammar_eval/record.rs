//! The result of one problem under one condition.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Passed,
    /// The program ended with an error, or before its tests were through.
    Failed,
    /// The program was stopped by a limit.
    Stopped,
    /// The answer has no code.
    NoCode,
    /// The server gave no answer. Asked again by the next run.
    Error,
}

/// Who counted the tokens of the thinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Counted {
    /// The server, in `usage`.
    Usage,
    /// The server's tokenizer, on the text.
    Tokenize,
    /// From the thinking's share of the characters: an estimate.
    Share,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    pub task: String,
    pub condition: String,
    pub outcome: Outcome,
    /// The end of the program's error, or the server's.
    pub detail: String,
    pub finish: String,
    pub thinking_tokens: Option<u64>,
    pub counted: Option<Counted>,
    pub completion_tokens: Option<u64>,
    /// From sending the request to the whole answer.
    pub request_ms: u64,
    /// The program's run.
    pub run_ms: u64,
    /// Does the thinking have the shape of the condition's grammar? Nothing where there is none.
    pub fits: Option<bool>,
    /// The answer holds a tag of thinking.
    pub leaked: bool,
    pub thinking: String,
    pub content: String,
}

impl Record {
    pub(super) fn key(&self) -> (String, String) {
        (self.task.clone(), self.condition.clone())
    }

    /// For the progress of a run.
    pub(super) fn line(&self) -> String {
        let outcome = match self.outcome {
            Outcome::Passed => "passed",
            Outcome::Failed => "failed",
            Outcome::Stopped => "stopped",
            Outcome::NoCode => "no code",
            Outcome::Error => "error",
        };
        let thought = self.thinking_tokens.map_or(String::new(), |n| format!(", {n} tokens of thinking"));
        let shape = if self.fits == Some(false) { ", not in shape" } else { "" };
        let detail = if self.outcome == Outcome::Error { format!(": {}", self.detail) } else { String::new() };
        format!("{} {}: {outcome}{thought}{shape}, {} ms{detail}", self.task, self.condition, self.request_ms)
    }
}
