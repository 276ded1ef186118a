//! What all checks of a run share: the server, what is known of it, its memory, how long requests may take, chance.

use std::time::{Duration, Instant};

use rand_core::{RngCore as _, SeedableRng as _};
use rand_pcg::Pcg64;
use serde_json::{Map, Value, json};

use super::answer::Answer;
use super::client::{Client, ClientError, Event, Reading};
use super::facts::{Facts, Kind};
use super::memory::{Memory, ReadMemory};

/// Where a run shows how it goes.
pub trait Progress: Send + Sync {
    /// A line to keep.
    fn line(&self, text: &str);
    /// What happens now, until the next such text; only where somebody looks.
    fn now(&self, text: &str);
    /// Checks that are done, of all.
    fn step(&self, done: usize, all: usize);
}

/// Prompts of fewer tokens say little of the rate of prefill.
const MIN_RATE_TOKENS: u64 = 512;
/// How long a server may take to come back.
const REVIVAL: Duration = Duration::from_secs(120);
/// Between two looks at a server that is gone, and between two signs of life of a stream.
const LOOK: Duration = Duration::from_secs(2);

/// A run's means.
pub struct Session<'a> {
    pub client: Client,
    pub facts: Facts,
    pub memory: Memory,
    /// Memory of the server's process, where it is on this machine.
    pub host: Option<ReadMemory>,
    pub progress: &'a dyn Progress,
    /// Multiplies all time limits.
    pub timeout_scale: f64,
    /// How long to wait for a server that is gone.
    pub revival: Duration,
    rng: Pcg64,
    slowest_prefill: Option<f64>,
}

/// What is asked.
#[derive(Clone, Debug)]
pub struct Ask {
    pub messages: Value,
    pub max_tokens: u32,
    pub temperature: f64,
    pub thinking: bool,
    pub tools: Option<Value>,
    /// Further members of the request.
    pub more: Map<String, Value>,
    /// Tokens of the prompt, about, for the time limit.
    pub prompt_tokens: u64,
    /// The time limit of a prompt that is fast enough.
    pub floor: Duration,
}

impl Ask {
    /// One message, without thinking, at temperature 0.
    pub fn user(text: impl Into<String>, max_tokens: u32) -> Ask {
        Ask::messages(json!([{"role": "user", "content": text.into()}]), max_tokens)
    }

    pub fn messages(messages: Value, max_tokens: u32) -> Ask {
        let floor = Duration::from_secs(300);
        let (more, temperature, thinking) = (Map::new(), 0.0, false);
        Ask { messages, max_tokens, temperature, thinking, tools: None, more, prompt_tokens: 0, floor }
    }

    pub fn at(self, temperature: f64) -> Ask {
        Ask { temperature, ..self }
    }

    pub fn with_tools(self, tools: Value) -> Ask {
        Ask { tools: Some(tools), ..self }
    }

    pub fn with_thinking(self) -> Ask {
        Ask { thinking: true, ..self }
    }

    pub fn within(self, seconds: u64) -> Ask {
        Ask { floor: Duration::from_secs(seconds), ..self }
    }

    pub fn of_tokens(self, prompt_tokens: u64) -> Ask {
        Ask { prompt_tokens, ..self }
    }

    pub fn and(mut self, key: &str, value: Value) -> Ask {
        self.more.insert(key.to_owned(), value);
        self
    }
}

impl<'a> Session<'a> {
    pub fn new(client: Client, facts: Facts, memory: Memory, progress: &'a dyn Progress, seed: u64) -> Session<'a> {
        let rng = Pcg64::seed_from_u64(seed);
        let (timeout_scale, revival, host) = (1.0, REVIVAL, None);
        Session { client, facts, memory, host, progress, timeout_scale, revival, rng, slowest_prefill: None }
    }

    /// A whole number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.rng.next_u64() % n.max(1)
    }

