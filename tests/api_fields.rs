//! Every request field in one table with its verdict: each row is exercised at each endpoint that
//! knows it.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod common;

use common::{Answer, Server, start, start_with, with};
use plateau::api::fields::{self, Endpoint, FIELDS, Field, Verdict};
use plateau::api::routes;
use plateau::engine::FakeRunner;
use serde_json::{Value, json};

const ENDPOINTS: [(Endpoint, &str); 2] =
    [(Endpoint::Chat, "/v1/chat/completions"), (Endpoint::Completions, "/v1/completions")];

/// A request to which one field is added; some fields need another one beside them.
fn base(endpoint: Endpoint, name: &str) -> Value {
    let body = match endpoint {
        Endpoint::Chat => json!({ "messages": [{ "role": "user", "content": "hi" }], "max_tokens": 3 }),
        Endpoint::Completions => json!({ "prompt": "hi", "max_tokens": 3 }),
    };
    let body = match name {
        // The newer name of the limit would win.
        "n_predict" => without(body, "max_tokens"),
        _ => body,
    };
    let more = match name {
        "top_logprobs" => json!({ "logprobs": true }),
        "stream_options" | "return_progress" => json!({ "stream": true }),
        "continue_final_message" => {
            json!({ "messages": [{ "role": "user", "content": "a" }, { "role": "assistant", "content": "b" }] })
        }
        _ => json!({}),
    };
    with(body, more)
}

fn without(mut body: Value, name: &str) -> Value {
    body.as_object_mut().unwrap().remove(name);
    body
}

async fn ask(server: &Server, (endpoint, path): (Endpoint, &str), field: &Field, value: &str) -> Answer {
    let mut body = base(endpoint, field.name);
    body[field.name] = serde_json::from_str(value).unwrap();
    server.post(path, body).await
}

