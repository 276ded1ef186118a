//! `chat.completion` and `chat.completion.chunk`.

use std::collections::VecDeque;

use super::format::{HeldLogprobs, Render, ResponseHead, finite, text};
use crate::api::choice::{Answer, End, Piece};
use crate::api::wire::{
    CallBody, ChatChoice, ChatChunkChoice, ChatLogprobs, ChatMessage, Envelope, FunctionBody, PromptProgress,
    TimingsBody, TokenEntry, TopEntry, UsageBody,
};
use crate::chat::{Collected, CollectedCall, OutputDelta};
use crate::engine::Logprob;

const CHUNK: &str = "chat.completion.chunk";

/// Chat completions.
pub struct ChatRender {
    head: ResponseHead,
    held: HeldLogprobs,
}

impl ChatRender {
    pub fn new(head: ResponseHead) -> ChatRender {
        ChatRender { head, held: HeldLogprobs::default() }
    }

    fn chunk(&self, index: usize, delta: ChatMessage) -> Envelope<ChatChunkChoice> {
        self.head.envelope(CHUNK, vec![ChatChunkChoice { index, delta, logprobs: None, finish_reason: None }])
    }

    /// A chunk with the log-probabilities that wait for one.
    fn speak(&mut self, index: usize, delta: ChatMessage) -> String {
        let mut chunk = self.chunk(index, delta);
        let held = self.held.release(index);
        if let (false, Some(choice)) = (held.is_empty(), chunk.choices.first_mut()) {
            choice.logprobs = Some(logprobs(held));
        }
        text(&chunk)
    }
}

impl Render for ChatRender {
    fn open(&mut self, index: usize, out: &mut VecDeque<String>) {
        let delta = ChatMessage { role: Some(ASSISTANT), content: Some(Some(String::new())), ..ChatMessage::default() };
        out.push_back(text(&self.chunk(index, delta)));
    }

    fn piece(&mut self, index: usize, piece: Piece, out: &mut VecDeque<String>) {
        self.held.hold(index, piece.logprobs);
        for delta in piece.deltas {
            let delta = delta_of(delta);
            out.push_back(self.speak(index, delta));
        }
    }

    fn end(&mut self, index: usize, end: &End, timings: TimingsBody, out: &mut VecDeque<String>) {
        if self.held.has(index) {
            out.push_back(self.speak(index, ChatMessage::default()));
        }
        let mut last = self.chunk(index, ChatMessage::default());
        last.choices.iter_mut().for_each(|choice| choice.finish_reason = Some(end.finish_reason));
        last.timings = Some(timings);
        out.push_back(text(&last));
    }

    fn progress(&self, index: usize, progress: PromptProgress) -> String {
        let mut chunk = self.chunk(index, ChatMessage::default());
        chunk.prompt_progress = Some(progress);
        text(&chunk)
    }

    fn usage(&self, usage: UsageBody) -> String {
        let mut chunk = self.head.envelope::<ChatChunkChoice>(CHUNK, Vec::new());
        chunk.usage = Some(usage);
        text(&chunk)
    }

    fn whole(&self, choices: Vec<Answer>, usage: UsageBody, timings: TimingsBody) -> String {
        let choices = choices.into_iter().enumerate().map(|(index, answer)| whole_choice(index, answer)).collect();
        let mut answer = self.head.envelope("chat.completion", choices);
        answer.usage = Some(usage);
        answer.timings = Some(timings);
        text(&answer)
    }
}

const ASSISTANT: &str = "assistant";

fn delta_of(delta: OutputDelta) -> ChatMessage {
    match delta {
        OutputDelta::Content(text) => ChatMessage { content: Some(Some(text)), ..ChatMessage::default() },
        OutputDelta::Reasoning(text) => {
            ChatMessage { reasoning_content: Some(text.clone()), reasoning: Some(text), ..ChatMessage::default() }
        }
        OutputDelta::ToolCall { index, id, name } => {
            let call = CallBody { index: Some(index), ..call(id, name, String::new()) };
            ChatMessage { tool_calls: vec![call], ..ChatMessage::default() }
        }
        OutputDelta::Arguments { index, json } => {
            let function = FunctionBody { name: None, arguments: json };
            let more = CallBody { index: Some(index), id: None, kind: None, function };
            ChatMessage { tool_calls: vec![more], ..ChatMessage::default() }
        }
    }
}

fn call(id: String, name: String, arguments: String) -> CallBody {
    let function = FunctionBody { name: Some(name), arguments };
    CallBody { index: None, id: Some(id), kind: Some("function"), function }
}

fn whole_choice(index: usize, answer: Answer) -> ChatChoice {
    let Answer { said: Collected { content, reasoning, calls }, logprobs: tokens, end } = answer;
    let content = (!content.is_empty() || calls.is_empty()).then_some(content);
    let reasoning = (!reasoning.is_empty()).then_some(reasoning);
    let call = |CollectedCall { id, name, arguments }| call(id, name, arguments);
    ChatChoice {
        index,
        message: ChatMessage {
            role: Some(ASSISTANT),
            content: Some(content),
            reasoning_content: reasoning.clone(),
            reasoning,
            tool_calls: calls.into_iter().map(call).collect(),
        },
        logprobs: (!tokens.is_empty()).then(|| logprobs(tokens)),
        finish_reason: end.map_or("stop", |end| end.finish_reason),
    }
}

fn logprobs(tokens: Vec<Logprob>) -> ChatLogprobs {
    let entry = |Logprob { token: _, text, bytes, logprob, top }| TokenEntry {
        token: text,
        logprob: finite(logprob),
        bytes,
        top_logprobs: top
            .into_iter()
            .map(|(_, token, bytes, logprob)| TopEntry { token, logprob: finite(logprob), bytes })
            .collect(),
    };
    ChatLogprobs { content: tokens.into_iter().map(entry).collect(), refusal: None }
}
