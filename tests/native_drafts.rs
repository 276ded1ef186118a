//! Drafts over the demo model: a rollback leaves the state of a run without drafts, to the bit; the MTP head's guesses do not
//! depend on how a sequence came to its state; answers are the same with and without drafts.
#![cfg(feature = "native")]
#![allow(clippy::unwrap_used, reason = "a failure in a helper of a test is a failed test")]

mod native;

use std::collections::HashMap;
use std::time::Instant;

use native::{argmax, engine_config, feed, model_with_head, runner_with_head, tokens};
use plateau::engine::{
    BatchRow, CacheUse, Constraint, DraftRow, Engine, EngineSettings, Event, Finish, GenerationRequest, Handle, Joiner,
    Loaded, ModelRunner, PromptItem, SpeculativeParams,
};
use plateau::llama::{ContextOptions, LlamaRunner, MtpCache, vocab};
use plateau::sampling::SamplingParams;
use plateau::telemetry::Metrics;
use plateau::text::{Specials, Tokenizer};
use plateau::units::{Pos, SeqId, Token};

/// A verify step: the last token and a draft, all with logits.
fn verify_rows(seq: u32, start: u32, tokens: &[Token]) -> Vec<BatchRow> {
    let row = |(i, token): (usize, &Token)| BatchRow {
        seq: SeqId(seq),
        pos: Pos(start + i as u32),
        item: PromptItem::Token(*token),
        output: true,
    };
    tokens.iter().enumerate().map(row).collect()
}

/// The first `k` of `n` drafted tokens are those of `text`, the others not.
fn draft(text: &[Token], n: usize, k: usize) -> Vec<Token> {
    (0..=n).map(|i| if i <= k { text[i] } else { Token(2000 + i as u32) }).collect()
}

/// Logits of every row, one step a token.
fn one_by_one(runner: &mut LlamaRunner, seq: u32, start: u32, text: &[Token]) -> Vec<Vec<f32>> {
    text.iter().zip(start..).map(|(token, pos)| feed(runner, seq, pos, std::slice::from_ref(token))).collect()
}

/// Guesses of the head, `n` tokens from the last one on.
fn guesses(runner: &mut LlamaRunner, seq: u32, pos: u32, last: Token, n: u32) -> Vec<Vec<f32>> {
    let mut token = last;
    let mut all = Vec::new();
    for i in 0..n {
        runner.draft(&[DraftRow { seq: SeqId(seq), pos: Pos(pos + i), token }]).unwrap();
        all.push(runner.draft_logits(0).unwrap().to_vec());
        token = argmax(&all[all.len() - 1]);
    }
    all
}

#[test]
fn forced_accept_of_every_k_of_n_leaves_the_state_of_a_run_without_drafts() {
    let text = tokens(24, 1);
    let mut plain = runner_with_head(5, 1);
    feed(&mut plain, 0, 0, &text[..8]);
    let expected = one_by_one(&mut plain, 0, 8, &text[8..]);
    for n in 1..=5usize {
        for k in 0..=n {
            let mut runner = runner_with_head(5, 1);
            feed(&mut runner, 0, 0, &text[..8]);
            let rows = verify_rows(0, 8, &draft(&text[8..], n, k));
            runner.step(&rows).unwrap();
            for (i, row) in expected[..=k].iter().enumerate() {
                assert!(runner.logits(i).unwrap() == row, "row {i} of {k} of {n}");
            }
            let keep = 8 + k + 1;
            assert!(runner.truncate(SeqId(0), Pos(keep as u32)).unwrap());
            let after = one_by_one(&mut runner, 0, keep as u32, &text[keep..]);
            assert!(after == expected[k + 1..], "after {k} of {n}");
        }
    }
}

#[test]
fn four_sequences_that_accept_different_numbers_stay_apart() {
    let n = 4;
    let texts: Vec<Vec<Token>> = (0..4).map(|seq| tokens(24, 10 + seq)).collect();
    let accepted = [[0usize, 1, 2, 4], [4, 0, 3, 1], [2, 2, 0, 0], [4, 4, 4, 3]];
    for ks in accepted {
        let mut plain = runner_with_head(n as u32, 4);
        let mut runner = runner_with_head(n as u32, 4);
        for (seq, text) in (0..4).zip(&texts) {
            feed(&mut plain, seq, 0, &text[..8]);
            feed(&mut runner, seq, 0, &text[..8]);
        }
        let rows: Vec<BatchRow> =
            (0..4).flat_map(|s| verify_rows(s as u32, 8, &draft(&texts[s][8..], n, ks[s]))).collect();
        runner.step(&rows).unwrap();
        for (s, k) in ks.into_iter().enumerate() {
            if k < n {
                assert!(runner.truncate(SeqId(s as u32), Pos(8 + k as u32 + 1)).unwrap());
            }
        }
        // The others go on while a rollback still waits: those with an even number first.
        for s in [1usize, 3, 0, 2] {
            let (seq, keep) = (s as u32, 8 + ks[s] + 1);
            let expected = one_by_one(&mut plain, seq, 8, &texts[s][8..]);
            let after = one_by_one(&mut runner, seq, keep as u32, &texts[s][keep..]);
            assert!(after == expected[ks[s] + 1..], "sequence {s} of {ks:?}");
        }
    }
}

