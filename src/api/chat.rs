//! `/v1/chat/completions` and `/apply-template`.

use std::time::Instant;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use uuid::Uuid;

use super::error::ApiError;
use super::generation::{Job, report_ignored, respond};
use super::lower::{self, Lowered};
use super::pictures::with_pictures;
use super::render::{ChatRender, Head};
use super::{ApiState, extract};
use crate::chat::{ChatRequest, Prepare};

/// `POST /v1/chat/completions`.
pub async fn complete(State(state): State<ApiState>, request: Request) -> Result<Response, ApiError> {
    let arrived = Instant::now();
    let bytes = extract::body(request, &state).await?;
    let place = state.preparing.enter()?;
    let (reader, worker) = (state.clone(), state.clone());
    let read = move || lower::chat(extract::object(&bytes, &reader.profile.limits)?, &reader.model.id);
    let prepare = move |lowered: Lowered<ChatRequest>, pictures| {
        let Lowered { mut request, reply, ignored, pictures: _loaded } = lowered;
        request.pictures = pictures;
        let id = format!("chatcmpl-{}", Uuid::new_v4().simple());
        let prepared = prepare(&worker, &id, arrived).chat(request).map_err(ApiError::rejected)?;
        let render = ChatRender::new(Head::new(id.clone(), &worker));
        Ok(Job { id, prepared, reply, render, ignored })
    };
    let job = with_pictures(&state.pictures, &place, read, prepare).await?;
    // It has a place in the engine's queue from here on.
    drop(place);
    respond(&state, job).await
}

/// `POST /apply-template`: the prompt of a chat request, as text. What concerns the generation alone is not looked at, and
/// pictures are not got.
pub async fn apply_template(State(state): State<ApiState>, request: Request) -> Result<Response, ApiError> {
    let arrived = Instant::now();
    let bytes = extract::body(request, &state).await?;
    let worker = state.clone();
    let work = move || {
        let state = worker;
        let body = extract::object(&bytes, &state.profile.limits)?;
        let Lowered { request, reply: _, mut ignored, pictures } = lower::chat(body, &state.model.id)?;
        state.pictures.admit(&pictures)?;
        let rendered = prepare(&state, "template", arrived).render(request).map_err(ApiError::rejected)?;
        ignored.extend(rendered.ignored.iter().cloned());
        Ok((rendered.shown(), ignored))
    };
    let (prompt, ignored) = state.preparing.run(work).await?;
    let mut response = Json(json!({ "prompt": prompt })).into_response();
    report_ignored(response.headers_mut(), &ignored);
    Ok(response)
}

/// Everything that preparing needs; the seed is for requests that bring none.
pub(super) fn prepare<'a>(state: &'a ApiState, id: &'a str, arrived: Instant) -> Prepare<'a> {
    let (seed, _) = Uuid::new_v4().as_u64_pair();
    Prepare {
        tokenizer: &state.tokenizer,
        template: &state.template,
        profile: &state.profile,
        grammars: &state.grammars,
        id,
        seed,
        arrived,
    }
}
