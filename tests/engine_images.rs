//! Images over the scripted model: answers depend on them and on nothing that happened beside, and none is encoded twice.
//!
//! The scripted model sees each row of an image as a number made of its embedding: one that was mixed up, split or put at
//! the wrong place changes the answer or ends the engine.

#![allow(clippy::unwrap_used, reason = "a failure in a helper of a test is a failed test")]

mod scripted;

use std::path::Path;
use std::sync::Arc;

use plateau::engine::fake::{Call, Calls, Next, token_of};
use plateau::engine::prefix::{DiskSettings, Fingerprint};
use plateau::engine::{
    Engine, EngineError, EngineSettings, FakeRunner, GenerationRequest, Grid, Image, ImageKey, ImageRow, MissReason,
    PrefixSettings, PromptItem, RunnerErrorKind, SpeculativeParams, SubmitError, Tier, whole,
};
use plateau::telemetry::Metrics;
use plateau::units::Token;
use proptest::prelude::*;
use scripted::*;

const MIB: u64 = 1 << 20;
/// Ends an answer about once in so many tokens.
const END_IN: u64 = 40;
const MAX_TOKENS: u32 = 12;

fn image(key: u128, nx: u16, ny: u16) -> Arc<Image> {
    let (width_px, height_px) = (u32::from(nx), u32::from(ny));
    let rgb = vec![0; 3 * usize::from(nx) * usize::from(ny)];
    Arc::new(Image { key: ImageKey::new(key), grid: Grid { nx, ny }, width_px, height_px, rgb })
}

fn rows(image: &Image) -> impl Iterator<Item = PromptItem> {
    ImageRow::all(image.key, image.grid).map(PromptItem::Image)
}

fn text(n: usize, seed: u32) -> Vec<PromptItem> {
    let token = |i: u32| Token(97 + (i * 7 + seed * 13 + i * i % 11) % 26);
    (0..n as u32).map(|i| PromptItem::Token(token(i))).collect()
}

/// A request of items and the images among them.
fn request_with(prompt: Vec<PromptItem>, images: &[Arc<Image>]) -> GenerationRequest {
    let used = |image: &&Arc<Image>| {
        let key = Some(image.key);
        prompt.iter().any(|item| item.image().map(|row| row.key) == key)
    };
    let images = images.iter().filter(used).cloned().collect();
    GenerationRequest { prompt: prompt.into(), images, max_tokens: Some(MAX_TOKENS), ..request_of(Vec::new()) }
}

/// What the model says when nothing disturbs it.
fn right(prompt: &[PromptItem], n_ctx: usize) -> String {
    let seen = |item: &PromptItem| item.token().or(item.image().map(token_of)).unwrap();
    alone(&prompt.iter().map(seen).collect::<Vec<_>>(), Some(MAX_TOKENS), n_ctx, END_IN).0
}

fn seeing(n_seq: usize) -> FakeRunner {
    hashing(END_IN).with_facts(|facts| facts.n_seq_max = n_seq).verifying(3).with_vision(4096)
}

fn settings(encoder_cache: u64) -> EngineSettings {
    EngineSettings { image_cache_bytes: encoder_cache, ..SETTINGS }
}

fn start_seeing(runner: FakeRunner, cache: PrefixSettings, encoder_cache: u64) -> Rig {
    let metrics = Metrics::new();
    let load = move || Ok::<_, String>(runner.loaded());
    let (handle, joiner) = Engine::with_cache(load, settings(encoder_cache), cache, metrics.clone()).unwrap();
    Rig { handle, joiner, metrics }
}

fn cache() -> PrefixSettings {
    PrefixSettings { ram_bytes: 64 * MIB, interval_tokens: Some(64), ..PrefixSettings::OFF }
}

fn encoded(calls: &[Call]) -> Vec<ImageKey> {
    let key = |call: &Call| if let Call::Encode(key) = call { Some(*key) } else { None };
    calls.iter().filter_map(key).collect()
}

/// Two images in a prompt that ends in a question.
fn album(question: u32) -> (Vec<PromptItem>, Vec<Arc<Image>>) {
    let images = vec![image(11, 5, 4), image(22, 3, 9)];
    let mut prompt = text(30, 1);
    for image in &images {
        prompt.extend(rows(image));
        prompt.extend(text(9, 2));
    }
    prompt.extend(text(6, question));
    (prompt, images)
}