#[test]
fn the_heads_guesses_do_not_depend_on_how_a_sequence_came_to_its_state() {
    let text = tokens(90, 3);
    let at = 80;
    let mut fresh = runner_with_head(4, 2);
    feed(&mut fresh, 0, 0, &text[..at]);
    let expected = guesses(&mut fresh, 0, at as u32, text[at], 3);
    // One token a step, in another sequence; now and then a draft, of which some is right, and rollbacks.
    let mut runner = runner_with_head(4, 2);
    let mut pos = 0;
    for round in 0.. {
        if pos >= at {
            break;
        }
        let (n, k) = if round % 3 == 0 || pos + 5 > at { (0, 0) } else { (4, round % 5) };
        if round % 2 == 1 {
            guesses(&mut runner, 1, pos as u32, text[pos], 1 + round as u32 % 3);
        }
        runner.step(&verify_rows(1, pos as u32, &draft(&text[pos..], n, k))).unwrap();
        pos += k + 1;
        assert!(runner.truncate(SeqId(1), Pos(pos as u32)).unwrap());
    }
    assert_eq!(pos, at);
    let found = guesses(&mut runner, 1, at as u32, text[at], 3);
    for (a, b) in expected.iter().zip(&found) {
        assert!(native::max_difference(a, b) < 1e-3, "{}", native::max_difference(a, b));
    }
    // A draft that no step followed leaves nothing behind.
    let again = guesses_again(&mut runner, at as u32, text[at]);
    assert!(again.iter().zip(&found).all(|(a, b)| native::max_difference(a, b) < 1e-3));
}

/// Drops the running draft by a cut that removes nothing, and drafts anew.
fn guesses_again(runner: &mut LlamaRunner, pos: u32, last: Token) -> Vec<Vec<f32>> {
    assert!(runner.truncate(SeqId(1), Pos(pos)).unwrap());
    guesses(runner, 1, pos, last, 3)
}

#[test]
fn without_mtp_there_is_no_head_and_no_state_to_roll_back_to() {
    let mut runner = native::runner(&engine_config(512, 1));
    assert!(!runner.facts().mtp && runner.facts().rollback_max == 0 && runner.facts().n_outputs_seq == 1);
    assert!(runner.mtp_memory_use().is_empty());
    feed(&mut runner, 0, 0, &tokens(4, 1));
    assert!(runner.draft(&[DraftRow { seq: SeqId(0), pos: Pos(4), token: Token(5) }]).is_err());
    assert!(runner.draft_logits(0).is_err());
}

#[test]
fn a_draft_in_the_wrong_place_is_refused_and_harms_nothing() {
    let text = tokens(12, 4);
    let mut runner = runner_with_head(3, 2);
    feed(&mut runner, 0, 0, &text[..8]);
    for (seq, pos) in [(0, 7), (0, 9), (2, 0), (1, 3)] {
        assert!(runner.draft(&[DraftRow { seq: SeqId(seq), pos: Pos(pos), token: text[8] }]).is_err());
    }
    assert!(runner.draft(&[]).is_err());
    assert!(runner.draft(&[DraftRow { seq: SeqId(0), pos: Pos(8), token: Token(1 << 20) }]).is_err());
    let mut fresh = runner_with_head(3, 2);
    feed(&mut fresh, 0, 0, &text[..8]);
    let expected = guesses(&mut fresh, 0, 8, text[8], 3);
    assert!(guesses(&mut runner, 0, 8, text[8], 3) == expected);
    assert!(feed(&mut runner, 0, 8, &text[8..]) == feed(&mut fresh, 0, 8, &text[8..]));
}

/// An engine over the demo model with its head.
struct Rig {
    handle: Handle,
    joiner: Joiner,
    tokenizer: Tokenizer,
}

