//! From the bytes of a request to its wire type, within the profile's limits.
//!
//! The content type is deliberately not looked at: `curl -d` says that JSON is a form, and the
//! origin check of `guard` is what keeps web pages out.

use std::time::Duration;

use axum::body::{BodyDataStream, Bytes};
use axum::extract::Request;
use axum::http::header;
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::error::{ApiError, ErrorCode};
use super::state::ApiState;
use crate::config::LimitsConfig;

/// The longest body, and the setting that says so.
#[derive(Clone, Copy)]
struct BodyLimit {
    bytes: u64,
    setting: &'static str,
}

impl BodyLimit {
    /// Images make bodies long: where the model sees them, more is read.
    fn of(state: &ApiState) -> BodyLimit {
        let own = BodyLimit { bytes: state.profile.limits.body_bytes, setting: "limits.body_bytes" };
        let images = BodyLimit { bytes: state.profile.images.body_bytes, setting: "images.body_bytes" };
        if state.handle.facts().vision.is_some() && images.bytes > own.bytes { images } else { own }
    }
}

/// Reads the body, up to `limits.body_bytes` (`images.body_bytes`); each piece of it must come
/// within `server.read_timeout_seconds`.
pub async fn body(request: Request, state: &ApiState) -> Result<Bytes, ApiError> {
    let limit = BodyLimit::of(state);
    let announced = request.headers().get(header::CONTENT_LENGTH);
    let announced = announced.and_then(|value| value.to_str().ok()).and_then(|text| text.parse::<u64>().ok());
    if announced.is_some_and(|bytes| bytes > limit.bytes) {
        return Err(too_large(limit));
    }
    let mut stream = request.into_body().into_data_stream();
    let mut out = Vec::new();
    while let Some(piece) = next_piece(&mut stream, state.profile.server.read_timeout_seconds).await? {
        if (out.len() + piece.len()) as u64 > limit.bytes {
            return Err(too_large(limit));
        }
        out.extend_from_slice(&piece);
    }
    Ok(Bytes::from(out))
}

async fn next_piece(stream: &mut BodyDataStream, seconds: u32) -> Result<Option<Bytes>, ApiError> {
    let waited = tokio::time::timeout(Duration::from_secs(seconds.into()), stream.next()).await;
    let piece = waited.map_err(|_| {
        let message = format!(
            "nothing more of the body came for {seconds} s (`server.read_timeout_seconds`); send it in one go, as long as \
             its Content-Length says"
        );
        ApiError::new(ErrorCode::BodyTimeout, message)
    })?;
    piece.transpose().map_err(|error| {
        ApiError::new(ErrorCode::BodyUnreadable, "the connection broke while the body was read")
            .with_diagnostic(error.to_string())
    })
}

fn too_large(BodyLimit { bytes, setting }: BodyLimit) -> ApiError {
    let message = format!("the body is larger than {bytes} bytes; send less or raise `{setting}`");
    ApiError::new(ErrorCode::BodyTooLarge, message)
}

/// Parses a body. May take a while for a large one: call it off the async threads.
pub fn object(bytes: &[u8], limits: &LimitsConfig) -> Result<Map<String, Value>, ApiError> {
    let depth = depth(bytes);
    if depth > limits.json_depth {
        let message = format!(
            "the body is nested {depth} levels deep, at most {} are read (`limits.json_depth`)",
            limits.json_depth
        );
        return Err(ApiError::new(ErrorCode::JsonTooDeep, message));
    }
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(ApiError::new(ErrorCode::InvalidJson, "the body must be a JSON object")),
        Err(error) => Err(ApiError::new(ErrorCode::InvalidJson, format!("the body is not valid JSON: {error}"))),
    }
}

/// Reads a wire type out of a parsed body; the error names the field by its path.
///
/// # Errors
/// A field of another type.
pub fn typed<T: DeserializeOwned>(body: Map<String, Value>) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(Value::Object(body)).map_err(|error| {
        let path = error.path().to_string();
        let what = error.into_inner().to_string();
        if path == "." {
            return ApiError::new(ErrorCode::InvalidRequest, what);
        }
        ApiError::new(ErrorCode::InvalidRequest, format!("`{path}`: {what}")).with_param(path)
    })
}

/// The deepest nesting of brackets outside strings; right for valid JSON, and an upper bound that
/// needs no stack for the rest.
fn depth(bytes: &[u8]) -> u32 {
    let (mut now, mut deepest) = (0_u32, 0_u32);
    let (mut in_string, mut escaped) = (false, false);
    for byte in bytes {
        if in_string {
            match (escaped, byte) {
                (true, _) => escaped = false,
                (false, b'\\') => escaped = true,
                (false, b'"') => in_string = false,
                (false, _) => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => {
                now = now.saturating_add(1);
                deepest = deepest.max(now);
            }
            b']' | b'}' => now = now.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::depth;

    #[test]
    fn brackets_in_strings_are_text() {
        assert_eq!(depth(br#"{"a":"[[[[\"[[","b":[{}]}"#), 3);
        assert_eq!(depth(b"1"), 0);
        assert_eq!(depth("[".repeat(100_000).as_bytes()), 100_000);
    }
}
