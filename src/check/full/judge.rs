//! The rules of `check quick` and `full`: an answer in, a verdict out.

use serde_json::json;

use crate::check::answer::Answer;
use crate::check::client::ClientError;
use crate::check::facts::Facts;
use crate::check::session::Session;
use crate::check::verdict::Check;

use super::text::{arguments, text_figures};

const MIN_STREAM_EVENTS: usize = 5;
const MIN_STREAM_CHARS: usize = 20;
const MIN_THINKING_CHARS: usize = 50;
/// The same line so often in a row is a loop.
const MAX_EQUAL_LINES: usize = 4;
const MIN_VARIETY: f64 = 0.30;
/// The words that the variety is measured over.
const MIN_ESSAY_WORDS: usize = 200;
const MIN_ACCEPTANCE_LENGTH: f64 = 2.0;

pub(super) fn failed(name: &str, session: &Session<'_>, error: &ClientError) -> Check {
    Check::fail(name, session.explain(error)).with(json!({"error": error.kind()}))
}

fn shown(text: &str) -> String {
    let short: String = text.chars().take(80).collect();
    format!("{short:?}")
}

pub(super) fn reachable(name: &str, facts: &Facts) -> Check {
    let build = if facts.build.is_empty() { "no build stated" } else { &facts.build };
    match (facts.n_ctx, facts.model.is_empty()) {
        (_, true) => Check::fail(name, "/v1/models lists no model"),
        (None, _) => Check::unknown(name, "the server does not state its context; name it with --ctx"),
        (Some(n_ctx), _) => {
            let text = format!("{} ({build}), model {}, context {n_ctx}", facts.kind.name(), facts.model);
            Check::pass(name, text)
        }
    }
}

pub(super) fn completion(name: &str, answer: &Answer) -> Check {
    let said = shown(&answer.content);
    if answer.content.to_lowercase().contains("paris") { Check::pass(name, said) } else { Check::fail(name, said) }
}

/// The fault of a call of get_weather, if there is one.
fn call_fault(answer: &Answer) -> Option<String> {
    if answer.content.contains("<tool_call>") || answer.thinking.contains("<tool_call>") {
        return Some(format!("the call is left in the text: {}", shown(&answer.content)));
    }
    let Some(call) = answer.calls.iter().find(|call| call.name == "get_weather") else {
        return Some(format!("no call of get_weather; content {}", shown(&answer.content)));
    };
    arguments(&call.arguments).is_none().then(|| format!("arguments are no JSON object: {}", shown(&call.arguments)))
}

fn called(answer: &Answer) -> String {
    answer.calls.first().map_or_else(String::new, |call| format!("{} {}", call.name, call.arguments))
}

pub(super) fn call(name: &str, answer: &Answer) -> Check {
    match call_fault(answer) {
        Some(fault) => Check::fail(name, fault),
        None => Check::pass(name, called(answer)),
    }
}

pub(super) fn streamed_call(name: &str, answer: &Answer) -> Check {
    match call_fault(answer) {
        Some(fault) => Check::fail(name, fault),
        None if answer.finish != "tool_calls" => {
            Check::fail(name, format!("finish_reason is {:?}, not tool_calls", answer.finish))
        }
        None => Check::pass(name, called(answer)),
    }
}

pub(super) fn stream(name: &str, answer: &Answer) -> Check {
    let (n, n_chars) = (answer.n_content_events, answer.content.chars().count());
    let text = format!("{n} events, {n_chars} characters");
    let check = if n < MIN_STREAM_EVENTS || n_chars < MIN_STREAM_CHARS {
        Check::fail(name, format!("{text}; {MIN_STREAM_EVENTS} and {MIN_STREAM_CHARS} at least"))
    } else if answer.completion_tokens.is_none() {
        Check::fail(name, format!("{text}, and no usage at the end"))
    } else {
        Check::pass(name, text)
    };
    check.with(json!({"events": n, "characters": n_chars, "ttft_ms": answer.first.map(|t| t.as_millis() as u64)}))
}

