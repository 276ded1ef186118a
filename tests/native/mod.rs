//! The demo model for the tests of `src/llama`: small contexts, greedy decoding through the seam.

// Each test file uses its part of this.
#![allow(dead_code)]

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use plateau::config::{CacheType, EngineConfig, FlashAttention, ModelConfig, Profile};
use plateau::engine::{BatchRow, ModelRunner, PromptItem};
use plateau::llama::{ContextOptions, LlamaRunner, Model, MtpCache};
use plateau::units::{Pos, SeqId, Token};

/// The embedded model, loaded once a test binary.
pub fn model() -> Arc<Model> {
    static MODEL: OnceLock<Arc<Model>> = OnceLock::new();
    let load = || Model::load(&model_config(), &mut |_| true).expect("the demo model loads");
    Arc::clone(MODEL.get_or_init(load))
}

/// The embedded model, without plug-ins.
pub fn model_config() -> ModelConfig {
    Profile::demo().model
}

/// One thread, and a bf16 cache: the CPU's flash attention adds up f16 values in f16, and sums in tiles where a step has many
/// rows, so that logits depend on how rows are cut into steps and where in the cache they lie (by 0.2 on this model). Over
/// bf16 it goes cell by cell in f32: the same to the bit, so that a test sees any wrong state.
pub fn engine_config(ctx_tokens: u32, parallel: u32) -> EngineConfig {
    EngineConfig {
        ctx_tokens: Some(ctx_tokens),
        parallel,
        batch_tokens: 512,
        ubatch_tokens: 128,
        threads: Some(1),
        cache_type_k: CacheType::Bf16,
        cache_type_v: CacheType::Bf16,
        flash_attention: FlashAttention::On,
        ..Profile::demo().engine
    }
}

/// The demo profile with that engine.
pub fn profile(ctx_tokens: u32, parallel: u32) -> Profile {
    Profile { engine: engine_config(ctx_tokens, parallel), ..Profile::demo() }
}

pub fn runner(config: &EngineConfig) -> LlamaRunner {
    LlamaRunner::new(model(), config, ContextOptions::default()).expect("a context")
}

/// A context whose recurrent states can be rolled back by `rollback_tokens`, with logits for all rows of a short batch.
pub fn runner_with_rollback(rollback_tokens: u32, parallel: u32) -> LlamaRunner {
    let options = ContextOptions { outputs_per_sequence: rollback_tokens + 1, rollback_tokens, mtp: None };
    LlamaRunner::new(model(), &engine_config(512, parallel), options).expect("a context")
}

/// The embedded model with its MTP head, loaded once a test binary.
pub fn model_with_head() -> Arc<Model> {
    static MODEL: OnceLock<Arc<Model>> = OnceLock::new();
    let load = || Model::load_parts(&model_config(), &mut |_| true, &mut |_| true).expect("the demo model loads");
    Arc::clone(MODEL.get_or_init(load))
}

/// A cache whose sums do not depend on how rows are cut into steps, see `engine_config`.
pub const CACHE: CacheType = CacheType::Bf16;

/// A context with the MTP head that takes drafts of up to `n_max` tokens.
pub fn runner_with_head(n_max: u32, parallel: u32) -> LlamaRunner {
    let mtp = Some(MtpCache { k: CACHE, v: CACHE });
    let options = ContextOptions { outputs_per_sequence: n_max + 1, rollback_tokens: n_max, mtp };
    LlamaRunner::new(model_with_head(), &engine_config(512, parallel), options).expect("a context")
}

/// `n` tokens without meaning that stay clear of the control tokens.
pub fn tokens(n: usize, seed: u32) -> Vec<Token> {
    (0..n as u32).map(|i| Token(300 + (i * 37 + seed * 101 + 11) % 1500)).collect()
}

/// Rows of `tokens` from position `start`, the last one with logits.
pub fn rows(seq: u32, start: u32, tokens: &[Token]) -> Vec<BatchRow> {
    let last = tokens.len() - 1;
    let row = |(i, token): (usize, &Token)| BatchRow {
        seq: SeqId(seq),
        pos: Pos(start + i as u32),
        item: PromptItem::Token(*token),
        output: i == last,
    };
    tokens.iter().enumerate().map(row).collect()
}

/// Processes `tokens` and returns the logits after the last one.
pub fn feed(runner: &mut LlamaRunner, seq: u32, start: u32, tokens: &[Token]) -> Vec<f32> {
    runner.step(&rows(seq, start, tokens)).expect("a step");
    runner.logits(tokens.len() - 1).expect("logits").to_vec()
}

pub fn argmax(logits: &[f32]) -> Token {
    let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).expect("a vocabulary");
    Token(best.0 as u32)
}

pub fn max_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// Prefill in chunks of `chunk` tokens, then `n` greedy tokens.
pub fn generate(runner: &mut LlamaRunner, seq: u32, prompt: &[Token], chunk: usize, n: usize) -> Vec<Token> {
    let mut logits = Vec::new();
    let mut pos = 0;
    for part in prompt.chunks(chunk) {
        logits = feed(runner, seq, pos, part);
        pos += part.len() as u32;
    }
    let mut out = vec![argmax(&logits)];
    while out.len() < n {
        logits = feed(runner, seq, pos, &out[out.len() - 1..]);
        pos += 1;
        out.push(argmax(&logits));
    }
    out
}

/// Compiles the plug-in HostCheck from its one file and the core's CPU archive into `file`, libggml-NAME-TAG.so. `defines`:
/// further flags of the compiler.
pub fn build_plugin(file: &Path, defines: &[String]) {
    let source = Path::new(env!("PLATEAU_CORE_SOURCE"));
    let archive = Path::new(env!("PLATEAU_CORE_INSTALL")).join("lib/libggml-cpu.a");
    let status = Command::new("c++")
        .args(["-shared", "-fPIC", "-O1", "-std=c++17"])
        .args(["-DGGML_BACKEND_DL", "-DGGML_BACKEND_BUILD", "-DGGML_BACKEND_SHARED"])
        .args(defines)
        .arg(format!("-I{}", source.join("ggml/include").display()))
        .arg(format!("-I{}", source.join("ggml/src").display()))
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/native/plugin/host_check.cpp"))
        .arg("-Wl,--whole-archive")
        .arg(archive)
        .args(["-Wl,--no-whole-archive", "-Wl,-Bsymbolic", "-o"])
        .arg(file)
        .status()
        .expect("a C++ compiler");
    assert!(status.success());
}
