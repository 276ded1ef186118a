//! Images over HTTP, for profiles that allow it: a URL in a request must not become a way into the network that the server
//! stands in.
//!
//! A name is resolved once and the connection goes to an address that was checked, so a name that changes between the two
//! changes nothing. Every redirect is checked like the first URL. Bytes, time and hops are bounded. What the other side says is
//! never part of an error.

use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::header::{self, HeaderMap};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use url::{Host, Url};

use super::address::is_open;
use super::error::ImageRefusal;

const MAX_REDIRECTS: usize = 3;
/// Addresses of one name that are tried.
const MAX_ADDRESSES: usize = 4;
/// The head of an answer.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// What the profile allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchRules {
    pub on: bool,
    /// `example.org`, or `.example.org` for all names below it; empty: all. None of them opens an address that is not open.
    pub hosts: Vec<String>,
    pub ports: Vec<u16>,
    /// For all images of a request, redirects included.
    pub time: Duration,
    pub max_bytes: u64,
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Fetcher {
    rules: Arc<FetchRules>,
    tls: TlsConnector,
    /// Reached although they are not open.
    exempt: Arc<[SocketAddr]>,
}

/// A URL that was checked.
struct Target {
    host: Host<String>,
    port: u16,
    tls: bool,
    /// Path and query.
    path: String,
    /// For the header, with the port where it is not the scheme's own.
    authority: String,
}

enum Reply {
    Image(Vec<u8>),
    Moved(String),
}

/// Does `text` begin as a URL that is fetched.
pub fn is_http_url(text: &str) -> bool {
    let begins = |scheme: &str| text.get(..scheme.len()).is_some_and(|head| head.eq_ignore_ascii_case(scheme));
    begins("http:") || begins("https:")
}

impl Fetcher {
    pub fn new(rules: FetchRules) -> Fetcher {
        let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("ring has the suites of TLS 1.2 and 1.3")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Fetcher { rules: Arc::new(rules), tls: TlsConnector::from(Arc::new(config)), exempt: Arc::default() }
    }

    /// For tests, whose servers stand on this machine. No setting leads here.
    pub fn with_exempt(self, addresses: &[SocketAddr]) -> Fetcher {
        Fetcher { exempt: addresses.into(), ..self }
    }

    /// When a request that begins to fetch now must have all its images.
    pub fn deadline(&self) -> Instant {
        Instant::now() + self.rules.time
    }

    /// # Errors
    /// The URL is not allowed, nobody answers with an image's bytes in time, or they are too many.
    pub async fn fetch(&self, url: &str, deadline: Instant) -> Result<Vec<u8>, ImageRefusal> {
        if !self.rules.on {
            let message = "images are not fetched by this server (`images.fetch` is off); send the image as a data URI";
            return Err(ImageRefusal::not_fetched(message));
        }
        let url =
            Url::parse(url).map_err(|error| ImageRefusal::not_fetched(format!("the URL cannot be read: {error}")))?;
        let host = url.host_str().unwrap_or_default().to_owned();
        timeout_at(deadline, self.follow(url)).await.unwrap_or_else(|_| {
            let seconds = self.rules.time.as_secs();
            let message = format!("{host} did not send the image within {seconds} s (`images.fetch_seconds`)");
            Err(ImageRefusal::not_fetched(message))
        })
    }

    async fn follow(&self, mut url: Url) -> Result<Vec<u8>, ImageRefusal> {
        for _ in 0..=MAX_REDIRECTS {
            let target = self.check(&url)?;
            let next = match self.get(&target).await? {
                Reply::Image(bytes) => return Ok(bytes),
                Reply::Moved(to) => url.join(&to),
            };
            let next = next.map_err(|_| target.fault("redirects to what is no URL"))?;
            if target.tls && next.scheme() != "https" {
                return Err(target.fault("redirects from https to something else"));
            }
            url = next;
        }
        Err(ImageRefusal::not_fetched(format!("there are more than {MAX_REDIRECTS} redirects")))
    }

