//! The one path of a request that generates, whatever API it came by: read, convert, get its
//! images, prepare, submit, answer. An API is what converts its body into a `ChatRequest` and
//! what prints its answers.

use std::time::Instant;

use axum::extract::Request;
use axum::response::Response;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::choices::RunningChoices;
use super::convert::{ConvertContext, Converted, ResponseOptions};
use super::error::ApiError;
use super::headers::{self, ID_HEADER};
use super::render::{Echo, Render, ResponseHead};
use super::state::ApiState;
use super::{collect, extract, sse};
use crate::chat::prepare::{Prepared, RequestOrigin, prepare};

/// An API that generates.
pub trait Protocol: Send + 'static {
    /// What the ids of its answers begin with.
    const ID_PREFIX: &'static str;
    type Render: Render;

    /// A body, checked.
    ///
    /// # Errors
    /// What is wrong with it.
    fn convert(body: Map<String, Value>, context: &ConvertContext<'_>) -> Result<Converted, ApiError>;

    /// What prints the answer.
    fn render(head: ResponseHead, echo: Echo) -> Self::Render;
}

/// Answers one request.
pub async fn complete<P: Protocol>(state: ApiState, request: Request) -> Result<Response, ApiError> {
    let arrived = Instant::now();
    let bytes = extract::body(request, &state).await?;
    let place = state.preparing.enter()?;
    let worker = state.clone();
    let convert = move || {
        let body = extract::object(&bytes, &worker.profile.limits)?;
        P::convert(body, &ConvertContext::of(&worker))
    };
    let Converted { request, response } = place.run(convert).await?;
    let request = state.images.load(request, &place).await?;
    let id = format!("{}-{}", P::ID_PREFIX, Uuid::new_v4().simple());
    let (worker, name) = (state.clone(), id.clone());
    let work = move || {
        let origin = RequestOrigin { id: &name, arrived };
        Ok(prepare(request, &worker.served(), &origin)?)
    };
    let prepared = place.run(work).await?;
    // It has a place in the engine's queue from here on.
    drop(place);
    respond::<P>(&state, &id, prepared, response).await
}

/// Submits a request and answers it in the way that was asked for.
async fn respond<P: Protocol>(
    state: &ApiState,
    id: &str,
    prepared: Prepared,
    response: ResponseOptions,
) -> Result<Response, ApiError> {
    let Prepared { choices, echo, notices } = prepared;
    let ResponseOptions { stream, include_usage, progress: _ } = response;
    let echo = Echo { texts: echo, n_per_prompt: choices.n_per_prompt };
    let render = P::render(ResponseHead::new(id.to_owned(), state), echo);
    let openai_overflow = state.profile.server.openai_overflow_code;
    let running = RunningChoices::start(choices, &state.handle, &state.tokenizer)
        .map_err(|error| ApiError::refused(error, openai_overflow))?;
    let mut answer = match stream {
        true => sse::stream(state, running, render, include_usage),
        false => collect::whole(running, render).await?,
    };
    if let Ok(value) = id.parse() {
        answer.headers_mut().insert(ID_HEADER, value);
    }
    headers::report(answer.headers_mut(), &notices);
    Ok(answer)
}
