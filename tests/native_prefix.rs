//! Saved states over the demo model on one thread: what is put back goes on as if it had never left, to the bit, from any
//! place and with any cache type; only what is new is processed.
//!
//! `PLATEAU_FULL_SWEEP=N` runs the residue sweep over every length from N to 2048 and the storm over 1,000 turns.
#![cfg(feature = "native")]
#![allow(clippy::unwrap_used, reason = "a failure in a helper of a test is a failed test")]

mod native;

use std::path::Path;
use std::time::Instant;

use native::{argmax, engine_config, feed, model_with_head, rows, tokens};
use plateau::config::{CacheType, EngineConfig};
use plateau::engine::prefix::{DiskSettings, Fingerprint};
use plateau::engine::{
    CacheUse, Constraint, DraftRow, Engine, EngineSettings, Event, Finish, GenerationRequest, Handle, Joiner, Loaded,
    ModelRunner, PrefixSettings, PromptItem, Restore, RunnerErrorKind, Saved, SavedRows, SpeculativeParams, Tier,
};
use plateau::llama::{ContextOptions, LlamaRunner, MtpCache, vocab};
use plateau::sampling::SamplingParams;
use plateau::telemetry::Metrics;
use plateau::units::{Pos, SeqId, Token};

fn config(cache: CacheType, n_ctx: u32, parallel: u32) -> EngineConfig {
    EngineConfig { cache_type_k: cache, cache_type_v: cache, ..engine_config(n_ctx, parallel) }
}

fn options() -> ContextOptions {
    let mtp = Some(MtpCache { k: native::CACHE, v: native::CACHE });
    ContextOptions { outputs_per_sequence: 4, rollback_tokens: 3, mtp }
}

fn runner(cache: CacheType, n_ctx: u32, parallel: u32) -> LlamaRunner {
    LlamaRunner::new(model_with_head(), &config(cache, n_ctx, parallel), options()).unwrap()
}

/// Logits after each of `text`, one step a token, and what the head guesses after the last.
fn go_on(runner: &mut LlamaRunner, seq: u32, start: usize, text: &[Token]) -> Vec<Vec<f32>> {
    let mut out: Vec<Vec<f32>> = text
        .iter()
        .zip(start as u32..)
        .map(|(token, pos)| feed(runner, seq, pos, std::slice::from_ref(token)))
        .collect();
    let token = argmax(&out[out.len() - 1]);
    runner.draft(&[DraftRow { seq: SeqId(seq), pos: Pos((start + text.len()) as u32), token }]).unwrap();
    out.push(runner.draft_logits(0).unwrap().to_vec());
    out
}

fn save(runner: &mut LlamaRunner, seq: u32, from: usize) -> Saved {
    runner.save(SeqId(seq), Pos(from as u32)).unwrap()
}

struct Put<'a> {
    seq: u32,
    donor: u32,
    kept: usize,
    /// (bytes, start, from, to)
    rows: &'a [(&'a [u8], usize, usize, usize)],
    point: &'a [u8],
    end: usize,
}

fn put(runner: &mut LlamaRunner, put: &Put<'_>) -> Result<(), RunnerErrorKind> {
    let pos = |n: usize| Pos(n as u32);
    let rows: Vec<SavedRows<'_>> = put
        .rows
        .iter()
        .map(|(bytes, start, from, to)| SavedRows { bytes, start: pos(*start), from: pos(*from), to: pos(*to) })
        .collect();
    let restore = Restore {
        seq: SeqId(put.seq),
        donor: SeqId(put.donor),
        kept: pos(put.kept),
        rows: &rows,
        point: put.point,
        end: pos(put.end),
    };
    runner.restore(&restore).map_err(|error| error.kind)
}

