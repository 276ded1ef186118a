//! A generation as one JSON answer, made of the same pieces as a stream.

use axum::http::header;
use axum::response::{IntoResponse, Response};

use super::choice::{End, Update};
use super::error::ApiError;
use super::generation::Generation;
use super::render::Render;
use crate::chat::Collected;
use crate::engine::Logprob;

/// Everything that one choice said.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    pub said: Collected,
    pub logprobs: Vec<Logprob>,
    pub end: Option<Box<End>>,
}

/// Waits for all choices and prints them. Dropping the future cancels them.
pub async fn whole<R: Render>(mut generation: Generation, render: R) -> Result<Response, ApiError> {
    let mut choices = vec![Answer::default(); generation.n_choices()];
    while let Some((index, update)) = generation.next().await {
        let Some(choice) = choices.get_mut(index) else { continue };
        match update {
            // Only streams ask for progress.
            Update::Progress { .. } => {}
            Update::Piece(piece) => {
                piece.deltas.into_iter().for_each(|delta| choice.said.add(delta));
                choice.logprobs.extend(piece.logprobs);
            }
            Update::End(end) => choice.end = Some(end),
            Update::Failed(error) => return Err(error.into()),
        }
    }
    let tally = generation.tally();
    let text = render.whole(choices, tally.usage(), tally.timings());
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}
