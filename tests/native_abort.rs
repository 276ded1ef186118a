//! A device that fails under the real server: ggml aborts there. Every open stream gets its one
//! error, whoever waits for a whole answer gets a status, and the process exits with 70.
#![cfg(feature = "native")]
#![allow(clippy::unwrap_used, reason = "a failure in a helper of a test is a failed test")]

mod native;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use serde_json::{Value, json};

/// Far more than the server takes: a test that waits longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);

struct Server {
    child: Child,
    url: String,
}

impl Server {
    /// Serves the demo model on the device of the plug-in in `folder`.
    fn start(folder: &Path) -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_plateau"))
            .args(["serve", "--port", "0", "--ctx", "8192", "--parallel", "3", "--engine-threads", "1"])
            .args(["--log", "warn", "--allow-overcommit", "--plugin-dir"])
            .arg(folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let url = lines.map_while(Result::ok).find_map(|line| {
            let at = line.find("http://127.0.0.1:")?;
            Some(line[at..].split(|c: char| c.is_whitespace() || c == '/').take(3).collect::<Vec<_>>().join("/"))
        });
        let Some(url) = url else { panic!("the server ended before it listened: {}", child.wait().unwrap()) };
        Server { child, url }
    }
}

/// A server that a failed test leaves behind must not go on.
impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn body(stream: bool) -> Value {
    // Without drafts an answer is not over before the fault comes.
    let speculative = json!({ "n_max": 0, "lookup": false });
    json!({ "prompt": "river stone lamp", "max_tokens": 2500, "temperature": 0, "ignore_eos": true, "stream": stream,
            "speculative": speculative })
}

/// An answer that is being streamed, its beginning read.
struct Open {
    response: futures_util::stream::BoxStream<'static, reqwest::Result<Vec<u8>>>,
    text: String,
}

impl Open {
    async fn begin(client: &reqwest::Client, url: &str) -> Open {
        let response = client.post(format!("{url}/v1/completions")).json(&body(true)).send().await.unwrap();
        assert_eq!(response.status(), 200);
        let response = response.bytes_stream().map(|part| part.map(|bytes| bytes.to_vec())).boxed();
        let mut open = Open { response, text: String::new() };
        while !open.text.contains("\n\n") {
            let part = open.response.next().await.unwrap().unwrap();
            open.text.push_str(&String::from_utf8(part).unwrap());
        }
        open
    }

    /// The events to the end of the stream.
    async fn rest(mut self) -> Vec<Value> {
        while let Some(part) = self.response.next().await {
            self.text.push_str(&String::from_utf8(part.unwrap()).unwrap());
        }
        let events = self.text.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
        events.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
    }
}

#[test]
fn a_device_that_fails_ends_every_request_with_its_error_and_the_process_with_70() {
    let dir = tempfile::tempdir().unwrap();
    let fault = dir.path().join("fault");
    let define = format!("-DPLATEAU_ABORT_FILE=\"{}\"", fault.display());
    native::build_plugin(&dir.path().join("libggml-hostcheck.so"), &[define]);
    let mut server = Server::start(dir.path());

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let url = server.url.clone();
    let work = async {
        let client = reqwest::Client::new();
        let (first, second) = (Open::begin(&client, &url).await, Open::begin(&client, &url).await);
        let request = client.post(format!("{url}/v1/completions")).json(&body(false)).send();
        let whole = tokio::spawn(request);
        std::fs::write(&fault, b"").unwrap();
        let streams = [first.rest().await, second.rest().await];
        (streams, whole.await.unwrap())
    };
    let ended = runtime.block_on(async { tokio::time::timeout(PATIENCE, work).await });
    let (streams, whole) = ended.expect("the requests end");

    for events in streams {
        let errors: Vec<&Value> = events.iter().filter(|event| event.get("error").is_some()).collect();
        assert_eq!(errors.len(), 1, "{events:?}");
        assert_eq!(errors[0]["error"]["code"], "engine_dead");
        assert!(events.last().unwrap().get("error").is_some(), "the error is the last event: {events:?}");
    }
    // It may have come too late to be accepted.
    match whole {
        Ok(response) => assert!(response.status().is_server_error(), "{}", response.status()),
        Err(error) => assert!(error.is_connect() || error.is_request(), "{error}"),
    }

    let began = Instant::now();
    let status = loop {
        if let Some(status) = server.child.try_wait().unwrap() {
            break status;
        }
        assert!(began.elapsed() < PATIENCE, "the process goes on");
        std::thread::park_timeout(Duration::from_millis(20));
    };
    assert_eq!(status.code(), Some(70));
    let said: Vec<String> = BufReader::new(server.child.stderr.take().unwrap()).lines().map_while(Result::ok).collect();
    assert!(said.iter().any(|line| line.contains("an injected fault of the device")), "{said:?}");
}
