//! The real router and engine over the scripted runner, on a free port, with a client.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::sync::Arc;

use plateau::api::{ApiState, BuildInfo, Images, ModelInfo, Preparing, router};
use plateau::chat::{ChatTemplate, TemplateOrigin};
use plateau::config::Profile;
use plateau::engine::{Engine, EngineSettings, FakeRunner, Handle, Joiner, PrefixSettings};
use plateau::telemetry::Metrics;
use plateau::text::Tokenizer;
use plateau::units::Bytes;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

pub const MODEL: &str = "fake";

/// In the manner of Qwen's: thinks unless told not to.
pub const TEMPLATE: &str = "\
{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}\
{%- for m in messages %}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' and m.reasoning_content %}<think>
{{ m.reasoning_content }}
</think>

{% endif %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}\
{% if p.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ p.text }}{% endif %}\
{% endfor %}{% endif %}<|im_end|>
{% endfor %}\
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}<think>

</think>

{% else %}<think>
{% endif %}{% endif %}";

pub struct Server {
    pub url: String,
    pub client: reqwest::Client,
    pub handle: Handle,
    pub joiner: Joiner,
    pub metrics: Metrics,
}

/// A status, headers and a JSON body.
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Answer {
    pub fn error(&self, key: &str) -> &Value {
        &self.body["error"][key]
    }

    pub fn ignored(&self) -> Vec<String> {
        let header = self.headers.get("x-plateau-ignored").map(|v| v.to_str().unwrap());
        header.into_iter().flat_map(|text| text.split(", ").map(str::to_owned)).collect()
    }

    pub fn content(&self) -> &str {
        self.body["choices"][0]["message"]["content"].as_str().unwrap_or_else(|| panic!("{}", self.body))
    }
}

pub async fn start(runner: FakeRunner) -> Server {
    start_with(runner, |_| {}).await
}

/// Starts with a profile that is changed; sampling is greedy unless the request says otherwise.
pub async fn start_with(runner: FakeRunner, change: impl FnOnce(&mut Profile)) -> Server {
    start_model(runner, change, |_| {}).await
}

/// Starts with a profile and a description of the model that are changed.
pub async fn start_model(
    runner: FakeRunner,
    change: impl FnOnce(&mut Profile),
    describe: impl FnOnce(&mut ModelInfo),
) -> Server {
    start_state(runner, change, |state| {
        let mut info = (*state.model).clone();
        describe(&mut info);
        state.model = Arc::new(info);
    })
    .await
}

/// Starts with a profile and whatever else handlers see changed.
pub async fn start_state(
    runner: FakeRunner,
    change: impl FnOnce(&mut Profile),
    adjust: impl FnOnce(&mut ApiState),
) -> Server {
    let mut profile = Profile::demo();
    profile.sampling.temperature = 0.0;
    change(&mut profile);
    let settings = EngineSettings {
        queue_capacity: profile.engine.queue_capacity as usize,
        prefill_chunk_tokens: 64,
        image_cache_bytes: 0,
    };
    let metrics = Metrics::new();
    let counted = metrics.clone();
    let ram_bytes = profile.cache.ram_mib.map_or(64, u64::from) << 20;
    let cache = PrefixSettings { ram_bytes, ..PrefixSettings::OFF };
    let spawned = tokio::task::spawn_blocking(move || {
        Engine::with_cache(move || Ok::<_, String>(runner.loaded()), settings, cache, counted)
    });
    let (handle, joiner) = spawned.await.unwrap().unwrap();
    let mut state = ApiState {
        images: Images::new(&profile.images, handle.facts().vision.clone(), metrics.clone()),
        handle: handle.clone(),
        tokenizer: Tokenizer::bytes_for_tests(),
        template: Arc::new(ChatTemplate::new(TEMPLATE.to_owned(), "", "<|im_end|>", 1_000_000).unwrap()),
        model: Arc::new(model(&handle)),
        preparing: Preparing::new(&profile.engine),
        profile: Arc::new(profile),
        metrics: metrics.clone(),
        grammars: plateau::chat::constraint::grammars(&Tokenizer::bytes_for_tests()).unwrap(),
        build: Arc::new(BuildInfo { version: "1.2.3".into(), backend: "fake".into() }),
    };
    adjust(&mut state);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router(state)).await });
    Server { url, client: client(), handle, joiner, metrics }
}

pub fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().unwrap()
}

fn model(handle: &Handle) -> ModelInfo {
    ModelInfo {
        id: MODEL.into(),
        created: 1_700_000_000,
        architecture: "fake".into(),
        n_ctx: handle.facts().n_ctx,
        n_ctx_train: 8192,
        n_params: 42,
        size: Bytes(4242),
        quantization: "f32".into(),
        n_layer_mtp: 0,
        template: TemplateOrigin::File,
    }
}

impl Server {
    pub fn path(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        answer(self.client.post(self.path(path)).json(&body)).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        answer(self.client.get(self.path(path))).await
    }

    /// Fails unless the answer is a stream.
    pub async fn open(&self, path: &str, body: Value) -> Lines {
        let response = self.client.post(self.path(path)).json(&body).send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Lines { response, buffer: Vec::new() }
    }