    /// From 0 to 1.
    pub fn share(&mut self) -> f64 {
        self.below(1 << 32) as f64 / f64::from(u32::MAX)
    }

    /// A start of a prompt that no cache has seen.
    pub fn salt(&mut self) -> String {
        const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
        let letter = |_| char::from(LETTERS[self.below(LETTERS.len() as u64) as usize]);
        format!("SESSION-{}.", (0..32).map(letter).collect::<String>())
    }

    /// The rate of prefill that time limits go by.
    pub fn prefill_rate(&self) -> Option<f64> {
        self.slowest_prefill
    }

    /// The floor, or three times what the slowest rate so far lets expect.
    pub fn limit(&self, ask: &Ask) -> Duration {
        let expected = self.slowest_prefill.map_or(0.0, |rate| 3.0 * ask.prompt_tokens as f64 / rate);
        Duration::from_secs_f64(ask.floor.as_secs_f64().max(expected).min(86_400.0) * self.timeout_scale)
    }

    fn body(&self, ask: &Ask, streamed: bool) -> Value {
        let mut body = json!({
            "model": self.facts.model,
            "messages": ask.messages,
            "max_tokens": ask.max_tokens,
            "temperature": ask.temperature,
            "stream": streamed,
        });
        let Some(map) = body.as_object_mut() else { return body };
        if streamed {
            map.insert("stream_options".to_owned(), json!({"include_usage": true}));
        }
        // Others may refuse a member that they do not know.
        if self.facts.kind != Kind::Unknown {
            map.insert("chat_template_kwargs".to_owned(), json!({"enable_thinking": ask.thinking}));
        }
        if let Some(tools) = &ask.tools {
            map.insert("tools".to_owned(), tools.clone());
        }
        map.extend(ask.more.clone());
        body
    }

    /// One answer in one JSON.
    ///
    /// # Errors
    /// By kind: `ClientError`.
    pub async fn whole(&mut self, ask: &Ask) -> Result<Answer, ClientError> {
        let (start, body) = (Instant::now(), self.body(ask, false));
        let value = self.client.post("/v1/chat/completions", &body, self.limit(ask)).await?;
        let malformed =
            || ClientError::Malformed { url: self.client.base().to_owned(), expected: "a chat answer".to_owned() };
        let answer = Answer::of(&value, start.elapsed()).ok_or_else(malformed)?;
        self.learn(&answer);
        Ok(answer)
    }

    /// One answer in a stream.
    ///
    /// # Errors
    /// By kind; a stream that does not end as it should is none.
    pub async fn streamed(&mut self, ask: &Ask) -> Result<Answer, ClientError> {
        match self.streamed_until(ask, usize::MAX).await? {
            (answer, None) => Ok(answer),
            (_, Some(fault)) => Err(fault),
        }
    }

    /// A stream that is closed after so many events, and as much of the answer as came.
    ///
    /// # Errors
    /// What happens before the first event.
    pub async fn streamed_until(
        &mut self,
        ask: &Ask,
        max_events: usize,
    ) -> Result<(Answer, Option<ClientError>), ClientError> {
        let (body, limit) = (self.body(ask, true), self.limit(ask));
        let watch = self.memory.watch();
        let progress = self.progress;
        let (mut n, mut first, mut shown) = (0_usize, None, Duration::ZERO);
        let mut each = |event: &Event| {
            n += 1;
            let first = *first.get_or_insert(event.at);
            if event.at >= shown + LOOK / 8 {
                shown = event.at;
                let rate = n as f64 / (event.at.saturating_sub(first)).as_secs_f64().max(0.001);
                let free = watch.last().map_or(String::new(), |free| format!(", {free:.0} MiB free"));
                progress.now(&format!("{n} events, {rate:.1} a second, {:.0} s{free}", event.at.as_secs_f64()));
            }
            if n >= max_events { Reading::Stop } else { Reading::GoOn }
        };
        let sent = self.client.stream("/v1/chat/completions", &body, limit, &mut each);
        let stream = waiting(sent, progress, &watch).await?;
        let answer = Answer::of_stream(&stream);
        self.learn(&answer);
        Ok((answer, stream.fault))
    }

