//! What every API's rendering has in common.

use std::collections::VecDeque;

use serde::Serialize;

use crate::api::choice::{Answer, End, Piece};
use crate::api::state::ApiState;
use crate::api::wire::{Envelope, PromptProgress, TimingsBody, UsageBody};
use crate::engine::Logprob;

/// Prints the answers of an API. What it pushes to `out` are the `data:` texts of a stream, in
/// order.
pub trait Render: Send + 'static {
    /// A choice of a stream begins.
    fn open(&mut self, index: usize, out: &mut VecDeque<String>);
    /// A choice says something.
    fn piece(&mut self, index: usize, piece: Piece, out: &mut VecDeque<String>);
    /// A choice ends.
    fn end(&mut self, index: usize, end: &End, timings: TimingsBody, out: &mut VecDeque<String>);
    /// A prompt is being processed.
    fn progress(&self, index: usize, progress: PromptProgress) -> String;
    /// The chunk without choices.
    fn usage(&self, usage: UsageBody) -> String;
    /// The text of a whole answer.
    fn whole(&self, choices: Vec<Answer>, usage: UsageBody, timings: TimingsBody) -> String;
}

/// What is the same in all chunks of a response.
#[derive(Clone, Debug)]
pub struct ResponseHead {
    pub id: String,
    pub created: u64,
    pub model: String,
    pub fingerprint: String,
}

impl ResponseHead {
    /// `created` is now, in seconds since 1970.
    pub fn new(id: String, state: &ApiState) -> ResponseHead {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        ResponseHead {
            id,
            created: since.map_or(0, |since| since.as_secs()),
            model: state.model.id.clone(),
            fingerprint: state.build.fingerprint(),
        }
    }

    pub(super) fn envelope<C>(&self, object: &'static str, choices: Vec<C>) -> Envelope<C> {
        Envelope {
            id: self.id.clone(),
            object,
            created: self.created,
            model: self.model.clone(),
            system_fingerprint: self.fingerprint.clone(),
            choices,
            usage: None,
            timings: None,
            prompt_progress: None,
        }
    }
}

/// JSON text.
pub(super) fn text<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("strings, numbers and lists always have a JSON form")
}

/// A finite number: JSON has no infinity, and clients know this one from OpenAI.
pub(super) fn finite(logprob: f32) -> f32 {
    if logprob.is_finite() { logprob } else { -9999.0 }
}

/// Log-probabilities that no chunk has carried yet, by choice: a chunk without text for them may
/// not come for a while.
#[derive(Debug, Default)]
pub(super) struct HeldLogprobs(Vec<Vec<Logprob>>);

impl HeldLogprobs {
    pub(super) fn hold(&mut self, index: usize, logprobs: Vec<Logprob>) {
        if self.0.len() <= index {
            self.0.resize_with(index + 1, Vec::new);
        }
        self.0[index].extend(logprobs);
    }

    pub(super) fn has(&self, index: usize) -> bool {
        self.0.get(index).is_some_and(|held| !held.is_empty())
    }

    /// What is held of a choice, for the chunk that carries it.
    pub(super) fn release(&mut self, index: usize) -> Vec<Logprob> {
        self.0.get_mut(index).map(std::mem::take).unwrap_or_default()
    }
}
