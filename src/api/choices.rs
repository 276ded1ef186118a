//! All choices of one request as one stream of updates.
//!
//! Dropping `RunningChoices` cancels every choice: that is how a client that leaves is noticed, in
//! a stream (the body is dropped) and in a whole answer (the handler is).

use std::collections::VecDeque;
use std::pin::Pin;

use futures_util::stream::{SelectAll, Stream, StreamExt, unfold};

use super::choice::{ChoiceReader, Update};
use super::usage::UsageTotals;
use crate::chat::ChoiceRequests;
use crate::engine::{EngineError, Event, EventStream, Handle, SubmitError};
use crate::text::tokenizer::Tokenizer;

type Events = Pin<Box<dyn Stream<Item = (usize, Event)> + Send>>;

/// The running choices of one request.
pub struct RunningChoices {
    readers: Vec<ChoiceReader>,
    events: SelectAll<Events>,
    updates: VecDeque<(usize, Update)>,
    totals: UsageTotals,
}

impl RunningChoices {
    /// Submits every choice; one that is not taken cancels those before it.
    pub fn start(
        choices: ChoiceRequests,
        handle: &Handle,
        tokenizer: &Tokenizer,
    ) -> Result<RunningChoices, SubmitError> {
        let ChoiceRequests { requests, n_per_prompt, format } = choices;
        let mut events = SelectAll::new();
        let mut readers = Vec::with_capacity(requests.len());
        let mut totals = UsageTotals::new(n_per_prompt);
        for (index, request) in requests.into_iter().enumerate() {
            if index.checked_rem(n_per_prompt) == Some(0) {
                totals.add_images(&request);
            }
            events.push(indexed(index, handle.submit(request)?));
            readers.push(ChoiceReader::new(format.clone(), tokenizer));
        }
        Ok(RunningChoices { readers, events, updates: VecDeque::new(), totals })
    }

    pub fn n_choices(&self) -> usize {
        self.readers.len()
    }

    /// The next update of any choice; `None` after all have ended. `Failed` is the last one.
    pub async fn next(&mut self) -> Option<(usize, Update)> {
        loop {
            if let Some((index, update)) = self.updates.pop_front() {
                if let Update::End(end) = &update {
                    self.totals.add(index, end);
                }
                if matches!(update, Update::Failed(_)) {
                    self.events.clear();
                    self.updates.clear();
                }
                return Some((index, update));
            }
            let (index, event) = self.events.next().await?;
            let mut read = VecDeque::new();
            if let Some(reader) = self.readers.get_mut(index) {
                reader.read(event, &mut read);
            }
            self.updates.extend(read.into_iter().map(|update| (index, update)));
        }
    }

    /// Sums over the choices that have ended.
    pub fn totals(&self) -> &UsageTotals {
        &self.totals
    }
}

/// The events of one choice with its index, up to the terminal one. A stream that breaks off ends
/// in a failure.
fn indexed(index: usize, stream: EventStream) -> Events {
    Box::pin(unfold(Some(stream), move |state| async move {
        let mut stream = state?;
        let event = stream.next().await.unwrap_or(Event::Failed(EngineError::Dead));
        let more = !matches!(event, Event::Finished(_) | Event::Failed(_));
        Some(((index, event), more.then_some(stream)))
    }))
}
