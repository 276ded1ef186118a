//! `/v1/completions`: prompt forms, echo, the old shape of logprobs.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod common;

use common::{start, start_with, with};
use plateau::engine::FakeRunner;
use serde_json::{Value, json};

const PATH: &str = "/v1/completions";

fn texts(body: &Value) -> Vec<&str> {
    body["choices"].as_array().unwrap_or_else(|| panic!("{body}")).iter().map(|c| c["text"].as_str().unwrap()).collect()
}

fn runner() -> FakeRunner {
    FakeRunner::scripted(vec![("one".into(), " 1 and more".into()), ("two".into(), " 2".into())])
}

#[tokio::test]
async fn every_form_of_prompt_is_read() {
    let server = start(runner()).await;
    let ids: Vec<u8> = b"one".to_vec();
    let cases = [
        (json!("one"), vec![" 1 and more"]),
        (json!(["one", "two"]), vec![" 1 and more", " 2"]),
        (json!(ids), vec![" 1 and more"]),
        (json!([ids, b"two".to_vec()]), vec![" 1 and more", " 2"]),
    ];
    for (prompt, expected) in cases {
        let answer = server.post(PATH, json!({ "prompt": prompt })).await;
        assert_eq!(texts(&answer.body), expected, "{prompt}");
        assert_eq!(answer.body["object"], "text_completion");
        let n: usize = if prompt.to_string().contains('w') || prompt[1].is_array() { 6 } else { 3 };
        assert_eq!(answer.body["usage"]["prompt_tokens"], n, "{prompt}");
    }
}

#[tokio::test]
async fn choices_are_in_the_order_of_the_prompts() {
    let server = start(runner()).await;
    let body = json!({ "prompt": ["one", "two"], "n": 2, "best_of": 2, "echo": true });
    let answer = server.post(PATH, body.clone()).await.body;
    assert_eq!(texts(&answer), ["one 1 and more", "one 1 and more", "two 2", "two 2"]);
    assert_eq!(answer["usage"]["prompt_tokens"], 6, "each prompt counts once");
    let chunks = server.stream(PATH, body).await;
    for index in 0..4 {
        let choices = chunks.iter().flat_map(|c| c["choices"].as_array().unwrap()).filter(|c| c["index"] == index);
        let text: String = choices.map(|c| c["text"].as_str().unwrap()).collect();
        assert_eq!(text, texts(&answer)[index]);
    }
}

#[tokio::test]
async fn logprobs_have_the_old_shape() {
    let server = start(runner()).await;
    let body = json!({ "prompt": "two", "logprobs": 2, "max_tokens": 2 });
    let answer = server.post(PATH, body.clone()).await.body;
    let logprobs = &answer["choices"][0]["logprobs"];
    assert_eq!(logprobs["tokens"], json!([" ", "2"]));
    assert_eq!(logprobs["text_offset"], json!([0, 1]));
    assert_eq!(logprobs["top_logprobs"][0].as_object().unwrap().len(), 2);
    assert_eq!(logprobs["top_logprobs"][1]["2"], logprobs["token_logprobs"][1]);
    let chunks = server.stream(PATH, body).await;
    let offsets: Vec<&Value> =
        chunks.iter().filter_map(|c| c["choices"][0]["logprobs"]["text_offset"].as_array()).flatten().collect();
    assert_eq!(offsets, [0, 1]);
    let none = server.post(PATH, json!({ "prompt": "two" })).await.body;
    assert_eq!(none["choices"][0]["logprobs"], Value::Null);
}

#[tokio::test]
async fn control_tokens_are_shown_on_request() {
    let server = start(FakeRunner::saying("a<|im_start|>b")).await;
    for (more, expected) in [
        (json!({}), "ab"),
        (json!({ "special": true }), "a<|im_start|>b"),
        (json!({ "skip_special_tokens": false }), "a<|im_start|>b"),
    ] {
        let answer = server.post(PATH, with(json!({ "prompt": "x", "max_tokens": 3 }), more.clone())).await;
        assert_eq!(texts(&answer.body), [expected], "{more}");
    }
}

#[tokio::test]
async fn wrong_prompts_are_named() {
    let server = start_with(runner(), |profile| profile.engine.queue_capacity = 2).await;
    let cases = [
        (json!({}), "prompt"),
        (json!({ "prompt": "" }), "prompt"),
        (json!({ "prompt": [] }), "prompt"),
        (json!({ "prompt": 5 }), "prompt"),
        (json!({ "prompt": ["a", 5] }), "prompt[1]"),
        (json!({ "prompt": ["a", ""] }), "prompt[1]"),
        (json!({ "prompt": [[97], [97, 266]] }), "prompt[1][1]"),
        (json!({ "prompt": [97, -1] }), "prompt[1]"),
        (json!({ "prompt": vec!["a"; 7] }), "prompt"),
        (json!({ "prompt": "a", "echo": true, "logprobs": 1 }), "echo"),
        (json!({ "prompt": "a", "best_of": 2 }), "best_of"),
    ];
    for (body, param) in cases {
        let answer = server.post(PATH, body.clone()).await;
        assert_eq!((answer.status, answer.error("param")), (400, &json!(param)), "{body}: {}", answer.body);
    }
}
