//! The prefix cache over the scripted model: an answer after a restore is the answer without one, whatever came in between,
//! and only what is new is processed.
//!
//! The scripted model's state is a number over all tokens beside its rows: a state put together wrongly ends the engine.

#![allow(clippy::unwrap_used, reason = "a failure in a helper of a test is a failed test")]

mod scripted;

use std::path::Path;

use plateau::engine::fake::{Call, Next};
use plateau::engine::prefix::{DiskSettings, Fingerprint};
use plateau::engine::{
    Breakpoint, BreakpointKind, CacheUse, Engine, FakeRunner, FinishReason, GenerationRequest, MissReason,
    PrefixSettings, SpeculativeParams, Tier,
};
use plateau::telemetry::Metrics;
use plateau::units::Token;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use scripted::*;

const MIB: u64 = 1 << 20;

fn cache(ram_bytes: u64) -> PrefixSettings {
    PrefixSettings { ram_bytes, interval_tokens: Some(128), ..PrefixSettings::OFF }
}

fn on_disk(folder: &Path, fingerprint: u64) -> PrefixSettings {
    let disk = Some(DiskSettings { folder: folder.to_owned(), bytes: 64 * MIB });
    PrefixSettings { disk, fingerprint: Fingerprint(fingerprint), ..cache(64 * MIB) }
}

fn start_cached(runner: FakeRunner, cache: PrefixSettings) -> Rig {
    let metrics = Metrics::new();
    let spawned = Engine::with_cache(move || Ok::<_, String>(runner.loaded()), SETTINGS, cache, metrics.clone());
    let (handle, joiner) = spawned.unwrap();
    Rig { handle, joiner, metrics }
}

/// A hybrid model with three rollback states, one sequence.
fn hybrid(n_seq: usize) -> FakeRunner {
    let next = |history: &[Token]| Next::Token(next_of(history, 40));
    FakeRunner::function(next).with_facts(|facts| facts.n_seq_max = n_seq).verifying(3)
}

/// Tokens without meaning.
fn text(n: usize, seed: u32) -> Vec<Token> {
    (0..n as u32).map(|i| Token(97 + (i * 7 + seed * 13 + i * i % 11) % 26)).collect()
}

fn asking(prompt: &[Token]) -> GenerationRequest {
    GenerationRequest { max_tokens: Some(8), ..request_of(prompt.to_vec()) }
}

/// Asks, checks the answer against that of a model alone, and gives the tokens that were processed.
async fn prefilled(rig: &Rig, prompt: &[Token]) -> usize {
    let answer = rig.ask(asking(prompt)).await;
    assert_eq!(answer.text, alone(prompt, Some(8), 4096, 40).0);
    assert_eq!(answer.finish().timings.prompt_n, prompt.len() - answer.cached());
    prompt.len() - answer.cached()
}

fn edited(base: &[Token], at: usize) -> Vec<Token> {
    let mut out = base[..at].to_vec();
    out.extend(text(base.len() - at, 77));
    out[at] = Token(if base[at].0 == 97 { 98 } else { 97 });
    out
}

/// The measured hole of others, step by step.
async fn table(rig: &Rig, base: &[Token], first: usize) {
    assert_eq!(prefilled(rig, base).await, first);
    assert_eq!(prefilled(rig, base).await, 1, "identical repeat");
    let answer = alone(base, Some(8), 4096, 40).0;
    let mut longer = base.to_vec();
    longer.extend(tokens(&answer));
    let n_known = longer.len();
    longer.extend(text(200, 5));
    let n_new = longer.len() - n_known;
    assert!(prefilled(rig, &longer).await <= n_new + 1, "append a turn");
    let late = edited(base, 1400);
    assert!(prefilled(rig, &late).await <= 128 + 100, "edit at 1400");
    let early = edited(base, 750);
    assert!(prefilled(rig, &early).await <= 128 + 750, "edit at 750");
    assert_eq!(prefilled(rig, &late).await, 1, "the other branch");
    assert_eq!(prefilled(rig, base).await, 1, "the first branch");
    let other = text(1500, 9);
    prefilled(rig, &other).await;
    assert_eq!(prefilled(rig, base).await, 1, "another conversation and back");
}

