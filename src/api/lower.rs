//! From wire types to the chat layer's requests. Every wire struct is taken apart without `..`: a new field does not compile
//! until somebody decided what it does. The fields of sampling are handed over as they are.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::error::{ApiError, ErrorCode};
use super::fields::{self, Endpoint, Sorted};
use super::wire::{CacheMembers, ChatBody, CompletionBody, GenerationBody, Int, SpeculativeBody, SpeculativeMembers};
use crate::chat::pictures::{PictureRef, Taken, take_from_messages, take_from_prompt};
use crate::chat::request::{
    CacheFields, ChatRequest, CompletionRequest, ConstraintFields, GenerationFields, Named, SamplingFields,
    SpeculativeFields, ThinkingFields,
};

/// How the answer is to be sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    pub stream: bool,
    pub include_usage: bool,
}

/// A request with what does not concern its generation.
#[derive(Clone, Debug)]
pub struct Lowered<T> {
    pub request: T,
    pub reply: Reply,
    /// Fields without effect.
    pub ignored: Vec<String>,
    /// To be got and put into the request.
    pub pictures: Vec<PictureRef>,
}

/// Lowers the body of `/v1/chat/completions`. `served` is the model's id.
pub fn chat(body: Map<String, Value>, served: &str) -> Result<Lowered<ChatRequest>, ApiError> {
    let Sorted { shared, own, mut ignored } = fields::sort(body, Endpoint::Chat)?;
    let ChatBody {
        messages,
        tools,
        tool_choice,
        parallel_tool_calls,
        logprobs,
        top_logprobs,
        add_generation_prompt,
        continue_final_message,
        chat_template_kwargs,
        enable_thinking,
        thinking,
        reasoning_effort,
        reasoning,
        thinking_budget,
        thinking_budget_tokens,
        reasoning_budget,
        reasoning_budget_tokens,
        reasoning_budget_message,
    } = typed(&Value::Object(own))?;
    let mut messages = messages.ok_or_else(|| missing("messages"))?;
    let Taken { pictures, ignored: unused } = take_from_messages(&mut messages).map_err(ApiError::rejected)?;
    ignored.extend(unused);
    let logprobs = match (logprobs, top_logprobs) {
        (Some(true), top) => Some(Named { param: "top_logprobs", value: top.map_or(0, |Int(n)| n) }),
        (_, None | Some(Int(0))) => None,
        (_, Some(_)) => return Err(invalid("top_logprobs", "`top_logprobs` needs `logprobs: true`")),
    };
    let (reply, generation) = shared_fields(shared, logprobs, served, &mut ignored)?;
    let budgets = [
        ("thinking_budget_tokens", thinking_budget_tokens),
        ("thinking_budget", thinking_budget),
        ("reasoning_budget_tokens", reasoning_budget_tokens),
        ("reasoning_budget", reasoning_budget),
    ];
    let budget = first(budgets.map(|(param, value)| (param, value.map(|Int(v)| v))));
    let message = reasoning_budget_message;
    let request = ChatRequest {
        messages,
        pictures: Vec::new(),
        tools,
        tool_choice,
        parallel_tool_calls,
        add_generation_prompt,
        continue_final_message: continue_final_message.unwrap_or(false),
        template_kwargs: chat_template_kwargs.unwrap_or_default(),
        thinking: ThinkingFields { enable_thinking, thinking, reasoning_effort, reasoning, budget, message },
        generation,
    };
    Ok(Lowered { request, reply, ignored, pictures })
}

/// Lowers the body of `/v1/completions`.
pub fn completion(body: Map<String, Value>, served: &str) -> Result<Lowered<CompletionRequest>, ApiError> {
    let Sorted { shared, own, mut ignored } = fields::sort(body, Endpoint::Completions)?;
    let CompletionBody { prompt, echo, best_of, logprobs, special, skip_special_tokens } = typed(&Value::Object(own))?;
    let mut prompt = prompt.ok_or_else(|| missing("prompt"))?;
    let Taken { pictures, ignored: unused } = take_from_prompt(&mut prompt).map_err(ApiError::rejected)?;
    ignored.extend(unused);
    let logprobs = logprobs.map(|Int(value)| Named { param: "logprobs", value });
    let (reply, generation) = shared_fields(shared, logprobs, served, &mut ignored)?;
    if let Some(Int(best_of)) = best_of
        && best_of != generation.n.unwrap_or(1)
    {
        return Err(invalid("best_of", "`best_of` is served only where it equals `n`: choices are not ranked"));
    }
    let show_control = special.or(skip_special_tokens.map(|skip| !skip)).unwrap_or(false);
    let echo = echo.unwrap_or(false);
    let request = CompletionRequest { prompt, pictures: Vec::new(), echo, show_control, generation };
    Ok(Lowered { request, reply, ignored, pictures })
}