impl Rig {
    fn start(n_max: u32, parallel: u32) -> Rig {
        let tokenizer = vocab::tokenizer(&model_with_head());
        let for_engine = tokenizer.clone();
        let options = ContextOptions {
            outputs_per_sequence: n_max + 1,
            rollback_tokens: n_max,
            mtp: Some(MtpCache { k: native::CACHE, v: native::CACHE }),
        };
        let factory = move || {
            let runner = LlamaRunner::new(model_with_head(), &engine_config(4096, parallel), options)?;
            Ok::<_, plateau::llama::LoadError>(Loaded { runner: Box::new(runner), tokenizer: for_engine })
        };
        let settings = EngineSettings { queue_capacity: 4096, prefill_chunk_tokens: 128, image_cache_bytes: 0 };
        let (handle, joiner) = Engine::spawn(factory, settings, Metrics::new()).unwrap();
        Rig { handle, joiner, tokenizer }
    }

    fn request(&self, prompt: &str, sampling: SamplingParams, speculative: SpeculativeParams) -> GenerationRequest {
        let text = format!("<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n<think>\n");
        let prompt = self.tokenizer.encode(&text, Specials::Parse).unwrap();
        GenerationRequest {
            id: "test".into(),
            prompt: prompt.into_iter().map(PromptItem::Token).collect(),
            images: vec![],
            sampling,
            stop: Vec::new(),
            max_tokens: Some(96),
            ignore_eos: false,
            logprobs: None,
            cache_prompt: false,
            cache: CacheUse::NO_BREAKPOINTS,
            progress: false,
            show_control: true,
            speculative,
            constraint: Constraint::default(),
            arrived: Instant::now(),
        }
    }

    async fn ask(&self, request: GenerationRequest) -> (Vec<Token>, Finish) {
        let mut stream = self.handle.submit(request).unwrap();
        let mut all = Vec::new();
        while let Some(event) = stream.next().await {
            match event {
                Event::Delta { tokens, .. } => all.extend(tokens),
                Event::Finished(finish) => {
                    all.extend(&finish.tokens);
                    return (all, *finish);
                }
                Event::Failed(error) => panic!("{error}"),
                Event::Progress { .. } => {}
            }
        }
        panic!("no terminal event")
    }
}

/// The most that MTP may draft, nothing by lookup.
fn mtp(n: u32) -> SpeculativeParams {
    SpeculativeParams { mtp_max: n, lookup_max: 0, adaptive: false, n_min: 0, p_min: 0.0 }
}

fn sampled(temperature: f32, seed: u64) -> SamplingParams {
    SamplingParams { temperature, top_k: 20, top_p: 0.95, seed, ..SamplingParams::greedy() }
}

/// Prompts of the kinds that the model was trained for.
fn prompts(n: usize) -> Vec<String> {
    let names = ["Mia", "Tom", "Anna", "Ben", "Lena", "Max"];
    let things = ["dog", "box", "river", "lamp", "stone", "tree", "bird"];
    let prompt = |i: usize| {
        let (name, thing, a, b) = (names[i % 6], things[i % 7], 3 + i % 50, 5 + (i * 7) % 60);
        match i % 10 {
            0 => format!("Count from {a} to {}.", a + b),
            1 => format!("Tell a story about {name} and a {thing}."),
            2 => format!("Write a Python function add_{thing} that returns the sum of {thing} and {name}."),
            3 => format!("What is {a} + {b}?"),
            4 => format!("Write a Rust struct {name} with the fields {thing}: u32, size: String, color: bool."),
            5 => format!(
                "Echo the following text.\n\nThe old {thing} waits near the river. {name} the baker runs at the market."
            ),
            6 => format!("Extract name, age, city and job as JSON: {name} is a {a} year old baker from Paris."),
            7 => format!("Write the multiplication table of {}.", 2 + i % 11),
            8 => format!("Repeat: {thing} {name} {thing} {a} {b}"),
            _ => format!("List the squares from 1 to {}.", 5 + i % 15),
        }
    };
    (0..n).map(prompt).collect()
}

