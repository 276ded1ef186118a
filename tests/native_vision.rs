//! Images over the demo model on the CPU: right answers, the same with drafts and without, alone and beside others, cut into
//! chunks or not, cold or from a saved state; and nothing of it without a projector.
#![cfg(feature = "native")]
#![allow(clippy::unwrap_used, reason = "a failure in a helper of a test is a failed test")]

mod native;

use std::sync::Arc;
use std::time::Instant;

use native::{argmax, max_difference, tokens};
use plateau::config::{Profile, Projector, VisionConfig};
use plateau::engine::{
    BatchRow, CacheUse, Constraint, DraftRow, EncoderCache, Engine, EngineSettings, Event, Finish, GenerationRequest,
    Grid, Handle, Image, ImageKey, ImageRow, Joiner, Loaded, ModelRunner, PrefixSettings, PromptItem, Restore,
    RunnerErrorKind, Saved, SavedRows, SpeculativeParams, Tier, whole,
};
use plateau::llama::{self, LlamaRunner};
use plateau::sampling::SamplingParams;
use plateau::telemetry::Metrics;
use plateau::text::{Specials, Tokenizer};
use plateau::units::{Pos, SeqId, Token};

const TOKEN_PX: u32 = 32;

const WHITE: [u8; 3] = [245, 245, 245];
const YELLOW: [u8; 3] = [245, 220, 50];
const RED: [u8; 3] = [214, 40, 40];
const GREEN: [u8; 3] = [40, 160, 60];
const BLUE: [u8; 3] = [45, 80, 210];
const BLACK: [u8; 3] = [18, 18, 18];

#[derive(Clone, Copy)]
enum Shape {
    Circle,
    Square,
    Triangle,
}

/// A shape in the middle of a background, with soft edges, `nx` by `ny` tokens large.
fn drawn(shape: Shape, colour: [u8; 3], ground: [u8; 3], (nx, ny): (u16, u16)) -> Arc<Image> {
    let (width_px, height_px) = (u32::from(nx) * TOKEN_PX, u32::from(ny) * TOKEN_PX);
    let r = f64::from(width_px.min(height_px)) * 0.3;
    let mut rgb = Vec::new();
    for py in 0..height_px {
        for px in 0..width_px {
            let x = f64::from(px) + 0.5 - f64::from(width_px) / 2.0;
            let y = f64::from(py) + 0.5 - f64::from(height_px) / 2.0;
            let distance = match shape {
                Shape::Circle => x.hypot(y) - r,
                Shape::Square => x.abs().max(y.abs()) - 0.88 * r,
                Shape::Triangle => (y - 0.7 * r).max(0.866 * x.abs() - 0.5 * y - 0.55 * r),
            };
            let inside = (0.5 - distance).clamp(0.0, 1.0);
            let mix = |at: usize| f64::from(ground[at]) + (f64::from(colour[at]) - f64::from(ground[at])) * inside;
            rgb.extend([0, 1, 2].map(|at| mix(at).round() as u8));
        }
    }
    let hash = rgb.iter().fold(u128::from(width_px), |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(0x0100_01b3));
    Arc::new(Image { key: ImageKey::new(hash), grid: Grid { nx, ny }, width_px, height_px, rgb })
}

fn circle() -> Arc<Image> {
    drawn(Shape::Circle, RED, WHITE, (3, 3))
}

/// Images with a question and what is to be answered.
fn quiz() -> Vec<(Arc<Image>, &'static str, &'static str)> {
    vec![
        (circle(), "What color is the circle?", "The circle is red."),
        (drawn(Shape::Square, BLUE, YELLOW, (4, 4)), "What shape is this?", "It is a blue square."),
        (drawn(Shape::Triangle, GREEN, BLACK, (5, 4)), "What color is the triangle?", "The triangle is green."),
        (drawn(Shape::Square, RED, BLUE, (4, 3)), "What color is the background?", "The background is blue."),
        (drawn(Shape::Circle, BLACK, GREEN, (6, 5)), "What color is the circle?", "The circle is black."),
        (drawn(Shape::Circle, BLUE, WHITE, (3, 4)), "How many circles are there?", "There is 1 circle."),
    ]
}

