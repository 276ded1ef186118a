//! What drafting brings: plateau with drafts against plateau without, and against llama-server with its own MTP drafting, on
//! texts that the demo model writes and on an answer that quotes its prompt.
//!
//! `scripts/bench.sh drafts` starts the servers; alone: `cargo bench --no-default-features --bench drafts -- DRAFTS PLAIN PEER`,
//! each `host:port`.

#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

mod paired;

use std::time::Instant;

use paired::{ROUNDS, Row, compare, complete};
use serde_json::{Value, json};

const TOKENS: usize = 192;
/// Words of the passage that is quoted: about 500 tokens.
const PASSAGE_WORDS: usize = 340;

const PROMPTS: [&str; 7] = [
    "Tell a story about Mia and a dog.",
    "Write the multiplication table of 7.",
    "Write a Python class Box with the fields size, color, owner.",
    "Count from 10 to 60.",
    "Write a Rust struct Lamp with the fields size: u32, name: String.",
    "List the squares from 1 to 20.",
    "What is the capital of France?",
];

fn chat(prompt: &str) -> String {
    format!("<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n<think>\n")
}

/// Tokens per second from the first to the last chunk of one answer after another.
fn alone(address: &str, fields: &Value) -> Result<f64, String> {
    let (mut tokens, mut seconds) = (0, 0.0);
    for prompt in PROMPTS {
        let answer = complete(address, &chat(prompt), TOKENS, fields)?;
        tokens += answer.tokens - 1;
        seconds += (answer.last - answer.first).as_secs_f64();
    }
    Ok(tokens as f64 / seconds)
}

/// Tokens per second of four answers at once, over the whole wall time.
fn together(address: &str, fields: &Value) -> Result<f64, String> {
    let start = Instant::now();
    let ask = |prompt: &'static str| {
        let (address, fields) = (address.to_owned(), fields.clone());
        std::thread::spawn(move || complete(&address, &chat(prompt), TOKENS, &fields))
    };
    let threads: Vec<_> = PROMPTS.into_iter().take(4).map(ask).collect();
    let mut tokens = 0;
    for thread in threads {
        tokens += thread.join().map_err(|_| "a client thread panicked")??.tokens;
    }
    Ok(tokens as f64 / start.elapsed().as_secs_f64())
}

/// A passage that nothing else predicts, in words that the model knows.
fn passage(round: usize) -> String {
    let words =
        ["river", "stone", "lamp", "bird", "green", "old", "house", "seven", "walks", "box", "near", "quiet", "Mia"];
    (0..PASSAGE_WORDS).map(|i| words[(i * i * 7 + i * 3 + round) % words.len()]).collect::<Vec<_>>().join(" ")
}

/// Tokens per second of an answer that quotes a passage of its prompt.
fn quoting(address: &str, round: usize, fields: &Value) -> Result<f64, String> {
    let passage = passage(round);
    let prompt = format!("{passage}.\n{passage}.\n{}", &passage[..200]);
    let answer = complete(address, &prompt, 400, fields)?;
    Ok((answer.tokens - 1) as f64 / (answer.last - answer.first).as_secs_f64())
}

/// Tokens a step that each server's own counts show over the texts.
fn acceptance_length(address: &str) -> Result<f64, String> {
    let (mut tokens, mut accepted) = (0, 0);
    for prompt in PROMPTS {
        let answer = complete(address, &chat(prompt), TOKENS, &Value::Null)?;
        tokens += answer.tokens;
        accepted += answer.timings["draft_n_accepted"].as_u64().unwrap_or(0) as usize;
    }
    Ok(tokens as f64 / (tokens - accepted).max(1) as f64)
}

fn main() -> Result<(), String> {
    // cargo passes `--bench` to every bench binary.
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let [drafts, plain, peer] = args.as_slice() else {
        println!("drafts bench skipped: give DRAFTS PLAIN PEER (host:port), or run `make bench ARGS=drafts`");
        return Ok(());
    };
    println!("drafting on the demo model, median of {ROUNDS} paired rounds");
    for (name, address) in [("plateau", drafts), ("llama-server", peer)] {
        println!("  {name}: {:.2} tokens a step", acceptance_length(address)?);
    }
    let none = Value::Null;
    let alone = |address: &str, _: usize| alone(address, &none);
    let together = |address: &str, _: usize| together(address, &none);
    let quotes = |address: &str, round: usize| quoting(address, round, &none);
    type Measure<'a> = &'a dyn Fn(&str, usize) -> Result<f64, String>;
    let rows: [(&str, Measure<'_>); 3] = [("1 sequence", &alone), ("4 sequences", &together), ("quoting", &quotes)];
    for (name, other) in [("without", plain.as_str()), ("llama-server", peer.as_str())] {
        for (what, measure) in rows {
            let row = Row { what, unit: "tok/s", more_is_better: true, measure };
            compare(&row, [("drafts", drafts.as_str()), (name, other)])?;
        }
    }
    quoting_with_and_without_lookup(drafts)
}

/// An answer that quotes: with lookup against MTP alone, on one server.
fn quoting_with_and_without_lookup(address: &str) -> Result<(), String> {
    let mtp_alone = json!({ "speculative": { "lookup": false } });
    let measure =
        |which: &str, round: usize| quoting(address, round, if which == "lookup" { &Value::Null } else { &mtp_alone });
    let row = Row { what: "quoting", unit: "tok/s", more_is_better: true, measure: &measure };
    compare(&row, [("with lookup", "lookup"), ("MTP alone", "mtp")])
}
