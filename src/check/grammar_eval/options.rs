//! What a run compares, and how.

use std::path::PathBuf;
use std::time::Duration;

use super::condition::{Condition, Dialect};
use super::sandbox::Limits;

/// What to compare, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Base address, with or without `/v1`. Plain HTTP.
    pub url: String,
    /// Nothing: the first that the server lists.
    pub model: Option<String>,
    /// The text of an API key.
    pub key: Option<String>,
    /// JSONL of problems in the form of HumanEval.
    pub problems: PathBuf,
    /// Problems that are taken, from the first on.
    pub limit: Option<usize>,
    /// Each once.
    pub conditions: Vec<Condition>,
    pub dialect: Dialect,
    /// Tokens of thinking, where a condition bounds it.
    pub budget_tokens: Option<u32>,
    pub max_tokens: u32,
    pub temperature: f64,
    /// Requests at the same time.
    pub concurrency: usize,
    pub timeout: Duration,
    /// Where the results are kept.
    pub journal: PathBuf,
    pub python: String,
    pub limits: Limits,
}