fn profile(n_ctx: u32, parallel: u32, mtp: bool) -> Profile {
    let mut profile = native::profile(n_ctx, parallel);
    profile.speculative.mtp = mtp;
    profile.speculative.lookup = false;
    (profile.speculative.cache_type_k, profile.speculative.cache_type_v) = (native::CACHE, native::CACHE);
    profile
}

fn load(profile: &Profile) -> llama::Loaded {
    llama::load(profile, &mut |_| true).unwrap()
}

struct Rig {
    handle: Handle,
    joiner: Joiner,
    tokenizer: Tokenizer,
}

impl Rig {
    fn start(profile: Profile, cache: PrefixSettings, chunk: usize) -> Rig {
        let factory = move || {
            let loaded = llama::load(&profile, &mut |_| true)?;
            Ok::<_, llama::LoadError>(Loaded { runner: Box::new(loaded.runner), tokenizer: loaded.tokenizer })
        };
        let settings = EngineSettings { queue_capacity: 64, prefill_chunk_tokens: chunk, image_cache_bytes: 1 << 20 };
        let (handle, joiner) = Engine::with_cache(factory, settings, cache, Metrics::new()).unwrap();
        let tokenizer = handle.tokenizer().clone();
        Rig { handle, joiner, tokenizer }
    }

    fn text(&self, text: &str) -> impl Iterator<Item = PromptItem> {
        self.tokenizer.encode(text, Specials::Parse).unwrap().into_iter().map(PromptItem::Token)
    }

    /// A question after an image, as the model's template writes it.
    fn prompt(&self, image: &Image, question: &str) -> Vec<PromptItem> {
        let mut prompt: Vec<PromptItem> = self.text("<|im_start|>user\n<|vision_start|>").collect();
        prompt.extend(rows_of(image));
        let end = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
        prompt.extend(self.text(&format!("<|vision_end|>{question}{end}")));
        prompt
    }

    fn request(&self, image: &Arc<Image>, question: &str, mtp_max: u32) -> GenerationRequest {
        GenerationRequest {
            id: "test".into(),
            prompt: self.prompt(image, question).into(),
            images: vec![Arc::clone(image)],
            sampling: SamplingParams::greedy(),
            stop: Vec::new(),
            max_tokens: Some(40),
            ignore_eos: false,
            logprobs: None,
            cache_prompt: true,
            cache: CacheUse::NO_BREAKPOINTS,
            progress: false,
            show_control: false,
            speculative: SpeculativeParams { mtp_max, adaptive: false, ..SpeculativeParams::OFF },
            constraint: Constraint::default(),
            arrived: Instant::now(),
        }
    }

    async fn ask(&self, request: GenerationRequest) -> (String, Finish) {
        let mut stream = self.handle.submit(request).unwrap();
        let mut all = String::new();
        while let Some(event) = stream.next().await {
            match event {
                Event::Delta { text, .. } => all += &text,
                Event::Finished(finish) => return (all + &finish.text, *finish),
                Event::Failed(error) => panic!("{error}"),
                Event::Progress { .. } => {}
            }
        }
        panic!("no terminal event")
    }

    fn close(self) {
        self.joiner.join(self.handle);
    }
}

fn rows_of(image: &Image) -> impl Iterator<Item = PromptItem> {
    ImageRow::all(image.key, image.grid).map(PromptItem::Image)
}

fn cache() -> PrefixSettings {
    PrefixSettings { ram_bytes: 256 << 20, ..PrefixSettings::OFF }
}

#[tokio::test]
async fn questions_about_images_are_answered_right_with_drafts_and_without() {
    let mut n_accepted = 0;
    for mtp_max in [0, 1, 3] {
        let rig = Rig::start(profile(1024, 1, true), PrefixSettings::OFF, 128);
        for (image, question, expected) in quiz() {
            let (answer, finish) = rig.ask(rig.request(&image, question, mtp_max)).await;
            assert_eq!(answer.trim(), expected, "{image:?}, {mtp_max} drafts");
            n_accepted += finish.drafts.mtp.accepted;
        }
        rig.close();
    }
    assert!(n_accepted >= 20, "the head guesses on after a picture: {n_accepted} tokens");
}

