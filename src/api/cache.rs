//! The prefix cache over HTTP: an image of it, and forgetting it.

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::error::{ApiError, ErrorCode};
use super::state::ApiState;
use crate::engine::prefix::{NodeView, RecentRequest};
use crate::engine::{BreakpointKind, SubmitError};

/// `GET /cache`.
pub async fn view(State(state): State<ApiState>) -> Json<Value> {
    let cache = state.handle.cache();
    let totals = cache.totals;
    let text = |node: &NodeView| state.tokenizer.decode(&node.tail, true);
    Json(json!({
        "on": cache.on,
        "interval_tokens": cache.interval_tokens,
        "ram": { "bytes": cache.ram_bytes, "budget": cache.ram_budget, "evicted": totals.evicted_ram },
        "disk": {
            "on": cache.disk_budget > 0,
            "bytes": cache.disk_bytes,
            "budget": cache.disk_budget,
            "evicted": totals.evicted_disk,
            "unreadable_files": totals.unreadable,
            "failed_writes": totals.unwritten,
            "reason": cache.disk_off,
        },
        "states": { "nodes": cache.n_nodes, "saved": totals.saved, "lost": totals.lost, "too_large": totals.too_large },
        "checks": {
            "identical": cache.checks.identical,
            "rounded": cache.checks.rounded,
            "wrong": cache.checks.wrong,
        },
        "nodes": cache.nodes.iter().map(|n| node(n, &text(n))).collect::<Vec<_>>(),
        "recent": cache.recent.iter().map(story).collect::<Vec<_>>(),
    }))
}

fn node(node: &NodeView, tail: &str) -> Value {
    json!({
        "key": node.key,
        "parent": node.parent,
        "tokens": node.n_tokens,
        "kind": kind(node.kind),
        "hits": node.hits,
        "ram_bytes": node.ram_bytes,
        "disk_bytes": node.disk_bytes,
        "restorable": node.restorable,
        "tail": tail,
    })
}

fn story(story: &RecentRequest) -> Value {
    let restored = &story.restored;
    json!({
        "id": story.id,
        "prompt_tokens": story.n_prompt,
        "restored_from": story.n_cached,
        "prefilled": story.n_prompt - story.n_cached,
        "tier": restored.tier.as_str(),
        "restore_ms": restored.restore_ms,
        "why": restored.why.as_str(),
        "reason": restored.why.to_string(),
    })
}

fn kind(kind: BreakpointKind) -> &'static str {
    match kind {
        BreakpointKind::System => "system",
        BreakpointKind::Message => "message",
        BreakpointKind::Turn => "turn",
        BreakpointKind::Thinking => "thinking",
        BreakpointKind::ThinkingEnd => "thinking_end",
        BreakpointKind::PromptEnd => "prompt_end",
        BreakpointKind::AnswerEnd => "answer_end",
        BreakpointKind::Image => "image",
        BreakpointKind::Grid => "grid",
    }
}

/// `POST /cache/clear`.
pub async fn clear(State(state): State<ApiState>) -> Result<Json<Value>, ApiError> {
    state.handle.clear_cache().map_err(|error| {
        let code = match error {
            SubmitError::Stopping => ErrorCode::EngineStopping,
            SubmitError::Dead => ErrorCode::EngineDead,
            SubmitError::Busy | SubmitError::TooLong { .. } | SubmitError::Images(_) => ErrorCode::EngineBusy,
        };
        ApiError::new(code, error.to_string())
    })?;
    Ok(Json(json!({ "cleared": true })))
}
