//! One row of 248,320 logits through the chain: `cargo bench --no-default-features --bench sampling`.
//!
//! The rows take turns, so that a row does not stay in the nearest cache: in a server it has just been written by a device.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use plateau::sampling::{Dry, Mask, Sampler, SamplingParams, Xtc, logprobs};
use rand_core::{RngCore, SeedableRng};

const N_VOCAB: usize = 248_320;
const ROWS: usize = 8;

/// Gaussian, standard deviation 3, and a few tokens that the model has in mind.
fn rows() -> Vec<Vec<f32>> {
    let mut rng = rand_pcg::Pcg64::seed_from_u64(1);
    let mut unit = move || (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    let mut row = || {
        let mut row: Vec<f32> = (0..N_VOCAB)
            .map(|_| {
                let radius = (-2.0 * (1.0 - unit()).ln()).sqrt();
                (3.0 * radius * (std::f64::consts::TAU * unit()).cos()) as f32
            })
            .collect();
        for peak in [19.5, 18.0, 17.0, 16.5, 16.0] {
            row[(unit() * N_VOCAB as f64) as usize] = peak;
        }
        row
    };
    (0..ROWS).map(|_| row()).collect()
}

fn off() -> SamplingParams {
    SamplingParams { temperature: 1.0, seed: 7, ..SamplingParams::greedy() }
}

fn agent() -> SamplingParams {
    SamplingParams { temperature: 0.6, top_k: 20, top_p: 0.95, ..off() }
}

fn penalised() -> SamplingParams {
    SamplingParams {
        repeat_penalty: 1.1,
        presence_penalty: 0.5,
        frequency_penalty: 0.2,
        penalty_last_n: Some(256),
        logit_bias: (0..20).map(|i| (i * 12_000, if i % 2 == 0 { 2.0 } else { f32::NEG_INFINITY })).collect(),
        ..agent()
    }
}

fn dry(history: Option<u32>) -> Dry {
    Dry { multiplier: 0.8, base: 1.75, allowed_length: 2, last_n: history, breakers: [13, 198, 25].into() }
}

fn cases() -> Vec<(&'static str, SamplingParams, usize)> {
    vec![
        ("greedy", SamplingParams::greedy(), 0),
        ("top_k 20, top_p 0.95, temperature 0.6", agent(), 0),
        ("the same, penalties over 256, 20 biases", penalised(), 300),
        ("the same, DRY over 100K tokens", SamplingParams { dry: dry(None), ..penalised() }, 100_000),
        ("the same, penalties over 100K tokens", SamplingParams { penalty_last_n: None, ..penalised() }, 100_000),
        ("top_p 0.95", SamplingParams { top_p: 0.95, ..off() }, 0),
        ("top_p 0.99", SamplingParams { top_p: 0.99, ..off() }, 0),
        ("min_p 0.05", SamplingParams { min_p: 0.05, ..off() }, 0),
        ("no truncation", off(), 0),
        ("typical_p 0.9", SamplingParams { typical_p: 0.9, ..off() }, 0),
        ("XTC alone", SamplingParams { xtc: Xtc { probability: 1.0, threshold: 0.1 }, ..off() }, 0),
    ]
}

fn sampling(c: &mut Criterion) {
    let rows = rows();
    let mut group = c.benchmark_group("sampling");
    group.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2)).sample_size(30);
    for (name, params, prompt) in cases() {
        let mut sampler = Sampler::new(params);
        // A Zipf-like text: token i about every i-th time.
        (0..prompt).for_each(|i| sampler.accept((i * 7919 % (1 + i % 20_000)) as u32));
        let mut turn = rows.iter().cycle();
        group.bench_function(name, |b| {
            b.iter(|| {
                let row = turn.next().map_or(&[][..], |row| row);
                let token = sampler.sample(black_box(row), None);
                sampler.accept(token.as_ref().copied().unwrap_or(0));
                token
            });
        });
    }
    let words: Vec<u32> = (0..N_VOCAB.div_ceil(32) as u32).map(|i| 0x5555_5555 << (i % 2)).collect();
    let mut sampler = Sampler::new(agent());
    let mut turn = rows.iter().cycle();
    group.bench_function("top_k 20, top_p 0.95, temperature 0.6, half masked", |b| {
        b.iter(|| sampler.sample(black_box(turn.next().map_or(&[][..], |row| row)), Some(Mask(&words))));
    });
    for n in [0, 5, 20] {
        group.bench_function(format!("logprobs {n}"), |b| {
            b.iter(|| logprobs(black_box(turn.next().map_or(&[][..], |row| row)), 1234, n));
        });
    }
    group.finish();
}

criterion_group!(benches, sampling);
criterion_main!(benches);