#[tokio::test]
async fn another_question_about_an_image_goes_on_after_it() {
    let rig = Rig::start(profile(1024, 1, true), cache(), 128);
    let image = circle();
    let (cold, finish) = rig.ask(rig.request(&image, "What color is the background?", 3)).await;
    assert_eq!((cold.trim(), finish.timings.encode_n), ("The background is white.", 1));
    rig.ask(rig.request(&drawn(Shape::Square, GREEN, BLACK, (3, 3)), "What shape is this?", 3)).await;
    let (answer, finish) = rig.ask(rig.request(&image, "What color is the circle?", 3)).await;
    assert_eq!(answer.trim(), "The circle is red.");
    let n_before = rig.text("<|im_start|>user\n<|vision_start|>").count();
    assert!(finish.usage.cached >= n_before + 9, "{} tokens", finish.usage.cached);
    assert_eq!((finish.restored.tier, finish.timings.encode_n), (Tier::Ram, 0));
    let (again, finish) = rig.ask(rig.request(&image, "What color is the background?", 3)).await;
    assert_eq!((again, finish.timings.prompt_n), (cold, 1));
    rig.close();
}

#[tokio::test]
async fn four_conversations_about_four_images_are_those_alone() {
    let rig = Rig::start(profile(4096, 4, true), cache(), 16);
    let asked: Vec<_> = quiz().into_iter().take(4).collect();
    let answers = futures_util::future::join_all(
        asked.iter().map(|(image, question, _)| rig.ask(rig.request(image, question, 3))),
    )
    .await;
    for ((image, _, expected), (answer, _)) in asked.iter().zip(answers) {
        assert_eq!(answer.trim(), *expected, "{image:?}");
    }
    rig.close();
}

/// Items through a runner, with positions as the engine gives them.
struct Bench {
    runner: LlamaRunner,
    encoder_cache: EncoderCache,
}

impl Bench {
    fn new(n_ctx: u32, parallel: u32, images: &[&Image]) -> Bench {
        let mut runner = load(&profile(n_ctx, parallel, true)).runner;
        let mut encoder_cache = EncoderCache::new(1 << 30);
        for image in images {
            let embedding = runner.encode(image).unwrap();
            encoder_cache.insert(image.key, embedding);
        }
        Bench { runner, encoder_cache }
    }

    /// Processes `items[from..to]` in one step. Returns the logits after the last.
    fn feed(&mut self, seq: u32, items: &[PromptItem], from: usize, to: usize) -> Vec<f32> {
        let mut pos = position(&items[..from]);
        let row = |(i, item): (usize, &PromptItem)| {
            let at = pos;
            pos += item.n_pos() as u32;
            BatchRow { seq: SeqId(seq), pos: Pos(at), item: *item, output: from + i + 1 == to }
        };
        let rows: Vec<BatchRow> = items[from..to].iter().enumerate().map(row).collect();
        self.runner.step_with_images(&rows, &self.encoder_cache).unwrap();
        self.runner.logits(rows.len() - 1).unwrap().to_vec()
    }

    /// Logits after each of the rest, one step a token, and what the head guesses after the last.
    fn go_on(&mut self, seq: u32, items: &[PromptItem], from: usize) -> Vec<Vec<f32>> {
        let mut out: Vec<_> = (from..items.len()).map(|at| self.feed(seq, items, at, at + 1)).collect();
        let row = DraftRow { seq: SeqId(seq), pos: Pos(position(items)), token: argmax(&out[out.len() - 1]) };
        self.runner.draft(&[row]).unwrap();
        out.push(self.runner.draft_logits(0).unwrap().to_vec());
        out
    }

    fn save(&mut self, seq: u32, from: u32) -> Saved {
        self.runner.save(SeqId(seq), Pos(from)).unwrap()
    }
}

fn position(items: &[PromptItem]) -> u32 {
    items.iter().map(|item| item.n_pos() as u32).sum()
}

fn plain(n: usize, seed: u32) -> Vec<PromptItem> {
    tokens(n, seed).into_iter().map(PromptItem::Token).collect()
}

/// An image after so many tokens: around the size of a micro-batch every place counts.
fn offsets() -> impl Iterator<Item = usize> {
    (0..12).chain((12..110).step_by(9)).chain(110..132)
}

