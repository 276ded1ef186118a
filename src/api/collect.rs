//! The choices of a request as one JSON answer, made of the same pieces as a stream.

use axum::http::header;
use axum::response::{IntoResponse, Response};

use super::choice::{Answer, Update};
use super::choices::RunningChoices;
use super::error::ApiError;
use super::render::Render;

/// Waits for all choices and prints them. Dropping the future cancels them.
pub async fn whole<R: Render>(mut running: RunningChoices, render: R) -> Result<Response, ApiError> {
    let mut choices = vec![Answer::default(); running.n_choices()];
    while let Some((index, update)) = running.next().await {
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
    let totals = running.totals();
    let text = render.whole(choices, totals.usage(), totals.timings());
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}