#[test]
fn a_state_goes_on_to_the_bit_from_bytes_from_its_own_rows_and_from_those_of_another() {
    for cache in [CacheType::Bf16, CacheType::F16, CacheType::Q8_0, CacheType::Q4_0] {
        let text = tokens(120, 1);
        let mut runner = runner(cache, 1024, 3);
        feed(&mut runner, 0, 0, &text[..60]);
        let first = save(&mut runner, 0, 0);
        feed(&mut runner, 0, 60, &text[60..100]);
        let second = save(&mut runner, 0, 60);
        let expected = go_on(&mut runner, 0, 100, &text[100..]);

        // The sequence's own rows, with what came after cut away.
        let own = Put { seq: 0, donor: 0, kept: 100, rows: &[], point: &second.point, end: 100 };
        put(&mut runner, &own).unwrap();
        assert!(go_on(&mut runner, 0, 100, &text[100..]) == expected, "{cache:?} own");
        // Another's, which goes on undisturbed.
        put(&mut runner, &Put { seq: 1, ..own }).unwrap();
        assert!(go_on(&mut runner, 1, 100, &text[100..]) == expected, "{cache:?} shared");
        // From bytes, after everything was forgotten.
        runner.clear(SeqId(0));
        runner.clear(SeqId(1));
        let both = [(&first.rows[..], 0, 0, 60), (&second.rows[..], 60, 60, 100)];
        put(&mut runner, &Put { seq: 2, donor: 2, kept: 0, rows: &both, ..own }).unwrap();
        assert!(go_on(&mut runner, 2, 100, &text[100..]) == expected, "{cache:?} bytes");
        // Some of the bytes behind rows that are there.
        put(&mut runner, &Put { seq: 2, donor: 2, kept: 60, rows: &both[1..], ..own }).unwrap();
        assert!(go_on(&mut runner, 2, 100, &text[100..]) == expected, "{cache:?} mixed");
        // Rows that were saved together and are taken apart lie in another order, over which f16 sums round otherwise.
        if cache == CacheType::Bf16 {
            let from_30 = [(&first.rows[..], 0, 30, 60), (&second.rows[..], 60, 60, 100)];
            put(&mut runner, &Put { seq: 2, donor: 2, kept: 30, rows: &from_30, ..own }).unwrap();
            assert!(go_on(&mut runner, 2, 100, &text[100..]) == expected, "taken apart");
        }
    }
}

#[test]
fn a_state_with_a_rollback_that_waits_is_the_one_after_it() {
    let text = tokens(80, 2);
    let mut runner = runner(CacheType::Bf16, 512, 2);
    feed(&mut runner, 0, 0, &text[..40]);
    let mut drafted = rows(0, 40, &[text[40], Token(700), Token(701), Token(702)]);
    drafted.iter_mut().for_each(|row| row.output = true);
    runner.step(&drafted).unwrap();
    assert!(runner.truncate(SeqId(0), Pos(41)).unwrap());
    let saved = save(&mut runner, 0, 0);
    let expected = go_on(&mut runner, 0, 41, &text[41..]);
    let bytes = [(&saved.rows[..], 0, 0, 41)];
    put(&mut runner, &Put { seq: 1, donor: 1, kept: 0, rows: &bytes, point: &saved.point, end: 41 }).unwrap();
    assert!(go_on(&mut runner, 1, 41, &text[41..]) == expected);
}

/// Attention rows alone gave other servers garbled answers.
#[test]
fn a_incomplete_state_leaves_nothing_behind_and_harms_nobody() {
    let text = tokens(60, 3);
    let mut runner = runner(CacheType::Q8_0, 512, 2);
    feed(&mut runner, 0, 0, &text[..40]);
    let saved = save(&mut runner, 0, 0);
    let expected = go_on(&mut runner, 0, 40, &text[40..]);
    for cut in [0, 1, 8, 9, 100, saved.point.len() / 2, saved.point.len() - 1] {
        let bytes = [(&saved.rows[..], 0, 0, 40)];
        let incomplete = Put { seq: 1, donor: 1, kept: 0, rows: &bytes, point: &saved.point[..cut], end: 40 };
        assert!(put(&mut runner, &incomplete).is_err(), "point {cut}");
    }
    for cut in [0, 7, 8, 16, 100, saved.rows.len() / 2, saved.rows.len() - 1] {
        let bytes = [(&saved.rows[..cut], 0, 0, 40)];
        let incomplete = Put { seq: 1, donor: 1, kept: 0, rows: &bytes, point: &saved.point, end: 40 };
        assert!(put(&mut runner, &incomplete).is_err(), "rows {cut}");
    }
    // A gap, another end, a donor without the rows.
    let whole = [(&saved.rows[..], 0, 0, 40)];
    let late = [(&saved.rows[..], 0, 10, 40)];
    for (rows, kept, end) in [(&late, 0, 40), (&whole, 0, 39), (&whole, 20, 40)] {
        let wrong = Put { seq: 1, donor: 1, kept, rows, point: &saved.point, end };
        assert!(put(&mut runner, &wrong).is_err(), "{kept} {end}");
    }
    let fresh = feed(&mut runner, 1, 0, &text[..40]);
    assert_eq!(fresh.len(), runner.facts().n_vocab, "the sequence is empty and usable");
    put(&mut runner, &Put { seq: 0, donor: 0, kept: 40, rows: &[], point: &saved.point, end: 40 }).unwrap();
    assert!(go_on(&mut runner, 0, 40, &text[40..]) == expected);
}

