//! The small endpoints.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod common;

use common::{MODEL, chat, start, start_model, start_with, with};
use plateau::engine::FakeRunner;
use plateau::engine::fake::Next;
use plateau::units::Token;
use serde_json::{Value, json};

#[tokio::test]
async fn clients_find_the_context_length_under_every_name() {
    let server = start(FakeRunner::saying("x")).await;
    let list = server.get("/v1/models").await.body;
    assert_eq!((&list["object"], list["data"].as_array().unwrap().len()), (&json!("list"), 1));
    let model = &list["data"][0];
    assert_eq!((&model["id"], &model["object"]), (&json!(MODEL), &json!("model")));
    for n in [&model["max_model_len"], &model["context_length"], &model["meta"]["n_ctx"]] {
        assert_eq!(*n, 4096);
    }
    assert_eq!((&model["meta"]["n_ctx_train"], &model["meta"]["n_vocab"]), (&json!(8192), &json!(266)));
    assert_eq!((&model["meta"]["n_params"], &model["meta"]["size"]), (&json!(42), &json!(4242)));
    for path in ["/v1/models/fake", "/models/fake"] {
        assert_eq!(server.get(path).await.body, *model);
    }
    assert_eq!(server.get("/models").await.body, list);
    let props = server.get("/props").await.body;
    assert_eq!(props["default_generation_settings"]["n_ctx"], 4096);
}

#[tokio::test]
async fn aliases_without_a_version_answer_the_same() {
    let server = start(FakeRunner::saying("</think>x")).await;
    assert_eq!(server.post("/chat/completions", chat("hi")).await.content(), "x");
    let text = server.post("/completions", json!({ "prompt": "a" })).await.body["choices"][0]["text"].clone();
    assert_eq!(text, "</think>x");
}

#[tokio::test]
async fn properties_say_what_is_off_and_why() {
    let server = start(FakeRunner::saying("x")).await;
    let props = server.get("/props").await.body;
    for name in ["mtp", "vision", "kernels"] {
        let feature = &props["features"][name];
        assert_eq!(feature["on"], false, "{name}");
        assert!(feature["why"].as_str().is_some_and(|why| !why.is_empty()), "{name}");
    }
    assert_eq!(props["features"]["thinking_switch"]["on"], true);
    assert_eq!(props["features"]["chat_template"], "file");
    assert_eq!(props["features"]["prefix_cache"]["on"], true);
    assert!(props["chat_template"].as_str().unwrap().contains("enable_thinking"));
    assert_eq!((&props["eos_token"], &props["bos_token"]), (&json!("<|im_end|>"), &Value::Null));
    assert_eq!((&props["build_info"], &props["total_slots"]), (&json!("plateau-1.2.3"), &json!(4)));
    assert_eq!(props["default_generation_settings"]["params"]["top_k"], 20);
    assert_eq!(props["default_generation_settings"]["params"]["top_p"], 0.95, "as the profile has it");
}

#[tokio::test]
async fn properties_tell_which_drafting_is_in_effect_and_why_not() {
    let server = start(FakeRunner::saying("x")).await;
    let props = server.get("/props").await.body;
    let mut expected = json!({ "mtp": false, "lookup": false, "adaptive": true, "n_max": 3, "lookup_n_max": 8 });
    expected["reason"] = json!("the model has no MTP head");
    assert_eq!(props["speculative"], expected);
    assert_eq!(props["features"]["mtp"], json!({ "on": false, "why": "the model has no MTP head" }));

    let drafting = FakeRunner::saying("x").verifying(8).drafting(|_| Next::Token(Token(97)));
    let props = start(drafting).await.get("/props").await.body;
    assert_eq!(
        props["speculative"],
        json!({ "mtp": true, "lookup": true, "adaptive": true, "n_max": 3, "lookup_n_max": 8 })
    );
    assert_eq!(props["features"]["mtp"]["on"], true);
}

/// A head in the file that is not used must not look like one that is.
#[tokio::test]
async fn a_head_that_is_off_says_which_setting_did_it() {
    let off = |mtp: bool, n_max: u32| {
        start_model(
            FakeRunner::saying("x").verifying(0),
            move |profile| {
                profile.speculative.mtp = mtp;
                profile.speculative.n_max = n_max;
            },
            |model| model.n_layer_mtp = 1,
        )
    };
    for (mtp, n_max, reason) in [
        (false, 3, "speculative.mtp is off"),
        (true, 0, "speculative.n_max is 0"),
        (true, 3, "the backend did not load the model's MTP head"),
    ] {
        let props = off(mtp, n_max).await.get("/props").await.body;
        assert_eq!(props["speculative"]["reason"], reason);
        assert_eq!(props["speculative"]["lookup"], false, "a hybrid model without states for rollback");
    }
}

