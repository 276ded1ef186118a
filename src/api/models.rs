//! `/v1/models`: clients learn the context length here.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use super::error::{ApiError, ErrorCode};
use super::state::ApiState;

/// `GET /v1/models`.
pub async fn list(State(state): State<ApiState>) -> Json<Value> {
    Json(json!({ "object": "list", "data": [describe(&state)] }))
}

/// `GET /v1/models/{id}`.
pub async fn one(
    State(state): State<ApiState>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, ApiError> {
    let Path(id) = id.map_err(|rejection| {
        let message = "the model id in the path is not UTF-8; /v1/models has the id that is served";
        ApiError::new(ErrorCode::InvalidRequest, message).with_diagnostic(rejection.to_string())
    })?;
    if id == state.model.id {
        return Ok(Json(describe(&state)));
    }
    let message = format!("the model {id:?} is not served here; {:?} is", state.model.id);
    Err(ApiError::new(ErrorCode::ModelNotFound, message))
}

/// The context length is there under every name that clients look for.
fn describe(state: &ApiState) -> Value {
    let model = &*state.model;
    let (n_ctx, n_vocab) = (model.n_ctx, state.tokenizer.n_vocab());
    let (modalities, capabilities) = match state.handle.facts().vision {
        Some(_) => (json!(["text", "image"]), json!(["completion", "multimodal"])),
        None => (json!(["text"]), json!(["completion"])),
    };
    json!({
        "id": model.id,
        "object": "model",
        "created": model.created,
        "owned_by": "plateau",
        "max_model_len": n_ctx,
        "context_length": n_ctx,
        "meta": {
            "n_ctx": n_ctx,
            "n_ctx_train": model.n_ctx_train,
            "n_vocab": n_vocab,
            "n_params": model.n_params,
            "size": model.size.0,
            "architecture": model.architecture,
            "quantization": model.quantization,
        },
        "architecture": { "input_modalities": modalities, "output_modalities": ["text"] },
        // Where clients of llama-server look.
        "capabilities": capabilities,
    })
}