fn shared_fields(
    shared: Map<String, Value>,
    logprobs: Option<Named<i64>>,
    served: &str,
    ignored: &mut Vec<String>,
) -> Result<(Reply, GenerationFields), ApiError> {
    let shared = Value::Object(shared);
    let GenerationBody {
        model,
        stream,
        stream_options,
        return_progress,
        n,
        max_tokens,
        max_completion_tokens,
        n_predict,
        stop,
        ignore_eos,
        cache_prompt,
        cache,
        n_probs,
        speculative,
        speculative_n_max,
        speculative_n_min,
        speculative_p_min,
    } = typed(&shared)?;
    let sampling: SamplingFields = typed(&shared)?;
    let constraint: ConstraintFields = typed(&shared)?;
    if model.is_some_and(|name| name != served) {
        ignored.push("model".to_owned());
    }
    let reply = reply(stream.unwrap_or(false), stream_options, ignored)?;
    let progress = return_progress.unwrap_or(false);
    if progress && !reply.stream {
        ignored.push("return_progress".to_owned());
    }
    let flat = SpeculativeMembers {
        n_max: speculative_n_max,
        n_min: speculative_n_min,
        p_min: speculative_p_min,
        lookup: None,
        adaptive: None,
    };
    let n_probs = n_probs.filter(|n| n.0 != 0);
    let limits =
        [("max_completion_tokens", max_completion_tokens), ("max_tokens", max_tokens), ("n_predict", n_predict)];
    let generation = GenerationFields {
        max_tokens: first(limits.map(|(param, value)| (param, value.map(|Int(v)| v)))),
        n: n.map(|Int(v)| v),
        stop,
        ignore_eos: ignore_eos.unwrap_or(false),
        logprobs: logprobs.or(first([("n_probs", n_probs.map(|Int(v)| v))])),
        cache_prompt,
        cache: cache.map(|CacheMembers { read, write }| CacheFields { read, write }).unwrap_or_default(),
        progress: progress && reply.stream,
        speculative: drafting(speculative.unwrap_or_default(), flat, ignored)?,
        sampling,
        constraint,
    };
    Ok((reply, generation))
}

fn reply(stream: bool, options: Option<Map<String, Value>>, ignored: &mut Vec<String>) -> Result<Reply, ApiError> {
    let mut include_usage = false;
    for (name, value) in options.into_iter().flatten().filter(|(_, value)| !value.is_null()) {
        let path = format!("stream_options.{name}");
        match (name.as_str(), value) {
            ("include_usage", Value::Bool(wanted)) => {
                include_usage = wanted;
                if wanted && !stream {
                    ignored.push(path);
                }
            }
            ("include_usage", _) => return Err(invalid(&path, "`stream_options.include_usage` must be true or false")),
            _ => ignored.push(path),
        }
    }
    Ok(Reply { stream, include_usage: include_usage && stream })
}

/// The object and llama-server's flat spellings of its members; the object wins.
fn drafting(
    object: Map<String, Value>,
    flat: SpeculativeMembers,
    ignored: &mut Vec<String>,
) -> Result<SpeculativeFields, ApiError> {
    let unknown = object.iter().filter(|(name, value)| !is_member(name) && !value.is_null());
    ignored.extend(unknown.map(|(name, _)| format!("speculative.{name}")));
    let SpeculativeBody { speculative } = typed(&json!({ "speculative": object }))?;
    let SpeculativeMembers { n_max, n_min, p_min, lookup, adaptive } = speculative;
    Ok(SpeculativeFields {
        n_max: n_max.or(flat.n_max).map(|Int(n)| n),
        n_min: n_min.or(flat.n_min).map(|Int(n)| n),
        p_min: p_min.or(flat.p_min),
        lookup: lookup.or(flat.lookup),
        adaptive: adaptive.or(flat.adaptive),
    })
}

fn is_member(name: &str) -> bool {
    SpeculativeMembers::NAMES.contains(&name)
}