fn is_path_of(param: &Value, name: &str) -> bool {
    let rest = param.as_str().and_then(|param| param.strip_prefix(name));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

#[tokio::test]
async fn every_request_field_does_what_the_table_says() {
    let server = start(FakeRunner::saying("</think>hello")).await;
    for at in ENDPOINTS {
        for field in FIELDS.iter().filter(|field| field.scope.covers(at.0)) {
            let name = field.name;
            match field.verdict {
                Verdict::Consumed { sample, bad, .. } => {
                    let good = ask(&server, at, field, sample).await;
                    assert_eq!(good.status, 200, "{name}: {sample}: {}", good.body);
                    let unheard = good.ignored().iter().any(|ignored| ignored == name) && name != "model";
                    assert!(!unheard, "{name} is consumed but reported as ignored");
                    let refused = ask(&server, at, field, bad).await;
                    assert_eq!(refused.status, 400, "{name}: {bad}");
                    assert!(is_path_of(refused.error("param"), name), "{name}: {bad}: {}", refused.body);
                }
                Verdict::Refused { neutral, sample } => {
                    let refused = ask(&server, at, field, sample).await;
                    let told = (refused.status, refused.error("code"), refused.error("param"));
                    assert_eq!(told, (400, &json!("unsupported_parameter"), &json!(name)), "{}", refused.body);
                    for value in serde_json::from_str::<Vec<Value>>(neutral).unwrap().iter().chain([&Value::Null]) {
                        let good = ask(&server, at, field, &value.to_string()).await;
                        assert_eq!((good.status, good.ignored()), (200, vec![]), "{name}: {value}: {}", good.body);
                    }
                }
                Verdict::PassedOver { sample } => {
                    let good = ask(&server, at, field, sample).await;
                    assert_eq!((good.status, good.ignored()), (200, vec![name.to_owned()]), "{}", good.body);
                }
            }
        }
    }
}

#[tokio::test]
async fn an_unknown_field_is_served_and_reported() {
    let server = start(FakeRunner::saying("</think>hello")).await;
    for (endpoint, path) in ENDPOINTS {
        let body = with(base(endpoint, ""), json!({ "a_field_of_next_year": { "x": 1 }, "null_says_nothing": null }));
        let answer = server.post(path, body).await;
        assert_eq!((answer.status, answer.ignored()), (200, vec!["a_field_of_next_year".to_owned()]));
    }
}

/// Values that do not fit their neighbours, or lie beyond a limit; the table has one bad value a
/// row, these are the rest.
#[tokio::test]
async fn numbers_are_checked_at_the_border_and_named() {
    let server = start(FakeRunner::saying("</think>hello")).await;
    let cases = [
        (json!({ "n_discard": -1 }), "n_discard"),
        (json!({ "top_k": 1e300 }), "top_k"),
        (json!({ "max_tokens": -2 }), "max_tokens"),
        (json!({ "max_tokens": 1.5 }), "max_tokens"),
        (json!({ "n": 9 }), "n"),
        (json!({ "seed": 18446744073709551615_u64 }), "seed"),
        (json!({ "temperature": -0.1 }), "temperature"),
        (json!({ "repeat_last_n": 3000000000_u64 }), "repeat_last_n"),
        (json!({ "logit_bias": { "266": 1 } }), "logit_bias.266"),
        (json!({ "logit_bias": { "65": 101 } }), "logit_bias.65"),
        (json!({ "logit_bias": { "65": true } }), "logit_bias.65"),
        (json!({ "logit_bias": [["a", 1], [1]] }), "logit_bias[1]"),
        (json!({ "dry_multiplier": 1, "dry_sequence_breakers": ["x", "two"] }), "dry_sequence_breakers[1]"),
        (json!({ "dry_sequence_breakers": ["x", ""] }), "dry_sequence_breakers[1]"),
        (json!({ "repetition_penalty": 0, "repeat_penalty": null }), "repetition_penalty"),
        (json!({ "stop": vec!["x"; 17] }), "stop"),
        (json!({ "stop": ["ok", "y".repeat(1025)] }), "stop[1]"),
        (json!({ "top_logprobs": 1 }), "top_logprobs"),
        (json!({ "thinking": { "type": "enabled", "budget_tokens": -2 } }), "thinking.budget_tokens"),
        (json!({ "reasoning": { "max_tokens": "all" } }), "reasoning.max_tokens"),
        (
            json!({ "response_format": { "type": "json_schema", "json_schema": {} } }),
            "response_format.json_schema.schema",
        ),
        (json!({ "stream": true, "temperature": 99 }), "temperature"),
        (json!({ "speculative": [1] }), "speculative"),
        (json!({ "speculative": { "n_max": 4 } }), "speculative.n_max"),
        (json!({ "speculative": { "n_max": "all" } }), "speculative.n_max"),
        (json!({ "speculative": { "n_max": 1, "n_min": 2 } }), "speculative.n_min"),
        (json!({ "speculative": { "p_min": -0.1 } }), "speculative.p_min"),
        (json!({ "speculative": { "lookup": 1 } }), "speculative.lookup"),
        (json!({ "speculative.n_max": 1.5 }), "speculative.n_max"),
        (json!({ "speculative": { "n_min": null }, "speculative.n_min": -1 }), "speculative.n_min"),
    ];
    for (more, param) in cases {
        let answer = server.post("/v1/chat/completions", with(base(Endpoint::Chat, ""), more.clone())).await;
        assert_eq!((answer.status, answer.error("param")), (400, &json!(param)), "{more}: {}", answer.body);
    }
}

#[tokio::test]
async fn values_that_clients_really_send_are_taken() {
    let server = start(FakeRunner::saying("</think>hello")).await;
    let cases = [
        json!({ "max_tokens": 32000.0 }),
        json!({ "max_tokens": -1 }),
        json!({ "seed": -1 }),
        json!({ "stop": null, "tools": null, "tool_choice": null, "temperature": null, "logit_bias": null }),
        json!({ "stop": [] , "tools": [], "stream_options": null, "functions": [] }),
        json!({ "logit_bias": [[65, -5], ["text", 1.5], [66, false]] }),
        json!({ "top_k": -1, "top_p": 1, "min_p": 0, "presence_penalty": -2, "mirostat": 0.0 }),
        json!({ "thinking": { "type": "disabled", "budget_tokens": null } }),
        json!({ "chat_template_kwargs": { "enable_thinking": null } }),
        json!({ "response_format": { "type": "text" }, "store": false, "parallel_tool_calls": true }),
        json!({ "speculative": {} }),
        json!({ "speculative": { "n_max": 0, "n_min": 0, "p_min": 0, "lookup": null, "type": null } }),
        json!({ "speculative.n_max": 3.0, "speculative.n_min": 0, "speculative.p_min": 0.75 }),
    ];
    for more in cases {
        let answer = server.post("/v1/chat/completions", with(base(Endpoint::Chat, ""), more.clone())).await;
        assert_eq!((answer.status, answer.ignored()), (200, vec![]), "{more}: {}", answer.body);
    }
}

#[tokio::test]
async fn a_longer_draft_than_the_contexts_were_made_for_is_refused_with_the_limit() {
    let server = start_with(FakeRunner::saying("</think>hello"), |profile| profile.speculative.n_max = 2).await;
    for (endpoint, path) in ENDPOINTS {
        for more in [json!({ "speculative": { "n_max": 3 } }), json!({ "speculative.n_max": 3 })] {
            let answer = server.post(path, with(base(endpoint, ""), more)).await;
            assert_eq!((answer.status, answer.error("param")), (400, &json!("speculative.n_max")));
            assert!(answer.error("message").as_str().unwrap().contains("0 to 2"), "{}", answer.body);
        }
        let answer =
            server.post(path, with(base(endpoint, ""), json!({ "speculative": { "n_max": 2, "x": 1 } }))).await;
        assert_eq!((answer.status, answer.ignored()), (200, vec!["speculative.x".to_owned()]), "{}", answer.body);
    }
}

#[tokio::test]
async fn a_banned_token_is_not_generated() {
    let server = start(FakeRunner::saying("aaa")).await;
    let free = server.post("/v1/completions", json!({ "prompt": "x", "max_tokens": 3 })).await.body;
    assert_eq!(free["choices"][0]["text"], "aaa");
    for bias in [json!({ "97": -100 }), json!([["a", false]]), json!([[97, false]])] {
        let body = json!({ "prompt": "x", "max_tokens": 3, "logit_bias": bias });
        let text = server.post("/v1/completions", body).await.body["choices"][0]["text"].clone();
        assert!(!text.as_str().unwrap().contains('a'), "{bias}: {text}");
    }
}

#[test]
fn docs_api_md_holds_the_tables() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/api.md");
    let page = std::fs::read_to_string(path).unwrap();
    let fresh = filled(filled(page, "routes", &routes::docs()), "fields", &fields::docs());
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &fresh).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap();
    assert!(fresh == written, "docs/api.md is out of date: UPDATE=1 cargo test --test api_fields");
}

/// `page` with `text` between the marks of `name`.
fn filled(page: String, name: &str, text: &str) -> String {
    let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->"));
    let (before, rest) = page.split_once(&begin).expect("the page has the mark");
    let (_, after) = rest.split_once(&end).expect("the page has the closing mark");
    format!("{before}{begin}{text}{end}{after}")
}
