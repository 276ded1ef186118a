//! Against servers on this machine, which are exempt one by one, and against addresses that must never be reached.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::super::error::Fault;
use super::*;

/// Answers every request with what `answer` makes of its path.
async fn server(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                match socket.read_u8().await {
                    Ok(byte) => head.push(byte),
                    Err(_) => break,
                }
            }
            // Whoever speaks TLS here sends no text.
            let head = String::from_utf8_lossy(&head);
            let bytes = answer(head.split(' ').nth(1).unwrap_or_default());
            // The client may have had enough.
            let _ = socket.write_all(&bytes).await;
            if bytes.is_empty() {
                tokio::time::sleep(Duration::from_secs(60)).await;
            }
        }
    });
    address
}

fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn moved(to: &str) -> Vec<u8> {
    format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n").into_bytes()
}

fn fetcher(ports: &[u16], exempt: &[SocketAddr]) -> Fetcher {
    let rules = FetchRules {
        on: true,
        hosts: Vec::new(),
        ports: ports.to_vec(),
        time: Duration::from_secs(5),
        max_bytes: 1000,
    };
    Fetcher::new(rules).with_exempt(exempt)
}

async fn fetch(fetcher: &Fetcher, url: &str) -> Result<String, ImageRefusal> {
    let bytes = fetcher.fetch(url, fetcher.deadline()).await?;
    Ok(String::from_utf8(bytes).unwrap())
}

#[tokio::test]
async fn an_image_comes_directly_and_over_redirects() {
    let address = server(|path| match path {
        "/a?b=c" => ok("image"),
        "/once" => moved("/a?b=c#part"),
        "/chunked" => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nim\r\n3\r\nage\r\n0\r\n\r\n".to_vec(),
        path => moved(&format!("/{}", path.len().checked_sub(2).map_or("once".into(), |n| "x".repeat(n)))),
    })
    .await;
    let fetcher = fetcher(&[address.port()], &[address]);
    for path in ["a?b=c", "chunked", "once", "x", "/"] {
        let got = fetch(&fetcher, &format!("HTTP://{address}/{path}")).await;
        assert_eq!(got.as_deref(), Ok("image"), "{path}");
    }
    let told = fetch(&fetcher, &format!("http://{address}/xxxx")).await.unwrap_err();
    assert!(told.message.contains("more than 3 redirects"), "{told}");
}

