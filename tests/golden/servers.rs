//! The servers that recorded requests go to, each a profile and a scripted model of its own. They start when they are asked for
//! and live until the end, so that what one request leaves in a cache is there for the next.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plateau::chat::ChatTemplate;
use plateau::config::Profile;
use plateau::engine::fake::{Fault, Gate, IM_END, Next};
use plateau::engine::{FakeRunner, RunnerErrorKind};
use plateau::units::Token;
use serde_json::json;

use crate::common::{self, Lines, Server, chat, start, start_state, start_with, with};

/// (what a prompt contains, what is said to it); the last fits all.
const ANSWERS: &[(&str, &str)] = &[
    ("say emoji", "ab</think>\n\nh\u{e9} \u{1F600}!"),
    ("endless thought", "so I think and think and think"),
    ("short", "hm</think>\n\nyes"),
    ("stops", "a thought</think>\n\none beta gamma two!"),
    ("says special", "a<|im_start|>b</think>c<|im_start|>d"),
    ("says nothing", ""),
    (
        "calls twice",
        "x</think>\n\nBoth.\n<tool_call>\n<function=grep>\n<parameter=pattern>\na\n</parameter>\n</function>\n\
        </tool_call>\n<tool_call>\n<function=grep>\n<parameter=pattern>\nb\n</parameter>\n</function>\n</tool_call>",
    ),
    (
        "calls in thought",
        "plan\n<tool_call>\n<function=grep>\n<parameter=pattern>\nx\n</parameter>\n</function>\n</tool_call>",
    ),
    ("calls at once", "<tool_call>\n<function=grep>\n<parameter=pattern>\nx\n</parameter>\n</function>\n</tool_call>"),
    (
        "calls another",
        "x</think>\n\n<tool_call>\n<function=rm>\n<parameter=pattern>\nx\n</parameter>\n</function>\n</tool_call>",
    ),
    (
        "calls",
        "plan\n</think>\n\nI look.\n<tool_call>\n<function=grep>\n<parameter=path>\nsrc\n</parameter>\n\
        <parameter=pattern>\n    fn \"a\"\\n\n</parameter>\n</function>\n</tool_call>",
    ),
    ("", "thought</think>\n\nhello world"),
];

/// A template that shows no images and no tools, and refuses a word.
const BLIND: &str = "{% for m in messages %}{% if m.content == 'refuse me' %}{{ raise_exception('I refuse') }}{% endif %}\
    {% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}x";

/// The first prompt on a server, before any recorded one.
const OPENING: &str = "the first";

#[derive(Default)]
pub struct Servers {
    running: BTreeMap<String, Running>,
    client: Option<reqwest::Client>,
}

struct Running {
    url: String,
    /// Kept so that they stay open: the queue stays full.
    _held: Option<(Gate, Vec<Lines>)>,
}

impl From<Server> for Running {
    /// The engine lives as long as the router has its handle.
    fn from(server: Server) -> Running {
        Running { url: server.url, _held: None }
    }
}

impl Servers {
    pub async fn url(&mut self, name: &str) -> String {
        if !self.running.contains_key(name) {
            self.running.insert(name.to_owned(), started(name).await);
        }
        self.running[name].url.clone()
    }

    pub fn client(&mut self) -> &reqwest::Client {
        self.client.get_or_insert_with(common::client)
    }

    /// Waits until the published state of the engine has not changed for a while: it is published after the answer is sent.
    pub async fn settle(&mut self, name: &str) {
        let (client, url) = (self.client().clone(), self.url(name).await);
        let get = async |path: &str| common::answer(client.get(format!("{url}{path}"))).await.body;
        let state = async || (get("/sequences").await, get("/cache").await);
        let mut last = state().await;
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let now = state().await;
            if now == last {
                return;
            }
            last = now;
        }
    }
}

fn scripted() -> FakeRunner {
    FakeRunner::scripted(ANSWERS.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect())
}

/// Letters with logits that depend on the last three tokens; the end of generation is one of them, seldom the best.
fn rich(history: &[Token]) -> Next {
    let last = history[history.len().saturating_sub(3)..].iter();
    let seed = last.fold(7_u32, |hash, token| (hash ^ token.0).wrapping_mul(0x9e37_79b1).rotate_left(13));
    let mut row = vec![-20.0; 266];
    for (i, letter) in (b'a'..=b'l').chain([b' ', b'{', b'}', b'"', b':']).enumerate() {
        row[usize::from(letter)] = (seed.rotate_left(i as u32 * 2) % 64) as f32 / 8.0;
    }
    row[IM_END.index()] = (seed % 8) as f32 / 4.0;
    Next::Row(row)
}

