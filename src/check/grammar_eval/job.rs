//! One problem under one condition: ask, take the code, run it, judge.

use serde_json::{Value, json};

use super::client::{Answer, Client};
use super::condition::Condition;
use super::problem::Problem;
use super::record::{Counted, Outcome, Record};
use super::sandbox::{Ran, Sandbox};
use super::{Options, code};

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
        self.client.chat(&self.body(job)?).await
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
            request_ms: answer.ms,
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
        if let Some(n) = self.client.count_tokens(self.model, &answer.thinking).await {
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