    fn learn(&mut self, answer: &Answer) {
        self.facts.learn(&answer.fingerprint);
        let fresh = answer.prompt_tokens.unwrap_or(0).saturating_sub(answer.cached_tokens.unwrap_or(0));
        if let Some(rate) = answer.prefill_rate().filter(|_| fresh >= MIN_RATE_TOKENS) {
            self.slowest_prefill = Some(self.slowest_prefill.map_or(rate, |slowest| slowest.min(rate)));
        }
    }

    /// What a person needs to know of a request that failed.
    pub fn explain(&self, error: &ClientError) -> String {
        match (error, self.slowest_prefill) {
            (ClientError::Timeout { .. }, Some(rate)) => format!("{error} (prefill ran at {rate:.0} tok/s)"),
            _ => error.to_string(),
        }
    }

    /// Does the server answer, or come back within two minutes?
    pub async fn is_back(&self) -> bool {
        let end = Instant::now() + self.revival;
        loop {
            let asked = self.client.get_text("/health", LOOK).await;
            let is_up = match asked {
                Ok(_) => true,
                // A server without such a route is up; one that says 503 is not.
                Err(ClientError::Status { status, .. }) => status < 500,
                Err(_) => false,
            };
            if is_up || Instant::now() >= end {
                return is_up;
            }
            self.progress.now("the server is gone; waiting for it");
            tokio::time::sleep(LOOK.min(self.revival)).await;
        }
    }
}

/// Shows that a request waits for its first event.
async fn waiting<T>(work: impl Future<Output = T>, progress: &dyn Progress, watch: &super::memory::Watch) -> T {
    let start = Instant::now();
    let mut work = std::pin::pin!(work);
    loop {
        match tokio::time::timeout(LOOK, work.as_mut()).await {
            Ok(done) => return done,
            Err(_) => {
                let free = watch.last().map_or(String::new(), |free| format!(", {free:.0} MiB free"));
                progress.now(&format!("a request since {:.0} s{free}", start.elapsed().as_secs_f64()));
            }
        }
    }
}

#[cfg(test)]
pub(super) struct Quiet;

#[cfg(test)]
impl Progress for Quiet {
    fn line(&self, _: &str) {}
    fn now(&self, _: &str) {}
    fn step(&self, _: usize, _: usize) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::scripted;

    #[test]
    fn limits_follow_the_slowest_prefill_and_never_fall_below_the_floor() {
        let url = scripted::json(|_, _| {
            json!({"data": [{"id": "m"}], "choices": [{"message": {"content": "x"}}],
                "usage": {"prompt_tokens": 1000}, "timings": {"prompt_per_second": 100.0}})
        });
        let run = scripted::runtime();
        run.block_on(async {
            let client = Client::new(&url, None).unwrap();
            let facts = Facts::ask(&client, None, None).await.unwrap();
            let mut session = Session::new(client, facts, Memory::Absent("test".into()), &Quiet, 1);
            let ask = Ask::user("x", 1).of_tokens(60_000).within(300);
            assert_eq!(session.limit(&ask), Duration::from_secs(300));
            session.whole(&ask).await.unwrap();
            assert_eq!(session.limit(&ask), Duration::from_secs(1800));
            session.timeout_scale = 0.5;
            assert_eq!(session.limit(&ask), Duration::from_secs(900));
            let (a, b) = (session.salt(), session.salt());
            assert!(a != b && a.starts_with("SESSION-") && a.len() == 41, "{a} {b}");
            assert_eq!(
                Session::new(session.client.clone(), session.facts.clone(), Memory::Absent("".into()), &Quiet, 1)
                    .salt(),
                a
            );
        });
    }
}