#[test]
fn without_room_the_state_is_refused_and_the_others_stay() {
    let text = tokens(400, 4);
    let mut runner = runner(CacheType::F16, 512, 2);
    for (i, chunk) in text[..300].chunks(100).enumerate() {
        feed(&mut runner, 0, i as u32 * 100, chunk);
    }
    let saved = save(&mut runner, 0, 0);
    let bytes = [(&saved.rows[..], 0, 0, 300)];
    let copy = Put { seq: 1, donor: 1, kept: 0, rows: &bytes, point: &saved.point, end: 300 };
    assert!(put(&mut runner, &copy).is_err());
    let expected = go_on(&mut runner, 0, 300, &text[300..320]);
    put(&mut runner, &Put { seq: 0, donor: 0, kept: 300, rows: &[], ..copy }).unwrap();
    assert!(go_on(&mut runner, 0, 300, &text[300..320]) == expected);
}

struct Rig {
    handle: Handle,
    joiner: Joiner,
}

const MIB: u64 = 1 << 20;

fn memory(mib: u64) -> PrefixSettings {
    PrefixSettings { ram_bytes: mib * MIB, ..PrefixSettings::OFF }
}

fn on_disk(folder: &Path) -> PrefixSettings {
    let disk = Some(DiskSettings { folder: folder.to_owned(), bytes: 8192 * MIB });
    PrefixSettings { disk, fingerprint: Fingerprint(1), ..memory(4096) }
}

impl Rig {
    fn start(cache_type: CacheType, parallel: u32, cache: PrefixSettings) -> Rig {
        let factory = move || {
            let runner = LlamaRunner::new(model_with_head(), &config(cache_type, 4096, parallel), options())?;
            let tokenizer = vocab::tokenizer(&model_with_head());
            Ok::<_, plateau::llama::LoadError>(Loaded { runner: Box::new(runner), tokenizer })
        };
        let settings = EngineSettings { queue_capacity: 64, prefill_chunk_tokens: 128, image_cache_bytes: 0 };
        let (handle, joiner) = Engine::with_cache(factory, settings, cache, Metrics::new()).unwrap();
        Rig { handle, joiner }
    }

    async fn ask(&self, prompt: &[Token], cached: bool) -> (Vec<Token>, Vec<f32>, Finish) {
        let request = GenerationRequest {
            id: "test".into(),
            prompt: prompt.iter().map(|token| PromptItem::Token(*token)).collect(),
            images: vec![],
            sampling: SamplingParams::greedy(),
            stop: Vec::new(),
            max_tokens: Some(6),
            ignore_eos: true,
            logprobs: Some(1),
            cache_prompt: cached,
            cache: CacheUse { store: cached, breakpoints: Vec::new() },
            progress: false,
            show_control: true,
            speculative: SpeculativeParams { mtp_max: 3, lookup_max: 0, adaptive: false, n_min: 0, p_min: 0.0 },
            constraint: Constraint::default(),
            arrived: Instant::now(),
        };
        let mut stream = self.handle.submit(request).unwrap();
        let (mut out, mut logprobs) = (Vec::new(), Vec::new());
        while let Some(event) = stream.next().await {
            match event {
                Event::Delta { tokens, logprobs: more, .. } => {
                    out.extend(tokens);
                    logprobs.extend(more.iter().map(|l| l.logprob));
                }
                Event::Finished(finish) => {
                    out.extend(&finish.tokens);
                    logprobs.extend(finish.logprobs.iter().map(|l| l.logprob));
                    return (out, logprobs, *finish);
                }
                Event::Failed(error) => panic!("{error}"),
                Event::Progress { .. } => {}
            }
        }
        panic!("no terminal event")
    }

    async fn prefilled(&self, prompt: &[Token]) -> usize {
        self.ask(prompt, true).await.2.timings.prompt_n
    }

