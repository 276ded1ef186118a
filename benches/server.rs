//! plateau and a peer server side by side: time to first token and tokens per second, paired rounds in one run.
//!
//! Plain std sockets, so that the client costs little of the two cores that it shares with the servers. Both servers get
//! the same bytes. `scripts/bench.sh` starts them; alone: `cargo bench --no-default-features --bench server -- NAME OURS PEER`
//! where OURS and PEER are `host:port`.

#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const ROUNDS: usize = 7;
const DECODE_TOKENS: usize = 256;
const PROMPT_WORDS: usize = 700;

/// What one streamed completion showed.
struct Answer {
    first: Duration,
    last: Duration,
    tokens: usize,
    prompt_tokens: usize,
}

fn complete(address: &str, prompt: &str, max_tokens: usize) -> Result<Answer, String> {
    let body = serde_json::json!({
        "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": true, "cache_prompt": false,
        "stream": true, "stream_options": {"include_usage": true},
    })
    .to_string();
    let start = Instant::now();
    let mut socket = TcpStream::connect(address).map_err(|e| format!("{address}: {e}"))?;
    socket.set_nodelay(true).map_err(|e| e.to_string())?;
    write!(
        socket,
        "POST /v1/completions HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .map_err(|e| e.to_string())?;
    let (mut first, mut last, mut usage) = (None, None, None);
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
        // The usage chunk is the only one that has to be parsed; text chunks are only timed.
        if find(data, b"\"choices\":[]") || find(data, b"\"total_tokens\"") {
            usage = serde_json::from_slice::<serde_json::Value>(data).ok();
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
    })
}

fn find(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|w| w == needle)
}

/// Tokens per second of one stream, from its first to its last chunk.
fn decode_alone(address: &str, round: usize) -> Result<f64, String> {
    let answer = complete(address, &format!("Round {round}. Once upon a time"), DECODE_TOKENS)?;
    Ok((answer.tokens - 1) as f64 / (answer.last - answer.first).as_secs_f64())
}

/// Tokens per second of four streams together, over the whole wall time.
fn decode_four(address: &str, round: usize) -> Result<f64, String> {
    let start = Instant::now();
    let threads: Vec<_> = (0..4)
        .map(|i| {
            let address = address.to_owned();
            std::thread::spawn(move || {
                complete(&address, &format!("Round {round}, story {i}. Once upon a time"), DECODE_TOKENS)
            })
        })
        .collect();
    let mut tokens = 0;
    for thread in threads {
        tokens += thread.join().map_err(|_| "a client thread panicked")??.tokens;
    }
    Ok(tokens as f64 / start.elapsed().as_secs_f64())
}

/// Milliseconds to the first token of a prompt that no cache has seen.
fn first_token(address: &str, round: usize) -> Result<f64, String> {
    let prompt: String = (0..PROMPT_WORDS).map(|i| format!("word{} ", (i * 7919 + round * 104_729) % 9973)).collect();
    let answer = complete(address, &prompt, 1)?;
    if round == 0 {
        println!("  (prompt of {} tokens)", answer.prompt_tokens);
    }
    Ok(answer.first.as_secs_f64() * 1e3)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn main() -> Result<(), String> {
    // cargo passes `--bench` to every bench binary.
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let [name, ours, peer] = args.as_slice() else {
        println!("server bench skipped: give NAME OURS PEER (host:port), or run `make bench`");
        return Ok(());
    };
    type Measure = fn(&str, usize) -> Result<f64, String>;
    let rows: [(&str, &str, bool, Measure); 3] = [
        ("decode, 1 sequence", "tok/s", true, decode_alone),
        ("decode, 4 sequences", "tok/s", true, decode_four),
        ("first token", "ms", false, first_token),
    ];
    println!("{name}: plateau against the peer, median of {ROUNDS} paired rounds");
    for (what, unit, more_is_better, measure) in rows {
        let (mut a, mut b, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for address in [ours, peer] {
            measure(address, 1000)?;
        }
        for round in 0..ROUNDS {
            // Alternating order, so that a drift of the machine hits both.
            let (x, y) = if round % 2 == 0 {
                let x = measure(ours, round)?;
                (x, measure(peer, round)?)
            } else {
                let y = measure(peer, round)?;
                (measure(ours, round)?, y)
            };
            a.push(x);
            b.push(y);
            ratios.push(if more_is_better { x / y } else { y / x });
        }
        println!(
            "  {what:<20} plateau {:>9.1} {unit}, peer {:>9.1} {unit}, ratio {:.3} (min {:.3}, max {:.3})",
            median(&a),
            median(&b),
            median(&ratios),
            ratios.iter().copied().fold(f64::INFINITY, f64::min),
            ratios.iter().copied().fold(0.0, f64::max)
        );
    }
    Ok(())
}
