//! Figures of a text, and the arguments in it.

use std::collections::HashSet;

use serde_json::Value;

/// What a degenerate text looks like in figures.
pub(super) fn text_figures(text: &str) -> (usize, f64, usize) {
    let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
    let first = &words[..words.len().min(200)];
    let distinct: HashSet<&String> = first.iter().collect();
    let variety = if first.is_empty() { 0.0 } else { distinct.len() as f64 / first.len() as f64 };
    let (mut longest, mut running, mut last) = (0, 0, "");
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        running = if line == last { running + 1 } else { 1 };
        last = line;
        longest = longest.max(running);
    }
    (longest, variety, words.len())
}

/// The arguments of a call, where they are the JSON object that they must be.
pub(super) fn arguments(text: &str) -> Option<Value> {
    serde_json::from_str::<Value>(text).ok().filter(Value::is_object)
}
