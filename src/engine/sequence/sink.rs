//! Both ends of a request's event channel: deltas that never wait, and exactly one terminal event.
//!
//! The place of the terminal event is reserved when the request is submitted, so a slow client can
//! neither lose it nor hold up the engine. What a full channel cannot take is joined into the next
//! delta; that is bounded because a generation is.

use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::engine::lost::{Lost, Watch};
use crate::engine::request::error::EngineError;
use crate::engine::request::event::{Event, Finish, Logprob};
use crate::units::Token;

/// Events that wait for a client: one reserved for the terminal event, the rest lets a client lag a
/// moment before deltas are joined. More would only move memory from here to the channel.
const EVENTS: usize = 32;

/// Events of one request. Dropping it cancels the request within one step, also while it is queued.
pub struct EventStream {
    events: mpsc::Receiver<Event>,
    lost: Watch,
    /// The end was made up here, because the engine's thread is lost.
    is_cut: bool,
}

impl EventStream {
    /// `None` after the terminal event.
    pub async fn next(&mut self) -> Option<Event> {
        if self.is_cut {
            return None;
        }
        tokio::select! {
            biased;
            event = self.events.recv() => event,
            _ = self.lost.told() => {
                self.is_cut = true;
                Some(Event::Failed(EngineError::Dead))
            }
        }
    }
}

/// The last event of a request.
#[derive(Debug)]
pub(in crate::engine) enum Terminal {
    Finished(Box<Finish>),
    Failed(EngineError),
}

/// Generated output that no event has carried yet.
#[derive(Debug, Default)]
pub(in crate::engine) struct Pending {
    pub text: String,
    pub tokens: Vec<Token>,
    pub logprobs: Vec<Logprob>,
}

/// Sends the events of one request. A sink that is dropped without `end` (a panic on the engine
/// thread) fails its request.
pub(in crate::engine) struct Sink {
    events: mpsc::Sender<Event>,
    terminal: Option<mpsc::OwnedPermit<Event>>,
    /// The request's place among the accepted ones; given back before the terminal event is seen.
    place: Option<OwnedSemaphorePermit>,
    pub pending: Pending,
}

impl Sink {
    /// A channel with the terminal event's place taken. The stream also ends where the engine's
    /// thread is `lost`.
    pub fn open(place: OwnedSemaphorePermit, lost: &Lost) -> (Sink, EventStream) {
        let (events, stream) = mpsc::channel(EVENTS);
        let terminal = events.clone().try_reserve_owned().expect("a new channel has room for one event");
        let sink = Sink { events, terminal: Some(terminal), place: Some(place), pending: Pending::default() };
        (sink, EventStream { events: stream, lost: lost.watch(), is_cut: false })
    }

    /// The client dropped its stream.
    pub fn is_closed(&self) -> bool {
        self.events.is_closed()
    }

    /// Sends what is pending if there is text in it and room for it; else it stays pending.
    pub fn flush(&mut self) {
        if self.pending.text.is_empty() {
            return;
        }
        if let Ok(permit) = self.events.try_reserve() {
            let Pending { text, tokens, logprobs } = std::mem::take(&mut self.pending);
            permit.send(Event::Delta { text, tokens, logprobs });
        }
    }

    /// Sends a progress event, or drops it when the client lags: the next one says more.
    pub fn progress(&self, event: Event) {
        if let Ok(permit) = self.events.try_reserve() {
            permit.send(event);
        }
    }

    /// Sends the one terminal event.
    pub fn end(mut self, terminal: Terminal) {
        self.send_terminal(terminal);
    }

    fn send_terminal(&mut self, terminal: Terminal) {
        drop(self.place.take());
        if let Some(permit) = self.terminal.take() {
            permit.send(match terminal {
                Terminal::Finished(finish) => Event::Finished(finish),
                Terminal::Failed(error) => Event::Failed(error),
            });
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.send_terminal(Terminal::Failed(EngineError::Dead));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Semaphore;

    use super::*;

    fn open(places: &Arc<Semaphore>) -> (Sink, EventStream) {
        Sink::open(Arc::clone(places).try_acquire_owned().unwrap(), &Lost::new())
    }

    fn one_character(sink: &mut Sink, i: u32) {
        sink.pending.text.push(char::from(b'a' + (i % 26) as u8));
        sink.pending.tokens.push(Token(i));
        sink.flush();
    }

    #[tokio::test]
    async fn a_client_that_never_reads_until_the_end_gets_all_text() {
        let places = Arc::new(Semaphore::new(1));
        let (mut sink, mut stream) = open(&places);
        (0..500).for_each(|i| one_character(&mut sink, i));
        sink.end(Terminal::Failed(EngineError::Stopping));
        let (mut n_deltas, mut n_terminal) = (0, 0);
        while let Some(event) = stream.next().await {
            match event {
                Event::Delta { text, tokens, .. } => {
                    assert_eq!(text.len(), tokens.len());
                    n_deltas += 1;
                }
                _ => n_terminal += 1,
            }
        }
        assert_eq!((n_deltas, n_terminal), (EVENTS - 1, 1));
    }

    #[tokio::test]
    async fn a_lagging_client_gets_joined_deltas() {
        let places = Arc::new(Semaphore::new(1));
        let (mut sink, mut stream) = open(&places);
        (0..100).for_each(|i| one_character(&mut sink, i));
        assert_eq!(sink.pending.tokens.len(), 100 - (EVENTS - 1));
        let _ = stream.next().await;
        one_character(&mut sink, 100);
        assert!(sink.pending.tokens.is_empty());
    }

    #[tokio::test]
    async fn a_dropped_sink_still_ends_its_request_once() {
        let places = Arc::new(Semaphore::new(1));
        let (sink, mut stream) = open(&places);
        assert_eq!(places.available_permits(), 0);
        drop(sink);
        assert_eq!(places.available_permits(), 1);
        assert!(matches!(stream.next().await, Some(Event::Failed(EngineError::Dead))));
        assert!(stream.next().await.is_none());
    }

    #[tokio::test]
    async fn a_lost_thread_ends_its_streams_once_and_after_what_was_sent() {
        let lost = Lost::new();
        let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let (mut sink, mut stream) = Sink::open(place, &lost);
        one_character(&mut sink, 0);
        lost.tell("the first reason");
        lost.tell("another");
        assert_eq!(lost.reason().as_deref(), Some("the first reason"));
        assert!(matches!(stream.next().await, Some(Event::Delta { .. })));
        assert!(matches!(stream.next().await, Some(Event::Failed(EngineError::Dead))));
        // Whatever the thread still does.
        one_character(&mut sink, 1);
        sink.end(Terminal::Failed(EngineError::Stopping));
        assert!(stream.next().await.is_none());
    }
}
