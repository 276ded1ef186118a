//! The small endpoints: health, properties, metrics, sequences, tokens.

use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::error::{ApiError, ErrorCode, unwell};
use super::extract;
use super::state::ApiState;
use super::wire::{DetokenizeBody, TokenizeBody};
use crate::chat::number::Int;
use crate::engine::stats::{EngineStats, Phase, SequenceStats};
use crate::engine::{Health, VisionFacts};
use crate::telemetry::{EngineAges, KernelState};
use crate::text::tokenizer::{GUARD, Specials, Tokenizer};
use crate::units::Token;

/// `GET /health`.
pub async fn health(State(state): State<ApiState>) -> Result<Response, ApiError> {
    let limit = Duration::from_secs(state.profile.engine.stall_seconds.into());
    match state.handle.health() {
        // It hangs in the device: whoever watches the process should restart it.
        Health::Ok if state.handle.step_age().is_some_and(|age| age >= limit) => {
            Ok(unwell("stalled", &format!("the engine's step has lasted for {} s and goes on", limit.as_secs())))
        }
        Health::Ok => Ok(Json(json!({ "status": "ok" })).into_response()),
        Health::Stopping => Err(ApiError::new(ErrorCode::EngineStopping, "the engine is shutting down")),
        Health::Dead(reason) => {
            // Everyone may ask here: the cause is for the log.
            let message = "the engine stopped after an internal error";
            Err(ApiError::new(ErrorCode::EngineDead, message).with_diagnostic(reason))
        }
    }
}

/// `GET /props`. Names are llama-server's where it has one.
pub async fn props(State(state): State<ApiState>) -> Json<Value> {
    let (model, profile, tokenizer) = (&*state.model, &*state.profile, &state.tokenizer);
    let text = |token: Option<Token>| token.map(|token| tokenizer.text(token));
    Json(json!({
        "build_info": state.build.fingerprint(),
        "backend": state.build.backend,
        "profile": profile.name,
        "model_alias": model.id,
        "model": {
            "id": model.id,
            "architecture": model.architecture,
            "n_ctx_train": model.n_ctx_train,
            "n_vocab": tokenizer.n_vocab(),
            "n_params": model.n_params,
            "size": model.size.0,
            "quantization": model.quantization,
            "tokenizer": tokenizer.codec_name(),
        },
        "total_slots": profile.engine.parallel,
        "n_ctx": model.n_ctx,
        "default_generation_settings": { "n_ctx": model.n_ctx, "params": default_params(&state) },
        "modalities": { "vision": state.handle.facts().vision.is_some(), "audio": false },
        "vision": vision(&state),
        "chat_template": state.template.source(),
        "bos_token": text(tokenizer.bos()),
        "eos_token": text(tokenizer.eos()),
        "speculative": speculative(&state),
        "kernels": kernels(&state),
        "features": features(&state),
    }))
}

/// Kernels of the plug-in with their counts, so that a measurement can show what ran.
fn kernels(state: &ApiState) -> Value {
    let kernel = |k: KernelState| {
        let KernelState { name, on, calls, fallbacks, purpose } = k;
        json!({ "name": name, "on": on, "calls": calls, "fallbacks": fallbacks, "purpose": purpose })
    };
    state.metrics.kernels().into_iter().map(kernel).collect()
}

/// Bounds of images in tokens; null where there are none.
fn vision(state: &ApiState) -> Value {
    let facts = state.handle.facts().vision.as_ref();
    facts.map_or(Value::Null, |VisionFacts { token_px, min_tokens, max_tokens }| {
        json!({
            "token_px": token_px,
            "min_tokens": min_tokens,
            "max_tokens": max_tokens,
            "low_tokens": state.profile.images.low_tokens.min(*max_tokens),
            "fetch": state.profile.images.fetch,
            "files": state.profile.images.dir.is_some(),
        })
    })
}

/// Drafting as it is in effect, which may be less than the profile has.
fn speculative(state: &ApiState) -> Value {
    let (config, facts) = (&state.profile.speculative, state.handle.facts());
    let lookup = config.in_effect(facts.mtp).lookup && facts.n_outputs_seq > 1;
    let mut out = json!({
        "mtp": facts.mtp,
        "lookup": lookup,
        "adaptive": config.adaptive,
        "n_max": config.n_max,
        "lookup_n_max": config.lookup_n_max,
    });
    if let Some(reason) = mtp_off(state) {
        out["reason"] = json!(reason);
    }
    out
}