    fn check(&self, url: &Url) -> Result<Target, ImageRefusal> {
        let refuse = |what: String| Err(ImageRefusal::not_fetched(what));
        let tls = match url.scheme() {
            "http" => false,
            "https" => true,
            other => return refuse(format!("{other:?} URLs are not fetched; http and https are")),
        };
        let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
            return refuse("the URL names no host".to_owned());
        };
        if !url.username().is_empty() || url.password().is_some() {
            return refuse(format!("the URL of {host} holds a name or a password; no URL with one is fetched"));
        }
        if !self.rules.ports.contains(&port) {
            return refuse(format!(
                "port {port} of {host} is not one that images are fetched from (`images.fetch_ports`)"
            ));
        }
        let name = host.to_string();
        if !self.rules.hosts.is_empty() && !self.rules.hosts.iter().any(|entry| matches(entry, &name)) {
            return refuse(format!("{host} is not a host that images are fetched from (`images.fetch_hosts`)"));
        }
        let path = url.query().map_or(url.path().to_owned(), |query| format!("{}?{query}", url.path()));
        let authority = url.port().map_or(name.clone(), |port| format!("{name}:{port}"));
        Ok(Target { host: host.to_owned(), port, tls, path, authority })
    }

    async fn get(&self, target: &Target) -> Result<Reply, ImageRefusal> {
        let socket = self.connect(target).await?;
        if !target.tls {
            return self.exchange(TokioIo::new(socket), target).await;
        }
        let name = match &target.host {
            Host::Domain(name) => ServerName::try_from(name.clone()).map_err(|_| target.fault("is no name for TLS"))?,
            Host::Ipv4(ip) => ServerName::from(IpAddr::from(*ip)),
            Host::Ipv6(ip) => ServerName::from(IpAddr::from(*ip)),
        };
        let stream = self.tls.connect(name, socket).await;
        let stream = stream.map_err(|_| target.fault("speaks no TLS that can be trusted"))?;
        self.exchange(TokioIo::new(stream), target).await
    }

    /// To an address that was checked: nothing is resolved again.
    async fn connect(&self, target: &Target) -> Result<TcpStream, ImageRefusal> {
        let addresses: Vec<SocketAddr> = match &target.host {
            Host::Domain(name) => match lookup_host((name.as_str(), target.port)).await {
                Ok(found) => found.take(MAX_ADDRESSES).collect(),
                Err(_) => return Err(target.fault("is a name without an address")),
            },
            Host::Ipv4(ip) => vec![SocketAddr::new((*ip).into(), target.port)],
            Host::Ipv6(ip) => vec![SocketAddr::new((*ip).into(), target.port)],
        };
        // One closed address among open ones is a mistake or a trap.
        if !addresses.iter().all(|address| is_open(address.ip()) || self.exempt.contains(address)) {
            return Err(target.fault("is not on the open internet: addresses of private networks are not fetched from"));
        }
        for address in addresses {
            if let Ok(socket) = TcpStream::connect(address).await {
                return Ok(socket);
            }
        }
        Err(target.fault("cannot be reached"))
    }

    async fn exchange<S>(&self, stream: S, target: &Target) -> Result<Reply, ImageRefusal>
    where
        S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    {
        let broken = |_: hyper::Error| target.fault("broke the exchange off");
        let (mut sender, connection) =
            http1::Builder::new().max_buf_size(MAX_HEAD_BYTES).handshake(stream).await.map_err(broken)?;
        // Ends with this function.
        let mut driver = JoinSet::new();
        driver.spawn(connection);
        let request = Request::get(&target.path)
            .header(header::HOST, &target.authority)
            .header(header::USER_AGENT, "plateau")
            .header(header::ACCEPT, "image/*")
            .header(header::ACCEPT_ENCODING, "identity")
            .header(header::CONNECTION, "close")
            .body(String::new())
            .map_err(|_| target.fault("has a path that cannot be asked for"))?;
        let response = sender.send_request(request).await.map_err(broken)?;
        match response.status().as_u16() {
            200 => self.body(response, target).await.map(Reply::Image),
            301 | 302 | 303 | 307 | 308 => match text(response.headers(), header::LOCATION) {
                Some(to) => Ok(Reply::Moved(to.to_owned())),
                None => Err(target.fault("redirects to nowhere")),
            },
            status => Err(target.fault(&format!("answers with {status} where 200 is needed"))),
        }
    }

    async fn body(&self, response: Response<Incoming>, target: &Target) -> Result<Vec<u8>, ImageRefusal> {
        let limit = self.rules.max_bytes;
        if text(response.headers(), header::CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
            return Err(target.fault("sends the image in a coding that was not asked for"));
        }
        let announced = text(response.headers(), header::CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
        if announced.is_some_and(|length| length > limit) {
            return Err(ImageRefusal::too_long(limit));
        }
        let mut body = response.into_body();
        let mut bytes = Vec::new();
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            let frame = frame.map_err(|_| target.fault("broke the exchange off"))?;
            let Ok(data) = frame.into_data() else { continue };
            if (bytes.len() + data.len()) as u64 > limit {
                return Err(ImageRefusal::too_long(limit));
            }
            bytes.extend_from_slice(&data);
        }
        Ok(bytes)
    }
}

impl Target {
    fn fault(&self, what: &str) -> ImageRefusal {
        ImageRefusal::not_fetched(format!("{} {what}", self.host))
    }
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Does a host match an entry of the list. Names from `url` are in small letters.
fn matches(entry: &str, host: &str) -> bool {
    let entry = entry.trim_start_matches('*').to_ascii_lowercase();
    let host = host.trim_end_matches('.');
    match entry.strip_prefix('.') {
        Some(parent) => host.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.')),
        None => host == entry,
    }
}

#[cfg(test)]
mod tests;
