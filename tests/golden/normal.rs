//! An answer without what differs from run to run: ids, times, and how much text a delta of a stream carries.

use std::collections::BTreeMap;

use reqwest::header::{HeaderMap, HeaderName};
use serde_json::{Map, Value, json};

/// Headers that clients look at, beside all of `x-plateau-*` and `access-control-*`.
const HEADERS: &[&str] =
    &["allow", "content-type", "retry-after", "vary", "www-authenticate", "x-accel-buffering", "x-request-id"];

/// Numbers under these names are times, and so are those whose name ends in `_ms` or `_per_second`.
const TIMES: &[&str] = &["created"];

/// Beginnings of ids that are new each time.
const IDS: &[&str] = &["chatcmpl-", "cmpl-", "call_"];

/// How much of an answer is compared.
#[derive(Clone, Copy)]
pub struct Reading {
    /// Join the deltas of a stream.
    pub merge: bool,
    /// Keep the counts of `timings`.
    pub timings: bool,
}

/// What an answer said.
#[derive(Clone, Debug, PartialEq)]
pub struct Told(Map<String, Value>);

impl Told {
    pub async fn read(response: reqwest::Response, how: Reading) -> Told {
        let status = response.status().as_u16();
        let headers = selected(response.headers());
        let is_stream = headers.get("content-type").is_some_and(|kind| kind == "text/event-stream");
        let body = String::from_utf8(response.bytes().await.unwrap().to_vec()).unwrap();
        let mut told = Map::from_iter([("status".to_owned(), json!(status)), ("headers".to_owned(), headers.into())]);
        if is_stream {
            told.insert("events".to_owned(), folded(events(&body, how)));
        } else {
            told.insert("body".to_owned(), plain(&body, how));
        }
        Told(told)
    }

    pub fn line(&self) -> Value {
        Value::Object(self.0.clone())
    }

    pub fn named(&self, name: &str) -> Value {
        let first = ("name".to_owned(), json!(name));
        std::iter::once(first).chain(self.0.clone()).collect::<Map<_, _>>().into()
    }

    pub fn from_line(line: &Value) -> Told {
        let members = line.as_object().unwrap().iter().filter(|(name, _)| *name != "name");
        Told(members.map(|(name, value)| (name.clone(), value.clone())).collect())
    }
}

fn selected(headers: &HeaderMap) -> Map<String, Value> {
    let wanted = |name: &HeaderName| {
        let name = name.as_str();
        HEADERS.contains(&name) || name.starts_with("x-plateau-") || name.starts_with("access-control-")
    };
    let mut names: Vec<&HeaderName> = headers.keys().filter(|name| wanted(name)).collect();
    names.sort_by_key(|name| name.as_str());
    let text = |name: &HeaderName| without_id(&String::from_utf8_lossy(headers[name].as_bytes()));
    names.into_iter().map(|name| (name.to_string(), json!(text(name)))).collect()
}

/// JSON as a value where writing it again gives the same bytes, else the bytes.
fn plain(body: &str, how: Reading) -> Value {
    match parsed(body) {
        Some(mut value) => {
            normalise(&mut value, how);
            value
        }
        None => json!({ "not written as JSON would be": body }),
    }
}

fn parsed(text: &str) -> Option<Value> {
    serde_json::from_str::<Value>(text)
        .ok()
        .filter(|value| serde_json::to_string(value).is_ok_and(|again| again == text))
}

fn normalise(value: &mut Value, how: Reading) {
    match value {
        Value::String(text) => *text = without_id(text),
        Value::Array(entries) => entries.iter_mut().for_each(|entry| normalise(entry, how)),
        Value::Object(members) => {
            for (name, member) in members {
                let is_time = name.ends_with("_ms") || name.ends_with("_per_second") || TIMES.contains(&name.as_str());
                if is_time && member.is_number() {
                    *member = json!(0);
                } else if name == "timings" && !how.timings {
                    *member = json!("left out");
                } else {
                    normalise(member, how);
                }
            }
        }
        _ => {}
    }
}

fn without_id(text: &str) -> String {
    let is_id = |rest: &str| rest.len() >= 8 && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let kind = IDS.iter().find(|kind| text.strip_prefix(**kind).is_some_and(is_id));
    kind.map_or_else(|| text.to_owned(), |kind| format!("{kind}ID"))
}

/// The events of a stream: chunks that are JSON as values, all else as text. Comments fill silences and are left out. Chunks of
/// several choices come in the order of the choices: which of them speaks first is chance.
fn events(body: &str, how: Reading) -> Vec<Value> {
    let (mut chunks, mut rest) = (Vec::<Value>::new(), Vec::new());
    for event in body.split("\n\n").filter(|event| !event.is_empty() && !event.starts_with(':')) {
        let value = event.strip_prefix("data: ").and_then(parsed).map(|mut value| {
            normalise(&mut value, how);
            value
        });
        match value {
            Some(value) if index(&value).is_some() => chunks.push(value),
            Some(value) => rest.push(value),
            None => rest.push(json!(event)),
        }
    }
    // Sorting is stable: each choice keeps its own order.
    chunks.sort_by_key(index);
    if how.merge { merged(chunks, rest) } else { chunks.into_iter().chain(rest).collect() }
}

