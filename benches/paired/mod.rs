//! One streamed completion over a plain std socket, so that the client costs little of the two cores that it shares with the
//! servers; and measuring two servers in paired rounds.

// Each bench uses its part of this.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub const ROUNDS: usize = 7;

/// What one streamed completion showed.
pub struct Answer {
    pub first: Duration,
    pub last: Duration,
    pub tokens: usize,
    pub prompt_tokens: usize,
    /// The server's own times and counts, as the last chunk has them.
    pub timings: Value,
}

/// Greedy, without cache and without an end; `fields` are added to the body.
pub fn complete(address: &str, prompt: &str, max_tokens: usize, fields: &Value) -> Result<Answer, String> {
    let mut body = json!({
        "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": true, "cache_prompt": false,
        "stream": true, "stream_options": {"include_usage": true},
    });
    for (name, value) in fields.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    let body = body.to_string();
    let start = Instant::now();
    let mut socket = TcpStream::connect(address).map_err(|e| format!("{address}: {e}"))?;
    socket.set_nodelay(true).map_err(|e| e.to_string())?;
    write!(
        socket,
        "POST /v1/completions HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .map_err(|e| e.to_string())?;
    let (mut first, mut last, mut usage, mut timings) = (None, None, None, Value::Null);
    let mut line = Vec::new();
    let mut reader = BufReader::new(socket);
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line).map_err(|e| e.to_string())? == 0 {
            break;
        }
        let Some(data) = line.strip_prefix(b"data: ") else { continue };
        if data.starts_with(b"[DONE]") {
            break;
        }
        let now = start.elapsed();
        // Few chunks have to be parsed; text chunks are only timed.
        if find(data, b"\"timings\"") {
            timings = serde_json::from_slice::<Value>(data).map(|v| v["timings"].clone()).unwrap_or_default();
        }
        if find(data, b"\"choices\":[]") || find(data, b"\"total_tokens\"") {
            usage = serde_json::from_slice::<Value>(data).ok();
        } else if find(data, b"\"text\"") {
            first.get_or_insert(now);
            last = Some(now);
        }
    }
    let usage = usage.ok_or_else(|| format!("{address}: no usage in the stream"))?;
    let count = |key: &str| usage["usage"][key].as_u64().unwrap_or(0) as usize;
    Ok(Answer {
        first: first.ok_or("no text chunk")?,
        last: last.ok_or("no text chunk")?,
        tokens: count("completion_tokens"),
        prompt_tokens: count("prompt_tokens"),
        timings,
    })
}

/// One answer that is no stream, parsed.
pub fn post(address: &str, path: &str, body: &Value) -> Result<Value, String> {
    let body = body.to_string();
    let mut socket = TcpStream::connect(address).map_err(|e| format!("{address}: {e}"))?;
    write!(
        socket,
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .map_err(|e| e.to_string())?;
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&answer);
    let json = text.split_once("\r\n\r\n").map_or("", |(_, json)| json);
    match text.starts_with("HTTP/1.1 200") {
        true => serde_json::from_str(json).map_err(|e| format!("{path}: {e}")),
        false => Err(format!("{path}: {text}")),
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|w| w == needle)
}

/// One row: a name, a unit, whether more is better, and the measurement of a server in a round.
pub struct Row<'a> {
    pub what: &'a str,
    pub unit: &'a str,
    pub more_is_better: bool,
    pub measure: &'a dyn Fn(&str, usize) -> Result<f64, String>,
}

/// Measures both servers in alternating order, so that a drift of the machine hits both, and prints medians and the ratio.
pub fn compare(row: &Row<'_>, [(name, ours), (peer_name, peer)]: [(&str, &str); 2]) -> Result<(), String> {
    let measure = row.measure;
    let (mut a, mut b, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for address in [ours, peer] {
        measure(address, 1000)?;
    }
    for round in 0..ROUNDS {
        let (x, y) = if round % 2 == 0 {
            let x = measure(ours, round)?;
            (x, measure(peer, round)?)
        } else {
            let y = measure(peer, round)?;
            (measure(ours, round)?, y)
        };
        a.push(x);
        b.push(y);
        ratios.push(if row.more_is_better { x / y } else { y / x });
    }
    println!(
        "  {:<20} {name} {:>9.1} {unit}, {peer_name} {:>9.1} {unit}, ratio {:.3} (min {:.3}, max {:.3})",
        row.what,
        median(&a),
        median(&b),
        median(&ratios),
        ratios.iter().copied().fold(f64::INFINITY, f64::min),
        ratios.iter().copied().fold(0.0, f64::max),
        unit = row.unit,
    );
    Ok(())
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