/// Why the MTP head does not draft. A file without a head comes first: no setting would help.
fn mtp_off(state: &ApiState) -> Option<&'static str> {
    let config = &state.profile.speculative;
    match (state.handle.facts().mtp, state.model.n_layer_mtp) {
        (true, _) => None,
        (false, 0) => Some("the model has no MTP head"),
        (false, _) if !config.mtp => Some("speculative.mtp is off"),
        (false, _) if config.n_max == 0 => Some("speculative.n_max is 0"),
        (false, _) => Some("the backend did not load the model's MTP head"),
    }
}

fn default_params(state: &ApiState) -> Value {
    let s = &state.profile.sampling;
    json!({
        "temperature": as_written(s.temperature),
        "top_k": s.top_k,
        "top_p": as_written(s.top_p),
        "min_p": as_written(s.min_p),
        "typical_p": as_written(s.typical_p),
        "repeat_penalty": as_written(s.repeat_penalty),
        "repeat_last_n": s.penalty_last_n,
        "presence_penalty": as_written(s.presence_penalty),
        "frequency_penalty": as_written(s.frequency_penalty),
        "max_tokens": state.profile.generation.max_tokens,
        "enable_thinking": state.profile.chat.thinking,
    })
}

/// 0.6 and not the 0.6000000238418579 that an f32 becomes when it is widened.
fn as_written(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(f64::from(value))
}

/// What is on or off, and why.
fn features(state: &ApiState) -> Value {
    let feature = |on: bool, why: &str| json!({ "on": on, "why": why });
    let mtp = mtp_off(state);
    let tools = state.template.mentions("tools");
    let switch = state.template.mentions("enable_thinking");
    json!({
        "mtp": feature(mtp.is_none(), mtp.unwrap_or("the model's MTP head drafts, and the model checks every token")),
        "vision": match state.handle.facts().vision {
            Some(_) => feature(true, "images are encoded with the model's projector; `vision` has their sizes"),
            None => feature(false, "no projector is loaded (model.mmproj)"),
        },
        "grammar": feature(
            true,
            "answers are held to response_format, grammar and kin, thinking to shapes and budgets, calls to their declarations",
        ),
        "kernels": feature(
            state.metrics.kernels().iter().any(|kernel| kernel.on),
            "kernels of plateau in the CUDA plug-in; the list `kernels` counts their calls, empty where none is loaded",
        ),
        "prefix_cache": prefix_cache(state),
        "chat_template": state.model.template.describe(),
        "tools": feature(tools, if tools { "the template prints tools" } else { "the template does not mention tools" }),
        "thinking_switch": feature(
            switch,
            if switch { "the template mentions enable_thinking" } else { "the template does not mention enable_thinking" },
        ),
    })
}

fn prefix_cache(state: &ApiState) -> Value {
    let cache = state.handle.cache();
    let why = match (cache.on, cache.disk_budget > 0, &cache.disk_off) {
        (false, ..) => {
            "off: cache.ram_mib is 0, or states of this model cannot be saved; idle sequences are reused".to_owned()
        }
        (true, true, _) => "saved states in memory and on disk".to_owned(),
        (true, false, Some(reason)) => format!("saved states in memory; not on disk: {reason}"),
        (true, false, None) => "saved states in memory; cache.disk_dir is none".to_owned(),
    };
    json!({ "on": cache.on, "why": why, "interval_tokens": cache.interval_tokens })
}

/// `GET /metrics`.
pub async fn metrics(State(state): State<ApiState>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    // Set here and not by the engine: it may hang.
    state.metrics.set_ages(EngineAges { step: state.handle.step_age(), oldest_queued: state.handle.oldest_queued() });
    ([(header::CONTENT_TYPE, kind)], state.metrics.render()).into_response()
}

/// `GET /sequences`.
pub async fn sequences(State(state): State<ApiState>) -> Json<Value> {
    let EngineStats { sequences, n_queued, n_fill, n_ctx, n_steps } = state.handle.stats();
    let sequences: Vec<Value> = sequences.iter().map(sequence).collect();
    Json(json!({
        "n_ctx": n_ctx,
        "n_fill": n_fill,
        "n_queued": n_queued,
        "n_steps": n_steps,
        "sequences": sequences,
    }))
}