/// With neighbours of the same kind joined, and the log-probabilities of a choice in one list behind its chunks: those of
/// tokens without text come with whatever is sent next.
fn merged(chunks: Vec<Value>, rest: Vec<Value>) -> Vec<Value> {
    let mut out: Vec<Value> = Vec::new();
    let mut logprobs: BTreeMap<Option<u64>, Value> = BTreeMap::new();
    for mut chunk in chunks {
        let choice = &mut chunk["choices"][0];
        match choice.get_mut("logprobs").map(Value::take) {
            None | Some(Value::Null) => {}
            Some(more) => extend(logprobs.entry(choice["index"].as_u64()).or_default(), more),
        }
        let is_empty = choice["delta"] == json!({}) || choice["text"] == "";
        let says_nothing = is_empty && choice["finish_reason"].is_null() && chunk.get("prompt_progress").is_none();
        if !says_nothing && !out.last_mut().is_some_and(|last| join(last, &chunk)) {
            out.push(chunk);
        }
    }
    out.extend(logprobs.into_iter().map(|(index, logprobs)| json!({ "index": index, "logprobs": logprobs })));
    out.into_iter().chain(rest).collect()
}

/// Puts the lists of `more` behind those of `all`.
fn extend(all: &mut Value, more: Value) {
    match (all, more) {
        (Value::Array(all), Value::Array(more)) => all.extend(more),
        (Value::Object(all), Value::Object(more)) => {
            for (name, list) in more {
                extend(all.entry(name).or_insert(Value::Null), list);
            }
        }
        (all, more) => *all = more,
    }
}

fn index(chunk: &Value) -> Option<u64> {
    chunk["choices"].get(0)?["index"].as_u64()
}

/// Adds a delta of the same kind to the one before it. False where the two are of different kinds.
fn join(last: &mut Value, next: &Value) -> bool {
    let (mut grown, mut left) = (last.clone(), next.clone());
    let (Some(texts), Some(more)) = (grown["choices"].get_mut(0), left["choices"].get_mut(0)) else { return false };
    let mut pieces = Vec::new();
    take_texts(texts, &mut pieces);
    let mut added = Vec::new();
    take_texts(more, &mut added);
    // Without their texts two deltas of the same kind are equal.
    if pieces.len() != added.len() || pieces.is_empty() || grown != left {
        return false;
    }
    let mut joined = pieces.into_iter().zip(added).map(|(a, b)| append(a, b)).collect::<Vec<_>>().into_iter();
    put_texts(&mut last["choices"][0], &mut joined);
    true
}

/// Where the texts of a choice are that grow.
const GROWING: &[&str] = &[
    "/text",
    "/delta/content",
    "/delta/reasoning_content",
    "/delta/reasoning",
    "/delta/tool_calls/0/function/arguments",
];

fn take_texts(choice: &mut Value, into: &mut Vec<Value>) {
    let parts =
        GROWING.iter().filter_map(|path| choice.pointer_mut(path).filter(|part| !part.is_null()).map(Value::take));
    into.extend(parts.collect::<Vec<_>>());
}

fn put_texts(choice: &mut Value, texts: &mut impl Iterator<Item = Value>) {
    for path in GROWING {
        if let Some(part) = choice.pointer_mut(path).filter(|part| !part.is_null()) {
            *part = texts.next().unwrap();
        }
    }
}

/// Strings; anything else is kept apart, to be seen.
fn append(a: Value, b: Value) -> Value {
    match (a, b) {
        (Value::String(a), Value::String(b)) => json!(a + &b),
        (a, b) => json!([a, b]),
    }
}

/// What all chunks of a stream begin with is written once.
fn folded(events: Vec<Value>) -> Value {
    let head = |event: &Value| -> Map<String, Value> {
        let members = event.as_object().into_iter().flatten();
        members.take_while(|(name, _)| *name != "choices").map(|(n, v)| (n.clone(), v.clone())).collect()
    };
    let first = events.first().map(head).filter(|head| !head.is_empty());
    let shorter = |event: Value| match &first {
        Some(first) if event.get("choices").is_some() && head(&event) == *first => {
            let members = event.as_object().unwrap().iter().skip(first.len());
            members.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<_, _>>().into()
        }
        _ => event,
    };
    json!({ "head": first, "chunks": events.into_iter().map(shorter).collect::<Vec<_>>() })
}
