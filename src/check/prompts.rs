//! Texts that checks send: tools, filler of a known size, facts to find again.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::session::Session;

/// A function with string parameters, all of them required.
pub fn tool(name: &str, about: &str, parameters: &[(&str, &str)]) -> Value {
    let properties: serde_json::Map<String, Value> = parameters
        .iter()
        .map(|(name, about)| ((*name).to_owned(), json!({"type": "string", "description": about})))
        .collect();
    let required: Vec<&str> = parameters.iter().map(|(name, _)| *name).collect();
    let parameters = json!({"type": "object", "properties": properties, "required": required});
    json!({"type": "function", "function": {"name": name, "description": about, "parameters": parameters}})
}

pub fn weather() -> Value {
    json!([tool("get_weather", "Get the weather of a city", &[("city", "city")])])
}

/// What an agent of an editor has; the first `n`.
pub fn agent_tools(n: usize) -> Value {
    let path = ("path", "path of the file");
    let all = [
        tool("read_file", "Read a file", &[path]),
        tool("grep", "Search the files of a folder for a pattern", &[("pattern", "regular expression"), path]),
        tool("run_command", "Run a command in a shell", &[("command", "the command line")]),
        tool("write_file", "Write a file", &[path, ("content", "the new text")]),
        tool("list_files", "List the files of a folder", &[path]),
        tool("delete_file", "Delete a file", &[path]),
        tool("rename_file", "Rename a file", &[path, ("to", "the new path")]),
        tool("web_search", "Search the web", &[("query", "what to search for")]),
        tool("get_diagnostics", "Errors and warnings of a file", &[path]),
        tool("git_diff", "What changed since the last commit", &[path]),
    ];
    all.into_iter().take(n).collect()
}

/// A call with its result, as a conversation has it.
pub fn call_and_result(id: &str, name: &str, arguments: &Value, result: &str) -> [Value; 2] {
    let call = json!({"id": id, "type": "function",
        "function": {"name": name, "arguments": arguments.to_string()}});
    [
        json!({"role": "assistant", "content": "", "tool_calls": [call]}),
        json!({"role": "tool", "tool_call_id": id, "content": result}),
    ]
}

const SUBJECTS: [&str; 8] = [
    "The harbour master",
    "A clerk in the archive",
    "The old printer",
    "Her neighbour",
    "The ferry's engineer",
    "A student of maps",
    "The night watch",
    "The baker's son",
];
const VERBS: [&str; 8] =
    ["counted", "wrote down", "repaired", "asked about", "carried", "described", "measured", "looked for"];
const OBJECTS: [&str; 8] = [
    "the crates from the northern dock",
    "a list of late deliveries",
    "the bell above the market",
    "three lamps without oil",
    "the bridge that was closed in spring",
    "an account of the last storm",
    "the keys of the storehouse",
    "a drawing of the river bed",
];

/// A paragraph of about the same number of tokens each, whose words vary.
pub fn filler_unit(session: &mut Session<'_>, place: usize) -> String {
    let mut text = format!("Note {place}.");
    for _ in 0..5 {
        let mut pick = |words: [&'static str; 8]| words[session.below(8) as usize];
        let (subject, verb, object) = (pick(SUBJECTS), pick(VERBS), pick(OBJECTS));
        let _ = write!(text, " {subject} {verb} {object}.");
    }
    text.push('\n');
    text
}

/// Filler of so many units.
pub fn filler(session: &mut Session<'_>, n_units: usize) -> Vec<String> {
    (0..n_units).map(|place| filler_unit(session, place + 1)).collect()
}

/// Filler of about so many characters, and never more.
pub fn filler_chars(session: &mut Session<'_>, n_chars: usize) -> String {
    let mut text = String::with_capacity(n_chars);
    let mut place = 0;
    while text.len() < n_chars {
        place += 1;
        text.push_str(&filler_unit(session, place));
    }
    text.truncate(n_chars);
    text
}

/// A fact that no model knows, and the question for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needle {
    pub fact: String,
    pub question: String,
    /// What the answer must hold.
    pub secret: String,
}

pub fn needle(session: &mut Session<'_>) -> Needle {
    let (place, code) = (1000 + session.below(9000), 10_000 + session.below(90_000));
    Needle {
        fact: format!("The code of box {place} is {code}.\n"),
        question: format!("What is the code of box {place}? Answer with the code alone."),
        secret: code.to_string(),
    }
}

/// The digits of a text, so that "93,754" and "93754" are one.
pub fn holds_secret(answer: &str, secret: &str) -> bool {
    let plain: String = answer.chars().filter(|c| !matches!(c, ',' | ' ' | '\u{202f}' | '_')).collect();
    plain.contains(secret) || answer.contains(secret)
}

/// Salt, filler with the fact at a share of its length, and the question.
pub fn haystack(session: &mut Session<'_>, n_units: usize, depth: f64, needle: &Needle) -> String {
    let units = filler(session, n_units);
    let at = ((n_units as f64 * depth) as usize).min(n_units);
    let mut text = session.salt();
    text.push('\n');
    text.extend(units[..at].iter().map(String::as_str));
    text.push_str(&needle.fact);
    text.extend(units[at..].iter().map(String::as_str));
    text.push_str(&needle.question);
    text
}
