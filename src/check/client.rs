//! The one HTTP client of all checks: JSON answers, and streams of events with the time of each. No TLS: a server behind it
//! is reached through a local proxy.

use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use serde_json::Value;

/// How long opening a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The time of a request that names none. A prefill of a full context on a slow machine fits into it.
pub const LONG_TIMEOUT: Duration = Duration::from_secs(1800);
/// An answer is no larger than this; a server that sends more is not read to its end.
const MAX_ANSWER_BYTES: usize = 256 << 20;
/// Characters of an error's body that are shown.
const MAX_SHOWN: usize = 400;

/// Why there is no answer, by kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    #[error("{0:?} is not of the form http://HOST[:PORT][/PATH]; a server behind TLS is reached through a local proxy")]
    Url(String),
    /// Nobody listens there.
    #[error("{url}: no connection: {cause}")]
    Refused { url: String, cause: String },
    #[error("{url}: no answer within {:.1} s", elapsed.as_secs_f64())]
    Timeout { url: String, elapsed: Duration },
    #[error("{url}: status {status}: {}", shown(body))]
    Status { url: String, status: u16, body: String },
    #[error("{url}: answered something that is not {expected}")]
    Malformed { url: String, expected: String },
    /// The connection ended before the answer did.
    #[error("{url}: the connection was lost after {n_events} events: {cause}")]
    Cut { url: String, n_events: usize, cause: String },
    /// The stream brought an error in place of its end.
    #[error("{url}: the stream ended with an error after {n_events} events: {}", shown(body))]
    InStream { url: String, n_events: usize, body: String },
}

impl ClientError {
    /// The kind in one word, for tables.
    pub fn kind(&self) -> &'static str {
        match self {
            ClientError::Url(_) => "url",
            ClientError::Refused { .. } => "refused",
            ClientError::Timeout { .. } => "timeout",
            ClientError::Status { .. } => "status",
            ClientError::Malformed { .. } => "malformed",
            ClientError::Cut { .. } => "cut",
            ClientError::InStream { .. } => "stream_error",
        }
    }

    /// The status and body of an answer that is an error.
    pub fn status(&self) -> Option<(u16, &str)> {
        match self {
            ClientError::Status { status, body, .. } => Some((*status, body)),
            _ => None,
        }
    }

    /// Nobody answers any more, as far as this request shows.
    pub fn is_lost(&self) -> bool {
        matches!(self, ClientError::Refused { .. } | ClientError::Cut { .. })
    }
}

fn shown(body: &str) -> String {
    body.chars().take(MAX_SHOWN).collect()
}

/// Where the server is.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    /// Without `/v1` and without a slash at its end.
    base: String,
    key: Option<String>,
}

/// One `data:` event of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Since the request was sent.
    pub at: Duration,
    pub data: Value,
}

/// A stream as far as it came.
#[derive(Clone, Debug)]
pub struct Stream {
    pub events: Vec<Event>,
    pub elapsed: Duration,
    /// Nothing: it ended as a stream should, with `[DONE]`, or the caller had enough.
    pub fault: Option<ClientError>,
}

/// Does the reader of a stream want more?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    GoOn,
    /// Close the connection now.
    Stop,
}

impl Client {
    /// `url` is the server's root, with or without `/v1`, e.g. http://127.0.0.1:8020.
    ///
    /// # Errors
    /// A text that is not such an address.
    pub fn new(url: &str, key: Option<String>) -> Result<Client, ClientError> {
        let wrong = || ClientError::Url(url.to_owned());
        if url.chars().any(|c| c.is_whitespace() || c.is_control()) || !url.starts_with("http://") {
            return Err(wrong());
        }
        let base = url.trim_end_matches('/').trim_end_matches("/v1").trim_end_matches('/').to_owned();
        let parsed = reqwest::Url::parse(&base).map_err(|_| wrong())?;
        if parsed.host_str().is_none_or(str::is_empty) || parsed.query().is_some() || parsed.fragment().is_some() {
            return Err(wrong());
        }
        let http = reqwest::Client::builder().connect_timeout(CONNECT_TIMEOUT).no_proxy().build();
        Ok(Client { http: http.map_err(|_| wrong())?, base, key })
    }

