//! A conversation on the engine: messages so far, one answer at a time, streamed to the screen. Prepared like a request of
//! the API, through `chat`.

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Map, Value, json};

use super::screen::Screen;
use crate::app::Failure;
use crate::app::terminal::{self, Bar};
use crate::chat::constraint::sources::AnswerConstraint;
use crate::chat::conversation::{self, ConversationFields};
use crate::chat::options::{self, OptionFields};
use crate::chat::prepare::{RequestOrigin, prepare};
use crate::chat::{
    ChatRequest, ChatTemplate, ChoiceRequests, Conversation as Asked, OutputDelta, OutputParser, Prepared,
    RequestError, ServedModel,
};
use crate::config::Profile;
use crate::engine::{Event, Finish, FinishReason, Handle, Image};
use crate::grammar::Grammars;

/// Prompts with fewer new tokens are read before a bar would be noticed.
const BAR_FROM_TOKENS: usize = 256;

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Whole,
    /// By Ctrl-C; what was said stays in the conversation.
    Stopped,
}

pub struct Conversation {
    profile: Profile,
    handle: Handle,
    template: ChatTemplate,
    grammars: Grammars,
    system: Option<Value>,
    messages: Vec<Value>,
    /// Of all messages, in order.
    images: Vec<Arc<Image>>,
    /// Not in a message yet.
    shown: Vec<Arc<Image>>,
}

/// What an answer consists of so far.
#[derive(Default)]
struct Answer {
    content: String,
    reasoning: String,
}

impl Conversation {
    pub fn new(
        profile: Profile,
        handle: Handle,
        template: ChatTemplate,
        grammars: Grammars,
        system: Option<&str>,
    ) -> Conversation {
        let system = system.map(|text| json!({"role": "system", "content": text}));
        let messages = system.iter().cloned().collect();
        Conversation { profile, handle, template, grammars, system, messages, images: Vec::new(), shown: Vec::new() }
    }

    /// For tests.
    #[cfg(test)]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Puts images in front of the next message.
    pub fn show(&mut self, images: Vec<Arc<Image>>) {
        self.shown.extend(images);
    }

    /// Forgets everything but the system message.
    pub fn reset(&mut self) {
        self.messages = self.system.iter().cloned().collect();
        self.images.clear();
    }

    /// Says `text` and streams the answer. A message that cannot be answered (`Failure::Usage`) is taken back.
    pub async fn say(&mut self, text: String, screen: &mut Screen) -> Result<Ended, Failure> {
        let n_shown = self.shown.len();
        self.ask(&text);
        let prepared = self.prepare();
        if prepared.is_err() {
            self.take_back(n_shown);
        }
        let ChoiceRequests { mut requests, n_per_prompt: _, format } = prepared?.choices;
        let (Some(request), Some(format)) = (requests.pop(), format) else {
            return Err(Failure::Internal("a chat was prepared without a request".to_owned()));
        };
        let mut events = match self.handle.submit(request) {
            Ok(events) => events,
            Err(refused) => {
                self.take_back(n_shown);
                return Err(Failure::Usage(refused.to_string()));
            }
        };
        let mut parser = OutputParser::new(format);
        let mut answer = Answer::default();
        let mut bar = None;
        let ended = loop {
            let event = tokio::select! {
                event = events.next() => event,
                _ = tokio::signal::ctrl_c() => break Ended::Stopped,
            };
            match event {
                Some(Event::Progress { done, total, cached, .. }) => show_prefill(&mut bar, done, total, cached),
                Some(Event::Delta { text, .. }) => {
                    bar = None;
                    answer.take(&mut parser, Some(&text), screen)?;
                }
                Some(Event::Finished(finish)) => {
                    bar = None;
                    answer.take(&mut parser, Some(&finish.text), screen)?;
                    answer.take(&mut parser, None, screen)?;
                    screen.end_answer()?;
                    screen.note(&summary(&finish))?;
                    break Ended::Whole;
                }
                Some(Event::Failed(error)) => return Err(Failure::Internal(error.to_string())),
                None => return Err(Failure::Internal("the engine ended without a word".to_owned())),
            }
        };
        if ended == Ended::Stopped {
            drop(bar);
            answer.take(&mut parser, None, screen)?;
            screen.end_answer()?;
        }
        self.messages.push(answer.message());
        Ok(ended)
    }

