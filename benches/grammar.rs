//! Masks over 248,320 tokens: `cargo bench --no-default-features --bench grammar`.
//!
//! With `RANKS=FILE`, a file of base64 tokens and ranks as tiktoken has them, over the tokens of that file.
//!
//! Else the vocabulary is made up: all bytes, then words of 2 to 12 letters, many with a space before, digits, and marks. Real ones
//! share more beginnings, so these figures are no promise; the spread between grammars is.

#![expect(clippy::print_stdout, reason = "the spread of mask times is what this bench is for")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use plateau::grammar::catalogue::SHIPPED;
use plateau::grammar::{Engine, Matcher, Source, Vocabulary};
use plateau::units::Token;
use rand_core::{RngCore, SeedableRng};
use serde_json::json;

const N_VOCAB: usize = 248_320;
/// Tokens of one generation that is measured.
const STEPS: usize = 400;

fn vocabulary() -> Vocabulary {
    let ranks = std::env::vars_os().find(|(name, _)| name == "RANKS");
    let mut pieces = ranks.map_or_else(made_up, |(_, file)| {
        let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        text.lines().map(|line| base64(line.split(' ').next().unwrap_or_default())).collect()
    });
    pieces.push(b"<|im_end|>".to_vec());
    let end = Token(pieces.len() as u32 - 1);
    let special = (0..pieces.len()).map(|id| id == end.index()).collect();
    Vocabulary { pieces, special, end: vec![end], tokenize: None }
}

fn base64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut n) = (Vec::new(), 0_u32, 0);
    for digit in text.bytes().filter_map(|c| DIGITS.iter().position(|digit| *digit == c)) {
        (bits, n) = (bits << 6 | digit as u32, n + 6);
        if n >= 8 {
            n -= 8;
            bytes.push((bits >> n) as u8);
        }
    }
    bytes
}

fn made_up() -> Vec<Vec<u8>> {
    let mut rng = rand_pcg::Pcg64::seed_from_u64(1);
    let mut pieces: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    let mut known: std::collections::HashSet<Vec<u8>> = pieces.iter().cloned().collect();
    let letters = b"etaoinshrdlcumwfgypbvkjxqz";
    let marks: &[&[u8]] =
        &[b"{\"", b"\":", b"\",", b"\"}", b"()", b");\n", b"\n\n", b"    ", b"\t\t", b" =", b"==", b"://"];
    pieces.extend(marks.iter().map(|mark| mark.to_vec()));
    while pieces.len() < N_VOCAB - 1 {
        let mut piece = Vec::new();
        match rng.next_u32() % 20 {
            0 => piece.extend("\u{4E00}".as_bytes()),
            1 => (0..1 + rng.next_u32() % 3).for_each(|_| piece.push(b'0' + (rng.next_u32() % 10) as u8)),
            2..=10 => piece.push(b' '),
            _ => {}
        }
        let length = 2 + rng.next_u32() % 11;
        for _ in 0..length {
            // Few letters are frequent.
            let rank = (rng.next_u32() % 26).min(rng.next_u32() % 26);
            piece.push(letters[rank as usize]);
        }
        if rng.next_u32() % 8 == 0
            && let Some(first) = piece.iter_mut().find(|byte| byte.is_ascii_lowercase())
        {
            first.make_ascii_uppercase();
        }
        if known.insert(piece.clone()) {
            pieces.push(piece);
        }
    }
    pieces
}