    /// The server's root.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Is the server on this machine, as far as its address tells?
    pub fn is_local(&self) -> bool {
        let host = reqwest::Url::parse(&self.base).ok().and_then(|url| url.host_str().map(str::to_owned));
        host.is_some_and(|host| host == "localhost" || host.starts_with("127.") || host == "[::1]")
    }

    /// The port of the server.
    pub fn port(&self) -> Option<u16> {
        reqwest::Url::parse(&self.base).ok()?.port_or_known_default()
    }

    /// # Errors
    /// By kind: `ClientError`.
    pub async fn get(&self, path: &str, limit: Duration) -> Result<Value, ClientError> {
        let url = format!("{}{path}", self.base);
        json(&url, &self.whole(self.http.get(&url), &url, limit).await?)
    }

    /// # Errors
    /// By kind: `ClientError`.
    pub async fn get_text(&self, path: &str, limit: Duration) -> Result<String, ClientError> {
        let url = format!("{}{path}", self.base);
        let bytes = self.whole(self.http.get(&url), &url, limit).await?;
        String::from_utf8(bytes).map_err(|_| ClientError::Malformed { url, expected: "text".to_owned() })
    }

    /// # Errors
    /// By kind: `ClientError`.
    pub async fn post(&self, path: &str, body: &Value, limit: Duration) -> Result<Value, ClientError> {
        let url = format!("{}{path}", self.base);
        json(&url, &self.whole(self.http.post(&url).json(body), &url, limit).await?)
    }

    /// Sends and reads to the end within the limit.
    async fn whole(
        &self,
        request: reqwest::RequestBuilder,
        url: &str,
        limit: Duration,
    ) -> Result<Vec<u8>, ClientError> {
        let start = Instant::now();
        let work = async {
            let response = self.answered(request, url).await?;
            body(response, url).await
        };
        let timeout = |_| ClientError::Timeout { url: url.to_owned(), elapsed: start.elapsed() };
        tokio::time::timeout(limit, work).await.map_err(timeout)?
    }

    /// The answer's head, where its status is a good one.
    async fn answered(&self, request: reqwest::RequestBuilder, url: &str) -> Result<reqwest::Response, ClientError> {
        let request = match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        };
        let response = request.send().await.map_err(|error| lost(url, 0, &error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = body(response, url).await.unwrap_or_default();
        let body = String::from_utf8_lossy(&body).into_owned();
        Err(ClientError::Status { url: url.to_owned(), status: status.as_u16(), body })
    }

    /// Posts and reads the events of the answer. `each` sees every event as it comes, and may close the connection.
    ///
    /// # Errors
    /// What happens before the first event; later faults are in the stream that came so far.
    pub async fn stream(
        &self,
        path: &str,
        body: &Value,
        limit: Duration,
        each: &mut (dyn FnMut(&Event) -> Reading + Send),
    ) -> Result<Stream, ClientError> {
        let url = format!("{}{path}", self.base);
        let start = Instant::now();
        let timeout = || ClientError::Timeout { url: url.clone(), elapsed: start.elapsed() };
        let opened = tokio::time::timeout(limit, self.answered(self.http.post(&url).json(body), &url)).await;
        let response = opened.map_err(|_| timeout())??;
        let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.starts_with("text/event-stream") {
            return Err(ClientError::Malformed { url, expected: "a stream of events".to_owned() });
        }
        let mut events = Vec::new();
        let work = read_events(response, Reader { url: &url, start, events: &mut events, each });
        let end = tokio::time::timeout(limit.saturating_sub(start.elapsed()), work).await;
        let fault = match end {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error),
            Err(_) => Some(timeout()),
        };
        Ok(Stream { events, elapsed: start.elapsed(), fault })
    }
}