    /// A message of the user, with the images that wait for one.
    fn ask(&mut self, text: &str) {
        let content = match self.shown.len() {
            0 => json!(text),
            n => {
                let mut parts = vec![json!({"type": "image"}); n];
                parts.push(json!({"type": "text", "text": text}));
                Value::from(parts)
            }
        };
        self.images.append(&mut self.shown);
        self.messages.push(json!({"role": "user", "content": content}));
    }

    /// The last message; its images wait for another one.
    fn take_back(&mut self, n_images: usize) {
        self.messages.pop();
        self.shown = self.images.split_off(self.images.len() - n_images);
    }

    fn prepare(&self) -> Result<Prepared, Failure> {
        let id = uuid::Uuid::new_v4();
        let served = ServedModel {
            tokenizer: self.handle.tokenizer(),
            template: &self.template,
            profile: &self.profile,
            grammars: &self.grammars,
        };
        let (origin, seed) = (RequestOrigin { id: &format!("run-{id}"), arrived: Instant::now() }, id.as_u64_pair().0);
        let request = self.request(&served, seed);
        request
            .and_then(|request| prepare(request, &served, &origin))
            .map_err(|refused| Failure::Usage(refused.message))
    }

    fn request(&self, served: &ServedModel<'_>, seed: u64) -> Result<ChatRequest, RequestError> {
        let mut ignored = Vec::new();
        let options = OptionFields { progress: true, ..OptionFields::default() };
        let options = options::check(options, served, seed)?;
        let fields = ConversationFields { messages: self.messages.clone(), ..ConversationFields::default() };
        let conversation = Asked::Messages(Box::new(conversation::check(fields, served, &mut ignored)?));
        let (images, constraint) = (self.images.clone(), AnswerConstraint::default());
        Ok(ChatRequest { conversation, images, options, constraint, ignored })
    }
}

impl Answer {
    /// Takes text in (`None`: the end of it) and shows what is decided.
    fn take(&mut self, parser: &mut OutputParser, text: Option<&str>, screen: &mut Screen) -> Result<(), Failure> {
        let mut deltas = Vec::new();
        match text {
            Some(text) => parser.push(text, &mut deltas),
            None => parser.finish(&mut deltas),
        }
        for delta in deltas {
            match delta {
                OutputDelta::Reasoning(text) => {
                    screen.reasoning(&text)?;
                    self.reasoning.push_str(&text);
                }
                OutputDelta::Content(text) => {
                    screen.content(&text)?;
                    self.content.push_str(&text);
                }
                // No tools are declared here, so calls stay content.
                OutputDelta::ToolCall { .. } | OutputDelta::Arguments { .. } => {}
            }
        }
        Ok(())
    }

    fn message(self) -> Value {
        let mut message = Map::new();
        message.insert("role".to_owned(), Value::from("assistant"));
        message.insert("content".to_owned(), Value::from(self.content));
        if !self.reasoning.is_empty() {
            message.insert("reasoning_content".to_owned(), Value::from(self.reasoning));
        }
        Value::Object(message)
    }
}

fn show_prefill(bar: &mut Option<Bar>, done: usize, total: usize, cached: usize) {
    if total.saturating_sub(cached) < BAR_FROM_TOKENS {
        return;
    }
    bar.get_or_insert_with(|| terminal::bar("reading the prompt")).set(done as f32 / total.max(1) as f32);
}

/// One line of figures, and why the answer is not whole where it is not.
fn summary(finish: &Finish) -> String {
    let cut = match finish.reason {
        FinishReason::MaxTokens => ", cut at the token limit",
        FinishReason::ContextFull => ", cut: the context is full",
        FinishReason::Eos(_) | FinishReason::Stop(_) | FinishReason::Complete | FinishReason::Cancelled => "",
    };
    let (usage, timings) = (finish.usage, finish.timings);
    let speed = if timings.predicted_ms > 0.0 { timings.predicted_n as f64 / timings.predicted_ms * 1e3 } else { 0.0 };
    format!(
        "[{} prompt tokens, {} of them cached; {} generated at {speed:.1} a second{cut}]\n",
        usage.prompt, usage.cached, usage.completion
    )
}
