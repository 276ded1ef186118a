//! A scripted chat server on loopback: it answers as a good model would, with the one fault that a test gives it, and counts
//! memory by a formula.

#![allow(dead_code, reason = "every test takes what it needs")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use plateau::check::client::Client;
use plateau::check::facts::Facts;
use plateau::check::memory::{Memory, Reading};
use plateau::check::results::RunError;
use plateau::check::run::{Outputs, Run};
use plateau::check::session::{Progress, Session};
use plateau::check::verdict::{Report, Status};
use serde_json::{Value, json};

/// What the server is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    #[default]
    Plateau,
    LlamaServer,
    Unknown,
}

/// How it answers.
#[derive(Clone, Debug)]
pub struct Config {
    pub kind: Kind,
    pub n_ctx: u64,
    /// The fault; empty: none.
    pub fault: &'static str,
    /// The chat template mentions tools, and thinking.
    pub tools: bool,
    pub thinking: bool,
    /// `None`: nothing is said about drafts.
    pub mtp: Option<bool>,
    /// In K tokens: MiB that are free with so much filled.
    pub free: Option<fn(f64) -> f64>,
}

impl Default for Config {
    fn default() -> Config {
        let kind = Kind::Plateau;
        Config { kind, n_ctx: 32_768, fault: "", tools: true, thinking: true, mtp: Some(true), free: None }
    }
}

#[derive(Default)]
struct State {
    /// The most tokens that a prompt had.
    filled: AtomicU64,
    n_requests: AtomicU64,
    dead: AtomicBool,
    requests: Mutex<Vec<Value>>,
}

#[derive(Clone)]
pub struct Server {
    pub url: String,
    config: Arc<Config>,
    state: Arc<State>,
}

/// What is answered.
enum Reply {
    Json(u16, Value),
    Text(String),
    /// Events, and whether the stream ends as it should.
    Events(Vec<Value>, bool),
    /// The connection is closed without a word.
    Nothing,
}

pub fn serve(config: Config) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = Server { url, config: Arc::new(config), state: Arc::default() };
    let shared = server.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let server = shared.clone();
            std::thread::spawn(move || server.talk(&stream));
        }
    });
    server
}

