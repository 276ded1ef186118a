//! The router: a handler behind every route of the table, and the guards around them.

use axum::Router;
use axum::extract::Request;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, get, post};

use super::error::{ApiError, ErrorCode};
use super::routes::{Action, ROUTES};
use super::state::ApiState;
use super::{cache, chat, completions, guard, models, ops};

/// The whole API.
pub fn router(state: ApiState) -> Router {
    let mut router = Router::new();
    for route in ROUTES {
        for path in route.paths {
            router = router.route(path, handler(route.action));
        }
    }
    let router = router
        .method_not_allowed_fallback(wrong_method)
        .fallback(unknown_path)
        .layer(from_fn_with_state(state.clone(), guard::key));
    let router = match guard::cors(&state.profile.server) {
        Some(cors) => router.layer(cors),
        None => router,
    };
    router.layer(from_fn_with_state(state.clone(), guard::outer)).with_state(state)
}

fn handler(action: Action) -> MethodRouter<ApiState> {
    match action {
        Action::Chat => post(chat::complete),
        Action::Completions => post(completions::complete),
        Action::Models => get(models::list),
        Action::Model => get(models::one),
        Action::Tokenize => post(ops::tokenize),
        Action::Detokenize => post(ops::detokenize),
        Action::ApplyTemplate => post(chat::apply_template),
        Action::Health => get(ops::health),
        Action::Props => get(ops::props),
        Action::Metrics => get(ops::metrics),
        Action::Sequences => get(ops::sequences),
        Action::Cache => get(cache::view),
        Action::ClearCache => post(cache::clear),
    }
}

async fn unknown_path(request: Request) -> ApiError {
    let message = format!("there is no {}; docs/api.md lists the paths", request.uri().path());
    ApiError::new(ErrorCode::NotFound, message)
}

async fn wrong_method(request: Request) -> ApiError {
    let message =
        format!("{} does not take {}; the header `Allow` lists what it takes", request.uri().path(), request.method());
    ApiError::new(ErrorCode::MethodNotAllowed, message)
}
