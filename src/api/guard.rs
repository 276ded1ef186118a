//! Who may talk to the server: the Host header, the origin of web pages, the key. Errors are logged
//! and counted here, once.
//!
//! Without these checks any web page that a user opens could drive the server on the user's own
//! machine: by a request of its own (origin) or after rebinding its name to a local address (host).

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use super::error::{ApiError, ErrorCode, Reported};
use super::headers::{ID_HEADER, IGNORED_HEADER, RELAXED_HEADER};
use super::routes;
use super::state::ApiState;
use crate::config::ServerConfig;

/// The outermost layer: host and origin first, then the log and the metrics of whatever error comes
/// back.
pub async fn outer(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    let server = &state.profile.server;
    let path = request.uri().path().to_owned();
    let checked = check_host(&request, server).and_then(|()| check_origin(request.headers(), server));
    let mut response = match checked {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    };
    if let Some(Reported { code, detail }) = response.extensions_mut().remove::<Reported>() {
        report(&state, code, &detail, &path);
    }
    response
}

/// Logs and counts an error that a client is told.
pub fn report(state: &ApiState, code: ErrorCode, detail: &str, path: &str) {
    let info = code.info();
    state.metrics.error(info.name);
    if info.status.is_server_error() {
        tracing::warn!(code = info.name, path, "{detail}");
    } else {
        tracing::debug!(code = info.name, path, "{detail}");
    }
}

/// Wants the key on every path that is not public.
pub async fn key(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    match &state.profile.server.api_key {
        Some(key) if !routes::is_public(request.uri().path()) && !presents(request.headers(), key) => {
            let message = "the API key is missing or wrong; send `Authorization: Bearer KEY`";
            ApiError::new(ErrorCode::InvalidApiKey, message).into_response()
        }
        _ => next.run(request).await,
    }
}

fn presents(headers: &HeaderMap, key: &str) -> bool {
    let bearer = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes).and_then(|value| {
        let (scheme, rest) = value.split_at_checked("Bearer ".len())?;
        scheme.eq_ignore_ascii_case(b"Bearer ").then_some(rest)
    });
    let plain = headers.get("x-api-key").map(HeaderValue::as_bytes);
    bearer.or(plain).is_some_and(|given| same(given.trim_ascii(), key.as_bytes()))
}

/// Takes as long for a key that is wrong at its first byte as for one that is wrong at its last.
fn same(a: &[u8], b: &[u8]) -> bool {
    let difference = a.iter().zip(b).fold(a.len() ^ b.len(), |sum, (x, y)| sum | usize::from(x ^ y));
    std::hint::black_box(difference) == 0
}

/// A request without a Host header comes from no browser and passes. An address in numbers cannot
/// be rebound and passes.
fn check_host(request: &Request, server: &ServerConfig) -> Result<(), ApiError> {
    let header = request.headers().get(header::HOST).map(|value| value.to_str().unwrap_or(""));
    let Some(host) = header.or_else(|| request.uri().authority().map(|authority| authority.as_str())) else {
        return Ok(());
    };
    let name = without_port(host).trim_end_matches('.');
    let is_address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok();
    let is_loopback = name.eq_ignore_ascii_case("localhost") || name.to_ascii_lowercase().ends_with(".localhost");
    let listed = |entry: &String| entry == "*" || entry.eq_ignore_ascii_case(name) || entry.eq_ignore_ascii_case(host);
    if is_address || is_loopback || server.host.eq_ignore_ascii_case(name) || server.allowed_hosts.iter().any(listed) {
        return Ok(());
    }
    let message = format!("the host {name:?} is not served here; add it to `server.allowed_hosts` if it should be");
    Err(ApiError::new(ErrorCode::HostNotAllowed, message))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

/// Requests of web pages carry an Origin; it must be this server itself or be listed.
fn check_origin(headers: &HeaderMap, server: &ServerConfig) -> Result<(), ApiError> {
    let Some(origin) = headers.get(header::ORIGIN).map(|value| value.to_str().unwrap_or("")) else {
        return Ok(());
    };
    let host = headers.get(header::HOST).and_then(|value| value.to_str().ok());
    let is_own = origin.split_once("://").is_some_and(|(_, authority)| Some(authority) == host);
    if is_own || server.cors_origins.iter().any(|entry| entry == "*" || entry == origin) {
        return Ok(());
    }
    let message = format!("web pages of {origin:?} may not use this server; add the origin to `server.cors_origins`");
    Err(ApiError::new(ErrorCode::OriginNotAllowed, message))
}

/// CORS answers for the listed origins; `None` when there are none.
pub fn cors(server: &ServerConfig) -> Option<CorsLayer> {
    if server.cors_origins.is_empty() {
        return None;
    }
    let origins = match server.cors_origins.iter().any(|entry| entry == "*") {
        true => AllowOrigin::any(),
        // An entry that is no header value can match no Origin header either.
        false => AllowOrigin::list(server.cors_origins.iter().filter_map(|entry| entry.parse().ok())),
    };
    let layer = CorsLayer::new()
        .allow_origin(origins)
        .allow_methods([Method::GET, Method::POST])
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers([IGNORED_HEADER, RELAXED_HEADER, ID_HEADER].map(HeaderName::from_static));
    Some(layer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_cut_from_names_and_addresses() {
        for (host, name) in
            [("a:80", "a"), ("a", "a"), ("[::1]:8020", "[::1]"), ("[::1]", "[::1]"), ("1.2.3.4:5", "1.2.3.4")]
        {
            assert_eq!(without_port(host), name);
        }
    }

    #[test]
    fn keys_are_compared_whole() {
        assert!(same(b"secret", b"secret"));
        for wrong in ["", "s", "secre", "secrets", "Secret"] {
            assert!(!same(wrong.as_bytes(), b"secret"), "{wrong}");
        }
    }
}
