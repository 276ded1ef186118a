//! What a chat answer says, read from one JSON or from the events of a stream, wherever a server puts it.

use std::time::Duration;

use serde_json::Value;

use super::client::Stream;

/// A call of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    pub id: String,
    pub name: String,
    /// JSON text, its pieces joined.
    pub arguments: String,
}

/// One answer. What the server does not tell is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    pub thinking: String,
    pub content: String,
    pub calls: Vec<Call>,
    pub finish: String,
    pub prompt_tokens: Option<u64>,
    pub cached_tokens: Option<u64>,
    pub completion_tokens: Option<u64>,
    /// Tokens of thinking, as the server counts them.
    pub thinking_tokens: Option<u64>,
    /// As the server measured it, in tokens a second.
    pub prefill_tps: Option<f64>,
    pub decode_tps: Option<f64>,
    pub drafted: Option<u64>,
    pub draft_accepted: Option<u64>,
    pub accepted_per_position: Vec<f64>,
    pub fingerprint: String,
    /// Of a stream only: to the first piece of text, thinking or call, and to the last one.
    pub first: Option<Duration>,
    pub last: Option<Duration>,
    /// Of a stream only: events that brought text of the answer.
    pub n_content_events: usize,
    pub elapsed: Duration,
}

impl Answer {
    /// The answer in a whole body. `None`: it has no choice.
    pub fn of(body: &Value, elapsed: Duration) -> Option<Answer> {
        let choice = body.pointer("/choices/0")?;
        let mut answer = Answer { elapsed, ..Answer::default() };
        let (mut thinking, mut content) = (String::new(), String::new());
        answer.add_message(&choice["message"], &mut thinking, &mut content);
        answer.finish = text(choice, "finish_reason").to_owned();
        answer.add_figures(body);
        answer.set_texts(thinking, content);
        Some(answer)
    }

    /// The answer in a stream, as far as it came.
    pub fn of_stream(stream: &Stream) -> Answer {
        let mut answer = Answer { elapsed: stream.elapsed, ..Answer::default() };
        let (mut thinking, mut content) = (String::new(), String::new());
        for event in &stream.events {
            answer.add_figures(&event.data);
            let Some(choice) = event.data.pointer("/choices/0") else { continue };
            if let Some(finish) = choice["finish_reason"].as_str() {
                finish.clone_into(&mut answer.finish);
            }
            if answer.add_message(&choice["delta"], &mut thinking, &mut content) {
                answer.first.get_or_insert(event.at);
                answer.last = Some(event.at);
            }
        }
        answer.set_texts(thinking, content);
        answer
    }

    /// Takes up a message or a piece of one. Did it bring anything that was generated?
    fn add_message(&mut self, message: &Value, thinking: &mut String, content: &mut String) -> bool {
        let apart = [text(message, "reasoning_content"), text(message, "reasoning")];
        let apart = apart.into_iter().find(|text| !text.is_empty()).unwrap_or_default();
        let piece = text(message, "content");
        thinking.push_str(apart);
        content.push_str(piece);
        self.n_content_events += usize::from(!piece.is_empty());
        let calls = message["tool_calls"].as_array().map_or(&[][..], Vec::as_slice);
        for (i, call) in calls.iter().enumerate() {
            self.add_call(call, i);
        }
        !(apart.is_empty() && piece.is_empty() && calls.is_empty())
    }

    fn add_call(&mut self, call: &Value, place: usize) {
        let at = call["index"].as_u64().map_or(place, |index| index as usize).min(255);
        if self.calls.len() <= at {
            self.calls.resize_with(at + 1, Call::default);
        }
        let known = &mut self.calls[at];
        known.id.push_str(text(call, "id"));
        known.name.push_str(text(&call["function"], "name"));
        known.arguments.push_str(text(&call["function"], "arguments"));
    }

    fn add_figures(&mut self, body: &Value) {
        let count = |pointer: &str| body.pointer(pointer).and_then(Value::as_u64);
        let rate = |pointer: &str| body.pointer(pointer).and_then(Value::as_f64);
        self.prompt_tokens = count("/usage/prompt_tokens").or(self.prompt_tokens);
        self.cached_tokens = count("/usage/prompt_tokens_details/cached_tokens")
            .or_else(|| count("/timings/cache_n"))
            .or(self.cached_tokens);
        self.completion_tokens = count("/usage/completion_tokens").or(self.completion_tokens);
        self.thinking_tokens = count("/usage/completion_tokens_details/reasoning_tokens").or(self.thinking_tokens);
        self.prefill_tps = rate("/timings/prompt_per_second").or(self.prefill_tps);
        self.decode_tps = rate("/timings/predicted_per_second").or(self.decode_tps);
        self.drafted = count("/timings/draft_n").or(self.drafted);
        self.draft_accepted = count("/timings/draft_n_accepted").or(self.draft_accepted);
        if let Some(shares) = body.pointer("/timings/accepted_per_position").and_then(Value::as_array) {
            self.accepted_per_position = shares.iter().filter_map(Value::as_f64).collect();
        }
        if let Some(fingerprint) = body["system_fingerprint"].as_str() {
            fingerprint.clone_into(&mut self.fingerprint);
        }
    }

    fn set_texts(&mut self, thinking: String, content: String) {
        if thinking.is_empty() {
            let (thinking, content) = split(&content);
            (self.thinking, self.content) = (thinking.to_owned(), content.to_owned());
        } else {
            (self.thinking, self.content) = (thinking, content);
        }
    }

