//! The prefix cache over HTTP: what it tells, what requests may ask of it.

mod common;

use common::*;
use plateau::engine::FakeRunner;
use serde_json::json;

const CHAT: &str = "/v1/chat/completions";

fn hybrid() -> FakeRunner {
    FakeRunner::saying("</think>hello").verifying(3)
}

#[tokio::test]
async fn the_cache_shows_its_states_and_the_story_of_each_request() {
    let server = start(hybrid()).await;
    let first = server.post(CHAT, chat("a question")).await.body;
    let again = server.post(CHAT, chat("a question")).await.body;
    let n = first["usage"]["prompt_tokens"].as_u64().unwrap();
    let story = &again["timings"]["cache"];
    assert_eq!((&story["restored_from"], &story["prefilled"]), (&json!(n - 1), &json!(1)), "{story}");
    assert_eq!((&story["tier"], &story["why"]), (&json!("vram"), &json!("new")));
    assert_eq!(first["timings"]["cache"]["why"], "unknown");
    let cache = server.get("/cache").await.body;
    assert_eq!(cache["on"], true);
    assert!(cache["ram"]["bytes"].as_u64().unwrap() > 0);
    let nodes = cache["nodes"].as_array().unwrap();
    let turn = nodes.iter().find(|node| node["kind"] == "turn").unwrap();
    assert_eq!(turn["restorable"], true);
    let recent = cache["recent"].as_array().unwrap();
    assert_eq!((recent.len(), &recent[1]["prefilled"], &recent[1]["tier"]), (2, &json!(1), &json!("vram")));
    assert!(recent[1]["reason"].as_str().unwrap().contains("new from token"), "{cache}");
    let metrics = server.metrics.render();
    assert!(metrics.contains("plateau_cache_requests_total{tier=\"vram\"} 1\n"), "{metrics}");
}

#[tokio::test]
async fn a_request_may_read_without_writing_and_the_other_way_round() {
    let server = start(hybrid()).await;
    let cached =
        |answer: &serde_json::Value| answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    let ask = async |hints: serde_json::Value| {
        server.post(CHAT, with(chat("a question"), json!({ "cache": hints }))).await.body
    };
    assert_eq!(cached(&ask(json!({ "write": false })).await), 0);
    assert_eq!(server.get("/cache").await.body["states"]["saved"], 0);
    assert_eq!(cached(&ask(json!({ "read": false, "write": true })).await), 0);
    assert!(cached(&ask(json!({ "read": true })).await) > 0);
    let wrong = ask(json!({ "pin": true })).await;
    assert_eq!(wrong["error"]["param"], "cache.pin", "{wrong}");
}

#[tokio::test]
async fn the_cache_is_cleared_on_demand() {
    let server = start(hybrid()).await;
    server.post(CHAT, chat("a question")).await;
    assert_eq!(server.post("/cache/clear", json!({})).await.body["cleared"], true);
    let again = server.post(CHAT, chat("a question")).await.body;
    assert_eq!(again["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
}

#[tokio::test]
async fn without_memory_for_it_the_cache_says_that_it_is_off() {
    let server = start_with(hybrid(), |profile| profile.cache.ram_mib = Some(0)).await;
    let feature = &server.get("/props").await.body["features"]["prefix_cache"];
    assert_eq!(feature["on"], false);
    assert!(feature["why"].as_str().unwrap().contains("cache.ram_mib"));
    assert_eq!(server.get("/cache").await.body["on"], false);
}