    fn close(self) {
        self.joiner.join(self.handle);
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn edited(base: &[Token], at: usize, seed: u32) -> Vec<Token> {
    let mut out = base[..at].to_vec();
    out.extend(tokens(base.len() - at, seed));
    if out[at] == base[at] {
        out[at] = Token(299);
    }
    out
}

/// Tokens processed again beyond what is new: the measured hole of others.
async fn table(rig: &Rig, base: &[Token], seed: u32) -> Vec<(&'static str, usize)> {
    let n = base.len();
    let mut rows = vec![("identical repeat", rig.prefilled(base).await)];
    let answer = rig.ask(base, true).await.0;
    let longer = [base, &answer[..], &tokens(200, seed)[..]].concat();
    // The last token of an answer has not been processed when it ends.
    rows.push(("append, beyond the new", rig.prefilled(&longer).await - 201));
    let late = edited(base, 1400, seed + 1);
    rows.push(("edit at 1400, beyond the new", rig.prefilled(&late).await - (n - 1400)));
    let early = edited(base, 750, seed + 2);
    rows.push(("edit at 750, beyond the new", rig.prefilled(&early).await - (n - 750)));
    rows.push(("the other branch", rig.prefilled(&late).await));
    rig.prefilled(&tokens(1500, seed + 3)).await;
    rows.push(("another conversation and back", rig.prefilled(base).await));
    rows
}

#[test]
fn only_what_is_new_is_processed_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let base = tokens(1500, 40);
    let check = |rows: &[(&str, usize)]| {
        let most = [1, 0, 128, 128, 1, 1];
        for ((name, n), most) in rows.iter().zip(most) {
            assert!(*n <= most, "{name}: {n}");
        }
    };
    runtime().block_on(async {
        let rig = Rig::start(CacheType::F16, 1, on_disk(dir.path()));
        assert_eq!(rig.prefilled(&base).await, 1500);
        let rows = table(&rig, &base, 50).await;
        println!("first process: {rows:?}");
        check(&rows);
        rig.close();
        let rig = Rig::start(CacheType::F16, 1, on_disk(dir.path()));
        let answer = rig.ask(&base, true).await;
        assert_eq!((answer.2.usage.cached, answer.2.restored.tier), (1499, Tier::Disk));
        let rows = table(&rig, &base, 60).await;
        println!("after a restart: {rows:?}");
        check(&rows);
        rig.close();
    });
}

fn full() -> bool {
    first_of_all().is_some()
}

/// Where a full sweep begins: `PLATEAU_FULL_SWEEP`, to go on with one that was broken off.
#[expect(clippy::disallowed_methods, reason = "a test has no configuration")]
fn first_of_all() -> Option<usize> {
    let value = std::env::var("PLATEAU_FULL_SWEEP").ok()?;
    Some(value.parse().expect("PLATEAU_FULL_SWEEP is a length"))
}

/// The same answer and the same logprobs, without the cache, from nothing, from memory and from disk.
async fn sweep(cache_type: CacheType, lengths: &[usize]) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let rig = Rig::start(cache_type, 1, on_disk(dir.path()));
    let mut expected = Vec::new();
    let mut n_differences = 0;
    for &n in lengths {
        let prompt = tokens(n, n as u32 + 1000);
        // The first time is a cold one, too; that saving changes nothing is asked at every sixth length of a full sweep.
        let saving = rig.ask(&prompt, true).await;
        assert_eq!(saving.2.usage.cached, 0, "{cache_type:?} {n}");
        let cold = if full() && n % 6 != 1 { None } else { Some(rig.ask(&prompt, false).await) };
        rig.ask(&tokens(3, 77), false).await;
        let restored = rig.ask(&prompt, true).await;
        assert_eq!(restored.2.usage.cached, n - 1, "{cache_type:?} {n}");
        assert!(n == 1 || restored.2.restored.tier == Tier::Ram, "{cache_type:?} {n}");
        for (how, answer) in cold.iter().map(|cold| ("without", cold)).chain([("memory", &restored)]) {
            if (&answer.0, &answer.1) != (&saving.0, &saving.1) {
                n_differences += 1;
                eprintln!("{cache_type:?} {n} {how}: {:?} {:?} for {:?} {:?}", answer.0, answer.1, saving.0, saving.1);
            }
        }
        expected.push((saving.0, saving.1));
    }
    rig.close();
    let rig = Rig::start(cache_type, 1, on_disk(dir.path()));
    for (&n, expected) in lengths.iter().zip(&expected) {
        let answer = rig.ask(&tokens(n, n as u32 + 1000), true).await;
        assert!(n == 1 || answer.2.restored.tier == Tier::Disk, "{cache_type:?} {n}: {:?}", answer.2.restored);
        if (&answer.0, &answer.1) != (&expected.0, &expected.1) {
            n_differences += 1;
            eprintln!("{cache_type:?} {n} disk: {:?} {:?} for {expected:?}", answer.0, answer.1);
        }
    }
    rig.close();
    n_differences
}

