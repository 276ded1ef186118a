//! Every error that a client can see: one enum of codes, one envelope for JSON and streams. The
//! only place with status codes.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use crate::chat::{RequestError, RequestErrorKind};
use crate::engine::{EngineError, RunnerErrorKind, SubmitError};

/// Seconds after which a client that was turned away may try again: a queue place is free after
/// about one short answer.
const RETRY_AFTER_SECONDS: &str = "1";

/// What went wrong, for programs. The name is public and does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    InvalidJson,
    JsonTooDeep,
    InvalidRequest,
    UnsupportedParameter,
    LimitExceeded,
    ContextExceeded,
    VisionNotAvailable,
    InvalidImage,
    ImageNotFetched,
    BodyUnreadable,
    BodyTimeout,
    InvalidApiKey,
    HostNotAllowed,
    OriginNotAllowed,
    NotFound,
    ModelNotFound,
    MethodNotAllowed,
    BodyTooLarge,
    GenerationFailed,
    Internal,
    OutOfMemory,
    EngineBusy,
    EngineStopping,
    EngineDead,
}

/// How a code is shown.
#[derive(Clone, Copy, Debug)]
pub struct CodeInfo {
    pub name: &'static str,
    pub status: StatusCode,
    /// The coarse class that SDKs look at (`error.type`).
    pub kind: &'static str,
    pub doc: &'static str,
}

impl ErrorCode {
    /// In the order of the documentation.
    pub const ALL: [ErrorCode; 24] = [
        ErrorCode::InvalidJson,
        ErrorCode::JsonTooDeep,
        ErrorCode::InvalidRequest,
        ErrorCode::UnsupportedParameter,
        ErrorCode::LimitExceeded,
        ErrorCode::ContextExceeded,
        ErrorCode::VisionNotAvailable,
        ErrorCode::InvalidImage,
        ErrorCode::ImageNotFetched,
        ErrorCode::BodyUnreadable,
        ErrorCode::BodyTimeout,
        ErrorCode::InvalidApiKey,
        ErrorCode::HostNotAllowed,
        ErrorCode::OriginNotAllowed,
        ErrorCode::NotFound,
        ErrorCode::ModelNotFound,
        ErrorCode::MethodNotAllowed,
        ErrorCode::BodyTooLarge,
        ErrorCode::GenerationFailed,
        ErrorCode::Internal,
        ErrorCode::OutOfMemory,
        ErrorCode::EngineBusy,
        ErrorCode::EngineStopping,
        ErrorCode::EngineDead,
    ];

