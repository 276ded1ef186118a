//! Keys, hosts, origins.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod common;

use common::{answer, chat, start, start_with};
use plateau::api::routes::ROUTES;
use plateau::engine::FakeRunner;
use serde_json::json;

const CHAT: &str = "/v1/chat/completions";

#[tokio::test]
async fn the_key_is_wanted_everywhere_but_for_health() {
    let server = start_with(FakeRunner::saying("x"), |profile| profile.server.api_key = Some("secret".into())).await;
    for route in ROUTES {
        for path in route.paths {
            let url = server.path(&path.replace("{*id}", "fake"));
            let request = |key: Option<(&str, &str)>| {
                let request = match route.method {
                    "GET" => server.client.get(&url),
                    _ => server.client.post(&url).json(&json!({})),
                };
                key.into_iter().fold(request, |request, (name, value)| request.header(name, value))
            };
            let wrong = [None, Some(("authorization", "Bearer secre")), Some(("authorization", "Basic secret"))];
            for key in wrong {
                let status = answer(request(key)).await.status;
                assert_eq!(status == 401, !route.public, "{} {path} {key:?}: {status}", route.method);
            }
            for key in [("authorization", "Bearer secret"), ("authorization", "bearer secret"), ("x-api-key", "secret")]
            {
                assert_ne!(answer(request(Some(key))).await.status, 401, "{path} {key:?}");
            }
        }
    }
    let told = server.post(CHAT, chat("hi")).await;
    assert_eq!(
        (told.error("code"), &told.headers["www-authenticate"]),
        (&json!("invalid_api_key"), &"Bearer".parse().unwrap())
    );
    assert_eq!(server.get("/nowhere").await.status, 401, "unknown paths tell nothing either");
}

#[tokio::test]
async fn a_rebound_name_does_not_reach_the_server() {
    let server = start_with(FakeRunner::saying("x"), |profile| {
        profile.server.allowed_hosts = vec!["box.lan".into(), "named:8020".into()];
    })
    .await;
    let status =
        async |host: &'static str| answer(server.client.get(server.path("/health")).header("host", host)).await.status;
    for host in ["localhost", "localhost:8020", "LOCALHOST", "app.localhost", "127.0.0.1:1", "[::1]:8020", "box.lan:80"]
    {
        assert_eq!(status(host).await, 200, "{host}");
    }
    for host in ["evil.example", "evil.example:8020", "localhost.evil.example", "127.0.0.1.evil.example", "named"] {
        assert_eq!(status(host).await, 403, "{host}");
    }
    let told = answer(server.client.get(server.path("/health")).header("host", "evil.example")).await;
    assert_eq!(told.error("code"), "host_not_allowed");
    let open = start_with(FakeRunner::saying("x"), |profile| profile.server.allowed_hosts = vec!["*".into()]).await;
    assert_eq!(answer(open.client.get(open.path("/health")).header("host", "any.example")).await.status, 200);
}

#[tokio::test]
async fn a_foreign_web_page_can_neither_use_nor_read_the_server() {
    let server = start(FakeRunner::saying("</think>x")).await;
    for origin in ["https://evil.example", "null", "http://127.0.0.1:1"] {
        // What a page may send without asking first.
        let request =
            server.client.post(server.path(CHAT)).header("origin", origin).header("content-type", "text/plain");
        let told = answer(request.body(chat("hi").to_string())).await;
        assert_eq!((told.status, told.error("code")), (403, &json!("origin_not_allowed")), "{origin}");
        assert!(!told.headers.contains_key("access-control-allow-origin"));
        let preflight = server.client.request(reqwest::Method::OPTIONS, server.path(CHAT)).header("origin", origin);
        let preflight = answer(preflight.header("access-control-request-method", "POST")).await;
        assert!(!preflight.headers.contains_key("access-control-allow-origin"));
    }
    let own = server.client.post(server.path(CHAT)).header("origin", &server.url).json(&chat("hi"));
    assert_eq!(answer(own).await.status, 200, "a page of the server itself");
}

#[tokio::test]
async fn a_listed_web_page_is_served_and_no_other() {
    let server = start_with(FakeRunner::saying("</think>x"), |profile| {
        profile.server.cors_origins = vec!["https://ui.example".into()];
        profile.server.api_key = Some("k".into());
    })
    .await;
    let preflight = server
        .client
        .request(reqwest::Method::OPTIONS, server.path(CHAT))
        .header("origin", "https://ui.example")
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "authorization, x-stainless-lang");
    let preflight = answer(preflight).await;
    assert_eq!(preflight.status, 200, "browsers send no key with it");
    assert_eq!(preflight.headers["access-control-allow-origin"], "https://ui.example");
    assert_eq!(preflight.headers["access-control-allow-headers"], "authorization, x-stainless-lang");
    let post = server.client.post(server.path(CHAT)).header("origin", "https://ui.example").json(&chat("hi"));
    let refused = answer(post.try_clone().unwrap()).await;
    assert_eq!(
        (refused.status, &refused.headers["access-control-allow-origin"]),
        (401, &"https://ui.example".parse().unwrap())
    );
    assert_eq!(answer(post.bearer_auth("k")).await.status, 200);
    let other = server.client.post(server.path(CHAT)).header("origin", "https://evil.example").bearer_auth("k");
    assert_eq!(answer(other.json(&chat("hi"))).await.status, 403);
}
