//! A plain HTTP client for one JSON request at a time: no TLS, no connection kept.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// A prefill of a full context on a slow machine fits into it.
const READ_TIMEOUT: Duration = Duration::from_secs(1800);
/// An answer is no larger than this; a server that sends more is not read to its end.
const MAX_ANSWER_BYTES: u64 = 256 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{0} is not of the form http://HOST[:PORT][/PATH]")]
    Url(String),
    #[error("{url}: {source}")]
    Io { url: String, source: std::io::Error },
    #[error("{url} answered {status}: {body}")]
    Status { url: String, status: u16, body: String },
    #[error("{url} answered something that is not JSON over HTTP")]
    Malformed { url: String },
}

/// Where the server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    authority: String,
    path: String,
    key: Option<String>,
}

impl Client {
    /// `url` is the server's root, e.g. http://127.0.0.1:8020.
    pub fn new(url: &str, key: Option<String>) -> Result<Client, ClientError> {
        let wrong = || ClientError::Url(url.to_owned());
        let rest = url.strip_prefix("http://").ok_or_else(wrong)?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if authority.is_empty() || url.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(wrong());
        }
        let with_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let authority = if with_port { authority.to_owned() } else { format!("{authority}:80") };
        Ok(Client { authority, path: path.trim_end_matches('/').to_owned(), key })
    }

    pub fn get(&self, path: &str) -> Result<Value, ClientError> {
        self.send("GET", path, "")
    }

    pub fn post(&self, path: &str, body: &Value) -> Result<Value, ClientError> {
        self.send("POST", path, &body.to_string())
    }

    fn send(&self, method: &str, path: &str, body: &str) -> Result<Value, ClientError> {
        let url = format!("http://{}{}{path}", self.authority, self.path);
        let answer = self.exchange(method, path, body);
        let answer = answer.map_err(|source| ClientError::Io { url: url.clone(), source })?;
        let (status, body) = parse(&answer).ok_or_else(|| ClientError::Malformed { url: url.clone() })?;
        if !(200..300).contains(&status) {
            let body = String::from_utf8_lossy(&body).into_owned();
            return Err(ClientError::Status { url, status, body });
        }
        serde_json::from_slice(&body).map_err(|_| ClientError::Malformed { url })
    }

    fn exchange(&self, method: &str, path: &str, body: &str) -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(&self.authority)?;
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        let key = self.key.as_ref().map_or(String::new(), |key| format!("Authorization: Bearer {key}\r\n"));
        let head = format!(
            "{method} {}{path} HTTP/1.1\r\nHost: {}\r\n{key}Content-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            self.path,
            self.authority,
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body.as_bytes())?;
        let mut answer = Vec::new();
        let mut stream = stream.take(MAX_ANSWER_BYTES);
        let mut piece = vec![0; 64 << 10];
        // A server may leave the connection open for a while after its answer.
        while parse(&answer).is_none() {
            match stream.read(&mut piece)? {
                0 => break,
                n => answer.extend_from_slice(&piece[..n]),
            }
        }
        Ok(answer)
    }
}

/// Status and body of a whole answer; `None` while there is more to come.
fn parse(answer: &[u8]) -> Option<(u16, Vec<u8>)> {
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let head = head.to_ascii_lowercase();
    let body = &answer[end + 4..];
    if head.contains("transfer-encoding: chunked") {
        return Some((status, unchunk(body)?));
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"))?;
    Some((status, body.get(..length.trim().parse().ok()?)?.to_vec()))
}

fn unchunk(mut body: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    loop {
        let end = body.windows(2).position(|w| w == b"\r\n")?;
        let size = std::str::from_utf8(&body[..end]).ok()?.split(';').next()?.trim();
        let size = usize::from_str_radix(size, 16).ok()?;
        if size == 0 {
            return Some(out);
        }
        let chunk = body.get(end + 2..(end + 2).checked_add(size)?)?;
        out.extend_from_slice(chunk);
        body = body.get(end + 2 + size + 2..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_others_refused() {
        let client = Client::new("http://localhost:8020/", None).unwrap();
        assert_eq!((client.authority.as_str(), client.path.as_str()), ("localhost:8020", ""));
        assert_eq!(Client::new("http://host/v", None).unwrap().authority, "host:80");
        for url in ["https://x", "x:80", "http://", "http://a b"] {
            assert!(Client::new(url, None).is_err(), "{url}");
        }
    }

    #[test]
    fn whole_and_chunked_answers_are_read() {
        let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{\"a\":1}";
        assert_eq!(parse(whole), Some((200, b"{\"a\":1}".to_vec())));
        let chunked = b"HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{\"a\"\r\n3;x\r\n:1}\r\n0\r\n\r\n";
        assert_eq!(parse(chunked), Some((503, b"{\"a\":1}".to_vec())));
        assert_eq!(parse(&chunked[..chunked.len() - 9]), None, "cut off");
        assert_eq!(parse(&whole[..whole.len() - 1]), None, "more to come");
        assert_eq!(parse(b"HTTP/1.1 200"), None);
    }
}
