//! `/v1/chat/completions` and `/apply-template`.

use std::time::Instant;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Value, json};
use uuid::Uuid;

use super::error::ApiError;
use super::generation::{Job, off_thread, respond};
use super::lower::{self, Lowered};
use super::render::{ChatRender, Head};
use super::{ApiState, extract};
use crate::chat::Prepare;

/// `POST /v1/chat/completions`.
pub async fn complete(State(state): State<ApiState>, request: Request) -> Result<Response, ApiError> {
    let arrived = Instant::now();
    let bytes = extract::body(request, &state.profile.limits).await?;
    let worker = state.clone();
    let job = off_thread(move || {
        let state = worker;
        let body = extract::object(&bytes, &state.profile.limits)?;
        let Lowered { request, reply, ignored } = lower::chat(body, &state.model.id)?;
        let id = format!("chatcmpl-{}", Uuid::new_v4().simple());
        let prepared = prepare(&state, &id, arrived).chat(request).map_err(|error| rejected(&state, error))?;
        let render = ChatRender::new(Head::new(id.clone(), &state));
        Ok(Job { id, prepared, reply, render, ignored })
    })
    .await?;
    respond(&state, job).await
}

/// `POST /apply-template`: the prompt of a chat request, as text.
pub async fn apply_template(State(state): State<ApiState>, request: Request) -> Result<Json<Value>, ApiError> {
    let arrived = Instant::now();
    let bytes = extract::body(request, &state.profile.limits).await?;
    let prompt = off_thread(move || {
        let body = extract::object(&bytes, &state.profile.limits)?;
        let Lowered { request, reply: _, ignored: _ } = lower::chat(body, &state.model.id)?;
        let rendered = prepare(&state, "template", arrived).render(request).map_err(|error| rejected(&state, error))?;
        Ok(rendered.shown())
    })
    .await?;
    Ok(Json(json!({ "prompt": prompt })))
}

/// Everything that preparing needs; the seed is for requests that bring none.
pub(super) fn prepare<'a>(state: &'a ApiState, id: &'a str, arrived: Instant) -> Prepare<'a> {
    let (seed, _) = Uuid::new_v4().as_u64_pair();
    Prepare { tokenizer: &state.tokenizer, template: &state.template, profile: &state.profile, id, seed, arrived }
}

pub(super) fn rejected(state: &ApiState, error: crate::chat::RequestError) -> ApiError {
    ApiError::rejected(error, state.profile.server.openai_overflow_code)
}
