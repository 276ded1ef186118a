//! The one stream loop: updates -> `data:` chunks, with comments while there is nothing to say.
//!
//! Headers go out at once; everything that can still be answered with a status code was checked
//! before.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;

use super::choice::Update;
use super::choices::RunningChoices;
use super::error::ApiError;
use super::guard;
use super::render::Render;
use super::state::ApiState;
use super::wire::PromptProgress;

struct Streaming<R> {
    running: RunningChoices,
    render: R,
    include_usage: bool,
    ready: VecDeque<String>,
    state: ApiState,
    over: bool,
}

/// Streams the choices of a request. Dropping the response cancels it.
pub fn stream<R: Render>(state: &ApiState, running: RunningChoices, mut render: R, include_usage: bool) -> Response {
    let mut ready = VecDeque::new();
    (0..running.n_choices()).for_each(|index| render.open(index, &mut ready));
    let streaming = Streaming { running, render, include_usage, ready, state: state.clone(), over: false };
    let events = unfold(streaming, |mut streaming| async move {
        let data = streaming.next().await?;
        Some((Ok::<Event, Infallible>(Event::default().data(data)), streaming))
    });
    // A proxy that collects a response before it passes it on would defeat the stream.
    let headers = [("x-accel-buffering", "no")];
    let seconds = u64::from(state.profile.server.ping_seconds);
    let ping = KeepAlive::new().interval(Duration::from_secs(seconds)).text("ping");
    (headers, Sse::new(events).keep_alive(ping)).into_response()
}

impl<R: Render> Streaming<R> {
    /// The next `data:`; `None` at the end.
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(data) = self.ready.pop_front() {
                return Some(data);
            }
            if self.over {
                return None;
            }
            match self.running.next().await {
                Some((index, Update::Progress { done, total, cached, elapsed_ms })) => {
                    let progress = PromptProgress { total, cache: cached, processed: done, time_ms: elapsed_ms };
                    self.ready.push_back(self.render.progress(index, progress));
                }
                Some((index, Update::Piece(piece))) => self.render.piece(index, piece, &mut self.ready),
                Some((index, Update::End(end))) => {
                    let totals = self.running.totals();
                    self.render.end(index, &end, totals.timings(), &mut self.ready);
                }
                Some((_, Update::Failed(error))) => self.fail(error.into()),
                None => self.close(),
            }
        }
    }

    fn fail(&mut self, error: ApiError) {
        let reported = error.reported();
        guard::report(&self.state, reported.code, &reported.detail, "stream");
        self.ready.push_back(error.envelope().to_string());
        self.over = true;
    }

    fn close(&mut self) {
        if self.include_usage {
            self.ready.push_back(self.render.usage(self.running.totals().usage()));
        }
        self.ready.push_back("[DONE]".to_owned());
        self.over = true;
    }
}