pub(super) fn thinking(name: &str, answer: &Answer, is_told: bool) -> Check {
    let n = answer.thinking.chars().count();
    let text = format!("{n} characters of thinking, answer {}", shown(&answer.content));
    let is_cut = answer.finish == "length";
    let check = match (n, answer.content.trim().is_empty()) {
        (0, false) if !is_told => Check::unknown(name, "no thinking, and the server does not tell whether it should"),
        (..MIN_THINKING_CHARS, _) => Check::fail(name, format!("{text}; {MIN_THINKING_CHARS} at least")),
        (_, true) if is_cut => Check::warn(name, format!("{n} characters of thinking, cut before an answer")),
        (_, true) => Check::fail(name, format!("{n} characters of thinking and no answer")),
        _ => Check::pass(name, text),
    };
    check.with(json!({"thinking_characters": n, "finish": answer.finish}))
}

pub(super) fn essay(name: &str, answer: &Answer) -> Check {
    let (repeats, variety, n_words) = text_figures(&answer.content);
    let text = format!("{n_words} words, variety {variety:.2}, the same line {repeats} times at most");
    let check = if n_words == 0 {
        Check::fail(name, "no text")
    } else if answer.content.contains("<tool_call>") {
        Check::fail(name, "a call in an answer without tools")
    } else if repeats > MAX_EQUAL_LINES || variety < MIN_VARIETY {
        Check::fail(name, text)
    } else if n_words < MIN_ESSAY_WORDS {
        Check::warn(name, format!("{text}: too short to judge loops by"))
    } else {
        Check::pass(name, text)
    };
    check.with(json!({"words": n_words, "variety": variety, "equal_lines": repeats}))
}

/// `counted`: steps with a draft and accepted tokens, by metrics.
pub(super) fn drafts(name: &str, facts: &Facts, answer: &Answer, counted: Option<(f64, f64)>) -> Check {
    let by_metrics = counted.filter(|(steps, _)| *steps > 0.0).map(|(steps, accepted)| 1.0 + accepted / steps);
    let length = answer.acceptance_length().or(by_metrics);
    let drafted = answer.drafted.unwrap_or(0);
    let measured = json!({"acceptance_length": length, "drafted": answer.drafted,
        "accepted": answer.draft_accepted, "tokens": answer.completion_tokens});
    let check = match (length, facts.mtp) {
        (Some(length), _) => {
            let text = format!("{length:.2} tokens a step, {drafted} drafted");
            let is_enough = length >= MIN_ACCEPTANCE_LENGTH;
            let fault = format!("{text}; {MIN_ACCEPTANCE_LENGTH} at least");
            if is_enough { Check::pass(name, text) } else { Check::fail(name, fault) }
        }
        (None, Some(true)) => Check::fail(name, "the server says that it drafts, and nothing was drafted"),
        (None, Some(false)) => {
            Check::absent(name, facts.mtp_off.clone().unwrap_or_else(|| "drafts are off".to_owned()))
        }
        (None, None) => Check::absent(name, "the server does not tell what was drafted"),
    };
    check.with(measured)
}

pub(super) fn features(name: &str, facts: &Facts) -> Check {
    let idle: Vec<&str> = facts.kernels.iter().filter(|k| k.on && k.calls == 0).map(|k| k.name.as_str()).collect();
    let ran: Vec<String> = facts
        .kernels
        .iter()
        .filter(|kernel| kernel.on)
        .map(|kernel| format!("{} {} calls, {} fallbacks", kernel.name, kernel.calls, kernel.fallbacks))
        .collect();
    let kernels = if ran.is_empty() { "no kernel is on".to_owned() } else { ran.join("; ") };
    match (facts.mtp, &facts.mtp_off) {
        _ if !idle.is_empty() => Check::fail(name, format!("on, and never called: {}", idle.join(", "))),
        (Some(true), _) => Check::pass(name, format!("{kernels}; MTP on")),
        (_, Some(reason)) => Check::pass(name, format!("{kernels}; MTP off: {reason}")),
        _ => Check::fail(name, format!("{kernels}; MTP off without a reason")),
    }
}
