//! What bodies become.

use serde_json::json;

use super::super::fields::{FIELDS, Verdict};
use super::*;
use crate::chat::ChatTemplate;
use crate::chat::constraint::grammars;
use crate::config::Profile;
use crate::text::tokenizer::Tokenizer;

/// Fields whose sample needs another one beside it.
fn base(endpoint: Endpoint, name: &str) -> Value {
    let mut body = match endpoint {
        Endpoint::Chat => json!({ "messages": [{ "role": "user", "content": "hi" }] }),
        Endpoint::Completions => json!({ "prompt": "hi" }),
    };
    match name {
        "top_logprobs" => body["logprobs"] = json!(true),
        "stream_options" | "return_progress" => body["stream"] = json!(true),
        "dry_base" | "dry_allowed_length" | "dry_penalty_last_n" | "dry_sequence_breakers" => {
            body["dry_multiplier"] = json!(1);
        }
        "continue_final_message" => body["messages"] = json!([{ "role": "assistant", "content": "b" }]),
        _ => {}
    }
    body
}

fn converted(body: Value, endpoint: Endpoint) -> Result<Converted, ApiError> {
    let Value::Object(body) = body else { panic!("an object") };
    let (tokenizer, profile) = (Tokenizer::bytes_for_tests(), Profile::demo());
    let template = ChatTemplate::new("{{ messages }}".to_owned(), "", "", 1000).unwrap();
    let grammars = grammars(&tokenizer).unwrap();
    let served = ServedModel { tokenizer: &tokenizer, template: &template, profile: &profile, grammars: &grammars };
    let context = ConvertContext { served, model_id: "served", random_seed: 1 };
    match endpoint {
        Endpoint::Chat => chat(body, &context),
        Endpoint::Completions => completion(body, &context),
    }
}

/// `best_of` only ever agrees with `n`.
const CHANGES_NOTHING: [&str; 1] = ["best_of"];

#[test]
fn every_consumed_field_changes_the_converted_request() {
    let shown = |body, endpoint| format!("{:?}", converted(body, endpoint).unwrap());
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
    for (body, param) in [
        (json!({ "messages": [], "temperature": "hot" }), "temperature"),
        (json!({ "messages": [], "speculative": { "n_max": "all" } }), "speculative.n_max"),
        (json!({ "messages": [], "speculative": [1] }), "speculative"),
        (json!({ "messages": [], "cache": { "read": 1 } }), "cache.read"),
    ] {
        let error = converted(body, Endpoint::Chat).unwrap_err();
        assert_eq!(error.envelope()["error"]["param"], param);
    }
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
    let Converted { request, .. } = converted(body, Endpoint::Completions).unwrap();
    let speculative = request.options.speculative;
    assert_eq!((speculative.mtp_max, speculative.n_min, speculative.p_min), (1, 1, 0.5));
    assert_eq!(request.ignored, ["speculative.type"]);
}

#[test]
fn the_newest_name_of_the_limit_wins() {
    let body = json!({ "prompt": "a", "n_predict": 1, "max_tokens": 2, "max_completion_tokens": 3 });
    let Converted { request, .. } = converted(body, Endpoint::Completions).unwrap();
    assert_eq!(request.options.max_tokens, Some(3));
}
