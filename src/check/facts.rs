//! What a server says of itself: its kind, its model, its context, what is on. What it does not say is `None`.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use super::client::{Client, ClientError};

/// The time of a question without a model behind it.
pub const SHORT_TIMEOUT: Duration = Duration::from_secs(15);

/// Which server it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Plateau,
    LlamaServer,
    Vllm,
    Sglang,
    Unknown,
}

/// A kernel of plateau's plug-in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kernel {
    pub name: String,
    pub on: bool,
    pub calls: u64,
    pub fallbacks: u64,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Facts {
    pub url: String,
    pub kind: Kind,
    pub model: String,
    pub n_ctx: Option<u64>,
    pub build: String,
    pub backend: Option<String>,
    pub profile: Option<String>,
    pub kernels: Vec<Kernel>,
    /// Does the template print tools, does it think?
    pub tools: Option<bool>,
    pub thinking: Option<bool>,
    /// Does the MTP head draft, and if not, why?
    pub mtp: Option<bool>,
    pub mtp_off: Option<String>,
    /// One text for one server, build, model, context and kernels: results of different ones do not belong together.
    pub fingerprint: String,
}

impl Facts {
    /// Asks the server. The model and the context that are named outweigh what it says.
    ///
    /// # Errors
    /// A server that does not list its models.
    pub async fn ask(client: &Client, model: Option<&str>, n_ctx: Option<u64>) -> Result<Facts, ClientError> {
        let models = client.get("/v1/models", SHORT_TIMEOUT).await?;
        // Only llama-server and plateau have it.
        let props = client.get("/props", SHORT_TIMEOUT).await.ok().filter(Value::is_object);
        let listed = models.pointer("/data/0").unwrap_or(&Value::Null);
        let mut facts = Facts::read(listed, props.as_ref().unwrap_or(&Value::Null));
        client.base().clone_into(&mut facts.url);
        if let Some(model) = model {
            model.clone_into(&mut facts.model);
        }
        facts.n_ctx = n_ctx.or(facts.n_ctx);
        facts.set_fingerprint();
        Ok(facts)
    }

    fn read(listed: &Value, props: &Value) -> Facts {
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let template = props["chat_template"].as_str();
        let feature = |name: &str| props["features"][name]["on"].as_bool();
        let mentions = |what: &[&str]| template.map(|template| what.iter().any(|word| template.contains(word)));
        let contexts = [
            &props["n_ctx"],
            &props["default_generation_settings"]["n_ctx"],
            &listed["max_model_len"],
            &listed["context_length"],
            &listed["meta"]["n_ctx"],
        ];
        Facts {
            url: String::new(),
            kind: kind(listed, props),
            model: text(&listed["id"]).unwrap_or_default(),
            n_ctx: contexts.into_iter().find_map(Value::as_u64).filter(|n| *n > 0),
            build: text(&props["build_info"]).unwrap_or_default(),
            backend: text(&props["backend"]),
            profile: text(&props["profile"]),
            kernels: props["kernels"].as_array().into_iter().flatten().map(kernel).collect(),
            tools: feature("tools").or_else(|| mentions(&["tools"])),
            thinking: mentions(&["enable_thinking", "<think>", "reasoning_effort"]),
            mtp: props["speculative"]["mtp"].as_bool(),
            mtp_off: text(&props["speculative"]["reason"]),
            fingerprint: String::new(),
        }
    }

    /// Takes up what an answer says of its server, where nothing else told.
    pub fn learn(&mut self, system_fingerprint: &str) {
        if self.build.is_empty() && !system_fingerprint.is_empty() {
            system_fingerprint.clone_into(&mut self.build);
        }
        if self.kind == Kind::Unknown {
            self.kind = match system_fingerprint {
                text if text.starts_with("vllm-") => Kind::Vllm,
                text if text.starts_with("sglang-") => Kind::Sglang,
                _ => Kind::Unknown,
            };
        }
        self.set_fingerprint();
    }

    fn set_fingerprint(&mut self) {
        let on: Vec<&str> = self.kernels.iter().filter(|k| k.on).map(|k| k.name.as_str()).collect();
        let n_ctx = self.n_ctx.map_or_else(|| "?".to_owned(), |n| n.to_string());
        let parts = [self.kind.name(), &self.build, &self.model, &n_ctx, &on.join("+")];
        self.fingerprint = parts.join("|");
    }

    /// Is the model on the processor, as far as the server tells?
    pub fn is_on_cpu(&self) -> bool {
        self.backend.as_deref().is_some_and(|backend| backend.to_ascii_lowercase().contains("cpu"))
    }

    pub fn json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_else(|_| json!({}))
    }
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Plateau => "plateau",
            Kind::LlamaServer => "llama-server",
            Kind::Vllm => "vllm",
            Kind::Sglang => "sglang",
            Kind::Unknown => "unknown",
        }
    }
}

fn kind(listed: &Value, props: &Value) -> Kind {
    match (props.get("kernels").is_some(), props.is_null(), listed["owned_by"].as_str()) {
        (true, ..) => Kind::Plateau,
        (false, false, _) => Kind::LlamaServer,
        (_, _, Some("vllm")) => Kind::Vllm,
        (_, _, Some("sglang")) => Kind::Sglang,
        _ => Kind::Unknown,
    }
}

fn kernel(value: &Value) -> Kernel {
    let count = |key: &str| value[key].as_u64().unwrap_or(0);
    Kernel {
        name: value["name"].as_str().unwrap_or_default().to_owned(),
        on: value["on"].as_bool().unwrap_or(false),
        calls: count("calls"),
        fallbacks: count("fallbacks"),
    }
}

/// The kernels' counts now.
///
/// # Errors
/// A server that does not answer.
pub async fn kernels(client: &Client) -> Result<Vec<Kernel>, ClientError> {
    let props = client.get("/props", SHORT_TIMEOUT).await?;
    Ok(props["kernels"].as_array().into_iter().flatten().map(kernel).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_known_by_what_it_has() {
        let (nothing, props) = (Value::Null, json!({"chat_template": "x"}));
        let kernels = json!({"kernels": [{"name": "gdn", "on": true, "calls": 3, "fallbacks": 1}], "n_ctx": 5,
            "speculative": {"mtp": false, "reason": "no head"}, "features": {"tools": {"on": true}}, "backend": "llama.cpp (CPU)"});
        let vllm = json!({"id": "m", "owned_by": "vllm", "max_model_len": 9});
        for (listed, props, expected) in [
            (&nothing, &kernels, Kind::Plateau),
            (&nothing, &props, Kind::LlamaServer),
            (&vllm, &nothing, Kind::Vllm),
            (&nothing, &nothing, Kind::Unknown),
        ] {
            assert_eq!(Facts::read(listed, props).kind, expected);
        }
        let facts = Facts::read(&nothing, &kernels);
        assert_eq!((facts.n_ctx, facts.tools, facts.mtp, facts.is_on_cpu()), (Some(5), Some(true), Some(false), true));
        assert_eq!(facts.kernels[0].calls, 3);
        assert_eq!(Facts::read(&vllm, &nothing).n_ctx, Some(9));
        assert_eq!(Facts::read(&nothing, &props).tools, Some(false), "the template does not mention them");
        let mut unknown = Facts::read(&nothing, &nothing);
        unknown.learn("sglang-0.5");
        assert_eq!((unknown.kind, unknown.build.as_str()), (Kind::Sglang, "sglang-0.5"));
        assert!(unknown.fingerprint.starts_with("sglang|sglang-0.5|"), "{}", unknown.fingerprint);
    }
}