/// Says "abc" over and over; its head is wrong in one place of four.
fn alphabet(history: &[Token]) -> Token {
    Token(u32::from(b'a') + (history.last().map_or(0, |token| token.0) + 2) % 3)
}

fn keyed(profile: &mut Profile) {
    profile.server.api_key = Some("secret".into());
    profile.server.cors_origins = vec!["https://ui.example".into()];
    profile.server.allowed_hosts = vec!["box.lan".into(), "named:8020".into()];
    profile.server.openai_overflow_code = true;
}

fn tight(profile: &mut Profile) {
    profile.limits.body_bytes = 10_000;
    profile.limits.json_depth = 9;
    profile.limits.messages = 8;
    profile.limits.tools = 3;
    profile.limits.stop_strings = 2;
    profile.limits.stop_string_bytes = 8;
    (profile.engine.parallel, profile.engine.queue_capacity) = (2, 1);
    profile.generation.max_tokens = Some(12);
    profile.cache.ram_mib = Some(0);
}

fn narrow(profile: &mut Profile) {
    profile.images.max_pixels = 100_000;
    profile.images.total_pixels = 150_000;
    profile.images.max_per_request = 3;
    profile.images.max_bytes = 3000;
}

async fn started(name: &str) -> Running {
    let seeing = || FakeRunner::saying("</think>seen").with_vision(64);
    let out_of_memory = Fault::Error(RunnerErrorKind::OutOfMemory);
    let server = match name {
        "plain" => start(scripted()).await,
        "hybrid" => start(FakeRunner::saying("</think>hello").verifying(3)).await,
        // Requests with several choices leave behind what depends on which of them came first.
        "several" => start(scripted().with_vision(64)).await,
        "rich" | "several_rich" => start(FakeRunner::function(rich)).await,
        "drafting" => start_with(drafting(), |profile| profile.speculative.adaptive = false).await,
        "keyed" => start_with(scripted(), keyed).await,
        "tight" => start_with(scripted().with_facts(|facts| facts.n_ctx = 192), tight).await,
        "seeing" => start_with(seeing(), |profile| profile.images.low_tokens = 16).await,
        "narrow" => start_with(seeing().with_facts(|facts| facts.n_ctx = 100), narrow).await,
        "blind_template" => {
            let template = Arc::new(ChatTemplate::new(BLIND.to_owned(), "", "", 1_000_000).unwrap());
            start_state(seeing(), |_| {}, |state| state.template = template).await
        }
        "faulty" => start(scripted().with_fault(9, Fault::Error(RunnerErrorKind::InvalidBatch))).await,
        // The engine tries once more with less at a time.
        "poor" => start(scripted().with_fault(2, out_of_memory).with_fault(3, out_of_memory)).await,
        "dim" => start(seeing().with_encode_fault(1, RunnerErrorKind::InvalidBatch)).await,
        "busy" => return busy().await,
        "dead" => {
            let server = start(scripted().with_fault(3, Fault::Panic)).await;
            server.post("/v1/chat/completions", chat(OPENING)).await;
            server.handle.died().await;
            server
        }
        "stopping" => {
            let Server { url, joiner, .. } = start(scripted()).await;
            joiner.shutdown(Duration::ZERO).await;
            return Running { url, _held: None };
        }
        other => panic!("no server is called {other}"),
    };
    server.into()
}

/// One request runs and one waits, for ever.
async fn busy() -> Running {
    let (runner, gate) = scripted().with_facts(|facts| facts.n_seq_max = 1).gated();
    let server = start_with(runner, |profile| profile.engine.queue_capacity = 1).await;
    let mut lines = Vec::new();
    for _ in 0..2 {
        lines.push(server.open("/v1/chat/completions", with(chat(OPENING), json!({ "stream": true }))).await);
    }
    Running { _held: Some((gate, lines)), ..server.into() }
}

fn drafting() -> FakeRunner {
    let head = |tokens: &[Token]| match tokens.len() % 4 {
        0 => Next::Token(Token(u32::from(b'z'))),
        _ => Next::Token(alphabet(tokens)),
    };
    FakeRunner::function(|tokens| Next::Token(alphabet(tokens))).verifying(8).drafting(head)
}
