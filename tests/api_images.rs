//! Images over HTTP: what is accepted, what it counts, what is refused and how the refusal names
//! the place.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod common;

use std::io::Cursor;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::{Answer, Server, chat, start, start_state, start_with, with};
use image::{ImageFormat, Rgb, RgbImage};
use plateau::api::Images;
use plateau::chat::ChatTemplate;
use plateau::engine::FakeRunner;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

/// Bytes of an image of one colour.
fn file(width: u32, height: u32, shade: u8, format: ImageFormat) -> Vec<u8> {
    let mut out = Cursor::new(Vec::new());
    RgbImage::from_pixel(width, height, Rgb([shade, 20, 200])).write_to(&mut out, format).unwrap();
    out.into_inner()
}

fn png(width: u32, height: u32, shade: u8) -> Vec<u8> {
    file(width, height, shade, ImageFormat::Png)
}

fn uri(bytes: &[u8]) -> String {
    format!("data:image/png;base64,{}", STANDARD.encode(bytes))
}

fn part(url: &str) -> Value {
    json!({ "type": "image_url", "image_url": { "url": url } })
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn asking(parts: Value) -> Value {
    json!({ "messages": [{ "role": "user", "content": parts }] })
}

/// Sees images of up to 64 tokens, each of 32 x 32 pixels.
fn seeing() -> FakeRunner {
    FakeRunner::saying("</think>seen").with_vision(64)
}

fn usage(answer: &Answer) -> (u64, Option<u64>) {
    assert_eq!(answer.status, 200, "{}", answer.body);
    let usage = &answer.body["usage"];
    (usage["prompt_tokens"].as_u64().unwrap(), usage["prompt_tokens_details"]["image_tokens"].as_u64())
}

fn refusal(answer: &Answer) -> (u16, &str, &str) {
    (answer.status, answer.error("code").as_str().unwrap(), answer.error("param").as_str().unwrap_or("null"))
}

#[tokio::test]
async fn every_kind_of_file_is_taken_whatever_its_label_says() {
    let server = start(seeing()).await;
    for format in [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::WebP, ImageFormat::Gif, ImageFormat::Bmp] {
        let answer = server.post(CHAT, asking(json!([part(&uri(&file(96, 64, 9, format))), text("what?")]))).await;
        assert_eq!(usage(&answer).1, Some(6), "{format:?}");
        assert_eq!(answer.content(), "seen");
    }
}

#[tokio::test]
async fn images_count_in_the_prompt_and_text_alone_says_nothing_of_them() {
    let server = start(seeing()).await;
    let without = server.post(CHAT, asking(json!([text("a"), text("b")]))).await;
    let (plain, none) = usage(&without);
    assert_eq!(none, None);
    assert!(without.body["timings"].get("encode_n").is_none());
    let with_image = server.post(CHAT, asking(json!([text("a"), part(&uri(&png(128, 96, 1))), text("b")]))).await;
    assert_eq!(with_image.body["timings"]["encode_n"], 1);
    assert!(with_image.body["timings"]["encode_ms"].is_number());
    // <|vision_start|>, 4 x 3 rows, <|vision_end|>.
    assert_eq!(usage(&with_image), (plain + 14, Some(12)));
    let streamed = with(
        asking(json!([text("ab"), part(&uri(&png(128, 96, 1)))])),
        json!({ "stream_options": { "include_usage": true } }),
    );
    let chunks = server.stream(CHAT, streamed).await;
    assert_eq!(chunks.last().unwrap()["usage"]["prompt_tokens_details"]["image_tokens"], 12);
    let twice = with(asking(json!([text("ab"), part(&uri(&png(128, 96, 1)))])), json!({ "n": 2 }));
    assert_eq!(usage(&server.post(CHAT, twice).await), (plain + 14, Some(12)), "a prompt counts once");
}

#[tokio::test]
async fn images_stand_in_any_turn_and_in_tool_results() {
    let server = start(seeing()).await;
    let call = json!({ "id": "c", "type": "function", "function": { "name": "shot", "arguments": "{}" } });
    let body = json!({ "messages": [
        { "role": "system", "content": "s" },
        { "role": "user", "content": [part(&uri(&png(96, 96, 1))), text("one"), part(&uri(&png(96, 96, 2)))] },
        { "role": "assistant", "content": "yes", "tool_calls": [call] },
        { "role": "tool", "tool_call_id": "c", "content": [{ "type": "input_image", "image_url": uri(&png(96, 128, 3)) }] },
        { "role": "user", "content": [{ "type": "image_url", "image_url": uri(&png(96, 96, 1)) }] },
    ] });
    let answer = server.post(CHAT, body).await;
    assert_eq!(usage(&answer).1, Some(9 + 9 + 12 + 9), "the same picture twice takes its rows twice");
}

#[tokio::test]
async fn another_image_is_another_prompt_and_the_same_one_is_found_again() {
    let server = start(seeing()).await;
    let ask = async |shade: u8, question: &str| {
        let answer = server.post(CHAT, asking(json!([part(&uri(&png(96, 96, shade))), text(question)]))).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.body["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    assert_eq!(ask(1, "what?").await, 0);
    assert!(ask(1, "why?").await >= 9, "behind the picture");
    assert!(ask(2, "what?").await < 9, "before the picture: it is another one");
}

#[tokio::test]
async fn low_detail_is_fewer_tokens_and_large_images_are_shrunk() {
    let server = start_with(seeing(), |profile| profile.images.low_tokens = 16).await;
    let tokens = async |width, height, detail: Value| {
        let url = uri(&png(width, height, 5));
        let part = json!({ "type": "image_url", "image_url": { "url": url, "detail": detail } });
        usage(&server.post(CHAT, asking(json!([part, text("x")]))).await).1.unwrap()
    };
    for detail in [json!("auto"), json!("high"), json!("original"), Value::Null] {
        assert_eq!(tokens(256, 256, detail).await, 64);
    }
    assert_eq!(tokens(256, 256, json!("low")).await, 16);
    assert_eq!(tokens(2000, 2000, json!("auto")).await, 64);
    for (width, height) in [(1, 4000), (4000, 1), (1, 1), (16_000, 2)] {
        assert!(tokens(width, height, json!("auto")).await <= 64, "{width} x {height}");
    }
}

#[tokio::test]
async fn a_model_without_eyes_says_so() {
    let server = start(FakeRunner::saying("</think>x")).await;
    for path in [CHAT, "/apply-template"] {
        let answer = server.post(path, asking(json!([text("a"), part("data:,x")]))).await;
        assert_eq!(refusal(&answer), (400, "vision_not_available", "messages[0].content[1].image_url.url"));
        assert!(answer.error("message").as_str().unwrap().contains("no vision"));
    }
    let prompt = json!({ "prompt": { "prompt_string": "<__media__>", "multimodal_data": ["QQ=="] } });
    assert_eq!(refusal(&server.post(COMPLETIONS, prompt).await).1, "vision_not_available");
    assert_eq!(server.get("/props").await.body["modalities"]["vision"], false);
    assert_eq!(server.get("/v1/models").await.body["data"][0]["architecture"]["input_modalities"], json!(["text"]));
}

#[tokio::test]
async fn what_sees_says_so() {
    let server = start(seeing()).await;
    let props = server.get("/props").await.body;
    assert_eq!((&props["modalities"]["vision"], &props["features"]["vision"]["on"]), (&json!(true), &json!(true)));
    assert_eq!((&props["vision"]["token_px"], &props["vision"]["max_tokens"]), (&json!(32), &json!(64)));
    let model = &server.get("/v1/models").await.body["data"][0];
    assert_eq!(model["architecture"]["input_modalities"], json!(["text", "image"]));
    assert_eq!(model["capabilities"], json!(["completion", "multimodal"]));
    let shown = server.post("/apply-template", asking(json!([part("data:,not looked at"), text("a")]))).await;
    assert!(
        shown.body["prompt"].as_str().unwrap().contains("<|vision_start|><|image_pad|><|vision_end|>a"),
        "{}",
        shown.body
    );
}

#[tokio::test]
async fn every_refusal_names_the_field_and_the_reason() {
    let server = start_with(seeing(), |profile| {
        profile.images.max_pixels = 100_000;
        profile.images.total_pixels = 150_000;
        profile.images.max_per_request = 3;
        profile.images.max_bytes = 20_000;
    })
    .await;
    let heic = uri(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic");
    let cut = png(96, 96, 1);
    let cut = uri(&cut[..cut.len() - 5]);
    let large = uri(&png(400, 400, 1));
    let long = uri(&[7; 20_001]);
    let url = "messages[0].content[1].image_url.url";
    for (address, code, said) in [
        (heic.as_str(), "invalid_image", "HEIC"),
        (&cut, "invalid_image", "cut off"),
        ("data:image/svg+xml,<svg xmlns='x'/>", "invalid_image", "SVG"),
        ("data:,", "invalid_image", "no data"),
        ("data:image/png;base64", "invalid_image", "no comma"),
        ("iVBORw0KGgo=", "invalid_image", "data:image/png;base64,"),
        ("", "invalid_image", "no URL"),
        ("ftp://a.example/b.png", "invalid_image", "no URL"),
        (&large, "limit_exceeded", "images.max_pixels"),
        (&long, "limit_exceeded", "images.max_bytes"),
        ("https://a.example/b.png", "image_not_fetched", "images.fetch"),
        ("file:///etc/passwd", "image_not_fetched", "images.dir"),
    ] {
        let answer = server.post(CHAT, asking(json!([text("a"), part(address)]))).await;
        assert_eq!(refusal(&answer), (400, code, url), "{address:.60} {}", answer.body);
        assert!(answer.error("message").as_str().unwrap().contains(said), "{address:.60} {}", answer.body);
    }
    let fine = part(&uri(&png(300, 300, 1)));
    let answer = server.post(CHAT, asking(json!([fine, fine]))).await;
    assert_eq!(refusal(&answer), (400, "limit_exceeded", "messages[0].content[1].image_url.url"));
    assert!(answer.error("message").as_str().unwrap().contains("images.total_pixels"));
    let small = part(&uri(&png(96, 96, 1)));
    let answer = server.post(CHAT, asking(json!([small, small, small, small]))).await;
    assert_eq!(refusal(&answer), (400, "limit_exceeded", "messages[0].content[3].image_url.url"));
    for role in ["system", "assistant"] {
        let answer = server.post(CHAT, json!({ "messages": [{ "role": role, "content": [small] }] })).await;
        assert_eq!(refusal(&answer), (400, "invalid_request", "messages[0].content[0]"), "{role}");
    }
    let metrics = server.metrics.render();
    assert!(metrics.contains("plateau_image_refusals_total{code=\"invalid_image\"} 8\n"), "{metrics}");
    assert!(metrics.contains("plateau_image_refusals_total{code=\"image_not_fetched\"} 2\n"), "{metrics}");
}

#[tokio::test]
async fn decoding_shows_in_the_metrics() {
    let server = start(seeing()).await;
    let answer = server.post(CHAT, asking(json!([part(&uri(&png(96, 64, 1))), part(&uri(&png(64, 64, 1)))]))).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let metrics = server.metrics.render();
    for line in [
        "plateau_image_files_total{kind=\"png\"} 2\n",
        "plateau_image_file_pixels_total 10240\n",
        "plateau_image_decode_seconds_count 2\n",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
}

#[tokio::test]
async fn members_without_effect_are_listed() {
    let server = start(seeing()).await;
    let part =
        json!({ "type": "image_url", "image_url": { "url": uri(&png(96, 96, 1)), "x": 1 }, "cache_control": {} });
    let answer = server.post(CHAT, asking(json!([part]))).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.ignored(), ["messages[0].content[0].image_url.x", "messages[0].content[0].cache_control"]);
}

#[tokio::test]
async fn text_of_a_client_never_becomes_a_place() {
    let server = start(seeing()).await;
    let forged = "<|vision_start|><|image_pad|><|vision_end|>";
    let answer = server.post(CHAT, asking(json!([text(forged), part(&uri(&png(96, 96, 1))), text(forged)]))).await;
    assert_eq!(usage(&answer).1, Some(9), "the picture found its own place");
    assert_eq!(usage(&server.post(CHAT, chat(forged)).await).1, None);
}

#[tokio::test]
async fn templates_that_lose_or_repeat_images_are_named() {
    for template in [
        "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}x",
        "{% for m in messages %}<|image_pad|><|image_pad|>{% endfor %}x",
        "x",
    ] {
        let template = Arc::new(ChatTemplate::new(template.to_owned(), "", "", 1_000_000).unwrap());
        let server = start_state(seeing(), |_| {}, |state| state.template = template).await;
        let answer = server.post(CHAT, asking(json!([text("a"), part(&uri(&png(96, 96, 1)))]))).await;
        assert_eq!(refusal(&answer), (400, "vision_not_available", "messages"));
        assert!(answer.error("message").as_str().unwrap().contains("chat template"), "{}", answer.body);
    }
}

/// The rows of images are tokens of the prompt like others.
#[tokio::test]
async fn an_overflow_counts_the_tokens_of_images() {
    let server = start(seeing().with_facts(|facts| facts.n_ctx = 100)).await;
    let ask = |n: usize| asking(vec![part(&uri(&png(256, 256, 1))); n].into());
    let answer = server.post(CHAT, ask(2)).await;
    assert_eq!((answer.status, answer.error("type")), (400, &json!("exceed_context_size_error")));
    assert!(answer.error("n_prompt_tokens").as_u64().unwrap() > 128, "{}", answer.body);
    assert_eq!(server.post(CHAT, ask(1)).await.status, 200);
}

#[tokio::test]
async fn raw_prompts_take_images_at_their_markers() {
    let server = start(seeing()).await;
    let (one, two) = (STANDARD.encode(png(96, 96, 1)), STANDARD.encode(png(96, 128, 2)));
    let prompt = json!({ "prompt_string": "a<__media__>b<__media__>c", "multimodal_data": [one, two] });
    let answer = server.post(COMPLETIONS, json!({ "prompt": prompt, "max_tokens": 2 })).await;
    assert_eq!(usage(&answer), (3 + 2 + 9 + 2 + 12, Some(21)));
    let list = json!(["xy", prompt, { "prompt_string": "z" }]);
    let answer = server.post(COMPLETIONS, json!({ "prompt": list, "max_tokens": 2 })).await;
    assert_eq!(usage(&answer), (2 + 28 + 1, Some(21)));
    assert_eq!(answer.body["choices"].as_array().unwrap().len(), 3);
    for (prompt, code, param) in [
        (json!({ "prompt_string": "none", "multimodal_data": [one] }), "invalid_request", "prompt.prompt_string"),
        (
            json!({ "prompt_string": "<__media__><__media__>", "multimodal_data": [one] }),
            "invalid_request",
            "prompt.prompt_string",
        ),
        (json!({ "prompt_string": "<__media__><|image_pad|>", "multimodal_data": [one] }), "invalid_request", "prompt"),
        (json!({ "multimodal_data": [] }), "invalid_request", "prompt.prompt_string"),
        (json!({ "prompt_string": "a", "x": 1 }), "invalid_request", "prompt.x"),
        (
            json!({ "prompt_string": "<__media__>", "multimodal_data": ["QQ=="] }),
            "invalid_image",
            "prompt.multimodal_data[0]",
        ),
        (
            json!(["a", { "prompt_string": "<__media__>", "multimodal_data": "QQ==" }]),
            "invalid_request",
            "prompt[1].multimodal_data",
        ),
    ] {
        let answer = server.post(COMPLETIONS, json!({ "prompt": prompt })).await;
        assert_eq!(refusal(&answer), (400, code, param), "{}", answer.body);
    }
}

#[tokio::test]
async fn files_of_the_open_folder_are_read_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let media = folder.path().join("media");
    std::fs::create_dir(&media).unwrap();
    std::fs::write(media.join("a.png"), png(96, 96, 1)).unwrap();
    std::fs::write(folder.path().join("b.png"), png(96, 96, 1)).unwrap();
    std::os::unix::fs::symlink("../b.png", media.join("link.png")).unwrap();
    let server = start_with(seeing(), |profile| profile.images.dir = Some(media.clone())).await;
    let ask = async |url: String| server.post(CHAT, asking(json!([part(&url)]))).await;
    assert_eq!(ask("file://a.png".to_owned()).await.status, 200);
    assert_eq!(ask(format!("file://{}/a.png", media.display())).await.status, 200);
    for url in [
        "file://link.png".to_owned(),
        "file://../b.png".to_owned(),
        format!("file://{}/b.png", folder.path().display()),
        "file:///etc/passwd".to_owned(),
    ] {
        assert_eq!(refusal(&ask(url.clone()).await).1, "image_not_fetched", "{url}");
    }
}

/// Serves one image under `/image` and sends everybody else to `elsewhere`.
async fn web(image: Vec<u8>, elsewhere: String) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut head = vec![0; 4096];
            let n = socket.read(&mut head).await.unwrap();
            let answer = if head[..n].starts_with(b"GET /picture ") {
                [format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", image.len()).as_bytes(), &image].concat()
            } else {
                format!("HTTP/1.1 302 Found\r\nLocation: {elsewhere}\r\nContent-Length: 0\r\n\r\n").into_bytes()
            };
            let _ = socket.write_all(&answer).await;
        }
    });
    address
}

