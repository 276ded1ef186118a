//! Steps: the same tokens alone, together and in any chunks; what a step refuses, and that a refusal changes nothing.
#![cfg(feature = "native")]

mod native;

use native::{argmax, engine_config, feed, generate, max_difference, rows, runner, tokens};
use plateau::engine::{BatchRow, ModelRunner, PromptItem, RunnerErrorKind};
use plateau::llama::LlamaRunner;
use plateau::units::{Pos, SeqId, Token};

const N_GENERATED: usize = 24;

/// Four prompts of different lengths.
fn prompts() -> Vec<Vec<Token>> {
    [41, 150, 7, 96].iter().enumerate().map(|(seed, n)| tokens(*n, seed as u32)).collect()
}

#[test]
fn the_same_batch_gives_the_same_logits() {
    let config = engine_config(512, 2);
    let prompt = tokens(100, 1);
    let first = feed(&mut runner(&config), 0, 0, &prompt);
    let mut runner = runner(&config);
    assert!(feed(&mut runner, 0, 0, &prompt) == first);
    runner.clear(SeqId(0));
    assert!(feed(&mut runner, 0, 0, &prompt) == first, "after clearing");
    assert!(feed(&mut runner, 1, 0, &prompt) == first, "another sequence");
}

#[test]
fn chunk_sizes_do_not_change_the_text() {
    let mut runner = runner(&engine_config(1024, 1));
    for prompt in prompts() {
        let whole = generate(&mut runner, 0, &prompt, 512, N_GENERATED);
        for chunk in [1, 16, 33, 128] {
            runner.clear(SeqId(0));
            assert_eq!(generate(&mut runner, 0, &prompt, chunk, N_GENERATED), whole, "chunks of {chunk}");
        }
        runner.clear(SeqId(0));
    }
}

/// Prompt rows of one sequence in a step.
const CHUNK: usize = 32;

#[test]
fn four_sequences_together_compute_what_each_computes_alone() {
    let prompts = prompts();
    let mut alone = Vec::new();
    for prompt in &prompts {
        alone.push(continuation(&mut runner(&engine_config(1024, 1)), prompt));
    }
    let mut runner = runner(&engine_config(2048, 4));
    let mut done = vec![0; prompts.len()];
    let mut n_compared = 0;
    // Every step has rows of all that have some left: a chunk of the prompt, or one token of the continuation.
    while done.iter().zip(&prompts).any(|(done, prompt)| *done < prompt.len() + N_GENERATED) {
        let (batch, ends) = mixed_step(&prompts, &alone, &mut done);
        runner.step(&batch).expect("a step");
        for (seq, row) in ends {
            let logits = runner.logits(row).expect("logits");
            if let Some((_, expected)) = done[seq].checked_sub(prompts[seq].len()).and_then(|n| alone[seq].get(n)) {
                let difference = max_difference(logits, expected);
                assert!(difference == 0.0, "sequence {seq} at {}: off by {difference}", done[seq]);
                n_compared += 1;
            }
        }
    }
    assert_eq!(n_compared, prompts.len() * N_GENERATED);
}

/// The greedy tokens after `prompt`, each with the logits that it was chosen from.
fn continuation(runner: &mut LlamaRunner, prompt: &[Token]) -> Vec<(Token, Vec<f32>)> {
    let mut logits = Vec::new();
    for (index, chunk) in prompt.chunks(CHUNK).enumerate() {
        logits = feed(runner, 0, (index * CHUNK) as u32, chunk);
    }
    let mut out = Vec::new();
    for pos in prompt.len().. {
        let token = argmax(&logits);
        out.push((token, logits));
        if out.len() == N_GENERATED {
            break;
        }
        logits = feed(runner, 0, pos as u32, &[token]);
    }
    out
}