#[tokio::test]
async fn only_what_is_new_is_processed() {
    let rig = start_cached(hybrid(1), cache(64 * MIB));
    table(&rig, &text(1500, 1), 1500).await;
    rig.close().await;
}

/// Tokens from the edit back to the state that was used.
#[tokio::test]
async fn an_edit_recomputes_no_more_than_the_interval_before_it() {
    let rig = start_cached(hybrid(1), cache(64 * MIB));
    let base = text(1500, 1);
    prefilled(&rig, &base).await;
    for at in [1400, 750, 129, 1499, 300] {
        let n = prefilled(&rig, &edited(&base, at)).await;
        assert!(n - (1500 - at) <= 128, "edit at {at}: {n}");
    }
    rig.close().await;
}

#[tokio::test]
async fn a_restarted_server_goes_on_from_disk() {
    let dir = tempfile::tempdir().unwrap();
    let base = text(1500, 1);
    let rig = start_cached(hybrid(1), on_disk(dir.path(), 1));
    assert_eq!(prefilled(&rig, &base).await, 1500);
    rig.close().await;
    let rig = start_cached(hybrid(1), on_disk(dir.path(), 1));
    assert_eq!(rig.handle.cache().ram_bytes, 0, "nothing is read before it is asked for");
    let answer = rig.ask(asking(&base)).await;
    assert_eq!((answer.cached(), answer.finish().restored.tier), (1499, Tier::Disk));
    table(&rig, &base, 1).await;
    rig.close().await;
    // Another model, quantisation or build.
    let rig = start_cached(hybrid(1), on_disk(dir.path(), 2));
    assert_eq!(prefilled(&rig, &base).await, 1500);
    rig.close().await;
}

#[tokio::test]
async fn the_same_branch_takes_its_rows_from_where_they_are() {
    let (runner, mut calls) = hybrid(2).recorded();
    let rig = start_cached(runner, cache(64 * MIB));
    let base = text(600, 1);
    prefilled(&rig, &base).await;
    calls.drain();
    let answer = rig.ask(asking(&edited(&base, 520))).await;
    assert_eq!((answer.cached(), answer.finish().restored.tier), (512, Tier::Vram));
    let restores: Vec<Call> = calls.drain().into_iter().filter(|call| matches!(call, Call::Restore { .. })).collect();
    assert!(
        matches!(restores[..], [Call::Restore { seq, donor, kept, end }] if seq == donor && kept == end),
        "{restores:?}"
    );
    rig.close().await;
}

/// Two agents with one system prompt: the second takes the rows of the first, which goes on.
#[tokio::test]
async fn a_running_sequence_lends_its_rows() {
    let (runner, gate) = hybrid(2).gated();
    let (runner, mut calls) = runner.recorded();
    let rig = start_cached(runner, cache(64 * MIB));
    let base = text(600, 1);
    let long = GenerationRequest { ignore_eos: true, max_tokens: Some(200), ..asking(&base) };
    let mut first = rig.handle.submit(long).unwrap();
    gate.allow(20);
    first_text(&mut first).await;
    let fork = edited(&base, 520);
    let second = rig.handle.submit(asking(&fork)).unwrap();
    drop(gate);
    let second = read(second).await;
    assert_eq!(second.cached(), 512);
    assert_eq!(second.text, alone(&fork, Some(8), 4096, 40).0);
    let lent = |call: &Call| matches!(call, Call::Restore { seq, donor, kept, end } if seq != donor && kept == end);
    assert!(calls.drain().iter().any(lent));
    let answer = read(first).await;
    assert_eq!(answer.reason(), FinishReason::MaxTokens);
    rig.close().await;
}

#[tokio::test]
async fn an_aborted_prefill_is_kept() {
    let (runner, gate) = hybrid(1).gated();
    let rig = start_cached(runner, cache(64 * MIB));
    let base = text(1500, 1);
    let stream = rig.handle.submit(asking(&base)).unwrap();
    gate.allow(9);
    let n_steps = 9;
    while rig.handle.stats().n_steps < n_steps {
        tokio::task::yield_now().await;
    }
    drop(stream);
    drop(gate);
    let n = prefilled(&rig, &base).await;
    assert!(n < 1500 - 900, "{n}");
    rig.close().await;
}