fn sequence(stats: &SequenceStats) -> Value {
    let SequenceStats { seq, request, phase, n_prompt, n_prompt_done, n_cached, n_generated, n_fill } = stats;
    let phase = match phase {
        Phase::Idle => "idle",
        Phase::Prefill => "prefill",
        Phase::Decode => "decode",
    };
    json!({
        "seq": seq,
        "phase": phase,
        "request": request,
        "n_prompt": n_prompt,
        "n_prompt_done": n_prompt_done,
        "n_cached": n_cached,
        "n_generated": n_generated,
        "n_fill": n_fill,
    })
}

/// `POST /tokenize`.
pub async fn tokenize(State(state): State<ApiState>, request: Request) -> Result<Json<Value>, ApiError> {
    let bytes = extract::body(request, &state).await?;
    let preparing = state.preparing.clone();
    let work = move || {
        let TokenizeBody { content, add_special, parse_special, with_pieces } = body(&bytes, &state)?;
        let tokenizer = &state.tokenizer;
        let specials = if parse_special.unwrap_or(true) { Specials::Parse } else { Specials::AsText };
        let tokens = encode(tokenizer, &content.replace(GUARD, ""), specials, add_special)
            .map_err(|error| ApiError::new(ErrorCode::InvalidRequest, error.to_string()).with_param("content"))?;
        Ok(if with_pieces {
            tokens.into_iter().map(|token| json!({ "id": token.0, "piece": piece(tokenizer, token) })).collect()
        } else {
            tokens.into_iter().map(|token| json!(token.0)).collect::<Vec<Value>>()
        })
    };
    let tokens = preparing.run(work).await?;
    Ok(Json(json!({ "tokens": tokens })))
}

fn body<T: DeserializeOwned>(bytes: &[u8], state: &ApiState) -> Result<T, ApiError> {
    extract::typed(extract::object(bytes, &state.profile.limits)?)
}

/// The tokenizer adds BOS to parsed text only, and always: both are mended here.
fn encode(
    tokenizer: &Tokenizer,
    text: &str,
    specials: Specials,
    add_special: bool,
) -> Result<Vec<Token>, crate::text::tokenizer::CodecError> {
    let bos = match tokenizer.encode("", Specials::Parse)?.as_slice() {
        [bos] => Some(*bos),
        _ => None,
    };
    let mut tokens = tokenizer.encode(text, specials)?;
    let Some(bos) = bos else { return Ok(tokens) };
    let written = specials == Specials::Parse && text.starts_with(&tokenizer.text(bos));
    match (add_special, specials) {
        (false, Specials::Parse) if !written => drop(tokens.remove(0)),
        (true, Specials::AsText) => tokens.insert(0, bos),
        _ => {}
    }
    Ok(tokens)
}

/// Text, or the bytes where they are only a part of a character.
fn piece(tokenizer: &Tokenizer, token: Token) -> Value {
    let bytes = tokenizer.piece(token);
    std::str::from_utf8(bytes).map_or_else(|_| json!(bytes), |text| json!(text))
}

/// `POST /detokenize`.
pub async fn detokenize(State(state): State<ApiState>, request: Request) -> Result<Json<Value>, ApiError> {
    let bytes = extract::body(request, &state).await?;
    let preparing = state.preparing.clone();
    let work = move || {
        let DetokenizeBody { tokens } = body(&bytes, &state)?;
        let n_vocab = state.tokenizer.n_vocab();
        let token = |(i, Int(id)): (usize, Int)| match u32::try_from(id) {
            Ok(id) if (id as usize) < n_vocab => Ok(Token(id)),
            _ => {
                let message = format!("token {id} is not in the vocabulary of {n_vocab} tokens");
                Err(ApiError::new(ErrorCode::InvalidRequest, message).with_param(format!("tokens[{i}]")))
            }
        };
        let tokens = tokens.into_iter().enumerate().map(token).collect::<Result<Vec<Token>, ApiError>>()?;
        Ok(state.tokenizer.decode(&tokens, true))
    };
    let content = preparing.run(work).await?;
    Ok(Json(json!({ "content": content })))
}