#[test]
fn an_image_at_any_place_cut_into_steps_at_any_place_is_the_same() {
    let image = drawn(Shape::Square, BLUE, YELLOW, (4, 3));
    let mut bench = Bench::new(512, 2, &[&image]);
    for offset in offsets() {
        let items = [plain(offset, 1), rows_of(&image).collect(), plain(9, 2)].concat();
        let n = items.len();
        let whole = bench.feed(0, &items, 0, n);
        let expected = argmax(&whole);
        // Inside the image, at its ends, and elsewhere.
        for cut in [offset + 1, offset + 5, offset + 11, offset + 12, offset.max(1), n - 1] {
            bench.runner.clear(SeqId(1));
            bench.feed(1, &items, 0, cut);
            let split = bench.feed(1, &items, cut, n);
            let difference = max_difference(&whole, &split);
            assert!(difference < 2e-3, "picture at {offset}, cut at {cut}: {difference}");
            assert_eq!(argmax(&split), expected);
        }
        bench.runner.clear(SeqId(0));
    }
}

#[test]
fn a_state_after_an_image_goes_on_to_the_bit_from_bytes_and_from_rows_of_another() {
    let (first, second) = (circle(), drawn(Shape::Triangle, GREEN, BLACK, (5, 2)));
    let mut bench = Bench::new(1024, 3, &[&first, &second]);
    for offset in [0, 1, 2, 7, 31, 64, 127, 128] {
        let items =
            [plain(offset, 1), rows_of(&first).collect(), plain(3, 2), rows_of(&second).collect(), plain(12, 3)]
                .concat();
        let ends = [offset + 9, offset + 9 + 3, offset + 9 + 3 + 10];
        let end = ends[2];
        let mut parts = Vec::new();
        let mut from = 0;
        for to in ends {
            bench.feed(0, &items, from, to);
            parts.push((bench.save(0, position(&items[..from])), position(&items[..from]), position(&items[..to])));
            from = to;
        }
        let point = parts[2].0.point.clone();
        let expected = bench.go_on(0, &items, end);
        let rows: Vec<SavedRows<'_>> = parts
            .iter()
            .map(|(saved, from, to)| SavedRows {
                bytes: &saved.rows,
                start: Pos(*from),
                from: Pos(*from),
                to: Pos(*to),
            })
            .collect();
        let end_pos = Pos(position(&items[..end]));
        let put = |seq: u32, donor: u32, n_kept: usize| Restore {
            seq: SeqId(seq),
            donor: SeqId(donor),
            kept: rows.get(n_kept).map_or(end_pos, |rows| rows.from),
            rows: &rows[n_kept..],
            point: &point,
            end: end_pos,
        };
        // All shared, some shared, from bytes after all was forgotten, over its own rows.
        for (seq, donor, n_kept) in [(1, 0, 3), (1, 0, 1), (1, 0, 2), (2, 2, 0), (2, 2, 3), (2, 2, 1)] {
            bench.runner.restore(&put(seq, donor, n_kept)).unwrap();
            let got = bench.go_on(seq, &items, end);
            assert!(got == expected, "picture at {offset}, {n_kept} kept of {donor}");
        }
        // A state inside an image is none.
        bench.runner.clear(SeqId(1));
        bench.feed(1, &items, 0, offset + 4);
        assert_eq!(whole(&items, offset + 4), offset);
        let inside = bench.runner.save(SeqId(1), Pos(0)).unwrap_err();
        assert_eq!(inside.kind, RunnerErrorKind::InvalidBatch);
        (0..3).for_each(|seq| bench.runner.clear(SeqId(seq)));
    }
}

/// The head sees the text alone: what it knows before an image goes with the token after it.
#[test]
fn drafts_after_an_image_are_those_of_a_head_that_read_along_or_caught_up() {
    let image = circle();
    let mut bench = Bench::new(512, 2, &[&image]);
    let items = [plain(20, 1), rows_of(&image).collect(), plain(15, 2)].concat();
    let n = items.len();
    bench.feed(0, &items, 0, n);
    let row = |seq, token| DraftRow { seq: SeqId(seq), pos: Pos(position(&items)), token };
    let next = Token(900);
    bench.runner.draft(&[row(0, next)]).unwrap();
    let caught_up = bench.runner.draft_logits(0).unwrap().to_vec();
    // A draft before the image and one right after it.
    for at in [20, 29, 30] {
        bench.runner.clear(SeqId(1));
        bench.feed(1, &items, 0, at);
        let early = DraftRow { seq: SeqId(1), pos: Pos(position(&items[..at])), token: Token(901) };
        bench.runner.draft(&[early]).unwrap();
        bench.feed(1, &items, at, n);
        bench.runner.draft(&[row(1, next)]).unwrap();
        let along = bench.runner.draft_logits(0).unwrap();
        let difference = max_difference(&caught_up, along);
        assert!(difference < 2e-3, "draft at {at}: {difference}");
    }
}