    /// The one table of codes.
    #[rustfmt::skip]
    pub fn info(self) -> CodeInfo {
        const INVALID: &str = "invalid_request_error";
        const SERVER: &str = "server_error";
        const UNAVAILABLE: &str = "unavailable_error";
        use StatusCode as S;
        let (name, status, kind, doc) = match self {
            ErrorCode::InvalidJson => ("invalid_json", S::BAD_REQUEST, INVALID, "The body is not a JSON object in UTF-8."),
            ErrorCode::JsonTooDeep => ("json_too_deep", S::BAD_REQUEST, INVALID, "Arrays and objects are nested deeper than `limits.json_depth`."),
            ErrorCode::InvalidRequest => ("invalid_request", S::BAD_REQUEST, INVALID, "A field has the wrong type, is out of its range, is missing, or contradicts another; `param` is its path."),
            ErrorCode::UnsupportedParameter => ("unsupported_parameter", S::BAD_REQUEST, INVALID, "A field or value of the API that this build does not serve; `param` is its path."),
            ErrorCode::LimitExceeded => ("limit_exceeded", S::BAD_REQUEST, INVALID, "A field is longer than a limit of the profile; `param` is its path."),
            ErrorCode::ContextExceeded => ("context_length_exceeded", S::BAD_REQUEST, "exceed_context_size_error", "The prompt leaves no room in the context. `n_prompt_tokens` and `n_ctx` say by how much. As a rule `code` is the number 400, as llama-server has it; with `server.openai_overflow_code` it is the name and `type` is `invalid_request_error`, as OpenAI has it."),
            ErrorCode::VisionNotAvailable => ("vision_not_available", S::BAD_REQUEST, INVALID, "The request holds an image, and the model has no vision encoder (`model.mmproj`), or its chat template prints no place for images."),
            ErrorCode::InvalidImage => ("invalid_image", S::BAD_REQUEST, INVALID, "An image that is not one, is cut off or damaged, or is of a kind that is not taken; `param` is the path of its address (docs/vision.md)."),
            ErrorCode::ImageNotFetched => ("image_not_fetched", S::BAD_REQUEST, INVALID, "An image could not be had from its URL: the profile does not allow it (`images.fetch`, `images.dir`), or nobody answered with one."),
            ErrorCode::BodyUnreadable => ("body_unreadable", S::BAD_REQUEST, INVALID, "The connection broke while the body was read."),
            ErrorCode::BodyTimeout => ("body_timeout", S::REQUEST_TIMEOUT, INVALID, "Nothing more of the body came for `server.read_timeout_seconds`. The connection is closed."),
            ErrorCode::InvalidApiKey => ("invalid_api_key", S::UNAUTHORIZED, "authentication_error", "The server wants its key in `Authorization: Bearer KEY` (or `x-api-key`)."),
            ErrorCode::HostNotAllowed => ("host_not_allowed", S::FORBIDDEN, "permission_error", "The `Host` header names neither this machine nor an entry of `server.allowed_hosts` (this stops web pages that rebind a name to a local address)."),
            ErrorCode::OriginNotAllowed => ("origin_not_allowed", S::FORBIDDEN, "permission_error", "A web page of another origin sent the request and `server.cors_origins` does not list it."),
            ErrorCode::NotFound => ("not_found", S::NOT_FOUND, INVALID, "No such path."),
            ErrorCode::ModelNotFound => ("model_not_found", S::NOT_FOUND, INVALID, "`/v1/models/{id}` with an id that is not served. Generation takes any model name and answers with the served one."),
            ErrorCode::MethodNotAllowed => ("method_not_allowed", S::METHOD_NOT_ALLOWED, INVALID, "The path is right, the method is not; `Allow` lists those that are."),
            ErrorCode::BodyTooLarge => ("body_too_large", S::PAYLOAD_TOO_LARGE, INVALID, "The body is longer than `limits.body_bytes`, or than `images.body_bytes` where the model sees images."),
            ErrorCode::GenerationFailed => ("generation_failed", S::INTERNAL_SERVER_ERROR, SERVER, "The model failed at this request. Others go on; the log has the cause."),
            ErrorCode::Internal => ("internal", S::INTERNAL_SERVER_ERROR, SERVER, "A fault of the server. The log has the cause."),
            ErrorCode::OutOfMemory => ("out_of_memory", S::SERVICE_UNAVAILABLE, UNAVAILABLE, "Memory ran out for this request. Others go on."),
            ErrorCode::EngineBusy => ("engine_busy", S::SERVICE_UNAVAILABLE, UNAVAILABLE, "The queue is full (`engine.queue_capacity`), or as many requests are being prepared as could be queued. `Retry-After` says when to try again."),
            ErrorCode::EngineStopping => ("engine_stopping", S::SERVICE_UNAVAILABLE, UNAVAILABLE, "The server is shutting down."),
            ErrorCode::EngineDead => ("engine_dead", S::SERVICE_UNAVAILABLE, UNAVAILABLE, "The engine stopped after an internal error; the process is about to exit."),
        };
        CodeInfo { name, status, kind, doc }
    }

    /// docs/errors.md, whole.
    pub fn docs() -> String {
        let mut out = String::from(DOCS_HEAD);
        for code in ErrorCode::ALL {
            let CodeInfo { name, status, kind, doc } = code.info();
            out.push_str(&format!("| `{name}` | {} | `{kind}` | {doc} |\n", status.as_u16()));
        }
        out
    }
}

const DOCS_HEAD: &str = "# Errors

Generated from `src/api/error.rs`; `UPDATE=1 cargo test --test api_errors` writes it again.

Every error, in a JSON answer and inside a stream, is one envelope:

```json
{\"error\": {\"message\": \"`temperature` is 99; it must be from 0 to 10\", \"type\": \"invalid_request_error\", \"param\": \"temperature\", \"code\": \"invalid_request\"}}
```

`message` is for people and names the value and the fix, `code` is for programs, `type` is the class that OpenAI's SDKs look
at, `param` is the path of the field or null. In a stream whose headers are out already the envelope is the last
`data:` event; `[DONE]` does not follow it.

| code | status | type | when |
|---|---|---|---|
";

/// An error on its way to the client.
#[derive(Clone, Debug)]
pub struct ApiError(Box<Parts>);

#[derive(Clone, Debug)]
struct Parts {
    code: ErrorCode,
    message: String,
    param: Option<String>,
    /// For the log alone.
    diagnostic: Option<String>,
    /// Further members of `error`; they replace those of the same name.
    extra: Map<String, Value>,
}

/// Rides on an error response for the log and the metrics.
#[derive(Clone, Debug)]
pub struct Reported {
    pub code: ErrorCode,
    pub detail: String,
}

impl ApiError {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> ApiError {
        ApiError(Box::new(Parts { code, message: message.into(), param: None, diagnostic: None, extra: Map::new() }))
    }

    pub fn with_param(mut self, param: impl Into<String>) -> ApiError {
        self.0.param = Some(param.into());
        self
    }

    /// What the log says and the client does not see.
    pub fn with_diagnostic(mut self, diagnostic: impl Into<String>) -> ApiError {
        self.0.diagnostic = Some(diagnostic.into());
        self
    }

    fn with_extra(mut self, key: &str, value: Value) -> ApiError {
        self.0.extra.insert(key.to_owned(), value);
        self
    }