#[tokio::test]
async fn an_answer_depends_on_the_image() {
    let rig = start_seeing(seeing(2), PrefixSettings::OFF, 0);
    let mut answers = Vec::new();
    for key in [1, 2] {
        let images = [image(key, 4, 4)];
        let prompt = [text(20, 1), rows(&images[0]).collect(), text(5, 3)].concat();
        let answer = rig.ask(request_with(prompt.clone(), &images)).await;
        assert_eq!(answer.text, right(&prompt, 4096));
        assert_eq!(answer.finish().usage.prompt, 41, "a picture counts its tokens");
        assert_eq!(answer.finish().timings.encode_n, 1);
        answers.push(answer.text);
    }
    assert_ne!(answers[0], answers[1]);
    assert!(rig.metric("plateau_images_total{source=\"encoded\"} 2"));
    rig.close().await;
}

#[tokio::test]
async fn another_question_goes_on_after_the_last_image_without_encoding_it() {
    let (runner, mut calls) = seeing(1).recorded();
    let rig = start_seeing(runner, cache(), 0);
    let (first, images) = album(5);
    assert_eq!(rig.ask(request_with(first.clone(), &images)).await.text, right(&first, 4096));
    assert_eq!(encoded(&calls.drain()), [ImageKey::new(11), ImageKey::new(22)]);
    // A different conversation takes the sequence.
    rig.ask(request_with(text(50, 8), &[])).await;
    let (mut second, _) = album(6);
    // Something else right after the last image.
    let end = second.len() - 15;
    second[end] = PromptItem::Token(Token(65));
    let answer = rig.ask(request_with(second.clone(), &images)).await;
    assert_eq!(answer.text, right(&second, 4096));
    assert_eq!((answer.cached(), answer.finish().restored.tier), (end, Tier::Ram));
    assert_eq!(encoded(&calls.drain()), []);
    assert!(rig.metric("plateau_images_total{source=\"restored\"} 2"));
    rig.close().await;
}

#[tokio::test]
async fn the_same_words_about_another_image_share_nothing_beyond_its_beginning() {
    for hybrid in [true, false] {
        let runner = seeing(1).with_facts(|facts| facts.hybrid = hybrid);
        let rig = start_seeing(runner, cache(), 0);
        let (first, mut images) = album(5);
        rig.ask(request_with(first.clone(), &images)).await;
        // Of the same size, then of another with as many tokens.
        for other in [image(33, 5, 4), image(44, 4, 5)] {
            images[0] = other;
            let mut prompt = first[..30].to_vec();
            prompt.extend(rows(&images[0]));
            prompt.extend_from_slice(&first[50..]);
            let answer = rig.ask(request_with(prompt.clone(), &images)).await;
            assert_eq!(answer.text, right(&prompt, 4096));
            assert!(answer.cached() <= 30, "{} tokens were reused", answer.cached());
            let why = &answer.finish().restored.why;
            assert!(matches!(why, MissReason::New { at: 30, .. } | MissReason::NoState { common: 30 }), "{why:?}");
        }
        rig.close().await;
    }
}

#[tokio::test]
async fn a_restarted_server_goes_on_after_images_from_disk() {
    let dir = tempfile::tempdir().unwrap();
    let on_disk = |folder: &Path| {
        let disk = Some(DiskSettings { folder: folder.to_owned(), bytes: 64 * MIB });
        PrefixSettings { disk, fingerprint: Fingerprint(1), ..cache() }
    };
    let (prompt, images) = album(5);
    for restart in [false, true] {
        let (runner, mut calls) = seeing(1).recorded();
        let rig = start_seeing(runner, on_disk(dir.path()), 0);
        let answer = rig.ask(request_with(prompt.clone(), &images)).await;
        assert_eq!(answer.text, right(&prompt, 4096));
        let (n_cached, tier) = if restart { (prompt.len() - 1, Tier::Disk) } else { (0, Tier::None) };
        assert_eq!((answer.cached(), answer.finish().restored.tier), (n_cached, tier));
        assert_eq!(encoded(&calls.drain()).len(), if restart { 0 } else { 2 });
        let kinds: Vec<_> = rig.handle.cache().nodes.iter().map(|node| (node.n_tokens, node.kind)).collect();
        for end in [50, 86] {
            assert!(kinds.iter().any(|(n, _)| *n == end), "no state after the picture that ends at {end}: {kinds:?}");
        }
        for node in kinds {
            assert_eq!(whole(&prompt, node.0), node.0.min(prompt.len()), "a state inside a picture");
        }
        rig.close().await;
    }
}

