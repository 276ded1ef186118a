//! `/v1/completions`.

use std::time::Instant;

use axum::extract::{Request, State};
use axum::response::Response;
use uuid::Uuid;

use super::chat::prepare;
use super::error::ApiError;
use super::generation::{Job, respond};
use super::lower::{self, Lowered};
use super::pictures::with_pictures;
use super::render::{CompletionRender, Head};
use super::{ApiState, extract};
use crate::chat::CompletionRequest;

/// `POST /v1/completions`.
pub async fn complete(State(state): State<ApiState>, request: Request) -> Result<Response, ApiError> {
    let arrived = Instant::now();
    let bytes = extract::body(request, &state).await?;
    let place = state.preparing.enter()?;
    let (reader, worker) = (state.clone(), state.clone());
    let read = move || lower::completion(extract::object(&bytes, &reader.profile.limits)?, &reader.model.id);
    let prepare = move |lowered: Lowered<CompletionRequest>, pictures| {
        let Lowered { mut request, reply, ignored, pictures: _loaded } = lowered;
        request.pictures = pictures;
        let id = format!("cmpl-{}", Uuid::new_v4().simple());
        let mut prepared = prepare(&worker, &id, arrived).completion(request).map_err(ApiError::rejected)?;
        let echo = std::mem::take(&mut prepared.echo);
        let render = CompletionRender::new(Head::new(id.clone(), &worker), echo, prepared.n_per_prompt);
        Ok(Job { id, prepared, reply, render, ignored })
    };
    let job = with_pictures(&state.pictures, &place, read, prepare).await?;
    // It has a place in the engine's queue from here on.
    drop(place);
    respond(&state, job).await
}