    /// A prompt that does not fit; `openai` picks OpenAI's shape over llama-server's.
    pub fn overflow(n_prompt: usize, n_ctx: usize, openai: bool) -> ApiError {
        let message = SubmitError::TooLong { n_prompt, n_ctx }.to_string();
        let error = ApiError::new(ErrorCode::ContextExceeded, message)
            .with_extra("n_prompt_tokens", json!(n_prompt))
            .with_extra("n_ctx", json!(n_ctx));
        if openai {
            return error.with_extra("type", json!(ErrorCode::InvalidRequest.info().kind));
        }
        let status = ErrorCode::ContextExceeded.info().status.as_u16();
        error.with_extra("code", json!(status))
    }

    /// A request that the engine did not take.
    pub fn refused(error: SubmitError, openai_overflow: bool) -> ApiError {
        let code = match error {
            SubmitError::TooLong { n_prompt, n_ctx } => return ApiError::overflow(n_prompt, n_ctx, openai_overflow),
            SubmitError::Busy => ErrorCode::EngineBusy,
            SubmitError::Stopping => ErrorCode::EngineStopping,
            SubmitError::Dead => ErrorCode::EngineDead,
            SubmitError::Images(_) => ErrorCode::Internal,
        };
        ApiError::new(code, error.to_string())
    }

    pub fn code(&self) -> ErrorCode {
        self.0.code
    }

    /// For the log.
    pub fn reported(&self) -> Reported {
        let Parts { code, message, diagnostic, .. } = &*self.0;
        Reported { code: *code, detail: diagnostic.as_ref().unwrap_or(message).clone() }
    }

    /// The JSON that clients see.
    pub fn envelope(&self) -> Value {
        let Parts { code, message, param, diagnostic: _, extra } = &*self.0;
        let info = code.info();
        let mut error = json!({ "message": message, "type": info.kind, "param": param, "code": info.name });
        if let Some(members) = error.as_object_mut() {
            members.extend(extra.iter().map(|(key, value)| (key.clone(), value.clone())));
        }
        json!({ "error": error })
    }
}

/// 503 for whoever watches the process: nothing was asked of the engine, so it is no error of a
/// request.
pub fn unwell(status: &str, message: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "status": status, "message": message }))).into_response()
}

/// A request that cannot be served as it stands.
impl From<RequestError> for ApiError {
    fn from(error: RequestError) -> ApiError {
        let RequestError { kind, param, message } = error;
        let code = match kind {
            RequestErrorKind::Invalid => ErrorCode::InvalidRequest,
            RequestErrorKind::Unsupported => ErrorCode::UnsupportedParameter,
            RequestErrorKind::TooLarge => ErrorCode::LimitExceeded,
            RequestErrorKind::NoVision => ErrorCode::VisionNotAvailable,
            RequestErrorKind::Image => ErrorCode::InvalidImage,
            RequestErrorKind::NotFetched => ErrorCode::ImageNotFetched,
        };
        let error = ApiError::new(code, message);
        match param {
            Some(param) => error.with_param(param),
            None => error,
        }
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> ApiError {
        let (code, message) = match &error {
            EngineError::Runner(inner) if inner.kind == RunnerErrorKind::OutOfMemory => {
                (ErrorCode::OutOfMemory, "memory ran out while this request was processed; try a shorter one")
            }
            EngineError::Runner(inner) if inner.kind == RunnerErrorKind::Fatal => {
                (ErrorCode::EngineDead, "the engine stopped after a device error")
            }
            EngineError::Runner(_) => (ErrorCode::GenerationFailed, "the model failed at this request"),
            EngineError::Encode(inner) if inner.kind == RunnerErrorKind::OutOfMemory => {
                (ErrorCode::OutOfMemory, "memory ran out while an image was encoded; try a smaller one")
            }
            EngineError::Encode(_) => (ErrorCode::GenerationFailed, "an image of this request could not be encoded"),
            EngineError::Sample(inner) if inner.is_ban_of_all() => {
                let message = "`logit_bias` bans every token that could come next (`ignore_eos` bans those that end the \
                               answer); leave at least one";
                let told = ApiError::new(ErrorCode::InvalidRequest, message).with_param("logit_bias");
                return told.with_diagnostic(error.to_string());
            }
            EngineError::Constraint(_) => {
                (ErrorCode::GenerationFailed, "the generation could not go on under its constraint")
            }
            EngineError::Sample(_) => (ErrorCode::GenerationFailed, "no token could be sampled for this request"),
            EngineError::Stopping => (ErrorCode::EngineStopping, "the engine is shutting down"),
            EngineError::Dead => (ErrorCode::EngineDead, "the engine stopped after an internal error"),
        };
        ApiError::new(code, message).with_diagnostic(error.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.code().info().status, Json(self.envelope())).into_response();
        match self.code() {
            ErrorCode::EngineBusy => {
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECONDS));
            }
            ErrorCode::InvalidApiKey => {
                response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            // What still comes of the body would be taken for the next request.
            ErrorCode::BodyTimeout => {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        response.extensions_mut().insert(self.reported());
        response
    }
}