struct Reader<'a> {
    url: &'a str,
    start: Instant,
    events: &'a mut Vec<Event>,
    each: &'a mut (dyn FnMut(&Event) -> Reading + Send),
}

async fn read_events(response: reqwest::Response, mut reader: Reader<'_>) -> Result<(), ClientError> {
    let mut pieces = response.bytes_stream();
    let (mut buffer, mut n_bytes) = (Vec::new(), 0);
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| lost(reader.url, reader.events.len(), &error))?;
        n_bytes += piece.len();
        if n_bytes > MAX_ANSWER_BYTES {
            let expected = format!("shorter than {MAX_ANSWER_BYTES} bytes");
            return Err(ClientError::Malformed { url: reader.url.to_owned(), expected });
        }
        buffer.extend_from_slice(&piece);
        while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = buffer.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            if reader.is_end(line.trim_end_matches(['\r', '\n']))? {
                return Ok(());
            }
        }
    }
    let cause = "no [DONE]".to_owned();
    Err(ClientError::Cut { url: reader.url.to_owned(), n_events: reader.events.len(), cause })
}

impl Reader<'_> {
    /// Takes one line: comments and other fields of events are passed over.
    fn is_end(&mut self, line: &str) -> Result<bool, ClientError> {
        let Some(data) = line.strip_prefix("data:").map(str::trim_start) else { return Ok(false) };
        if data == "[DONE]" {
            return Ok(true);
        }
        let url = || self.url.to_owned();
        let data: Value = serde_json::from_str(data)
            .map_err(|_| ClientError::Malformed { url: url(), expected: "JSON in its events".to_owned() })?;
        if data.get("error").is_some_and(|error| !error.is_null()) {
            return Err(ClientError::InStream { url: url(), n_events: self.events.len(), body: data.to_string() });
        }
        let event = Event { at: self.start.elapsed(), data };
        let reading = (self.each)(&event);
        self.events.push(event);
        Ok(reading == Reading::Stop)
    }
}

async fn body(response: reqwest::Response, url: &str) -> Result<Vec<u8>, ClientError> {
    let mut pieces = response.bytes_stream();
    let mut body = Vec::new();
    while let Some(piece) = pieces.next().await {
        body.extend_from_slice(&piece.map_err(|error| lost(url, 0, &error))?);
        if body.len() > MAX_ANSWER_BYTES {
            let expected = format!("shorter than {MAX_ANSWER_BYTES} bytes");
            return Err(ClientError::Malformed { url: url.to_owned(), expected });
        }
    }
    Ok(body)
}

fn json(url: &str, body: &[u8]) -> Result<Value, ClientError> {
    serde_json::from_slice(body)
        .map_err(|_| ClientError::Malformed { url: url.to_owned(), expected: "JSON".to_owned() })
}