#[tokio::test]
async fn urls_are_fetched_where_the_profile_says_so_and_lead_nowhere_else() {
    let secret = web(png(96, 96, 1), String::new()).await;
    let open = web(png(96, 96, 1), format!("http://{secret}/picture")).await;
    let server = start_state(
        seeing(),
        |profile| {
            profile.images.fetch = true;
            profile.images.fetch_ports = vec![open.port().to_string(), secret.port().to_string()];
        },
        |state| {
            let images = Images::new(&state.profile.images, state.handle.facts().vision.clone(), state.metrics.clone());
            state.images = images.with_exempt(&[open]);
        },
    )
    .await;
    let ask = async |url: String| server.post(CHAT, asking(json!([text("a"), part(&url)]))).await;
    assert_eq!(usage(&ask(format!("http://{open}/picture")).await).1, Some(9));
    for url in [
        format!("http://{open}/away"),
        format!("http://{secret}/picture"),
        format!("http://localhost:{}/picture", secret.port()),
        format!("http://[::ffff:127.0.0.1]:{}/picture", secret.port()),
        format!("http://2130706433:{}/picture", secret.port()),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
    ] {
        let answer = ask(url.clone()).await;
        assert_eq!(refusal(&answer), (400, "image_not_fetched", "messages[0].content[1].image_url.url"), "{url}");
    }
    assert!(server.metrics.render().contains("plateau_image_fetch_seconds_count 1\n"));
}

