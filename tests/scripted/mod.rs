//! An engine over the scripted runner, for the tests of the engine.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::time::{Duration, Instant};

use plateau::engine::fake::{Call, IM_END, Next};
use plateau::engine::{
    CacheUse, Constraint, Engine, EngineError, EngineSettings, Event, EventStream, FakeRunner, Finish, FinishReason,
    GenerationRequest, Handle, Joiner, Logprob, PromptItem, Shutdown, SpeculativeParams,
};
use plateau::sampling::SamplingParams;
use plateau::telemetry::Metrics;
use plateau::text::{Specials, Tokenizer};
use plateau::units::Token;

/// Ends running generations at once.
pub const AT_ONCE: Duration = Duration::ZERO;
/// Longer than any test.
pub const NEVER: Duration = Duration::from_secs(3600);

pub const SETTINGS: EngineSettings =
    EngineSettings { queue_capacity: 64, prefill_chunk_tokens: 64, image_cache_bytes: 0 };

pub struct Rig {
    pub handle: Handle,
    pub joiner: Joiner,
    pub metrics: Metrics,
}

pub fn start(runner: FakeRunner) -> Rig {
    start_with(runner, SETTINGS)
}

pub fn start_with(runner: FakeRunner, settings: EngineSettings) -> Rig {
    let metrics = Metrics::new();
    let (handle, joiner) = Engine::spawn(move || Ok::<_, String>(runner.loaded()), settings, metrics.clone()).unwrap();
    Rig { handle, joiner, metrics }
}

impl Rig {
    pub async fn ask(&self, request: GenerationRequest) -> Answer {
        read(self.handle.submit(request).unwrap()).await
    }

    /// Stops at once and asserts that the engine was alive and well.
    pub async fn close(self) {
        drop(self.handle);
        assert_eq!(self.joiner.shutdown(AT_ONCE).await, Shutdown::Clean);
    }

    pub fn metric(&self, line: &str) -> bool {
        self.metrics.render().lines().any(|l| l == line)
    }
}

/// Bytes of the text as tokens, special tokens by their text.
pub fn tokens(text: &str) -> Vec<Token> {
    Tokenizer::bytes_for_tests().encode(text, Specials::Parse).unwrap()
}

/// Greedy, until the end of generation, reusing what is there.
pub fn request(prompt: &str) -> GenerationRequest {
    request_of(tokens(prompt))
}

pub fn request_of(prompt: Vec<Token>) -> GenerationRequest {
    GenerationRequest {
        id: format!("test-{}", prompt.len()),
        prompt: prompt.into_iter().map(PromptItem::Token).collect(),
        images: vec![],
        sampling: SamplingParams::greedy(),
        stop: Vec::new(),
        max_tokens: None,
        ignore_eos: false,
        logprobs: None,
        cache_prompt: true,
        cache: CacheUse::NO_BREAKPOINTS,
        progress: false,
        show_control: false,
        speculative: SpeculativeParams::OFF,
        constraint: Constraint::default(),
        arrived: Instant::now(),
    }
}

/// Everything that a client read.
#[derive(Debug, Default)]
pub struct Answer {
    pub text: String,
    pub tokens: Vec<Token>,
    pub logprobs: Vec<Logprob>,
    /// (done, cached)
    pub progress: Vec<(usize, usize)>,
    pub n_deltas: usize,
    /// Terminal events; must be one.
    pub n_terminal: usize,
    pub finish: Option<Finish>,
    pub error: Option<EngineError>,
}

impl Answer {
    pub fn reason(&self) -> FinishReason {
        self.finish.as_ref().unwrap_or_else(|| panic!("not finished: {self:?}")).reason.clone()
    }

    pub fn finish(&self) -> &Finish {
        self.finish.as_ref().unwrap_or_else(|| panic!("not finished: {self:?}"))
    }

    pub fn cached(&self) -> usize {
        self.finish().usage.cached
    }
}