/// The kind of a failed exchange, with its innermost reason: the outer ones say that a request failed.
fn lost(url: &str, n_events: usize, error: &reqwest::Error) -> ClientError {
    let mut inner: &dyn std::error::Error = error;
    while let Some(next) = inner.source() {
        inner = next;
    }
    let (url, cause) = (url.to_owned(), inner.to_string());
    if error.is_connect() {
        ClientError::Refused { url, cause }
    } else if cause.contains("invalid HTTP") {
        ClientError::Malformed { url, expected: "HTTP".to_owned() }
    } else {
        ClientError::Cut { url, n_events, cause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::scripted;

    const LIMIT: Duration = Duration::from_secs(5);

    #[test]
    fn urls_are_read_with_and_without_v1_and_others_refused() {
        for url in ["http://localhost:8020", "http://localhost:8020/", "http://localhost:8020/v1/"] {
            let client = Client::new(url, None).unwrap();
            assert_eq!((client.base(), client.port()), ("http://localhost:8020", Some(8020)), "{url}");
            assert!(client.is_local());
        }
        assert_eq!(Client::new("http://host/proxy/v1", None).unwrap().base(), "http://host/proxy");
        assert!(!Client::new("http://host", None).unwrap().is_local());
        for url in ["https://x", "x:80", "http://", "http://a b", "http://a?b", "ftp://a", "http://a:99999"] {
            assert!(matches!(Client::new(url, None), Err(ClientError::Url(_))), "{url}");
        }
    }

    fn answered(answer: &'static str) -> Result<Value, ClientError> {
        let (url, run) = scripted::once(answer);
        run.block_on(Client::new(&url, Some("k".to_owned())).unwrap().get("/x", LIMIT))
    }

    fn streamed(answer: &'static str) -> Result<Stream, ClientError> {
        let (url, run) = scripted::once(answer);
        let client = Client::new(&url, None).unwrap();
        run.block_on(client.stream("/x", &Value::Null, LIMIT, &mut |_| Reading::GoOn))
    }

    #[test]
    fn errors_have_the_kind_of_what_happened() {
        for (answer, kind) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{\"a\":1}", "fine"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{\"a\r\n4\r\n\":1}\r\n0\r\n\r\n", "fine"),
            ("HTTP/1.1 500 No\r\nContent-Length: 4\r\n\r\nover", "status"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", "malformed"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{\"a\":1}", "cut"),
            ("", "cut"),
            ("I am no web server\r\n\r\n", "malformed"),
        ] {
            let kind_of = answered(answer).map_or_else(|error| error.kind(), |_| "fine");
            assert_eq!(kind_of, kind, "{answer:?}");
        }
        let client = Client::new("http://127.0.0.1:1", None).unwrap();
        let run = scripted::runtime();
        assert_eq!(run.block_on(client.get("/", LIMIT)).unwrap_err().kind(), "refused");
        let (url, run) = scripted::silent();
        let client = Client::new(&url, None).unwrap();
        let error = run.block_on(client.get("/", Duration::from_millis(50))).unwrap_err();
        assert_eq!(error.kind(), "timeout");
        assert!(error.to_string().contains("within 0."), "{error}");
        let mut each = |_: &Event| Reading::GoOn;
        let sent = client.stream("/", &Value::Null, Duration::from_millis(50), &mut each);
        assert_eq!(run.block_on(sent).unwrap_err().kind(), "timeout");
    }

    const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";

    fn stream_of(events: &str) -> Result<Stream, ClientError> {
        streamed(Box::leak(format!("{HEAD}{events}").into_boxed_str()))
    }

    #[test]
    fn a_stream_has_its_events_with_times_and_says_how_it_ended() {
        let whole = stream_of(": ping\n\ndata: {\"a\":1}\r\n\r\nevent: x\ndata:{\"a\":2}\n\ndata: [DONE]\n\n").unwrap();
        assert_eq!(whole.events.iter().map(|event| event.data["a"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2]);
        assert!(
            whole.fault.is_none() && whole.events[0].at <= whole.events[1].at && whole.events[1].at <= whole.elapsed
        );
        for (events, kind, n_events) in [
            ("data: {\"a\":1}\n\n", "cut", 1),
            ("data: {\"a\":1}\n\ndata: {\"error\":{\"message\":\"x\"}}\n\n", "stream_error", 1),
            ("data: {\"a\":1}\n\ndata: {\"a\":\n\n", "malformed", 1),
            ("", "cut", 0),
        ] {
            let stream = stream_of(events).unwrap();
            assert_eq!((stream.fault.unwrap().kind(), stream.events.len()), (kind, n_events), "{events:?}");
        }
        let plain = streamed("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
        assert_eq!(plain.unwrap_err().kind(), "malformed");
    }

    #[test]
    fn a_reader_may_close_a_stream() {
        let (url, run) = scripted::once(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {\"a\":1}\n\ndata: {\"a\":2}\n\n",
        );
        let client = Client::new(&url, None).unwrap();
        let stream = run.block_on(client.stream("/x", &Value::Null, LIMIT, &mut |_| Reading::Stop)).unwrap();
        assert_eq!((stream.events.len(), stream.fault), (1, None));
    }
}