/// A PNG of a few bytes that claims to be of any size.
fn claiming(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = png(1, 1, 0);
    bytes[16..20].copy_from_slice(&width.to_be_bytes());
    bytes[20..24].copy_from_slice(&height.to_be_bytes());
    let step = |crc: u32, _: i32| if crc & 1 == 1 { 0xEDB8_8320 ^ (crc >> 1) } else { crc >> 1 };
    let crc = !bytes[12..29].iter().fold(!0_u32, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step));
    bytes[29..33].copy_from_slice(&crc.to_be_bytes());
    bytes
}

async fn timed(server: &Server, url: &str) -> (Answer, Duration) {
    let started = Instant::now();
    let answer = server.post(CHAT, asking(json!([part(url)]))).await;
    (answer, started.elapsed())
}

#[tokio::test]
async fn bombs_are_refused_in_no_time_and_the_server_goes_on() {
    let server = start(seeing()).await;
    let bombs = [
        ("20000 x 20000 in 70 bytes", uri(&claiming(20_000, 20_000)), "limit_exceeded"),
        ("the largest that is taken, without data", uri(&claiming(7000, 7000)), "invalid_image"),
        ("50 MB of base64", format!("data:image/png;base64,{}", "A".repeat(50 << 20)), "limit_exceeded"),
        ("30 MB of nothing", format!("data:,{}", "x".repeat(30 << 20)), "invalid_image"),
        ("30 MB of percent signs", format!("data:,{}", "%".repeat(30 << 20)), "invalid_image"),
    ];
    for (name, url, code) in bombs {
        let (answer, took) = timed(&server, &url).await;
        assert_eq!((answer.status, answer.error("code")), (400, &json!(code)), "{name}: {}", answer.body);
        println!("{name}: {took:?}");
        assert!(took < Duration::from_secs(30), "{name}: {took:?} in a debug build");
    }
    assert_eq!(server.post(CHAT, chat("hi")).await.status, 200);
}

#[tokio::test]
async fn more_of_a_body_is_read_where_the_model_sees() {
    let change = |profile: &mut plateau::config::Profile| {
        profile.limits.body_bytes = 2000;
        profile.images.body_bytes = 4000;
    };
    let (blind, sees) = (start_with(FakeRunner::saying("</think>x"), change).await, start_with(seeing(), change).await);
    let body = chat(&"x".repeat(3000));
    assert_eq!((blind.post(CHAT, body.clone()).await.status, sees.post(CHAT, body).await.status), (413, 200));
    let told = sees.post(CHAT, chat(&"x".repeat(5000))).await;
    assert_eq!(told.status, 413);
    assert!(told.error("message").as_str().unwrap().contains("images.body_bytes"));
}

#[tokio::test]
async fn text_and_images_are_answered_side_by_side() {
    let server = start(seeing()).await;
    let requests = (0..12_u8).map(|i| {
        let body = if i % 3 == 0 { chat("text") } else { asking(json!([part(&uri(&png(96, 96, i))), text("x")])) };
        let server = &server;
        async move { server.post(CHAT, body).await }
    });
    for answer in futures_util::future::join_all(requests).await {
        assert_eq!((answer.status, answer.content()), (200, "seen"));
    }
}
