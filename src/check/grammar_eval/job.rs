//! One problem under one condition: ask, take the code, run it, judge.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::code;
use super::condition::Condition;
use super::error::CheckError;
use super::options::Options;
use super::problem::Problem;
use super::record::{Counted, Outcome, Record};
use super::sandbox::{Ran, Sandbox};
use crate::check::answer::Answer;
use crate::check::client::{Client, ClientError};

/// Tries of one request where the server is busy or does not answer.
const TRIES: u32 = 3;

/// The first model that the server lists.
pub(super) async fn first_model(client: &Client, limit: Duration) -> Result<String, CheckError> {
    let list = client.get("/v1/models", limit).await.map_err(|error| CheckError::Server(error.to_string()))?;
    let name = list.pointer("/data/0/id").and_then(Value::as_str);
    let none = || CheckError::Server(format!("{} lists no model; name one with --model", client.base()));
    name.map(str::to_owned).ok_or_else(none)
}

pub(super) struct Job<'a> {
    pub problem: &'a Problem,
    pub condition: Condition,
}

impl Job<'_> {
    pub(super) fn key(&self) -> (String, String) {
        (self.problem.task_id.clone(), self.condition.name().to_owned())
    }
}

/// What all jobs share.
pub(super) struct Bench<'a> {
    pub options: &'a Options,
    pub client: &'a Client,
    pub sandbox: &'a Sandbox,
    pub model: &'a str,
}

impl Bench<'_> {
    pub(super) async fn run(&self, job: &Job<'_>) -> Record {
        match self.answer(job).await {
            Ok(answer) => self.judge(job, answer).await,
            Err(detail) => Record { detail, outcome: Outcome::Error, ..empty(job) },
        }
    }

    fn body(&self, job: &Job<'_>) -> Result<Value, String> {
        let options = self.options;
        let mut body = json!({
            "model": self.model,
            "messages": job.condition.messages(job.problem),
            "temperature": options.temperature,
            "max_tokens": options.max_tokens,
            "stream": false,
        });
        let fields = job.condition.fields(options.dialect, options.budget_tokens)?;
        if let Some(map) = body.as_object_mut() {
            map.extend(fields);
        }
        Ok(body)
    }

    async fn answer(&self, job: &Job<'_>) -> Result<Answer, String> {
        if job.condition == Condition::Reference {
            let Some(body) = &job.problem.canonical_solution else {
                return Err("the problem has no canonical_solution".to_owned());
            };
            let content = format!("```python\n{}{body}\n```", job.problem.prompt);
            return Ok(Answer { content, finish: "stop".to_owned(), ..Answer::default() });
        }
        self.chat(&self.body(job)?).await
    }

    /// `Err`: what the server said, or why it could not be asked, after the last try.
    async fn chat(&self, body: &Value) -> Result<Answer, String> {
        let mut wait = Duration::from_secs(1);
        for attempt in 1.. {
            let start = Instant::now();
            let error = match self.client.post("/v1/chat/completions", body, self.options.timeout).await {
                Ok(body) => {
                    let answer = Answer::of(&body, start.elapsed());
                    return answer.ok_or_else(|| "the answer has no choice".to_owned());
                }
                Err(error) => error,
            };
            let is_busy = match &error {
                ClientError::Status { status, .. } => matches!(status, 429 | 503),
                other => matches!(other, ClientError::Refused { .. }),
            };
            if !is_busy || attempt >= TRIES {
                return Err(error.to_string());
            }
            tokio::time::sleep(wait).await;
            wait *= 4;
        }
        Err("no try was made".to_owned())
    }

    /// Tokens of a text where the server has `/tokenize`, in the form of llama-server or of vLLM.
    async fn count_tokens(&self, text: &str) -> Option<u64> {
        let body = json!({"content": text, "prompt": text, "model": self.model, "add_special_tokens": false});
        let value = self.client.post("/tokenize", &body, self.options.timeout).await.ok()?;
        value["count"].as_u64().or_else(|| value["tokens"].as_array().map(|tokens| tokens.len() as u64))
    }

    async fn judge(&self, job: &Job<'_>, answer: Answer) -> Record {
        let ran = match code::program(job.problem, &answer.content) {
            Some(program) => match self.sandbox.run(&program).await {
                Ok(ran) => ran,
                Err(error) => return Record { detail: error.to_string(), outcome: Outcome::Error, ..empty(job) },
            },
            None => Ran { outcome: Outcome::NoCode, detail: String::new(), ms: 0 },
        };
        let (thinking_tokens, counted) = self.thinking_tokens(&answer).await.unzip();
        Record {
            outcome: ran.outcome,
            detail: ran.detail,
            run_ms: ran.ms,
            thinking_tokens,
            counted,
            completion_tokens: answer.completion_tokens,
            request_ms: answer.elapsed.as_millis() as u64,
            fits: job.condition.shape().map(|shape| shape.fits(&answer.thinking)),
            leaked: ["<think>", "</think>"].iter().any(|tag| answer.content.contains(tag)),
            finish: answer.finish,
            thinking: answer.thinking,
            content: answer.content,
            ..empty(job)
        }
    }

    async fn thinking_tokens(&self, answer: &Answer) -> Option<(u64, Counted)> {
        if let Some(n) = answer.thinking_tokens {
            return Some((n, Counted::Usage));
        }
        if answer.thinking.is_empty() {
            return Some((0, Counted::Tokenize));
        }
        if let Some(n) = self.count_tokens(&answer.thinking).await {
            return Some((n, Counted::Tokenize));
        }
        let (inside, all) = (answer.thinking.len() as u64, (answer.thinking.len() + answer.content.len()) as u64);
        Some((answer.completion_tokens? * inside / all, Counted::Share))
    }
}

fn empty(job: &Job<'_>) -> Record {
    let (task, condition) = job.key();
    Record {
        task,
        condition,
        outcome: Outcome::Error,
        detail: String::new(),
        finish: String::new(),
        thinking_tokens: None,
        counted: None,
        completion_tokens: None,
        request_ms: 0,
        run_ms: 0,
        fits: None,
        leaked: false,
        thinking: String::new(),
        content: String::new(),
    }
}