/// The first of several names for one thing that has a value.
fn first<T, const N: usize>(spellings: [(&'static str, Option<T>); N]) -> Option<Named<T>> {
    spellings.into_iter().find_map(|(param, value)| value.map(|value| Named { param, value }))
}

/// Reads a wire type; the error names the field.
pub fn typed<T: DeserializeOwned>(body: &Value) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(body).map_err(|error| {
        let path = error.path().to_string();
        let what = error.into_inner().to_string();
        if path == "." {
            return ApiError::new(ErrorCode::InvalidRequest, what);
        }
        ApiError::new(ErrorCode::InvalidRequest, format!("`{path}`: {what}")).with_param(path)
    })
}

fn missing(name: &str) -> ApiError {
    invalid(name, &format!("`{name}` is required"))
}

fn invalid(param: &str, message: &str) -> ApiError {
    ApiError::new(ErrorCode::InvalidRequest, message).with_param(param)
}

#[cfg(test)]
mod tests {
    use super::super::fields::{FIELDS, Verdict};
    use super::*;

    /// Fields whose sample needs another one beside it.
    fn base(endpoint: Endpoint, name: &str) -> Value {
        let mut body = match endpoint {
            Endpoint::Chat => json!({ "messages": [{ "role": "user", "content": "hi" }] }),
            Endpoint::Completions => json!({ "prompt": "hi" }),
        };
        match name {
            "top_logprobs" => body["logprobs"] = json!(true),
            "stream_options" | "return_progress" => body["stream"] = json!(true),
            _ => {}
        }
        body
    }

    fn shown(body: Value, endpoint: Endpoint) -> String {
        let Value::Object(body) = body else { panic!("an object") };
        match endpoint {
            Endpoint::Chat => format!("{:?}", chat(body, "served").unwrap()),
            Endpoint::Completions => format!("{:?}", completion(body, "served").unwrap()),
        }
    }

    /// `best_of` only ever agrees with `n`.
    const CHANGES_NOTHING: [&str; 1] = ["best_of"];

    #[test]
    fn every_consumed_field_changes_the_lowered_request() {
        for endpoint in [Endpoint::Chat, Endpoint::Completions] {
            for field in FIELDS.iter().filter(|f| f.scope.covers(endpoint)) {
                let Verdict::Consumed { sample, .. } = field.verdict else { continue };
                let without = base(endpoint, field.name);
                let mut with = without.clone();
                with[field.name] = serde_json::from_str(sample).unwrap();
                let same = shown(with, endpoint) == shown(without, endpoint);
                assert_eq!(same, CHANGES_NOTHING.contains(&field.name), "{} at {endpoint:?}", field.name);
            }
        }
    }

    #[test]
    fn a_wrong_type_names_its_field() {
        let Value::Object(body) = json!({ "messages": [], "temperature": "hot" }) else { panic!("an object") };
        let error = chat(body, "served").unwrap_err();
        assert_eq!(error.envelope()["error"]["param"], "temperature");
    }

    #[test]
    fn drafting_is_read_from_the_object_before_the_flat_spellings() {
        let body = json!({
            "prompt": "a",
            "speculative": { "n_max": 1.0, "p_min": null, "type": "draft", "nothing": null },
            "speculative.n_max": 2,
            "speculative.n_min": 1,
            "speculative.p_min": 0.5,
        });
        let Value::Object(body) = body else { panic!("an object") };
        let lowered = completion(body, "served").unwrap();
        let expected =
            SpeculativeFields { n_max: Some(1), n_min: Some(1), p_min: Some(0.5), lookup: None, adaptive: None };
        assert_eq!(lowered.request.generation.speculative, expected);
        assert_eq!(lowered.ignored, ["speculative.type"]);
    }

    #[test]
    fn the_names_of_the_members_of_speculative_are_those_that_are_read() {
        let members = serde_json::to_value(SpeculativeMembers::default()).unwrap();
        let read: Vec<&str> = members.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(read.len(), SpeculativeMembers::NAMES.len());
        assert!(read.into_iter().all(is_member), "{members}");
    }

    #[test]
    fn the_newest_name_of_the_limit_wins() {
        let Value::Object(body) = json!({ "prompt": "a", "n_predict": 1, "max_tokens": 2, "max_completion_tokens": 3 })
        else {
            panic!("an object")
        };
        let lowered = completion(body, "served").unwrap();
        assert_eq!(lowered.request.generation.max_tokens, Some(Named { param: "max_completion_tokens", value: 3 }));
    }
}