/// Reads all events and asserts that the terminal one is the last and the only one.
pub async fn read(mut stream: EventStream) -> Answer {
    let mut answer = Answer::default();
    while let Some(event) = stream.next().await {
        assert_eq!(answer.n_terminal, 0, "an event after the terminal one");
        match event {
            Event::Progress { done, cached, .. } => answer.progress.push((done, cached)),
            Event::Delta { text, tokens, logprobs } => {
                answer.n_deltas += 1;
                answer.text += &text;
                answer.tokens.extend(tokens);
                answer.logprobs.extend(logprobs);
            }
            Event::Finished(finish) => {
                answer.n_terminal += 1;
                answer.text += &finish.text;
                answer.tokens.extend(&finish.tokens);
                answer.logprobs.extend(finish.logprobs.clone());
                answer.finish = Some(*finish);
            }
            Event::Failed(error) => {
                answer.n_terminal += 1;
                answer.error = Some(error);
            }
        }
    }
    assert_eq!(answer.n_terminal, 1, "one terminal event");
    answer
}

/// Reads streams that run side by side.
pub async fn read_all(streams: Vec<EventStream>) -> Vec<Answer> {
    let mut answers = Vec::new();
    for stream in streams {
        answers.push(read(stream).await);
    }
    answers
}

/// Waits for the first text of a stream.
pub async fn first_text(stream: &mut EventStream) -> String {
    loop {
        match stream.next().await {
            Some(Event::Delta { text, .. }) => return text,
            Some(Event::Progress { .. }) => {}
            other => panic!("no text: {other:?}"),
        }
    }
}

/// A number that depends on all tokens.
pub fn hash(tokens: &[Token]) -> u64 {
    tokens.iter().fold(0xcbf2_9ce4_8422_2325, |hash, t| (hash ^ u64::from(t.0)).wrapping_mul(0x0100_0000_01b3))
}

/// A head that agrees with the model's `row` after `percent` of all histories, and says something else after the others.
pub fn agreeing(row: fn(&[Token]) -> Vec<f32>, percent: u64) -> impl FnMut(&[Token]) -> Next + Send {
    move |tokens| {
        let mut row = row(tokens);
        if hash(tokens) % 100 >= percent {
            row.rotate_right(7);
        }
        Next::Row(row)
    }
}

/// A model whose next token depends on every token before it; one in `end_in` ends the generation.
pub fn next_of(history: &[Token], end_in: u64) -> Token {
    let hash = history.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, token| {
        (hash ^ u64::from(token.0)).wrapping_mul(0x0100_0000_01b3).rotate_left(17)
    });
    if (hash >> 8).is_multiple_of(end_in) { IM_END } else { Token(u32::from(b'a') + (hash >> 32) as u32 % 26) }
}

pub fn hashing(end_in: u64) -> FakeRunner {
    FakeRunner::function(move |history| Next::Token(next_of(history, end_in)))
}

/// What `hashing` says to `prompt` when nothing disturbs it.
pub fn alone(prompt: &[Token], max_tokens: Option<u32>, n_ctx: usize, end_in: u64) -> (String, FinishReason) {
    let mut history = prompt.to_vec();
    loop {
        let n = history.len() - prompt.len();
        let text = || history[prompt.len()..].iter().map(|t| char::from(t.0 as u8)).collect::<String>();
        if max_tokens.is_some_and(|max| n >= max as usize) {
            return (text(), FinishReason::MaxTokens);
        }
        if history.len() >= n_ctx {
            return (text(), FinishReason::ContextFull);
        }
        match next_of(&history, end_in) {
            IM_END => return (text(), FinishReason::Eos(IM_END)),
            token => history.push(token),
        }
    }
}

/// Asserts that a step never found the cache full: the sums of the engine held.
pub fn assert_room(calls: &[Call]) {
    assert!(!calls.contains(&Call::NoRoom), "the cache was promised twice");
}