#[tokio::test]
async fn a_request_may_keep_out_of_the_cache_or_only_read_it() {
    let rig = start_cached(hybrid(1), cache(64 * MIB));
    let base = text(500, 1);
    let unsaved = CacheUse { store: false, breakpoints: vec![] };
    let private = GenerationRequest { cache_prompt: false, cache: unsaved, ..asking(&base) };
    let answer = rig.ask(private.clone()).await;
    assert_eq!(answer.finish().restored.why, MissReason::NotAsked);
    assert_eq!(rig.handle.cache().n_nodes, 0);
    assert_eq!(prefilled(&rig, &base).await, 500);
    let n_nodes = rig.handle.cache().n_nodes;
    let reader =
        GenerationRequest { cache: CacheUse { store: false, breakpoints: vec![] }, ..asking(&edited(&base, 400)) };
    assert_eq!(rig.ask(reader).await.cached(), 384);
    assert_eq!(rig.handle.cache().n_nodes, n_nodes);
    assert_eq!(rig.ask(private).await.cached(), 0);
    rig.close().await;
}

#[tokio::test]
async fn every_miss_has_its_reason() {
    let rig = start_cached(hybrid(1), cache(64 * MIB));
    let base = text(500, 1);
    let why = async |prompt: &[Token]| rig.ask(asking(prompt)).await.finish().restored.why.clone();
    assert_eq!(why(&base).await, MissReason::Unknown);
    let edit = edited(&base, 400);
    let letter = |token: Token| Some(char::from(token.0 as u8).to_string());
    let differs = |at: usize| (letter(base[at]), letter(edit[at]));
    let MissReason::NoState { common: 400 } = why(&edit).await else { panic!("a state lies at 384") };
    let MissReason::New { at: 499, .. } = why(&edit).await else { panic!("a repeat") };
    let mut at_state = base[..384].to_vec();
    at_state.extend(text(30, 3));
    let (known, _) = differs(384);
    if at_state[384] != base[384] {
        assert_eq!(why(&at_state).await, MissReason::New { at: 384, known, prompt: letter(at_state[384]) });
    }
    let story = rig.handle.cache().recent.last().cloned().unwrap();
    assert_eq!(story.n_prompt, 414);
    rig.close().await;
}

#[tokio::test]
async fn the_operator_can_clear_the_cache() {
    let rig = start_cached(hybrid(1), cache(64 * MIB));
    let base = text(500, 1);
    prefilled(&rig, &base).await;
    rig.handle.clear_cache().unwrap();
    assert_eq!(prefilled(&rig, &base).await, 500);
    rig.close().await;
}

#[tokio::test]
async fn a_sampled_check_compares_a_saved_state_with_one_computed_anew() {
    let settings = PrefixSettings { check_every: Some(2), ..cache(64 * MIB) };
    let rig = start_cached(hybrid(1), settings);
    let base = text(500, 1);
    assert_eq!(prefilled(&rig, &base).await, 500);
    assert_eq!(prefilled(&rig, &base).await, 1);
    let answer = rig.ask(asking(&base)).await;
    assert_eq!((answer.cached(), answer.finish().restored.why.clone()), (0, MissReason::Checked));
    let checks = rig.handle.cache().checks;
    assert!(checks.identical >= 4 && checks.wrong == 0, "{checks:?}");
    rig.close().await;
}

/// Marks where a template would put them: the state before the assistant's turn is found although its thinking is dropped.
#[tokio::test]
async fn a_history_without_its_thinking_goes_on_from_before_the_turn() {
    let settings = PrefixSettings { interval_tokens: Some(4096), ..cache(64 * MIB) };
    let rig = start_cached(hybrid(1), settings);
    let (system, user) = (text(90, 1), text(20, 2));
    let prompt: Vec<Token> = [&system[..], &user, &text(3, 3)].concat();
    let marks =
        vec![Breakpoint { at: 90, kind: BreakpointKind::System }, Breakpoint { at: 110, kind: BreakpointKind::Turn }];
    let turn = |prompt: &[Token]| GenerationRequest {
        cache: CacheUse { store: true, breakpoints: marks.clone() },
        ..asking(prompt)
    };
    rig.ask(turn(&prompt)).await;
    let history: Vec<Token> = [&system[..], &user, &text(30, 8)].concat();
    assert_eq!(rig.ask(turn(&history)).await.cached(), 110);
    let sub_agent: Vec<Token> = [&system[..], &text(30, 9)].concat();
    assert_eq!(rig.ask(turn(&sub_agent)).await.cached(), 90);
    rig.close().await;
}

