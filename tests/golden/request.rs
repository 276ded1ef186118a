//! A line of `requests.jsonl`.

use std::fmt;

use serde::Deserialize;
use serde_json::Value;

use crate::normal::{Reading, Told};

/// One request. Of the forms of a body at most one is there.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    pub name: String,
    /// Which of the servers in `servers` it goes to.
    #[serde(default = "plain")]
    pub to: String,
    pub method: String,
    pub path: String,
    #[serde(default)]
    pub headers: std::collections::BTreeMap<String, String>,
    body: Option<Value>,
    /// A body that is not JSON, or not written as we would.
    text: Option<String>,
    /// Characters that are sent as one byte each.
    latin1: Option<String>,
    /// A text so many times.
    repeat: Option<(String, usize)>,
    /// Join the deltas of a stream: the answer is long, and a client that lags gets several in one.
    #[serde(default)]
    pub merge: bool,
    /// It has several choices, which share steps or not as it happens: timings are left out.
    #[serde(default)]
    pub several: bool,
    /// Wait until the engine has published what it did.
    #[serde(default)]
    pub settle: bool,
    /// Also sent to real servers; not where only a scripted fault gives the answer.
    #[serde(default = "yes")]
    pub real: bool,
}

fn plain() -> String {
    "plain".to_owned()
}

fn yes() -> bool {
    true
}

/// Every request, in the order in which they are sent.
pub fn all() -> Vec<Recorded> {
    let lines = include_str!("requests.jsonl").lines();
    lines.map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line:.200}"))).collect()
}

impl Recorded {
    pub async fn send(&self, client: &reqwest::Client, url: &str, merge: bool) -> Told {
        let mut request = client.request(self.method.parse().unwrap(), format!("{url}{}", self.path));
        if self.body.is_some() {
            request = request.header("content-type", "application/json");
        }
        if let Some(bytes) = self.bytes() {
            request = request.body(bytes);
        }
        // A header of the request takes the place of one that is set above.
        let headers = self.headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let response = request.headers(headers.collect()).send().await;
        let how = Reading { merge: merge || self.merge, timings: !self.several };
        Told::read(response.unwrap_or_else(|error| panic!("{self}: {error}")), how).await
    }

    fn bytes(&self) -> Option<Vec<u8>> {
        let forms = [
            self.body.as_ref().map(|body| body.to_string().into_bytes()),
            self.text.as_ref().map(|text| text.clone().into_bytes()),
            self.latin1.as_ref().map(|text| text.chars().map(|c| u8::try_from(c).unwrap()).collect()),
            self.repeat.as_ref().map(|(text, n)| text.repeat(*n).into_bytes()),
        ];
        let mut given = forms.into_iter().flatten();
        let first = given.next();
        assert!(given.next().is_none(), "{}: two bodies", self.name);
        first
    }

    /// Is this a request for the route.
    pub fn is_for(&self, method: &str, path: &str) -> bool {
        let fits = match path.split_once("{*") {
            Some((before, _)) => self.path.starts_with(before),
            None => self.path == path,
        };
        self.method == method && fits
    }
}

impl fmt::Display for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = self.bytes().unwrap_or_default();
        let body: String = String::from_utf8_lossy(&body).chars().take(300).collect();
        write!(f, "[{}] {} {} (server {}) {body}", self.name, self.method, self.path, self.to)
    }
}
