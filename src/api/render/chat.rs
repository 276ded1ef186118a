//! `chat.completion` and `chat.completion.chunk`.

use std::collections::VecDeque;

use super::{Head, Held, Render, finite, text};
use crate::api::choice::{End, Piece};
use crate::api::collect::Answer;
use crate::api::wire::{
    ChatChoice, ChatChunkChoice, ChatLogprobs, ChunkCall, ChunkFunction, Delta, Envelope, Message, MessageCall,
    MessageFunction, PromptProgress, TimingsBody, TokenEntry, TopEntry, UsageBody,
};
use crate::chat::{Collected, CollectedCall, OutputDelta};
use crate::engine::Logprob;

const CHUNK: &str = "chat.completion.chunk";

/// Chat completions.
pub struct ChatRender {
    head: Head,
    held: Held,
}

impl ChatRender {
    pub fn new(head: Head) -> ChatRender {
        ChatRender { head, held: Held::default() }
    }

    fn chunk(&self, index: usize, delta: Delta) -> Envelope<ChatChunkChoice> {
        self.head.envelope(CHUNK, vec![ChatChunkChoice { index, delta, logprobs: None, finish_reason: None }])
    }

    /// A chunk with the log-probabilities that wait for one.
    fn speak(&mut self, index: usize, delta: Delta) -> String {
        let mut chunk = self.chunk(index, delta);
        let held = std::mem::take(self.held.at(index));
        if let (false, Some(choice)) = (held.is_empty(), chunk.choices.first_mut()) {
            choice.logprobs = Some(logprobs(held));
        }
        text(&chunk)
    }
}

impl Render for ChatRender {
    fn open(&mut self, index: usize, out: &mut VecDeque<String>) {
        let delta = Delta { role: Some("assistant"), content: Some(String::new()), ..Delta::default() };
        out.push_back(text(&self.chunk(index, delta)));
    }

    fn piece(&mut self, index: usize, piece: Piece, out: &mut VecDeque<String>) {
        self.held.at(index).extend(piece.logprobs);
        for delta in piece.deltas {
            let delta = wire(delta);
            out.push_back(self.speak(index, delta));
        }
    }

    fn end(&mut self, index: usize, end: &End, timings: TimingsBody, out: &mut VecDeque<String>) {
        if !self.held.at(index).is_empty() {
            out.push_back(self.speak(index, Delta::default()));
        }
        let mut last = self.chunk(index, Delta::default());
        last.choices.iter_mut().for_each(|choice| choice.finish_reason = Some(end.finish_reason));
        last.timings = Some(timings);
        out.push_back(text(&last));
    }

    fn progress(&self, index: usize, progress: PromptProgress) -> String {
        let mut chunk = self.chunk(index, Delta::default());
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

fn wire(delta: OutputDelta) -> Delta {
    let call = |index, id: Option<String>, name: Option<String>, arguments| {
        let kind = id.is_some().then_some("function");
        vec![ChunkCall { index, id, kind, function: ChunkFunction { name, arguments } }]
    };
    match delta {
        OutputDelta::Content(text) => Delta { content: Some(text), ..Delta::default() },
        OutputDelta::Reasoning(text) => {
            Delta { reasoning_content: Some(text.clone()), reasoning: Some(text), ..Delta::default() }
        }
        OutputDelta::ToolCall { index, id, name } => {
            Delta { tool_calls: call(index, Some(id), Some(name), String::new()), ..Delta::default() }
        }
        OutputDelta::Arguments { index, json } => {
            Delta { tool_calls: call(index, None, None, json), ..Delta::default() }
        }
    }
}

fn whole_choice(index: usize, answer: Answer) -> ChatChoice {
    let Answer { said: Collected { content, reasoning, calls }, logprobs: tokens, end } = answer;
    let content = (!content.is_empty() || calls.is_empty()).then_some(content);
    let reasoning = (!reasoning.is_empty()).then_some(reasoning);
    let call = |CollectedCall { id, name, arguments }| MessageCall {
        id,
        kind: "function",
        function: MessageFunction { name, arguments },
    };
    ChatChoice {
        index,
        message: Message {
            role: "assistant",
            content,
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
