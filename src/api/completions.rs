//! `/v1/completions`.

use std::time::Instant;

use axum::extract::{Request, State};
use axum::response::Response;
use uuid::Uuid;

use super::chat::prepare;
use super::error::ApiError;
use super::generation::{Job, respond};
use super::lower::{self, Lowered};
use super::render::{CompletionRender, Head};
use super::{ApiState, extract};

/// `POST /v1/completions`.
pub async fn complete(State(state): State<ApiState>, request: Request) -> Result<Response, ApiError> {
    let arrived = Instant::now();
    let bytes = extract::body(request, &state.profile).await?;
    let worker = state.clone();
    let work = move || {
        let state = worker;
        let body = extract::object(&bytes, &state.profile.limits)?;
        let Lowered { request, reply, ignored } = lower::completion(body, &state.model.id)?;
        let id = format!("cmpl-{}", Uuid::new_v4().simple());
        let mut prepared = prepare(&state, &id, arrived).completion(request).map_err(ApiError::rejected)?;
        let echo = std::mem::take(&mut prepared.echo);
        let render = CompletionRender::new(Head::new(id.clone(), &state), echo, prepared.n_per_prompt);
        Ok(Job { id, prepared, reply, render, ignored })
    };
    let job = state.preparing.run(work).await?;
    respond(&state, job).await
}