#[test]
fn an_encoder_that_is_loaded_for_each_image_encodes_the_same() {
    let mut kept = load(&profile(512, 1, false)).runner;
    let mut profile = profile(512, 1, false);
    profile.vision = VisionConfig { keep_loaded: false, ..profile.vision };
    let mut fresh = load(&profile).runner;
    let image = circle();
    let embedding = kept.encode(&image).unwrap();
    assert_eq!((embedding.grid, embedding.floats.len()), (image.grid, 9 * 256));
    for _ in 0..2 {
        assert!(fresh.encode(&image).unwrap() == embedding);
        assert!(kept.encode(&image).unwrap() == embedding);
    }
}

#[test]
fn an_image_that_is_not_what_it_says_is_refused() {
    let mut runner = load(&profile(512, 1, false)).runner;
    let good = circle();
    let wrong = [
        Image { grid: Grid { nx: 3, ny: 2 }, ..(*good).clone() },
        Image { rgb: vec![0; 10], ..(*good).clone() },
        Image { width_px: 0, rgb: vec![], ..(*good).clone() },
    ];
    for image in wrong {
        assert_eq!(runner.encode(&image).unwrap_err().kind, RunnerErrorKind::InvalidBatch, "{image:?}");
    }
    assert!(runner.encode(&good).is_ok());
    // Rows of an image that nobody encoded.
    let item = PromptItem::Image(ImageRow { key: good.key, grid: good.grid, index: 0 });
    let row = BatchRow { seq: SeqId(0), pos: Pos(0), item, output: true };
    assert_eq!(runner.step(&[row]).unwrap_err().kind, RunnerErrorKind::InvalidBatch);
}

#[test]
fn bounds_of_the_profile_hold() {
    let mut profile = profile(512, 1, false);
    profile.vision = VisionConfig { min_tokens: Some(20), max_tokens: Some(30), ..profile.vision };
    let mut runner = load(&profile).runner;
    let facts = runner.facts().vision.clone().unwrap();
    assert_eq!((facts.token_px, facts.min_tokens, facts.max_tokens), (TOKEN_PX, 20, 30));
    assert!(runner.encode(&circle()).is_err(), "it would be enlarged");
    assert!(runner.encode(&drawn(Shape::Circle, RED, WHITE, (5, 5))).is_ok());
    assert!(runner.encode(&drawn(Shape::Circle, RED, WHITE, (8, 8))).is_err(), "it would be shrunk");
}

#[test]
fn without_a_projector_nothing_sees() {
    let mut profile = profile(512, 1, false);
    profile.model.mmproj = Projector::Off;
    let mut runner = load(&profile).runner;
    assert_eq!(runner.facts().vision, None);
    assert_eq!(runner.encode(&circle()).unwrap_err().kind, RunnerErrorKind::InvalidBatch);
}

#[test]
fn a_projector_that_is_incomplete_or_belongs_to_another_model_is_refused_before_mtmd_sees_it() {
    let dir = tempfile::tempdir().unwrap();
    let whole = std::fs::read("vendor/demo-model/plateau-demo-mmproj-f16.gguf").unwrap();
    let path = dir.path().join("mmproj.gguf");
    let mut profile = profile(512, 1, false);
    profile.model.mmproj = Projector::File(path.clone());
    std::fs::write(&path, &whole).unwrap();
    assert!(load(&profile).runner.facts().vision.is_some());
    for n in [0, 100, 5000, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..n]).unwrap();
        let error = llama::load(&profile, &mut |_| true).err().unwrap();
        assert!(matches!(error, llama::LoadError::Gguf { .. }) && error.blames_file(), "{n}: {error}");
    }
    // A model is no projector.
    std::fs::copy("vendor/demo-model/plateau-demo-q8_0.gguf", &path).unwrap();
    let error = llama::load(&profile, &mut |_| true).err().unwrap().to_string();
    assert!(error.contains("no projector"), "{error}");
}