#[tokio::test]
async fn sequences_and_metrics_tell_of_past_work() {
    let server = start(FakeRunner::saying("</think>x")).await;
    server.post("/v1/chat/completions", chat("hi")).await;
    let state = server.until(|state| state["n_fill"].as_u64().is_some_and(|n| n > 0)).await;
    assert_eq!((&state["n_ctx"], state["sequences"].as_array().unwrap().len()), (&json!(4096), 4));
    assert!(state["n_steps"].as_u64().unwrap() > 0);
    let response = server.client.get(server.path("/metrics")).send().await.unwrap();
    assert!(response.headers()["content-type"].to_str().unwrap().starts_with("application/openmetrics-text"));
    let text = response.text().await.unwrap();
    assert!(text.contains("plateau_requests_total{outcome=\"eos\"} 1\n"), "{text}");
    assert!(text.ends_with("# EOF\n"));
}

#[tokio::test]
async fn text_becomes_tokens_and_comes_back() {
    let server = start(FakeRunner::saying("x")).await;
    let ids = async |body: Value| server.post("/tokenize", body).await.body["tokens"].clone();
    assert_eq!(ids(json!({ "content": "a<|im_end|>" })).await, json!([97, 257]));
    let as_text = ids(json!({ "content": "a<|im_end|>", "parse_special": false, "add_special": true })).await;
    assert_eq!(as_text.as_array().unwrap().len(), 11);
    let pieces = ids(json!({ "content": "a\u{e9}", "with_pieces": true })).await;
    let expected = json!([{ "id": 97, "piece": "a" }, { "id": 195, "piece": [195] }, { "id": 169, "piece": [169] }]);
    assert_eq!(pieces, expected);
    let back = server.post("/detokenize", json!({ "tokens": [97, 195, 169, 257] })).await;
    assert_eq!(back.body, json!({ "content": "a\u{e9}<|im_end|>" }));
    for (path, body, param) in [
        ("/detokenize", json!({ "tokens": [97, 266] }), "tokens[1]"),
        ("/detokenize", json!({ "tokens": [-1] }), "tokens[0]"),
        ("/detokenize", json!({ "tokens": ["a"] }), "tokens[0]"),
        ("/tokenize", json!({ "content": 5 }), "content"),
        ("/tokenize", json!({ "content": "a", "with_pieces": 1 }), "with_pieces"),
    ] {
        let told = server.post(path, body.clone()).await;
        assert_eq!((told.status, told.error("param")), (400, &json!(param)), "{body}: {}", told.body);
    }
    let unknown = server.post("/tokenize", json!({ "content": "a", "colour": 1 })).await;
    assert_eq!(unknown.status, 400, "small endpoints take nothing that they do not know");
}

#[tokio::test]
async fn a_template_can_be_looked_at() {
    let server = start(FakeRunner::saying("x")).await;
    let messages =
        json!([{ "role": "developer", "content": "be short" }, { "role": "user", "content": "hi<|im_end|>" }]);
    let body = json!({ "messages": messages, "enable_thinking": false });
    let prompt = server.post("/apply-template", body.clone()).await.body["prompt"].clone();
    let expected = "<|im_start|>system\nbe short<|im_end|>\n<|im_start|>user\nhi<|im_end|><|im_end|>\n\
                    <|im_start|>assistant\n<think>\n\n</think>\n\n";
    assert_eq!(prompt, expected);
    let open = server.post("/apply-template", with(body, json!({ "add_generation_prompt": false }))).await;
    assert!(open.body["prompt"].as_str().unwrap().ends_with("hi<|im_end|><|im_end|>\n"));
}

/// A GPU that hangs must not look well from outside.
#[tokio::test]
async fn a_step_that_hangs_is_seen_in_health_and_metrics() {
    let (runner, mut calls) = FakeRunner::saying("</think>x").recorded();
    let (runner, gate) = runner.gated();
    let server = start_with(runner, |profile| profile.engine.stall_seconds = 0).await;
    assert_eq!(server.get("/health").await.status, 200, "nothing runs yet");
    let answer =
        tokio::spawn(common::answer(server.client.post(server.path("/v1/chat/completions")).json(&chat("hi"))));
    calls.next_step().await.unwrap();
    let health = server.get("/health").await;
    assert_eq!((health.status, &health.body["status"]), (503, &json!("stalled")), "{}", health.body);
    let text = server.client.get(server.path("/metrics")).send().await.unwrap().text().await.unwrap();
    for name in ["plateau_step_age_seconds ", "plateau_oldest_queued_seconds "] {
        assert!(text.lines().any(|line| line.starts_with(name)), "{text}");
    }
    drop(gate);
    assert_eq!(answer.await.unwrap().content(), "x");
    server.until(|state| state["n_steps"].as_u64() >= Some(2)).await;
    while server.get("/health").await.status != 200 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_template_that_is_looked_at_says_what_had_no_effect() {
    let server = start(FakeRunner::saying("x")).await;
    let body = with(chat("hi"), json!({ "a_new_field": 1, "chat_template_kwargs": { "nobody_reads_this": 1 } }));
    let answer = server.post("/apply-template", body).await;
    assert_eq!((answer.status, answer.ignored().len()), (200, 2), "{:?}", answer.ignored());
    assert_eq!(server.post("/apply-template", chat("hi")).await.ignored(), Vec::<String>::new());
}
