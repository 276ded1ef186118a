//! Decode speed of the demo model through `LlamaRunner`, without HTTP, sampling or detokenising: tokens a second at 1, 2 and
//! 4 sequences, and prefill; and what a step of several rows and a pass of the MTP head cost. The best of several rounds: whatever else the machine does only takes time away.
//!
//! To compare with `llama-bench -p 512 -n 128 -r 1` of the same core, alternate the two and take the best of each.

#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::time::Instant;

use plateau::config::{EngineConfig, ModelConfig, Profile};
use plateau::engine::{BatchRow, DraftRow, ModelRunner, PromptItem};
use plateau::llama::{ContextOptions, LlamaRunner, Model, MtpCache};
use plateau::units::{Pos, SeqId, Token};

const N_PROMPT: u32 = 512;
const N_DECODE: u32 = 128;
const N_ROUNDS: u32 = 8;

fn token(seq: u32, pos: u32) -> Token {
    Token(300 + (pos * 37 + seq) % 1500)
}

fn row(seq: u32, pos: u32, output: bool) -> BatchRow {
    BatchRow { seq: SeqId(seq), pos: Pos(pos), item: PromptItem::Token(token(seq, pos)), output }
}

fn main() {
    let model = Profile::demo().model;
    #[expect(clippy::disallowed_methods, reason = "a bench has no configuration")]
    let model = match std::env::var("MODEL") {
        Ok(path) => ModelConfig { path: Some(path.into()), ..model },
        Err(_) => model,
    };
    let model = Model::load_parts(&model, &mut |facts| facts.n_layer_mtp == 1, &mut |_| true).expect("the model loads");
    print_draft_costs(&model);
    for parallel in [1, 2, 4] {
        let config = EngineConfig { ctx_tokens: Some(8192), parallel, ..Profile::demo().engine };
        let mut runner =
            LlamaRunner::new(std::sync::Arc::clone(&model), &config, ContextOptions::default()).expect("a context");
        let (mut decode, mut prefill) = (Vec::new(), Vec::new());
        for _ in 0..N_ROUNDS {
            (0..parallel).for_each(|seq| runner.clear(SeqId(seq)));
            prefill.push(f64::from(N_PROMPT) / prefill_seconds(&mut runner));
            (0..parallel).for_each(|seq| runner.clear(SeqId(seq)));
            decode.push(f64::from(N_DECODE * parallel) / decode_seconds(&mut runner, parallel));
        }
        println!("{parallel} sequences: decode {:8.1} tok/s, prefill {:8.1} tok/s", best(&decode), best(&prefill));
    }
}

/// What drafting weighs: a step of so many rows with logits, rolled back to its first, and a pass of the MTP head.
fn print_draft_costs(model: &std::sync::Arc<Model>) {
    const N_MAX: u32 = 8;
    let cache = Profile::demo().speculative.cache_type_k;
    let mtp = (model.facts().n_layer_mtp == 1).then_some(MtpCache { k: cache, v: cache });
    let options = ContextOptions { outputs_per_sequence: N_MAX + 1, rollback_tokens: N_MAX, mtp };
    let config = EngineConfig { ctx_tokens: Some(8192), parallel: 1, ..Profile::demo().engine };
    let mut runner = LlamaRunner::new(std::sync::Arc::clone(model), &config, options).expect("a context");
    prefill_seconds(&mut runner);
    let mut pos = N_PROMPT;
    for n_rows in 1..=N_MAX + 1 {
        let (mut steps, mut passes) = (Vec::new(), Vec::new());
        for _ in 0..N_DECODE {
            if mtp.is_some() {
                let start = Instant::now();
                runner.draft(&[DraftRow { seq: SeqId(0), pos: Pos(pos), token: token(0, pos) }]).expect("a draft");
                runner.draft_logits(0).expect("logits");
                passes.push(start.elapsed().as_secs_f64());
            }
            let rows: Vec<BatchRow> = (pos..pos + n_rows).map(|pos| row(0, pos, true)).collect();
            let start = Instant::now();
            runner.step(&rows).expect("a step");
            for index in 0..rows.len() {
                runner.logits(index).expect("logits");
            }
            steps.push(start.elapsed().as_secs_f64());
            pos += 1;
            runner.truncate(SeqId(0), Pos(pos)).expect("a rollback");
        }
        println!("step of {n_rows} rows {:6.3} ms, MTP pass {:6.3} ms", median_ms(&mut steps), median_ms(&mut passes));
    }
}

fn median_ms(seconds: &mut [f64]) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds.get(seconds.len() / 2).map_or(0.0, |s| s * 1e3)
}

fn prefill_seconds(runner: &mut LlamaRunner) -> f64 {
    let rows: Vec<BatchRow> = (0..N_PROMPT).map(|pos| row(0, pos, pos + 1 == N_PROMPT)).collect();
    let start = Instant::now();
    runner.step(&rows).expect("a step");
    runner.logits(rows.len() - 1).expect("logits");
    start.elapsed().as_secs_f64()
}

fn decode_seconds(runner: &mut LlamaRunner, parallel: u32) -> f64 {
    let start = Instant::now();
    for pos in 0..N_DECODE {
        let rows: Vec<BatchRow> = (0..parallel).map(|seq| row(seq, pos, true)).collect();
        runner.step(&rows).expect("a step");
        for index in 0..rows.len() {
            runner.logits(index).expect("logits");
        }
    }
    start.elapsed().as_secs_f64()
}

fn best(rates: &[f64]) -> f64 {
    rates.iter().copied().fold(0.0, f64::max)
}
