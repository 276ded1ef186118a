//! Masks over 248,320 tokens: `cargo bench --no-default-features --bench grammar`.
//!
//! With `RANKS=FILE`, a file of base64 tokens and ranks as tiktoken has them, over the tokens of that file.
//!
//! Else the vocabulary is made up: all bytes, then words of 2 to 12 letters, many with a space before, digits, and marks. Real ones
//! share more beginnings, so these figures are no promise; the spread between grammars is.

#![expect(clippy::print_stdout, reason = "the spread of mask times is what this bench is for")]

mod tools;
mod vocabulary;

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use plateau::grammar::catalogue::SHIPPED;
use plateau::grammar::{Engine, Matcher, Source};
use plateau::units::Token;
use rand_core::{RngCore, SeedableRng};
use serde_json::json;

/// Tokens of one generation that is measured.
const STEPS: usize = 400;

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

/// What is printed of many times, in microseconds.
struct Row {
    p50: u128,
    p90: u128,
    p99: u128,
    most: u128,
}

impl Row {
    fn of(mut times: Vec<u128>) -> Row {
        times.sort_unstable();
        let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
        Row { p50: at(50), p90: at(90), p99: at(99), most: at(100) }
    }
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
        let Row { p50, p99, most, .. } = Row::of(times);
        let (compile, separate) = (compile.as_micros(), separate.as_micros());
        println!("{name:<32} {compile:>9} {separate:>9} {p50:>9} {p99:>9} {most:>9}");
    }
}

fn grammar(c: &mut Criterion) {
    let start = Instant::now();
    let tokens = vocabulary::tokens();
    let engine = Engine::new(tokens.vocabulary.clone()).unwrap_or_else(|error| panic!("{error}"));
    println!("vocabulary of {} tokens indexed in {} ms", engine.n_vocab(), start.elapsed().as_millis());
    spread(&engine);
    tools::spread(&engine, &tokens);
    let mut group = c.benchmark_group("grammar");
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1)).sample_size(20);
    let compiled = engine.compile(&Source::JsonObject).unwrap_or_else(|error| panic!("{error}"));
    let mut matcher = compiled.matcher();
    for token in tokens.cut("{\"key\": \"") {
        matcher.accept(token).unwrap_or_else(|error| panic!("{error}"));
    }
    let letter = tokens.cut("a")[0];
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