impl Server {
    fn talk(&self, stream: &TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream);
        let (mut head, mut length) = (String::new(), 0);
        reader.read_line(&mut head).ok()?;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            if line.trim().is_empty() {
                break;
            }
            if let Some(n) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = n.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        if self.state.dead.load(Ordering::SeqCst) {
            return None;
        }
        let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let reply = self.reply(head.split(' ').nth(1)?, &body);
        let mut out = stream;
        let mut plain = |status: u16, kind: &str, text: &str| {
            let head = format!("HTTP/1.1 {status} x\r\nContent-Type: {kind}\r\nConnection: close\r\n");
            out.write_all(format!("{head}Content-Length: {}\r\n\r\n{text}", text.len()).as_bytes()).ok()
        };
        match reply {
            Reply::Nothing => None,
            Reply::Json(status, value) => plain(status, "application/json", &value.to_string()),
            Reply::Text(text) => plain(200, "text/plain", &text),
            Reply::Events(events, is_whole) => {
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
                out.write_all(head.as_bytes()).ok()?;
                for event in events {
                    out.write_all(format!("data: {event}\n\n").as_bytes()).ok()?;
                }
                is_whole.then(|| out.write_all(b"data: [DONE]\n\n").ok())?
            }
        }
    }

    fn is(&self, fault: &str) -> bool {
        self.config.fault == fault
    }

    /// Everything that was asked of the model so far.
    pub fn requests(&self) -> Vec<Value> {
        self.state.requests.lock().unwrap().clone()
    }

    fn reply(&self, path: &str, body: &Value) -> Reply {
        match path {
            "/v1/models" => {
                let id = if self.is("no model") { json!({}) } else { json!({"id": "scripted"}) };
                Reply::Json(200, json!({"data": [id]}))
            }
            "/health" => Reply::Json(200, json!({"status": "ok"})),
            "/props" if self.config.kind != Kind::Unknown => Reply::Json(200, self.props()),
            "/metrics" if self.config.kind == Kind::Plateau => Reply::Text(self.metrics()),
            "/v1/chat/completions" => self.chat(body),
            _ => Reply::Json(404, json!({"error": {"message": "no such route"}})),
        }
    }

    fn props(&self) -> Value {
        let config = &self.config;
        let template = [("tools", config.tools), ("enable_thinking", config.thinking)];
        let template: String = template.into_iter().filter(|(_, on)| *on).map(|(word, _)| word).collect();
        let mut props = json!({"chat_template": template, "build_info": "scripted-1"});
        if !self.is("no context") {
            props["default_generation_settings"] = json!({"n_ctx": config.n_ctx});
        }
        if config.kind == Kind::Plateau {
            let calls = if self.is("idle kernel") { 0 } else { 7 };
            props["kernels"] = json!([{"name": "gdn", "on": true, "calls": calls, "fallbacks": 1}]);
            props["features"] = json!({"tools": {"on": config.tools}});
            if let Some(mtp) = config.mtp {
                props["speculative"] = json!({"mtp": mtp});
                if !mtp && !self.is("no reason") {
                    props["speculative"]["reason"] = json!("speculative.mtp is off");
                }
            }
        }
        props
    }

    /// Free memory in MiB now.
    pub fn free(&self) -> Option<f64> {
        let formula = self.config.free?;
        let leaked = if self.is("leak") { 20.0 * self.state.n_requests.load(Ordering::SeqCst) as f64 } else { 0.0 };
        Some(formula(self.state.filled.load(Ordering::SeqCst) as f64 / 1000.0) - leaked)
    }

    fn metrics(&self) -> String {
        let mib = f64::from(1 << 20);
        if self.is("stuck") {
            return "plateau_active_sequences 1\nplateau_queue_depth 0\n".to_owned();
        }
        self.free().map_or(String::new(), |free| {
            let (used, total) = ((24_000.0 - free) * mib, 24_000.0 * mib);
            format!(
                "plateau_gpu_memory_used_bytes{{gpu=\"0\"}} {used}\nplateau_gpu_memory_total_bytes{{gpu=\"0\"}} {total}\n"
            )
        })
    }

    fn chat(&self, body: &Value) -> Reply {
        let n = self.state.n_requests.fetch_add(1, Ordering::SeqCst);
        self.state.requests.lock().unwrap().push(body.clone());
        let text = body["messages"].to_string();
        let n_prompt = (text.len() / 4) as u64;
        let error = |status, message: &str| Reply::Json(status, json!({"error": {"message": message}}));
        if n_prompt > self.config.n_ctx || (self.is("sizing") && n_prompt * 2 > self.config.n_ctx) {
            return error(400, "the prompt exceeds the context");
        }
        self.state.filled.fetch_max(n_prompt, Ordering::SeqCst);
        if self.free().is_some_and(|free| free < 0.0) {
            return error(500, "CUDA error: out of memory");
        }
        if self.is("dies") && n > 2 {
            self.state.dead.store(true, Ordering::SeqCst);
            return Reply::Nothing;
        }
        if self.is("500") || (self.is("500 later") && n > 8) {
            return error(500, "the model failed");
        }
        if self.is("late") && n > 21 {
            let _ = std::sync::mpsc::channel::<()>().1.recv_timeout(std::time::Duration::from_millis(250));
        }
        if self.is("hangs") {
            let _ = std::sync::mpsc::channel::<()>().1.recv_timeout(std::time::Duration::from_secs(5));
        }
        let said = self.say(body, n);
        let is_tool = !said.calls.is_empty();
        let finish = if is_tool && !self.is("finish") { "tool_calls" } else { said.finish };
        let usage = self.usage(body, &said, n_prompt, n);
        let timings = self.timings(&said, n);
        if body["stream"] == true {
            return self.events(&said, finish, &usage, &timings);
        }
        let message = json!({"role": "assistant", "content": said.content, "reasoning_content": said.thinking,
            "tool_calls": said.calls});
        let choice = json!({"message": message, "finish_reason": finish});
        Reply::Json(200, json!({"choices": [choice], "usage": usage, "timings": timings}))
    }

    fn usage(&self, body: &Value, said: &Said, n_prompt: u64, n: u64) -> Value {
        if self.is("no usage") {
            return Value::Null;
        }
        let n_messages = body["messages"].as_array().map_or(0, Vec::len);
        let cached = if self.is("cached") || (n_messages > 2 && !self.is("cold")) { n_prompt * 9 / 10 } else { 0 };
        let empty = self.is_empty(n);
        let n_prompt = if self.is("shrinks") && n_prompt > 2000 { n_prompt / 2 } else { n_prompt };
        json!({"prompt_tokens": n_prompt, "completion_tokens": if empty { 0 } else { said.n_tokens },
            "prompt_tokens_details": {"cached_tokens": cached}})
    }

    fn is_empty(&self, n: u64) -> bool {
        (self.is("silent") && !n.is_multiple_of(4)) || (self.is("sometimes silent") && n % 10 == 9)
    }

    fn timings(&self, said: &Said, n: u64) -> Value {
        let slow = if self.is("slower") { 100.0 / (1.0 + n as f64) } else { 100.0 };
        let mut timings = json!({"prompt_per_second": 1000.0, "predicted_per_second": slow});
        let share = if self.is("poor drafts") { 4 } else { 2 };
        if self.config.mtp == Some(true) && !self.is("no drafts") {
            timings["draft_n"] = json!(said.n_tokens);
            timings["draft_n_accepted"] = json!(said.n_tokens / share + said.n_tokens / 10 * (4 / share - 1));
            timings["accepted_per_position"] = json!([0.9, 0.5]);
        }
        timings
    }

    fn events(&self, said: &Said, finish: &str, usage: &Value, timings: &Value) -> Reply {
        let chunk = |delta: Value| json!({"choices": [{"delta": delta, "finish_reason": null}]});
        let mut events = vec![chunk(json!({"role": "assistant", "content": ""}))];
        let empty = usage["completion_tokens"] == 0;
        if !said.thinking.is_empty() && !empty {
            events.push(chunk(json!({"reasoning_content": said.thinking})));
        }
        let pieces: Vec<&str> = if empty {
            vec![]
        } else if self.is("one piece") {
            vec![&said.content]
        } else {
            said.content.split_inclusive(' ').collect()
        };
        events.extend(pieces.into_iter().map(|piece| chunk(json!({"content": piece}))));
        for (i, call) in said.calls.iter().enumerate().filter(|_| !empty) {
            let (name, arguments) = (&call["function"]["name"], call["function"]["arguments"].as_str().unwrap());
            let half = arguments.len() / 2;
            events.push(chunk(
                json!({"tool_calls": [{"index": i, "id": "c", "function": {"name": name, "arguments": ""}}]}),
            ));
            for part in [&arguments[..half], &arguments[half..]] {
                events.push(chunk(json!({"tool_calls": [{"index": i, "function": {"arguments": part}}]})));
            }
        }
        if self.is("cut") {
            return Reply::Events(events, false);
        }
        events.push(json!({"choices": [{"delta": {}, "finish_reason": finish}], "timings": timings}));
        if !usage.is_null() {
            events.push(json!({"choices": [], "usage": usage}));
        }
        Reply::Events(events, true)
    }

    /// What a good model says.
    fn say(&self, body: &Value, _: u64) -> Said {
        let messages = body["messages"].as_array().cloned().unwrap_or_default();
        let last = messages.last().map(|message| message["content"].as_str().unwrap_or_default().to_owned());
        let last = last.unwrap_or_default();
        let thinks = body["chat_template_kwargs"]["enable_thinking"] == true && self.config.thinking;
        let thinking =
            if thinks { "Let me see what is asked for here. It is simple enough to answer at once." } else { "" };
        let mut said = Said::new(thinking, "Here is my answer, in a few plain words and no more.");
        let tools = body["tools"].as_array().filter(|_| body["tool_choice"] != "none");
        if last.contains("What is the code of box") {
            let at = last.rfind("box ").unwrap() + 4;
            let place: String = last[at..].chars().take_while(char::is_ascii_digit).collect();
            let fact = format!("The code of box {place} is ");
            let secret = last.split(&fact).nth(1).map(|rest| rest[..5].to_owned()).unwrap_or_default();
            said.content = if self.is("misses") { "I do not know.".to_owned() } else { secret };
        } else if last.contains("capital of France") {
            said.content = if self.is("wrong capital") { "It is Lyon." } else { "It is Paris." }.to_owned();
        } else if let Some(tools) = tools.filter(|tools| self.config.tools && !tools.is_empty()) {
            let name = tools[0]["function"]["name"].as_str().unwrap();
            self.call(name, &mut said);
        } else if last.contains("Count from 1 to 80") {
            said.content = (1..=80).map(|n| format!("{n}\n")).collect();
        } else if body["max_tokens"].as_u64().unwrap_or(0) >= 400 {
            said.content = self.essay();
        }
        self.spoil_thinking(&mut said);
        let words = |text: &str| text.split_whitespace().count() as u64;
        said.n_tokens = words(&said.content) + words(&said.thinking) + 12 * said.calls.len() as u64;
        said
    }

    fn call(&self, name: &str, said: &mut Said) {
        let arguments = if self.is("broken arguments") { "{\"city\": \"San" } else { "{\"city\": \"San Francisco\"}" };
        said.content.clear();
        match self.config.fault {
            "mute" => {}
            "no call" => said.content = "It is sunny.".to_owned(),
            "inlined call" => said.content = format!("<tool_call>{{\"name\": \"{name}\"}}</tool_call>"),
            _ => said
                .calls
                .push(json!({"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}})),
        }
    }

    fn essay(&self) -> String {
        match self.config.fault {
            "loop" => "The same line again and again.\n".repeat(60),
            "poor words" => "word other ".repeat(200),
            "short essay" | "cut short" => "A short essay about attention.".to_owned(),
            "empty essay" => String::new(),
            _ => (0..1200).map(|n| format!("word{} ", n * 7919 % 997)).collect(),
        }
    }

    fn spoil_thinking(&self, said: &mut Said) {
        match self.config.fault {
            "no thinking" => said.thinking.clear(),
            "cut short" => said.finish = "length",
            "mute" => {
                said.thinking.clear();
                if said.calls.is_empty() && said.content.starts_with("Here") {
                    said.content.clear();
                }
            }
            "thinking without end" if !said.thinking.is_empty() => said.content.clear(),
            "thinking cut" if !said.thinking.is_empty() => {
                said.content.clear();
                said.finish = "length";
            }
            _ => {}
        }
    }
}

struct Said {
    thinking: String,
    content: String,
    calls: Vec<Value>,
    finish: &'static str,
    n_tokens: u64,
}

impl Said {
    fn new(thinking: &str, content: &str) -> Said {
        let (thinking, content) = (thinking.to_owned(), content.to_owned());
        Said { thinking, content, calls: Vec::new(), finish: "stop", n_tokens: 0 }
    }
}

struct Quiet;

impl Progress for Quiet {
    fn line(&self, _: &str) {}
    fn now(&self, _: &str) {}
    fn step(&self, _: usize, _: usize) {}
}

/// Runs a check against a server and gives its report.
pub fn report(
    server: &Server,
    dir: &Path,
    work: impl AsyncFnOnce(&mut Session<'_>, &mut Run) -> Result<(), RunError>,
) -> Report {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::new(&server.url, None).unwrap();
        let facts = Facts::ask(&client, None, None).await.unwrap();
        let shared = server.clone();
        let memory = if server.config.free.is_some() {
            let read = move || shared.free().map(|free| Reading { used: 24_000.0 - free, free });
            Memory::Local { what: "scripted".to_owned(), read: Arc::new(read) }
        } else {
            Memory::Absent("no formula".to_owned())
        };
        let outputs = Outputs { results: Some(dir.to_path_buf()), ..Outputs::default() };
        let mut run = Run::begin(Report::new("test", json!({})), outputs).unwrap();
        let mut session = Session::new(client, facts, memory, &Quiet, 7);
        session.revival = std::time::Duration::ZERO;
        if server.is("hangs") {
            session.timeout_scale = 0.001;
        }
        work(&mut session, &mut run).await.unwrap();
        run.finish(false).unwrap()
    })
}

/// The status and the words of a check.
pub fn verdict(report: &Report, name: &str) -> (Status, String) {
    let check = report.checks.iter().find(|check| check.name == name);
    let check = check.unwrap_or_else(|| panic!("no check {name} in {}", report.text()));
    (check.status, check.detail.clone())
}