/// As many as the variable says: the gate runs a few, docs/speculative.md says how many were run.
#[expect(clippy::disallowed_methods, reason = "a test has no configuration")]
fn wanted(name: &str, usual: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

#[tokio::test]
async fn answers_with_any_drafts_are_those_without() {
    let n_prompts = wanted("DRAFT_PROMPTS", 10);
    let mut totals = [(0u32, 0u32); 6];
    let mut plain = HashMap::new();
    for n_max in 0..=5u32 {
        let rig = Rig::start(5, 1);
        for (i, prompt) in prompts(n_prompts).iter().enumerate() {
            for (kind, sampling) in [sampled(0.0, 0), sampled(0.7, i as u64)].into_iter().enumerate() {
                let (tokens, finish) = rig.ask(rig.request(prompt, sampling, mtp(n_max))).await;
                let n_generated = finish.usage.completion as u32;
                totals[n_max as usize].0 += n_generated;
                totals[n_max as usize].1 += finish.drafts.n_steps;
                let first = plain.entry((i, kind)).or_insert_with(|| tokens.clone());
                assert_eq!(*first, tokens, "n_max {n_max}, kind {kind}: {prompt}");
            }
        }
        drop(rig.handle);
        drop(rig.joiner);
    }
    for (n_max, (n_tokens, n_steps)) in totals.into_iter().enumerate() {
        eprintln!(
            "n_max {n_max}: {n_tokens} tokens in {n_steps} steps, {:.2} a step",
            f64::from(n_tokens) / f64::from(n_steps)
        );
    }
    let length = |i: usize| f64::from(totals[i].0) / f64::from(totals[i].1);
    assert!(length(3) >= 3.0, "acceptance length {}", length(3));
}

#[tokio::test]
async fn drafts_are_accepted_in_every_sequence_alike() {
    let rig = Rig::start(3, 4);
    let ask = |_| rig.ask(rig.request("Write the multiplication table of 7.", sampled(0.0, 0), mtp(3)));
    let answers = futures_util::future::join_all((0..4).map(ask)).await;
    for (tokens, finish) in &answers {
        assert_eq!(*tokens, answers[0].0);
        let drafts = finish.drafts;
        let length = f64::from(finish.usage.completion as u32) / f64::from(drafts.n_steps);
        assert!(length >= 3.0, "{length} tokens a step: {drafts:?}");
    }
}

#[tokio::test]
async fn the_distribution_at_temperature_1_is_that_without_drafts() {
    // Two samples of the first tokens of many seeds, one with drafts and one without, on disjoint seeds.
    let n_seeds = wanted("DRAFT_SEEDS", 120) as u64;
    let n_tokens = 24;
    let rig = Rig::start(3, 1);
    let prompt = "Tell a story about Mia and a dog.";
    let mut counts: HashMap<(usize, Token), [u32; 2]> = HashMap::new();
    for seed in 0..2 * n_seeds {
        let side = (seed % 2) as usize;
        let sampling = SamplingParams { temperature: 1.0, seed, ..SamplingParams::greedy() };
        let speculative = if side == 1 { mtp(3) } else { SpeculativeParams::OFF };
        let request = GenerationRequest { max_tokens: Some(n_tokens), ..rig.request(prompt, sampling, speculative) };
        for (i, token) in rig.ask(request).await.0.into_iter().enumerate() {
            counts.entry((i, token)).or_default()[side] += 1;
        }
    }
    let (statistic, degrees) = chi_square(&counts);
    let z = (statistic - degrees) / (2.0 * degrees).sqrt();
    let n: u32 = counts.values().flatten().sum();
    eprintln!("{n} tokens, chi-square {statistic:.1} with {degrees} degrees of freedom, z {z:.2}");
    assert!(z < 4.0, "chi-square {statistic} with {degrees} degrees of freedom");
}

/// Homogeneity of two samples by position; cells with fewer than 10 in all are joined.
fn chi_square(counts: &HashMap<(usize, Token), [u32; 2]>) -> (f64, f64) {
    let mut by_position: HashMap<usize, Vec<[u32; 2]>> = HashMap::new();
    for ((position, _), pair) in counts {
        let cells = by_position.entry(*position).or_insert_with(|| vec![[0, 0]]);
        if pair[0] + pair[1] >= 10 {
            cells.push(*pair);
        } else {
            cells[0] = [cells[0][0] + pair[0], cells[0][1] + pair[1]];
        }
    }
    let (mut statistic, mut degrees) = (0.0, 0.0);
    for cells in by_position.values() {
        let cells: Vec<_> = cells.iter().filter(|c| c[0] + c[1] > 0).collect();
        let total = |side: usize| cells.iter().map(|c| f64::from(c[side])).sum::<f64>();
        let (a, b) = (total(0), total(1));
        if cells.len() < 2 || a == 0.0 || b == 0.0 {
            continue;
        }
        for cell in &cells {
            let both = f64::from(cell[0] + cell[1]);
            for (seen, share) in [(cell[0], a / (a + b)), (cell[1], b / (a + b))] {
                let expected = both * share;
                statistic += (f64::from(seen) - expected).powi(2) / expected;
            }
        }
        degrees += (cells.len() - 1) as f64;
    }
    (statistic, degrees)
}