fn sources() -> Vec<(String, Source)> {
    let tool = json!({"type": "object", "required": ["path", "edits"], "properties": {
        "path": {"type": "string"}, "dry_run": {"type": "boolean"}, "line": {"type": "integer", "minimum": 1},
        "edits": {"type": "array", "items": {"type": "object", "required": ["old", "new"], "properties": {
            "old": {"type": "string"}, "new": {"type": "string", "maxLength": 10_000}, "mode": {"enum": ["all", "first"]}}}}}});
    let nested = "root ::= value\nvalue ::= \"(\" ws (value ws)* \")\" | [a-zA-Z0-9_]+ | \"\\\"\" [^\"\\n]* \"\\\"\"\nws ::= [ \\n]*";
    let characters = "root ::= word | \"(\" root [a-z] \")\"\nword ::= [a-z]+ | [a-z]+ \" \" word";
    let mut all: Vec<(String, Source)> =
        SHIPPED.iter().map(|shipped| (shipped.name.to_owned(), Source::Gbnf(shipped.text.to_owned()))).collect();
    all.extend([
        ("JSON object".to_owned(), Source::JsonObject),
        ("schema of a tool".to_owned(), Source::JsonSchema(tool)),
        ("GBNF, nested".to_owned(), Source::Gbnf(nested.to_owned())),
        ("GBNF, character by character".to_owned(), Source::Gbnf(characters.to_owned())),
        ("lines of ASCII".to_owned(), Source::Gbnf("root ::= (\"- \" [\\x20-\\x7E]+ \"\\n\")+".to_owned())),
        ("any text".to_owned(), Source::Gbnf("root ::= .*".to_owned())),
        ("regular expression".to_owned(), Source::Regex("[A-Z][a-z]+( [a-z]+){3,40}\\.".to_owned())),
    ]);
    all
}

/// A random token of the mask, a different one each call.
fn pick(matcher: &mut Matcher, rng: &mut rand_pcg::Pcg64) -> Option<Token> {
    let mask = matcher.mask().ok()?;
    let start = rng.next_u32() as usize % mask.len();
    let at = (0..mask.len()).map(|i| (start + i) % mask.len()).find(|&at| mask[at] != 0)?;
    Some(Token(at as u32 * 32 + mask[at].trailing_zeros()))
}

/// Compile time, and the times of all masks of generations of random tokens.
fn spread(engine: &Engine) {
    println!("{:<32} {:>9} {:>9} {:>9} {:>9} {:>9} us", "", "compile", "matcher", "p50", "p99", "most");
    for (name, source) in sources() {
        let start = Instant::now();
        let compiled = engine.compile(&source).unwrap_or_else(|error| panic!("{name}: {error}"));
        let compile = start.elapsed();
        let start = Instant::now();
        let mut matcher = compiled.matcher();
        let separate = start.elapsed();
        let mut rng = rand_pcg::Pcg64::seed_from_u64(7);
        let mut times = Vec::new();
        while times.len() < STEPS {
            let start = Instant::now();
            let is_open = black_box(matcher.mask()).is_ok();
            times.push(start.elapsed().as_micros());
            let next = if is_open { pick(&mut matcher, &mut rng) } else { None };
            if next.is_none_or(|token| matcher.accept(token).is_err()) {
                matcher = compiled.matcher();
            }
        }
        times.sort_unstable();
        println!(
            "{name:<32} {:>9} {:>9} {:>9} {:>9} {:>9}",
            compile.as_micros(),
            separate.as_micros(),
            times[STEPS / 2],
            times[STEPS * 99 / 100],
            times[STEPS - 1]
        );
    }
}

fn grammar(c: &mut Criterion) {
    let start = Instant::now();
    let engine = Engine::new(vocabulary()).unwrap_or_else(|error| panic!("{error}"));
    println!("vocabulary of {} tokens indexed in {} ms", engine.n_vocab(), start.elapsed().as_millis());
    spread(&engine);
    let mut group = c.benchmark_group("grammar");
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1)).sample_size(20);
    let compiled = engine.compile(&Source::JsonObject).unwrap_or_else(|error| panic!("{error}"));
    let mut matcher = compiled.matcher();
    for byte in b"{\"key\": \"" {
        matcher.accept(Token((*byte).into())).unwrap_or_else(|error| panic!("{error}"));
    }
    let letter = Token(b'a'.into());
    group.bench_function("accept and mask inside a JSON string", |b| {
        b.iter(|| matcher.accept(letter).is_ok() && black_box(matcher.mask()).is_ok() && matcher.rollback(1).is_ok());
    });
    group.bench_function("validate a draft of 4", |b| b.iter(|| matcher.validate(black_box(&[letter; 4]))));
    group.bench_function("fork", |b| b.iter(|| black_box(matcher.fork())));
    group.bench_function("matcher of a compiled grammar", |b| b.iter(|| black_box(compiled.matcher())));
    group.finish();
}

criterion_group!(benches, grammar);
criterion_main!(benches);