#[derive(Clone, Debug)]
enum Turn {
    Append(usize),
    Edit(usize),
    Regenerate,
    Fork(usize),
    Abort,
}

fn turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        (1usize..200).prop_map(Turn::Append),
        (0usize..400).prop_map(Turn::Edit),
        Just(Turn::Regenerate),
        (0usize..20).prop_map(Turn::Fork),
        Just(Turn::Abort),
    ]
}

/// Random turns over several conversations at once; every answer is that of a model alone.
async fn storm(turns: &[(usize, Turn)], n_seq: usize, settings: PrefixSettings, drafts: bool) {
    let budget = settings.ram_bytes;
    let rig = start_cached(hybrid(n_seq), settings);
    let mut prompts: Vec<Vec<Token>> = (0..20).map(|i| [text(60, 1), text(40, i)].concat()).collect();
    for (seed, (which, turn)) in turns.iter().enumerate() {
        let which = which % prompts.len();
        let seed = seed as u32;
        match turn {
            Turn::Append(n) => {
                let answer = alone(&prompts[which], Some(8), 4096, 40).0;
                prompts[which].extend(tokens(&answer));
                prompts[which].extend(text(*n, seed));
            }
            Turn::Edit(at) => {
                let at = at % prompts[which].len();
                prompts[which] = edited(&prompts[which], at);
            }
            Turn::Fork(other) => prompts[which] = prompts[*other].clone(),
            Turn::Regenerate | Turn::Abort => {}
        }
        prompts[which].truncate(1000);
        let speculative = match drafts {
            true => SpeculativeParams { mtp_max: 0, lookup_max: 3, adaptive: false, n_min: 0, p_min: 0.0 },
            false => SpeculativeParams::OFF,
        };
        let request = GenerationRequest { speculative, ..asking(&prompts[which]) };
        if matches!(turn, Turn::Abort) {
            drop(rig.handle.submit(request).unwrap());
            continue;
        }
        let answer = rig.ask(request).await;
        assert_eq!(answer.text, alone(&prompts[which], Some(8), 4096, 40).0, "turn {seed}: {turn:?}");
        let held = rig.handle.cache();
        assert!(held.ram_bytes <= budget, "{} of {budget}", held.ram_bytes);
    }
    rig.close().await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn every_answer_of_a_storm_is_the_cold_one(
        turns in prop::collection::vec((0usize..20, turn()), 1..80),
        n_seq in 1usize..4,
        ram in 200u64..20_000,
        drafts: bool,
    ) {
        runtime().block_on(storm(&turns, n_seq, cache(ram), drafts));
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// The thousand turns of the plan, with a budget that forces eviction, over disk too.
#[test]
fn a_storm_of_a_thousand_turns_over_memory_and_disk() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let turns = prop::collection::vec((0usize..20, turn()), 1000);
    let turns = turns.new_tree(&mut runner).unwrap().current();
    let dir = tempfile::tempdir().unwrap();
    let disk = Some(DiskSettings { folder: dir.path().to_owned(), bytes: 40_000 });
    let settings = PrefixSettings { disk, fingerprint: Fingerprint(3), ..cache(20_000) };
    runtime().block_on(storm(&turns, 2, settings, true));
}

/// A conversation as a template without old thinking renders it.
struct Agent {
    history: Vec<Token>,
    marks: Vec<Breakpoint>,
}

impl Agent {
    fn say(&mut self, n: usize, seed: u32) {
        if !self.history.is_empty() {
            let kind = if self.marks.is_empty() { BreakpointKind::System } else { BreakpointKind::Message };
            self.marks.push(Breakpoint { at: self.history.len(), kind });
        }
        self.history.push(Token(256));
        self.history.extend(text(n, seed));
    }

    /// With the turn to be generated opened.
    fn request(&self) -> GenerationRequest {
        let mut prompt = self.history.clone();
        let mut marks = self.marks.clone();
        marks.push(Breakpoint { at: prompt.len(), kind: BreakpointKind::Turn });
        prompt.push(Token(256));
        prompt.extend(tokens("assistant<think>"));
        GenerationRequest {
            cache: CacheUse { store: true, breakpoints: marks },
            max_tokens: Some(12),
            ..request_of(prompt)
        }
    }
}

fn common(a: &[Token], b: &[Token]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Forty turns with tool results of 2,000 to 8,000 tokens, one edit, one regeneration, one restart.
#[tokio::test]
async fn an_agents_day_processes_hardly_more_than_what_is_new() {
    let dir = tempfile::tempdir().unwrap();
    let model = || hybrid(1).with_facts(|facts| (facts.n_ctx, facts.n_batch, facts.n_ubatch) = (400_000, 512, 512));
    let settings = || PrefixSettings { interval_tokens: Some(2048), ..on_disk(dir.path(), 1) };
    let mut rig = start_cached(model(), settings());
    let mut agent = Agent { history: Vec::new(), marks: Vec::new() };
    agent.say(3000, 1);
    let mut seen: Vec<Vec<Token>> = Vec::new();
    let (mut n_new, mut n_prefilled) = (0, 0);
    for turn in 0..40u32 {
        match turn {
            20 => {
                // An edit of the last tool result.
                let last = agent.marks.pop().unwrap();
                agent.history.truncate(last.at);
                agent.say(2500, 777);
            }
            25 => {}
            _ => {
                if turn == 30 {
                    rig.close().await;
                    rig = start_cached(model(), settings());
                }
                // The answer without its thinking, and the result of its call.
                agent.say(40, turn + 100);
                agent.say(2000 + (turn as usize * 997) % 6000, turn + 200);
            }
        }
        let request = agent.request();
        let prompt: Vec<Token> = request.prompt.iter().filter_map(plateau::engine::PromptItem::token).collect();
        let answer = rig.ask(request).await;
        let known = seen.iter().map(|other| common(other, &prompt)).max().unwrap_or(0);
        n_new += (prompt.len() - known).max(1);
        n_prefilled += answer.finish().timings.prompt_n;
        seen.push(prompt);
    }
    rig.close().await;
    println!("{n_new} tokens new, {n_prefilled} processed");
    assert!(n_prefilled as f64 <= 1.15 * n_new as f64, "{n_prefilled} processed, {n_new} new");
}

/// Two answers that grow over a cache too small for both: the one that gives way goes on from its saved state.
#[tokio::test]
async fn a_sequence_that_was_set_back_goes_on_from_where_it_was() {
    let next = |history: &[Token]| Next::Token(next_of(history, u64::MAX));
    let small = |facts: &mut plateau::engine::RunnerFacts| (facts.n_seq_max, facts.n_ctx) = (2, 400);
    let (runner, gate) = FakeRunner::function(next).with_facts(small).verifying(3).gated();
    let (runner, mut calls) = runner.recorded();
    let rig = start_cached(runner, cache(64 * MIB));
    let prompts = [text(120, 1), text(120, 2)];
    let streams: Vec<_> = prompts.iter().map(|p| rig.handle.submit(request_of(p.clone())).unwrap()).collect();
    drop(gate);
    for (stream, prompt) in streams.into_iter().zip(&prompts) {
        let answer = read(stream).await;
        assert_eq!((answer.text.clone(), answer.reason()), alone(prompt, None, 400, u64::MAX));
    }
    assert!(!rig.metric("plateau_preemptions_total 0"));
    let calls = calls.drain();
    let moves: Vec<&Call> = calls.iter().filter(|call| !matches!(call, Call::Step(_))).collect();
    let resumed = |call: &Call| matches!(call, Call::Restore { end, .. } if end.0 > 121);
    assert!(calls.iter().any(resumed), "from within the answer: {moves:?}");
    assert_room(&calls);
    rig.close().await;
}