/// Every length to 2,048, or every sixth to 512 from `first` on.
fn sweep_lengths(cache_type: CacheType, first: usize) {
    let lengths: Vec<usize> = match first_of_all() {
        Some(first) => (first..=2048).collect(),
        None => (first..=512).step_by(6).collect(),
    };
    let mut n_differences = 0;
    // With a folder each: all states of a full sweep are more than memory and disk may take.
    for some in lengths.chunks(128) {
        n_differences += runtime().block_on(sweep(cache_type, some));
        eprintln!("{cache_type:?}: {} lengths to {}, {n_differences} differences", some.len(), some[some.len() - 1]);
    }
    assert_eq!(n_differences, 0, "{cache_type:?}");
}

#[test]
fn cached_and_cold_are_the_same_at_every_length_f16() {
    sweep_lengths(CacheType::F16, 1);
}

#[test]
fn cached_and_cold_are_the_same_at_every_length_q8_0() {
    sweep_lengths(CacheType::Q8_0, 3);
}

#[test]
fn cached_and_cold_are_the_same_at_every_length_q4_0() {
    sweep_lengths(CacheType::Q4_0, 5);
}

/// Edits, forks, aborts and regenerations over 20 conversations, two at once, with room for a few states only.
#[test]
fn every_answer_of_a_storm_is_the_cold_one() {
    let n_turns = if full() { 1000 } else { 60 };
    let dir = tempfile::tempdir().unwrap();
    let disk = Some(DiskSettings { folder: dir.path().to_owned(), bytes: 60 * MIB });
    let settings = PrefixSettings { disk, fingerprint: Fingerprint(1), ..memory(24) };
    runtime().block_on(async {
        // Two sequences share the cache, so that rows lie in another order, over which sums round otherwise; what is cached is
        // rounded again. The comparison to the bit is the sweep's business, here it is the answer that counts.
        let rig = Rig::start(CacheType::Bf16, 2, settings);
        let cold = Rig::start(CacheType::Bf16, 1, memory(24));
        let mut largest = 0.0f32;
        let mut prompts: Vec<Vec<Token>> = (0..20).map(|i| [tokens(60, 1), tokens(40, i + 2)].concat()).collect();
        let mut state = 12345u64;
        let mut random = |n: usize| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 33) as usize % n
        };
        let (mut n_prompt, mut n_prefilled) = (0, 0);
        for turn in 0..n_turns {
            let which = random(20);
            match random(5) {
                0 | 1 => prompts[which].extend(tokens(1 + turn % 40, turn as u32)),
                2 => prompts[which] = edited(&prompts[which], random(prompts[which].len()), turn as u32),
                3 => prompts[which] = prompts[random(20)].clone(),
                _ => {}
            }
            prompts[which].truncate(600);
            let prompt = &prompts[which];
            if random(6) == 0 {
                // Somebody asks and leaves.
                let leaving = rig.ask(prompt, true);
                drop(tokio::time::timeout(std::time::Duration::ZERO, leaving).await);
            }
            let answer = rig.ask(prompt, true).await;
            let expected = cold.ask(prompt, false).await;
            assert_eq!(answer.0, expected.0, "turn {turn}: {:?}", answer.2.restored);
            let most = answer.1.iter().zip(&expected.1).map(|(a, b)| (a - b).abs()).fold(0.0f32, f32::max);
            assert!(most < 0.2, "turn {turn}: {most}");
            largest = largest.max(most);
            (n_prompt, n_prefilled) = (n_prompt + prompt.len(), n_prefilled + answer.2.timings.prompt_n);
            let view = rig.handle.cache();
            assert!(view.ram_bytes <= view.ram_budget && view.disk_bytes <= view.disk_budget);
        }
        println!(
            "{n_turns} turns, {n_prompt} prompt tokens, {n_prefilled} processed, logprobs differ by {largest}, {:?}",
            rig.handle.cache().totals
        );
        rig.close();
        cold.close();
    });
}