#[tokio::test]
async fn an_image_that_comes_again_is_not_encoded_again() {
    let (runner, mut calls) = seeing(4).recorded();
    let rig = start_seeing(runner, PrefixSettings::OFF, MIB);
    let (prompt, images) = album(5);
    for seed in 0..4 {
        // Another beginning, so that no state can be reused.
        let other = [text(10, 20 + seed), prompt.clone()].concat();
        assert_eq!(rig.ask(request_with(other.clone(), &images)).await.text, right(&other, 4096));
    }
    assert_eq!(encoded(&calls.drain()), [ImageKey::new(11), ImageKey::new(22)]);
    assert!(rig.metric("plateau_images_total{source=\"encoder_cache\"} 6"));
    rig.close().await;
    // Without room each is encoded for each request, and once.
    let (runner, mut calls) = seeing(4).recorded();
    let rig = start_seeing(runner, PrefixSettings::OFF, 0);
    for seed in 0..3 {
        let other = [text(10, 20 + seed), prompt.clone()].concat();
        assert_eq!(rig.ask(request_with(other.clone(), &images)).await.text, right(&other, 4096));
    }
    assert_eq!(encoded(&calls.drain()).len(), 6);
    rig.close().await;
}

/// Others wait for one image at a time, not for all of a long album.
#[tokio::test]
async fn decoding_goes_on_between_images() {
    let (runner, mut calls) = seeing(2).recorded();
    let (runner, gate) = runner.gated();
    let rig = start_seeing(runner, PrefixSettings::OFF, 0);
    let talk = GenerationRequest { ignore_eos: true, max_tokens: Some(200), ..request("talk") };
    let mut talker = rig.handle.submit(talk).unwrap();
    gate.allow(2);
    first_text(&mut talker).await;
    let images: Vec<_> = (1..9).map(|key| image(key, 3, 3)).collect();
    let mut prompt = text(5, 1);
    images.iter().for_each(|image| prompt.extend(rows(image)));
    prompt.extend(text(5, 2));
    let reader = rig.handle.submit(request_with(prompt.clone(), &images)).unwrap();
    drop(gate);
    assert_eq!(read(reader).await.text, right(&prompt, 4096));
    assert_eq!(read(talker).await.finish().usage.completion, 200);
    let calls = calls.drain();
    let images_only = |pair: &[Call]| pair.iter().all(|call| matches!(call, Call::Encode(_)));
    assert!(!calls.windows(2).any(images_only), "two pictures without a step between");
    let step = |call: &Call| if let Call::Step(rows) = call { Some(rows.clone()) } else { None };
    let between = calls.iter().skip_while(|call| !matches!(call, Call::Encode(_))).filter_map(step).take(8);
    assert!(between.into_iter().all(|rows| rows.iter().any(|row| row.seq.0 == 0 && row.output)));
    rig.close().await;
}

#[tokio::test]
async fn a_request_that_leaves_while_its_image_is_encoded_takes_no_step() {
    let (runner, mut calls) = seeing(2).recorded();
    let (runner, gate) = runner.encode_gated();
    let rig = start_seeing(runner, cache(), 0);
    let (prompt, images) = album(5);
    let leaving = rig.handle.submit(request_with(prompt.clone(), &images)).unwrap();
    until_encoding(&mut calls).await;
    drop(leaving);
    gate.allow(1);
    let plain = text(20, 3);
    let stays = rig.ask(request_with(plain.clone(), &[])).await;
    assert_eq!(stays.text, right(&plain, 4096));
    assert!(rig.metric("plateau_requests_total{outcome=\"cancelled\"} 1"));
    let others = |call: &Call| matches!(call, Call::Step(rows) if rows.iter().any(|row| row.item.image().is_some()));
    assert!(!calls.drain().iter().any(others));
    drop(gate);
    assert_eq!(rig.ask(request_with(prompt.clone(), &images)).await.text, right(&prompt, 4096));
    rig.close().await;
}

async fn until_encoding(calls: &mut Calls) {
    while !matches!(calls.next().await.unwrap(), Call::Encode(_)) {}
}