#[tokio::test]
async fn a_redirect_is_checked_like_the_first_url() {
    let secret = server(|_| ok("secret")).await;
    let to = std::sync::Arc::new(std::sync::OnceLock::<Vec<String>>::new());
    let places = std::sync::Arc::clone(&to);
    let open = server(move |path| moved(&places.get().unwrap()[path[1..].parse::<usize>().unwrap()])).await;
    let port = secret.port();
    let urls = [
        format!("http://127.0.0.1:{port}/"),
        format!("http://localhost:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        format!("http://2130706433:{port}/"),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "file:///etc/passwd".to_owned(),
        "gopher://127.0.0.1/".to_owned(),
        format!("//127.0.0.1:{port}/"),
        format!("http://user:pw@{open}/"),
        format!("http://{}:1/", open.ip()),
    ];
    to.set(urls.to_vec()).unwrap();
    let fetcher = fetcher(&[open.port(), port, 80], &[open]);
    for (i, url) in urls.iter().enumerate() {
        let told = fetch(&fetcher, &format!("http://{open}/{i}")).await.unwrap_err();
        assert_eq!(told.fault, Fault::NotFetched, "{url}");
        assert!(!told.message.contains("secret") && !told.message.contains("pw"), "{told}");
    }
}

/// Field report: guards bypassed by decimal, octal and hexadecimal hosts, by mapped addresses, by names of this machine.
#[tokio::test]
async fn no_spelling_of_a_closed_address_is_reached() {
    let secret = server(|_| ok("secret")).await;
    let port = secret.port();
    let fetcher = fetcher(&[port, 80, 443], &[]);
    for host in [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "017700000001",
        "0177.0.0.1",
        "127.0.0.1.",
        "0",
        "0.0.0.0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "localhost",
        "LOCALHOST",
        "localhost.",
        "\u{FF11}\u{FF12}\u{FF17}.0.0.1",
        "127\u{3002}0\u{3002}0\u{3002}1",
    ] {
        let told = fetch(&fetcher, &format!("http://{host}:{port}/")).await.unwrap_err();
        assert_eq!(told.fault, Fault::NotFetched, "{host}");
    }
    for url in [
        "http://169.254.169.254/",
        "http://10.0.0.1/",
        "https://192.168.1.1/",
        "http://100.64.0.1/",
        "http://[fd00::1]/",
        "http://[fe80::1]/",
        "http://224.0.0.1/",
        "http://192.0.2.1/",
        "http://metadata.google.internal.invalid/",
    ] {
        assert_eq!(fetch(&fetcher, url).await.unwrap_err().fault, Fault::NotFetched, "{url}");
    }
}

#[tokio::test]
async fn ports_hosts_and_schemes_outside_the_rules_are_refused() {
    let address = server(|_| ok("image")).await;
    let other = fetcher(&[80, 443], &[address]);
    assert!(fetch(&other, &format!("http://{address}/")).await.unwrap_err().message.contains("images.fetch_ports"));
    let listed = |hosts: &[&str]| {
        let mut rules = (*fetcher(&[address.port()], &[]).rules).clone();
        rules.hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        Fetcher::new(rules).with_exempt(&[address])
    };
    assert_eq!(fetch(&listed(&["a.example", "127.0.0.1"]), &format!("http://{address}/")).await.unwrap(), "image");
    let told = fetch(&listed(&["a.example"]), &format!("http://{address}/")).await.unwrap_err();
    assert!(told.message.contains("images.fetch_hosts"), "{told}");
    let mut rules = (*other.rules).clone();
    rules.on = false;
    let told = fetch(&Fetcher::new(rules), &format!("http://{address}/")).await.unwrap_err();
    assert!(told.message.contains("images.fetch") && told.message.contains("data URI"), "{told}");
}

#[test]
fn entries_of_the_list_match_names_and_what_is_below() {
    for (entry, host, expected) in [
        ("a.example", "a.example", true),
        ("A.Example", "a.example.", true),
        ("a.example", "b.a.example", false),
        (".a.example", "b.a.example", true),
        ("*.a.example", "c.b.a.example", true),
        (".a.example", "a.example", false),
        (".a.example", "xa.example", false),
        ("a.example", "a.example.evil.example", false),
    ] {
        assert_eq!(matches(entry, host), expected, "{entry} {host}");
    }
}

#[tokio::test]
async fn too_much_too_late_and_what_is_not_200_is_refused() {
    let address = server(|path| match path {
        "/long" => ok(&"x".repeat(1001)),
        "/endless" => [b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), vec![b'x'; 100_000]].concat(),
        "/lying" => b"HTTP/1.1 200 OK\r\nContent-Length: 100000000000\r\n\r\nx".to_vec(),
        "/short" => b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx".to_vec(),
        "/zipped" => b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx".to_vec(),
        "/missing" => b"HTTP/1.1 404 Not Found\r\nContent-Length: 6\r\n\r\nsecret".to_vec(),
        "/head" => [b"HTTP/1.1 200 OK\r\nX: ".to_vec(), vec![b'x'; 1 << 20]].concat(),
        "/noise" => b"SSH-2.0-OpenSSH_9\r\n".to_vec(),
        _ => Vec::new(),
    })
    .await;
    let fetcher = fetcher(&[address.port()], &[address]);
    for (path, fault) in [
        ("long", Fault::TooLarge),
        ("endless", Fault::TooLarge),
        ("lying", Fault::TooLarge),
        ("short", Fault::NotFetched),
        ("zipped", Fault::NotFetched),
        ("missing", Fault::NotFetched),
        ("head", Fault::NotFetched),
        ("noise", Fault::NotFetched),
    ] {
        let told = fetch(&fetcher, &format!("http://{address}/{path}")).await.unwrap_err();
        assert_eq!(told.fault, fault, "{path}: {told}");
        assert!(!told.message.contains("secret") && !told.message.contains("SSH"), "{told}");
    }
    let plain = fetch(&fetcher, &format!("https://{address}/")).await.unwrap_err();
    assert_eq!(plain.fault, Fault::NotFetched);
    let silent = fetcher.fetch(&format!("http://{address}/silent"), Instant::now() + Duration::from_millis(50)).await;
    assert!(silent.unwrap_err().message.contains("did not send the image"));
}
