//! `/v1/completions`.

use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Map, Value};

use super::convert::{self, ConvertContext, Converted};
use super::error::ApiError;
use super::protocol::{self, Protocol};
use super::render::{CompletionRender, Echo, ResponseHead};
use super::state::ApiState;

/// OpenAI's completions of raw text.
pub struct Completions;

impl Protocol for Completions {
    const ID_PREFIX: &'static str = "cmpl";
    type Render = CompletionRender;

    fn convert(body: Map<String, Value>, context: &ConvertContext<'_>) -> Result<Converted, ApiError> {
        convert::completion(body, context)
    }

    fn render(head: ResponseHead, echo: Echo) -> CompletionRender {
        CompletionRender::new(head, echo)
    }
}

/// `POST /v1/completions`.
pub async fn complete(State(state): State<ApiState>, request: Request) -> Result<Response, ApiError> {
    protocol::complete::<Completions>(state, request).await
}