#[tokio::test]
async fn an_image_that_cannot_be_encoded_fails_its_request_alone() {
    for kind in [RunnerErrorKind::InvalidBatch, RunnerErrorKind::OutOfMemory] {
        let rig = start_seeing(seeing(2).with_encode_fault(2, kind), cache(), 0);
        let (prompt, images) = album(5);
        let blind = rig.ask(request_with(prompt.clone(), &images)).await;
        assert!(matches!(blind.error, Some(EngineError::Encode(error)) if error.kind == kind));
        assert!(rig.metric("plateau_images_failed_total 1"));
        assert_eq!(rig.ask(request_with(prompt.clone(), &images)).await.text, right(&prompt, 4096));
        rig.close().await;
    }
    let rig = start_seeing(seeing(2).with_encode_fault(1, RunnerErrorKind::Fatal), cache(), 0);
    let (prompt, images) = album(5);
    assert!(matches!(rig.ask(request_with(prompt, &images)).await.error, Some(EngineError::Dead)));
}

#[tokio::test]
async fn prompt_and_images_must_belong_together() {
    let rig = start_seeing(seeing(1), PrefixSettings::OFF, 0);
    let (prompt, images) = album(5);
    let refused =
        |prompt: Vec<PromptItem>, images: &[Arc<Image>]| rig.handle.submit(request_with(prompt, images)).err();
    let wrong = |error: Option<SubmitError>| matches!(error, Some(SubmitError::Images(_)));
    assert!(wrong(refused(prompt.clone(), &images[..1])), "one is missing");
    assert!(wrong(refused(prompt[..50].to_vec(), &images)), "the end is a picture");
    assert!(wrong(refused([&prompt[..40], &prompt[60..]].concat(), &images)), "a picture is torn");
    assert!(wrong(refused(prompt[35..].to_vec(), &images)), "a picture lacks its first rows");
    let large = [rows(&image(1, 100, 41)).collect(), text(3, 1)].concat();
    assert!(wrong(refused(large, &[image(1, 100, 41)])), "it is too large");
    let short = Image { rgb: vec![0; 3], ..(*images[0]).clone() };
    assert!(wrong(refused(prompt.clone(), &[Arc::new(short), images[1].clone()])), "pixels are missing");
    rig.close().await;
    let blind = start_seeing(hashing(END_IN), PrefixSettings::OFF, 0);
    let error = blind.handle.submit(request_with(prompt, &images)).err();
    assert_eq!(error, Some(SubmitError::Images("the model sees no images")));
    blind.close().await;
}

/// One piece of a prompt: words, or an image of the box.
#[derive(Clone, Copy, Debug)]
enum Piece {
    Words(usize, u32),
    Image(usize),
}

#[derive(Clone, Debug)]
struct Case {
    prompts: Vec<Vec<Piece>>,
    /// Requests, by index into `prompts`, and whether each waits for those before it.
    order: Vec<(usize, bool)>,
    n_seq: usize,
    n_ctx: usize,
    n_ubatch: usize,
    chunk: usize,
    hybrid: bool,
    cache: bool,
    encoder_cache: u64,
    mtp_max: u32,
    lookup_max: u32,
    elastic: bool,
}

fn box_of_images() -> Vec<Arc<Image>> {
    [(1, 1, 1), (2, 6, 2), (3, 2, 7), (4, 2, 7), (5, 9, 9)].map(|(key, nx, ny)| image(key, nx, ny)).to_vec()
}

fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let words = (1usize..60, 0u32..3).prop_map(|(n, seed)| Piece::Words(n, seed));
    prop::collection::vec(prop_oneof![words, (0usize..5).prop_map(Piece::Image)], 1..6)
}

fn case() -> impl Strategy<Value = Case> {
    let shape = (1usize..5, prop_oneof![Just(700usize), Just(4096)], prop_oneof![Just(16usize), Just(128)], 8usize..64);
    let modes = (any::<bool>(), any::<bool>(), prop_oneof![Just(0u64), Just(4000), Just(MIB)], any::<bool>());
    let drafts = (0u32..4, 0u32..4);
    let prompts = prop::collection::vec(pieces(), 1..5);
    let order = prop::collection::vec((0usize..5, any::<bool>()), 1..9);
    (shape, modes, drafts, prompts, order).prop_map(
        |(
            (n_seq, n_ctx, n_ubatch, chunk),
            (hybrid, cache, encoder_cache, elastic),
            (mtp_max, lookup_max),
            prompts,
            order,
        )| {
            Case {
                prompts,
                order,
                n_seq,
                n_ctx,
                n_ubatch,
                chunk,
                hybrid,
                cache,
                encoder_cache,
                mtp_max,
                lookup_max,
                elastic,
            }
        },
    )
}

