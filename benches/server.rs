//! plateau and a peer server side by side: time to first token and tokens per second, paired rounds in one run.
//!
//! Both servers get the same bytes. `scripts/bench.sh` starts them; alone: `cargo bench --no-default-features --bench server -- NAME OURS PEER`
//! where OURS and PEER are `host:port`.

#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

mod paired;

use std::time::Instant;

use paired::{ROUNDS, Row, compare, complete};
use serde_json::Value;

const DECODE_TOKENS: usize = 256;
const PROMPT_WORDS: usize = 700;

/// Tokens per second of one stream, from its first to its last chunk.
fn decode_alone(address: &str, round: usize) -> Result<f64, String> {
    let answer = complete(address, &format!("Round {round}. Once upon a time"), DECODE_TOKENS, &Value::Null)?;
    Ok((answer.tokens - 1) as f64 / (answer.last - answer.first).as_secs_f64())
}

/// Tokens per second of four streams together, over the whole wall time.
fn decode_four(address: &str, round: usize) -> Result<f64, String> {
    let start = Instant::now();
    let threads: Vec<_> = (0..4)
        .map(|i| {
            let address = address.to_owned();
            std::thread::spawn(move || {
                complete(&address, &format!("Round {round}, story {i}. Once upon a time"), DECODE_TOKENS, &Value::Null)
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
    let answer = complete(address, &prompt, 1, &Value::Null)?;
    if round == 0 {
        println!("  (prompt of {} tokens)", answer.prompt_tokens);
    }
    Ok(answer.first.as_secs_f64() * 1e3)
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
        compare(&Row { what, unit, more_is_better, measure: &measure }, [("plateau", ours), ("peer", peer)])?;
    }
    Ok(())
}
