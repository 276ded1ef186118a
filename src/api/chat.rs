//! `/v1/chat/completions` and `/apply-template`.

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::convert::{self, ConvertContext, Converted, TemplateRequest};
use super::error::ApiError;
use super::protocol::{self, Protocol};
use super::render::{ChatRender, Echo, ResponseHead};
use super::state::ApiState;
use super::{extract, headers};
use crate::chat::Notices;
use crate::chat::prepare::render;

/// OpenAI's chat completions.
pub struct ChatCompletions;

impl Protocol for ChatCompletions {
    const ID_PREFIX: &'static str = "chatcmpl";
    type Render = ChatRender;

    fn convert(body: Map<String, Value>, context: &ConvertContext<'_>) -> Result<Converted, ApiError> {
        convert::chat(body, context)
    }

    /// A conversation is never echoed.
    fn render(head: ResponseHead, _echo: Echo) -> ChatRender {
        ChatRender::new(head)
    }
}

/// `POST /v1/chat/completions`.
pub async fn complete(State(state): State<ApiState>, request: Request) -> Result<Response, ApiError> {
    protocol::complete::<ChatCompletions>(state, request).await
}

/// `POST /apply-template`: the prompt of a chat request, as text. What concerns the generation
/// alone is not looked at, and images are not got.
pub async fn apply_template(State(state): State<ApiState>, request: Request) -> Result<Response, ApiError> {
    let bytes = extract::body(request, &state).await?;
    let worker = state.clone();
    let work = move || {
        let state = worker;
        let body = extract::object(&bytes, &state.profile.limits)?;
        let TemplateRequest { conversation, images, ignored } = convert::template(body, &ConvertContext::of(&state))?;
        state.images.admit(&images)?;
        let rendered = render(conversation, &state.served())?;
        Ok((rendered.shown(), Notices { ignored, relaxed: Vec::new() }))
    };
    let (prompt, notices) = state.preparing.run(work).await?;
    let mut response = Json(json!({ "prompt": prompt })).into_response();
    headers::report(response.headers_mut(), &notices);
    Ok(response)
}