/// The rows of one step, and (sequence, row) of the last row of each.
fn mixed_step(
    prompts: &[Vec<Token>],
    alone: &[Vec<(Token, Vec<f32>)>],
    done: &mut [usize],
) -> (Vec<BatchRow>, Vec<(usize, usize)>) {
    let (mut batch, mut ends) = (Vec::new(), Vec::new());
    for (seq, prompt) in prompts.iter().enumerate() {
        let start = done[seq];
        let part = match start.checked_sub(prompt.len()) {
            None => prompt[start..prompt.len().min(start + CHUNK)].to_vec(),
            Some(n) if n < N_GENERATED => vec![alone[seq][n].0],
            Some(_) => continue,
        };
        batch.extend(rows(seq as u32, start as u32, &part));
        done[seq] += part.len();
        ends.push((seq, batch.len() - 1));
    }
    (batch, ends)
}

#[test]
fn identical_prompts_together_give_one_answer() {
    let mut runner = runner(&engine_config(2048, 4));
    let prompt = tokens(40, 3);
    let step = |pos: u32, tokens: &[Token]| (0..4).flat_map(|seq| rows(seq, pos, tokens)).collect::<Vec<_>>();
    runner.step(&step(0, &prompt)).expect("a step");
    let mut last = prompt.len();
    for pos in prompt.len() as u32..prompt.len() as u32 + N_GENERATED as u32 {
        let rows: Vec<Vec<f32>> = (1..=4).map(|n| runner.logits(n * last - 1).expect("logits").to_vec()).collect();
        assert!(rows.iter().all(|row| *row == rows[0]), "at {pos}");
        runner.step(&step(pos, &[argmax(&rows[0])])).expect("a step");
        last = 1;
    }
}

#[test]
fn a_full_cache_is_no_room_and_changes_nothing() {
    let mut runner = runner(&engine_config(256, 2));
    assert_eq!(runner.facts().n_ctx, 256);
    let prompt = tokens(200, 1);
    feed(&mut runner, 0, 0, &prompt);
    let error = runner.step(&rows(1, 0, &tokens(57, 2))).expect_err("200 + 57 > 256");
    assert_eq!(error.kind, RunnerErrorKind::NoRoom);
    // What was there goes on as if nothing had been tried, and the other sequence gets what is left.
    let next = feed(&mut runner, 0, 200, &tokens(1, 3));
    let mut fresh = native::runner(&engine_config(256, 2));
    feed(&mut fresh, 0, 0, &prompt);
    assert!(next == feed(&mut fresh, 0, 200, &tokens(1, 3)));
    feed(&mut runner, 1, 0, &tokens(55, 2));
    assert_eq!(runner.step(&rows(0, 201, &tokens(1, 4))).expect_err("full").kind, RunnerErrorKind::NoRoom);
    runner.clear(SeqId(1));
    feed(&mut runner, 0, 201, &tokens(55, 4));
}

#[test]
fn a_batch_that_would_abort_llama_cpp_is_refused() {
    let mut runner = runner(&engine_config(1024, 2));
    let facts = runner.facts().clone();
    let good = rows(0, 0, &tokens(3, 1));
    let with = |change: fn(&mut Vec<BatchRow>)| {
        let mut rows = good.clone();
        change(&mut rows);
        rows
    };
    let bad = [
        Vec::new(),
        rows(0, 0, &tokens(facts.n_batch + 1, 1)),
        with(|rows| rows[1].item = PromptItem::Token(Token(u32::MAX))),
        with(|rows| rows[1].item = PromptItem::Token(Token(1 << 20))),
        with(|rows| rows.iter_mut().for_each(|row| row.seq = SeqId(2))),
        with(|rows| rows[2].pos = Pos(7)),
        with(|rows| rows.iter_mut().for_each(|row| row.pos.0 += 1)),
        with(|rows| rows.iter_mut().for_each(|row| row.output = true)),
    ];
    for rows in bad {
        assert_eq!(runner.step(&rows).expect_err("refused").kind, RunnerErrorKind::InvalidBatch);
    }
    runner.step(&good).expect("still in order");
    assert!(runner.logits(0).is_err(), "a row without output");
    assert!(runner.logits(3).is_err(), "no such row");
    assert_eq!(runner.logits(2).expect("logits").len(), facts.n_vocab);
}