    /// All `data:` of a stream; the last is `[DONE]` and left out.
    pub async fn stream(&self, path: &str, mut body: Value) -> Vec<Value> {
        body["stream"] = json!(true);
        let mut lines = self.open(path, body).await;
        let mut out = Vec::new();
        while let Some(line) = lines.next().await {
            match line.strip_prefix("data: ") {
                Some("[DONE]") => {
                    assert_eq!(lines.next().await, None, "nothing follows [DONE]");
                    return out;
                }
                Some(data) => out.push(serde_json::from_str(data).unwrap()),
                None => assert!(line.starts_with(':'), "{line}"),
            }
        }
        panic!("no [DONE] after {out:?}");
    }

    /// Waits until the published state of the engine fits.
    pub async fn until(&self, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            let state = self.get("/sequences").await.body;
            if fits(&state) {
                return state;
            }
            tokio::task::yield_now().await;
        }
    }
}

pub async fn answer(request: reqwest::RequestBuilder) -> Answer {
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let bytes = response.bytes().await.unwrap();
    Answer { status, headers, body: serde_json::from_slice(&bytes).unwrap_or(Value::Null) }
}

/// The lines of a stream that are not empty.
pub struct Lines {
    response: reqwest::Response,
    buffer: Vec<u8>,
}

impl Lines {
    pub async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(at) = self.buffer.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=at).collect();
                let line = String::from_utf8(line).unwrap().trim_end().to_owned();
                if line.is_empty() {
                    continue;
                }
                return Some(line);
            }
            self.buffer.extend(self.response.chunk().await.unwrap()?);
        }
    }

    /// The next `data:` as JSON.
    pub async fn data(&mut self) -> Value {
        loop {
            let line = self.next().await.expect("the stream goes on");
            if let Some(data) = line.strip_prefix("data: ") {
                return serde_json::from_str(data).unwrap_or_else(|_| json!(data));
            }
        }
    }
}

/// A user's message.
pub fn chat(text: &str) -> Value {
    json!({ "messages": [{ "role": "user", "content": text }] })
}

/// `base` with the members of `more`.
pub fn with(mut base: Value, more: Value) -> Value {
    for (key, value) in more.as_object().unwrap() {
        base[key] = value.clone();
    }
    base
}

/// A chunked chat answer put together again, as clients do it: one choice.
pub fn joined(chunks: &[Value], index: usize) -> Value {
    let (mut content, mut reasoning, mut calls) = (String::new(), String::new(), Vec::<Value>::new());
    let (mut finish, mut logprobs) = (Value::Null, Vec::new());
    let choices = chunks.iter().flat_map(|c| c["choices"].as_array().unwrap());
    for choice in choices.filter(|c| c["index"] == index) {
        let delta = &choice["delta"];
        content.push_str(delta["content"].as_str().unwrap_or(""));
        reasoning.push_str(delta["reasoning_content"].as_str().unwrap_or(""));
        assert_eq!(delta["reasoning_content"], delta["reasoning"]);
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let at = call["index"].as_u64().unwrap() as usize;
            if at == calls.len() {
                assert_eq!(call["function"]["arguments"], "", "the first delta of a call has no arguments yet");
                assert!(call["id"].as_str().is_some_and(|id| !id.is_empty()));
                assert_eq!(call["type"], "function");
                calls.push(json!({ "id": call["id"], "type": "function", "function": call["function"] }));
            } else {
                assert_eq!(call.get("id").or(call.get("type")), None, "later deltas have only arguments");
                assert_eq!(call["function"].get("name"), None);
                let more = call["function"]["arguments"].as_str().unwrap();
                let so_far = calls[at]["function"]["arguments"].as_str().unwrap().to_owned();
                calls[at]["function"]["arguments"] = json!(so_far + more);
            }
        }
        if !choice["finish_reason"].is_null() {
            assert!(finish.is_null(), "a choice ends once");
            finish = choice["finish_reason"].clone();
        }
        logprobs.extend(choice["logprobs"]["content"].as_array().into_iter().flatten().cloned());
    }
    json!({ "content": content, "reasoning": reasoning, "calls": calls, "finish": finish, "logprobs": logprobs })
}

/// A whole chat answer in the shape of `joined`.
pub fn unpacked(body: &Value, index: usize) -> Value {
    let choice = &body["choices"][index];
    let message = &choice["message"];
    assert_eq!(message["reasoning_content"], message["reasoning"]);
    json!({
        "content": message["content"].as_str().unwrap_or(""),
        "reasoning": message["reasoning"].as_str().unwrap_or(""),
        "calls": message["tool_calls"].as_array().cloned().unwrap_or_default(),
        "finish": choice["finish_reason"],
        "logprobs": choice["logprobs"]["content"].as_array().cloned().unwrap_or_default(),
    })
}

/// Ids of tool calls are new each time.
pub fn without_ids(mut message: Value) -> Value {
    message["calls"].as_array_mut().unwrap().iter_mut().for_each(|call| call["id"] = json!("id"));
    message
}
