//! The calls of 60 tools as agents declare them (tools.jsonl): what compiling takes, and masks along calls.

use std::hint::black_box;
use std::time::Instant;

use plateau::chat::fields::ToolFields;
use plateau::chat::tools::{CallForm, ToolLimits, ToolSettings, call_shapes};
use plateau::grammar::{Calls, Compiled, Engine, Matcher, Source};
use plateau::units::Token;
use rand_core::{RngCore, SeedableRng};
use serde_json::{Value, json};

use super::vocabulary::Tokens;
use super::{Row, pick};

/// Tokens of calls that are measured for each tool.
const STEPS: usize = 200;
/// Tokens of one call: some texts would have no end.
const MOST: usize = 120;
/// What ends a value; random tokens seldom do.
const ENDS: [&str; 6] = ["\n</parameter>\n", "\"", "}", "]", "</function>", ","];

/// `tools` of a request, as it is sent.
fn declared() -> Vec<Value> {
    let lines = include_str!("tools.jsonl").lines();
    lines
        .map(|line| json!({"type": "function", "function": serde_json::from_str::<Value>(line).expect("JSON")}))
        .collect()
}

fn source(tools: &[Value], form: CallForm, end: Token) -> Source {
    let fields = ToolFields { tools: Some(json!(tools)), tool_choice: None, parallel_tool_calls: None };
    let limits = ToolLimits { max_tools: 100, max_bytes: 1 << 20 };
    let settings = ToolSettings::from_fields(&fields, limits).unwrap_or_else(|error| panic!("{error}"));
    Source::Calls(Calls { shapes: call_shapes(&settings, form), end })
}

/// Adds the mask times of random calls, in microseconds.
fn walk(compiled: &Compiled, ends: &[Vec<Token>], n_steps: usize, times: &mut Vec<u128>) {
    let mut rng = rand_pcg::Pcg64::seed_from_u64(7);
    let mut matcher = compiled.matcher();
    let mut length = 0;
    for _ in 0..n_steps {
        let start = Instant::now();
        let is_open = black_box(matcher.mask()).is_ok();
        times.push(start.elapsed().as_micros());
        length += 1;
        let next = if is_open && length < MOST { next(&mut matcher, ends, &mut rng) } else { Vec::new() };
        if next.is_empty() || next.iter().any(|token| matcher.accept(*token).is_err()) {
            matcher = compiled.matcher();
            length = 0;
        }
    }
}

/// The end of a value in a third of the cases where it may come, else a random token.
fn next(matcher: &mut Matcher, ends: &[Vec<Token>], rng: &mut rand_pcg::Pcg64) -> Vec<Token> {
    let at = rng.next_u32() as usize;
    let mut all = (0..ends.len()).map(|i| &ends[(at + i) % ends.len()]);
    let fits = all.find(|end| matcher.validate(end).is_ok_and(|n| n == end.len()));
    match fits {
        Some(end) if rng.next_u32().is_multiple_of(3) => end.clone(),
        _ => pick(matcher, rng).into_iter().collect(),
    }
}

fn compiled(engine: &Engine, source: &Source, compile: &mut Vec<u128>) -> Compiled {
    let start = Instant::now();
    let compiled = engine.compile(source).unwrap_or_else(|error| panic!("{error}"));
    compile.push(start.elapsed().as_micros());
    compiled
}

/// Times of the tools one by one, in each way of writing calls, and of all in one request.
pub fn spread(engine: &Engine, tokens: &Tokens) {
    let tools = declared();
    let ends: Vec<Vec<Token>> = ENDS.iter().map(|end| tokens.cut(end)).collect();
    println!("\n{} tools; compile times of calls of one, masks along calls of all", tools.len());
    println!(
        "{:<32} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} us, widened",
        "", "p50", "most", "mask p50", "p90", "p99", "most"
    );
    for (name, form) in [("Qwen's XML", CallForm::Xml), ("Hermes' JSON", CallForm::Json)] {
        let (mut compile, mut masks, mut n_widened) = (Vec::new(), Vec::new(), 0);
        let mut slowest = (0, "");
        for tool in &tools {
            let one = compiled(engine, &source(std::slice::from_ref(tool), form, tokens.end_of_call), &mut compile);
            n_widened += usize::from(!one.relaxed().is_empty());
            let before = masks.len();
            walk(&one, &ends, STEPS, &mut masks);
            slowest = slowest.max((
                masks[before..].iter().max().copied().unwrap_or(0),
                tool["function"]["name"].as_str().unwrap_or_default(),
            ));
        }
        print(name, Row::of(compile), Row::of(masks), n_widened);
        println!("{:<32} {} has the slowest mask", "", slowest.1);
        let (mut compile, mut masks) = (Vec::new(), Vec::new());
        let all = compiled(engine, &source(&tools, form, tokens.end_of_call), &mut compile);
        walk(&all, &ends, STEPS * tools.len(), &mut masks);
        print("  all in one request", Row::of(compile), Row::of(masks), all.relaxed().len());
    }
    let (mut compile, mut masks, mut n_widened) = (Vec::new(), Vec::new(), 0);
    for tool in &tools {
        let schema = tool["function"]["parameters"].clone();
        let one = compiled(engine, &Source::JsonSchema(schema), &mut compile);
        n_widened += usize::from(!one.relaxed().is_empty());
        walk(&one, &ends, STEPS, &mut masks);
    }
    print("arguments as a JSON schema", Row::of(compile), Row::of(masks), n_widened);
}

fn print(name: &str, compile: Row, masks: Row, n_widened: usize) {
    println!(
        "{name:<32} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {n_widened:>5}",
        compile.p50, compile.most, masks.p50, masks.p90, masks.p99, masks.most
    );
}
