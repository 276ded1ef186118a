//! Servers for the tests beside the code: raw bytes in answer to one request, nothing at all, or JSON by a script.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use serde_json::Value;

/// A runtime for a test.
pub(super) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (listener, url)
}

/// Reads one request and answers these bytes, then closes.
pub(super) fn once(answer: &'static str) -> (String, tokio::runtime::Runtime) {
    let (listener, url) = listen();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        read_body(&mut stream);
        stream.write_all(answer.as_bytes()).unwrap();
    });
    (url, runtime())
}

/// Takes connections and says nothing.
pub(super) fn silent() -> (String, tokio::runtime::Runtime) {
    let (listener, url) = listen();
    std::thread::spawn(move || {
        let open: Vec<_> = listener.incoming().take(8).collect();
        drop(open);
    });
    (url, runtime())
}

/// Answers every request with what the script makes of its body and of the number of requests so far.
pub(super) fn json(answer: impl Fn(&Value, usize) -> Value + Send + 'static) -> String {
    let (listener, url) = listen();
    std::thread::spawn(move || {
        for (i, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let body = serde_json::from_str(&read_body(&mut stream)).unwrap_or(Value::Null);
            let body = answer(&body, i).to_string();
            let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
            stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        }
    });
    url
}

fn read_body(stream: &mut TcpStream) -> String {
    let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let n = stream.read(&mut buffer).unwrap();
        request.extend_from_slice(&buffer[..n]);
        let text = String::from_utf8(request.clone()).unwrap();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            assert!(n > 0, "cut: {text}");
            continue;
        };
        let head = head.to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
        if length.parse::<usize>().unwrap() == body.len() {
            return body.to_owned();
        }
    }
}