impl Case {
    fn runner(&self) -> FakeRunner {
        // The head is right most of the time.
        let head = |history: &[Token]| match history.len() % 5 {
            0 => Next::Token(Token(98)),
            _ => Next::Token(next_of(history, END_IN)),
        };
        let (n_seq, n_ctx, n_ubatch, hybrid) = (self.n_seq, self.n_ctx, self.n_ubatch, self.hybrid);
        let facts = move |facts: &mut plateau::engine::RunnerFacts| {
            (facts.n_ctx, facts.n_ubatch, facts.hybrid) = (n_ctx, n_ubatch, hybrid);
        };
        seeing(n_seq).with_facts(facts).drafting(head)
    }

    fn prompt(&self, which: usize, box_: &[Arc<Image>]) -> Vec<PromptItem> {
        let mut prompt = Vec::new();
        for piece in &self.prompts[which % self.prompts.len()] {
            match *piece {
                Piece::Words(n, seed) => prompt.extend(text(n, seed)),
                Piece::Image(i) => prompt.extend(rows(&box_[i])),
            }
        }
        prompt.extend(text(2, 1));
        prompt
    }

    fn request(&self, prompt: Vec<PromptItem>, box_: &[Arc<Image>]) -> GenerationRequest {
        let (mtp_max, lookup_max) = (self.mtp_max, self.lookup_max);
        let speculative = SpeculativeParams { mtp_max, lookup_max, adaptive: false, ..SpeculativeParams::OFF };
        GenerationRequest { speculative, ..request_with(prompt, box_) }
    }

    async fn run(&self) -> Result<(), TestCaseError> {
        let box_ = box_of_images();
        let (runner, mut calls) = self.runner().recorded();
        let metrics = Metrics::new();
        let prefix = if self.cache { cache() } else { PrefixSettings::OFF };
        let settings = EngineSettings { prefill_chunk_tokens: self.chunk, ..settings(self.encoder_cache) };
        let load = move || Ok::<_, String>(runner.loaded());
        let (handle, joiner) = Engine::with_cache(load, settings, prefix, metrics.clone()).unwrap();
        let rig = Rig { handle, joiner, metrics };
        let mut open: Vec<(Vec<PromptItem>, _)> = Vec::new();
        for &(which, waits) in &self.order {
            if waits {
                for (prompt, stream) in open.drain(..) {
                    check(&prompt, read(stream).await, self.n_ctx)?;
                }
            }
            let prompt = self.prompt(which, &box_);
            let request = self.request(prompt.clone(), &box_);
            // Without a bound it may be set back to the queue in the middle of its answer.
            let max_tokens = if self.elastic && which % 2 == 0 { None } else { request.max_tokens };
            match rig.handle.submit(GenerationRequest { max_tokens, ..request }) {
                Ok(stream) if max_tokens.is_some() => open.push((prompt, stream)),
                Ok(stream) => drop(read(stream).await),
                Err(error) => {
                    let too_long = matches!(error, SubmitError::TooLong { .. });
                    prop_assert!(too_long, "{}", error);
                }
            }
        }
        for (prompt, stream) in open {
            check(&prompt, read(stream).await, self.n_ctx)?;
        }
        let calls_made = calls.drain();
        rig.close().await;
        if self.encoder_cache == MIB {
            let mut keys = encoded(&calls_made);
            let n = keys.len();
            keys.sort();
            keys.dedup();
            prop_assert_eq!(keys.len(), n, "encoded twice");
        }
        Ok(())
    }
}

fn check(prompt: &[PromptItem], answer: Answer, n_ctx: usize) -> Result<(), TestCaseError> {
    prop_assert!(answer.error.is_none(), "{:?}", answer.error);
    prop_assert_eq!(answer.text, right(prompt, n_ctx));
    prop_assert_eq!(answer.finish.unwrap().usage.prompt, prompt.len());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn answers_do_not_depend_on_order_drafts_cache_or_room(case in case()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(case.run())?;
    }
}
