//! Requests to an OpenAI-compatible server, and the thinking in its answers, wherever it is put.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Options;
use super::error::CheckError;

/// Tries of one request where the server is busy or does not answer.
const TRIES: u32 = 3;
/// Characters of an error's body that are shown.
const MAX_SHOWN: usize = 400;

pub(super) struct Client {
    http: reqwest::Client,
    /// Without `/v1` and without a slash at its end.
    base: String,
    key: Option<String>,
}

/// One answer to a chat request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    pub thinking: String,
    pub content: String,
    pub finish: String,
    pub completion_tokens: Option<u64>,
    /// As the server counts them.
    pub thinking_tokens: Option<u64>,
    pub ms: u64,
}

impl Client {
    pub(super) fn new(options: &Options) -> Result<Client, CheckError> {
        let base = options.url.trim_end_matches('/').trim_end_matches("/v1").trim_end_matches('/').to_owned();
        if !base.starts_with("http://") {
            let message =
                format!("{base:?} does not begin with http://; reach a server behind TLS through a local proxy");
            return Err(CheckError::Usage(message));
        }
        let http = reqwest::Client::builder()
            .timeout(options.timeout)
            .connect_timeout(Duration::from_secs(10))
            .no_proxy()
            .build()
            .map_err(|error| CheckError::Server(error.to_string()))?;
        Ok(Client { http, base, key: options.key.clone() })
    }

    fn request(&self, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    /// The first model that the server lists.
    pub(super) async fn first_model(&self) -> Result<String, CheckError> {
        let url = format!("{}/v1/models", self.base);
        let sent = self.request(self.http.get(&url)).send().await;
        let list = read(sent).await.map_err(|error| CheckError::Server(format!("{url}: {error}")))?;
        let name = list.pointer("/data/0/id").and_then(Value::as_str);
        name.map(str::to_owned)
            .ok_or_else(|| CheckError::Server(format!("{url} lists no model; name one with --model")))
    }

    /// # Errors
    /// What the server said, or why it could not be asked, after the last try.
    pub(super) async fn chat(&self, body: &Value) -> Result<Answer, String> {
        let url = format!("{}/v1/chat/completions", self.base);
        let mut wait = Duration::from_secs(1);
        for attempt in 1.. {
            let start = Instant::now();
            let sent = self.request(self.http.post(&url)).json(body).send().await;
            let is_busy = match &sent {
                Ok(response) => matches!(response.status().as_u16(), 429 | 503),
                Err(error) => error.is_connect(),
            };
            if is_busy && attempt < TRIES {
                tokio::time::sleep(wait).await;
                wait *= 4;
                continue;
            }
            let mut answer = answer(&read(sent).await?)?;
            answer.ms = start.elapsed().as_millis() as u64;
            return Ok(answer);
        }
        Err("no try was made".to_owned())
    }

    /// Tokens of a text where the server has `/tokenize`, in the form of llama-server or of vLLM.
    pub(super) async fn count_tokens(&self, model: &str, text: &str) -> Option<u64> {
        let body = json!({"content": text, "prompt": text, "model": model, "add_special_tokens": false});
        let sent = self.request(self.http.post(format!("{}/tokenize", self.base))).json(&body).send().await;
        let value = read(sent).await.ok()?;
        value["count"].as_u64().or_else(|| value["tokens"].as_array().map(|tokens| tokens.len() as u64))
    }
}

async fn read(sent: Result<reqwest::Response, reqwest::Error>) -> Result<Value, String> {
    let response = sent.map_err(|error| cause(&error))?;
    let status = response.status();
    let text = response.text().await.map_err(|error| cause(&error))?;
    if !status.is_success() {
        let short: String = text.chars().take(MAX_SHOWN).collect();
        return Err(format!("status {}: {short}", status.as_u16()));
    }
    serde_json::from_str(&text).map_err(|error| format!("the answer is no JSON: {error}"))
}

/// The innermost reason: the outer ones say that a request failed.
fn cause(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    let mut inner: &dyn std::error::Error = error;
    while let Some(next) = inner.source() {
        inner = next;
    }
    inner.to_string()
}

fn answer(body: &Value) -> Result<Answer, String> {
    let choice = body.pointer("/choices/0").ok_or("the answer has no choice")?;
    let message = &choice["message"];
    let text = |key: &str| message[key].as_str().unwrap_or_default();
    let content = text("content");
    let apart = [text("reasoning_content"), text("reasoning")].into_iter().find(|text| !text.is_empty());
    let (thinking, content) = match apart {
        Some(thinking) => (thinking, content),
        None => split(content),
    };
    let tokens = |pointer: &str| body.pointer(pointer).and_then(Value::as_u64);
    Ok(Answer {
        thinking: thinking.to_owned(),
        content: content.to_owned(),
        finish: choice["finish_reason"].as_str().unwrap_or_default().to_owned(),
        completion_tokens: tokens("/usage/completion_tokens"),
        thinking_tokens: tokens("/usage/completion_tokens_details/reasoning_tokens"),
        ms: 0,
    })
}

/// Thinking that was left in the content. Templates often open it in the prompt, so that only its end is seen.
fn split(content: &str) -> (&str, &str) {
    let opened = content.trim_start().strip_prefix("<think>");
    let inside = opened.unwrap_or(content);
    match (inside.split_once("</think>"), opened) {
        (Some((thinking, answer)), _) => (thinking, answer),
        (None, Some(thinking)) => (thinking, ""),
        (None, None) => ("", content),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_message(message: Value) -> (String, String) {
        let answer = answer(&json!({"choices": [{"message": message, "finish_reason": "stop"}]})).unwrap();
        (answer.thinking, answer.content)
    }

    #[test]
    fn thinking_is_found_wherever_a_server_puts_it() {
        for message in [
            json!({"reasoning_content": "t", "content": "a"}),
            json!({"reasoning": "t", "content": "a"}),
            json!({"reasoning": null, "reasoning_content": "t", "content": "a"}),
            json!({"content": "<think>t</think>a"}),
            json!({"content": "t</think>a"}),
        ] {
            assert_eq!(read_message(message.clone()), ("t".to_owned(), "a".to_owned()), "{message}");
        }
        assert_eq!(read_message(json!({"content": "\n<think>t"})), ("t".to_owned(), String::new()));
        assert_eq!(read_message(json!({"content": "a"})), (String::new(), "a".to_owned()));
        assert_eq!(read_message(json!({"content": null})), (String::new(), String::new()));
        assert!(answer(&json!({"choices": []})).is_err());
    }
}