    /// Tokens a second between the first piece and the last one; several tokens may come in a piece.
    pub fn stream_decode_tps(&self) -> Option<f64> {
        let seconds = self.last?.checked_sub(self.first?)?.as_secs_f64();
        let n = self.completion_tokens?;
        (n > 1 && seconds > 0.0).then(|| (n - 1) as f64 / seconds)
    }

    /// The server's rate of decode, else the stream's.
    pub fn decode_rate(&self) -> Option<f64> {
        self.decode_tps.filter(|rate| rate.is_finite() && *rate > 0.0).or_else(|| self.stream_decode_tps())
    }

    /// Prompt tokens a second: the server's, else what was not cached over the time to the first piece.
    pub fn prefill_rate(&self) -> Option<f64> {
        let told = self.prefill_tps.filter(|rate| rate.is_finite() && *rate > 0.0);
        told.or_else(|| {
            let fresh = self.prompt_tokens?.checked_sub(self.cached_tokens.unwrap_or(0))?;
            let seconds = self.first?.as_secs_f64();
            (seconds > 0.0 && fresh > 0).then(|| fresh as f64 / seconds)
        })
    }

    /// Tokens a step, from what was drafted and accepted: those that were not accepted drafts took a step each.
    pub fn acceptance_length(&self) -> Option<f64> {
        let (all, accepted) = (self.completion_tokens?, self.draft_accepted?);
        let steps = all.checked_sub(accepted).filter(|steps| *steps > 0)?;
        self.drafted.filter(|n| *n > 0).map(|_| all as f64 / steps as f64)
    }

    /// Nothing was generated although the server said that all is well.
    pub fn is_empty(&self) -> bool {
        self.completion_tokens.unwrap_or(0) == 0
            && self.content.is_empty()
            && self.thinking.is_empty()
            && self.calls.is_empty()
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
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
    use serde_json::json;

    use super::*;
    use crate::check::client::Event;

    fn message(message: &Value) -> (String, String) {
        let body = json!({"choices": [{"message": message, "finish_reason": "stop"}]});
        let answer = Answer::of(&body, Duration::ZERO).unwrap();
        (answer.thinking, answer.content)
    }

    #[test]
    fn thinking_is_found_wherever_a_server_puts_it() {
        for said in [
            json!({"reasoning_content": "t", "content": "a"}),
            json!({"reasoning": "t", "content": "a"}),
            json!({"reasoning": null, "reasoning_content": "t", "content": "a"}),
            json!({"content": "<think>t</think>a"}),
            json!({"content": "t</think>a"}),
        ] {
            assert_eq!(message(&said), ("t".to_owned(), "a".to_owned()), "{said}");
        }
        assert_eq!(message(&json!({"content": "\n<think>t"})), ("t".to_owned(), String::new()));
        assert_eq!(message(&json!({"content": "a"})), (String::new(), "a".to_owned()));
        assert_eq!(message(&json!({"content": null})), (String::new(), String::new()));
        assert!(Answer::of(&json!({"choices": []}), Duration::ZERO).is_none());
    }

    fn stream(events: Vec<Value>) -> Stream {
        let events = events.into_iter().enumerate();
        let events = events.map(|(i, data)| Event { at: Duration::from_secs(i as u64 + 1), data }).collect();
        Stream { events, elapsed: Duration::from_secs(9), fault: None }
    }

    fn delta(delta: &Value) -> Value {
        json!({"choices": [{"delta": delta}]})
    }

    #[test]
    fn pieces_of_a_stream_are_joined_and_timed() {
        let call =
            |arguments: &str| delta(&json!({"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]}));
        let answer = Answer::of_stream(&stream(vec![
            delta(&json!({"role": "assistant", "content": ""})),
            delta(&json!({"reasoning_content": "hm"})),
            delta(&json!({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}]})),
            call("{\"a\""),
            call(":1}"),
            json!({"choices": [{"delta": {}, "finish_reason": "tool_calls"}],
                "timings": {"prompt_per_second": 100.0, "draft_n": 9, "draft_n_accepted": 5, "cache_n": 3}}),
            json!({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 10}}),
        ]));
        assert_eq!(answer.calls[0], Call { id: "c".into(), name: "f".into(), arguments: "{\"a\":1}".into() });
        assert_eq!((answer.thinking.as_str(), answer.finish.as_str()), ("hm", "tool_calls"));
        assert_eq!((answer.first, answer.last), (Some(Duration::from_secs(2)), Some(Duration::from_secs(5))));
        assert_eq!((answer.cached_tokens, answer.prompt_tokens), (Some(3), Some(7)));
        assert_eq!((answer.acceptance_length(), answer.stream_decode_tps()), (Some(2.0), Some(3.0)));
    }

    #[test]
    fn rates_that_nobody_tells_come_from_the_times() {
        let usage = json!({"choices": [], "usage": {"prompt_tokens": 60, "completion_tokens": 3,
            "prompt_tokens_details": {"cached_tokens": 20}}});
        let answer = Answer::of_stream(&stream(vec![
            json!({}),
            delta(&json!({"content": "a"})),
            delta(&json!({"content": "b"})),
            usage,
        ]));
        assert_eq!((answer.prefill_rate(), answer.decode_rate()), (Some(20.0), Some(2.0)));
        assert_eq!((answer.acceptance_length(), answer.n_content_events), (None, 2));
        assert!(Answer::of_stream(&stream(vec![])).is_empty() && !answer.is_empty());
    }
}
