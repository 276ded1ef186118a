//! The one table of settings. A row gives a key and, derived from it, the environment variable and the flag; its type and
//! range, its documentation, and the field of the profile behind it. Files, environment, command line, `profile show` and
//! the docs all read this table; nothing else lists settings.

use super::profile::{CacheType, FlashAttention, Profile, VisionDevice};
use super::value::{Field, Kind, Value};

/// New and old names of renamed sections. The old ones are read for one release.
const RENAMED_SECTIONS: &[(&str, &str)] = &[("images", "pictures")];

fn env_of(key: &str) -> String {
    format!("{}{}", super::env::PREFIX, key.replace('.', "_").to_uppercase())
}

fn flag_of(key: &str) -> String {
    key.replace(['.', '_'], "-")
}

/// One row.
pub struct Setting {
    /// `section.name`, as in a profile file.
    pub key: &'static str,
    /// Short names of the flag beside the derived one.
    pub short_flags: &'static [&'static str],
    pub kind: Kind,
    /// The word that means "no value", where there may be none.
    pub absent: Option<&'static str>,
    doc: &'static str,
    read: fn(&Profile) -> Value,
    write: fn(&mut Profile, &Value) -> bool,
}

impl Setting {
    /// By its key, or by the one that it had in the release before.
    pub fn find(key: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|setting| setting.key == key || setting.old_key().as_deref() == Some(key))
    }
    /// The key of the release before, where its section was renamed.
    pub fn old_key(&self) -> Option<String> {
        let (_, old) = RENAMED_SECTIONS.iter().find(|(new, _)| *new == self.section())?;
        Some(format!("{old}{}", &self.key[self.section().len()..]))
    }
    /// Is it of the section of this name, old names included.
    pub fn is_of(&self, section: &str) -> bool {
        self.section() == section || self.old_key().is_some_and(|old| old.split('.').next() == Some(section))
    }
    /// Is its environment variable called so, old names included.
    pub fn is_env(&self, name: &str) -> bool {
        self.env() == name || self.old_key().is_some_and(|old| env_of(&old) == name)
    }
    /// The table of a profile file: the key up to the dot.
    pub fn section(&self) -> &'static str {
        self.key.split('.').next().unwrap_or(self.key)
    }
    /// `PLATEAU_ENGINE_CTX_TOKENS`.
    pub fn env(&self) -> String {
        env_of(self.key)
    }
    /// `engine-ctx-tokens`, without the dashes in front.
    pub fn flag(&self) -> String {
        flag_of(self.key)
    }
    /// The flag of the release before.
    pub fn old_flag(&self) -> Option<String> {
        self.old_key().map(|old| flag_of(&old))
    }
    /// The documentation, one paragraph.
    pub fn doc(&self) -> &'static str {
        self.doc.trim()
    }
    /// What is accepted, as a phrase.
    pub fn accepts(&self) -> String {
        match self.absent {
            Some(word) => format!("{}, or `{word}`", self.kind),
            None => self.kind.to_string(),
        }
    }
    pub fn read(&self, profile: &Profile) -> Value {
        (self.read)(profile)
    }
    /// The value as a profile file writes it.
    pub fn show(&self, profile: &Profile) -> String {
        match (self.read(profile), self.absent) {
            (Value::Absent, Some(word)) => format!("{word:?}"),
            (value, _) => value.to_string(),
        }
    }
    /// `false`: the value is not of the field's type.
    pub fn write(&self, profile: &mut Profile, value: &Value) -> bool {
        (self.write)(profile, value)
    }
    /// Reads text as a flag or an environment variable gives it.
    pub fn parse(&self, text: &str) -> Result<Value, String> {
        if self.absent == Some(text) { Ok(Value::Absent) } else { self.kind.parse(text) }
    }
    /// Reads a value of a profile file.
    pub fn read_toml(&self, value: &toml::de::DeValue<'_>) -> Result<Value, String> {
        match value {
            toml::de::DeValue::String(s) if self.absent == Some(s.as_ref()) => Ok(Value::Absent),
            _ => self.kind.read_toml(value),
        }
    }
}

const fn int(min: i64, max: i64) -> Kind {
    Kind::Int { min, max }
}
const fn float(min: f64, max: f64) -> Kind {
    Kind::Float { min, max }
}

macro_rules! settings {
    (@option) => { None };
    (@option $some:literal) => { Some($some) };
    ($( $(#[doc = $doc:literal])+ $section:ident.$field:ident $(--$short:literal)* : $kind:expr $(, or $absent:literal)? ; )+) => {
        /// Every setting, grouped by section.
        pub const SETTINGS: &[Setting] = &[ $( Setting {
            key: concat!(stringify!($section), ".", stringify!($field)),
            short_flags: &[$($short),*],
            kind: $kind,
            absent: settings!(@option $($absent)?),
            doc: concat!($($doc),+),
            read: |profile| profile.$section.$field.read(),
            write: |profile, value| profile.$section.$field.write(value),
        } ),+ ];
    };
}

settings! {
    /// GGUF file to serve (the first part of a split one); `embedded` is the demo model inside the binary.
    model.path --"model": Kind::Path, or "embedded";
    /// GGUF file of the projector ("mmproj") with which the model sees images; "embedded" is the demo model's
    /// own, "none" refuses images, and `auto` is the former with the demo model and the latter with others.
    model.mmproj --"mmproj": Kind::Path, or "auto";
    /// Name shown by /v1/models; `gguf` takes it from the file.
    model.alias --"alias": Kind::Text, or "gguf";
    /// Layers on the GPU; 0 keeps the model on the CPU.
    model.gpu_layers --"gpu-layers": int(0, 4096), or "all";
    /// Folder searched for backend plug-ins (libggml-*.so); `beside` is the folder of the executable.
    model.plugin_dir --"plugin-dir": Kind::Path, or "beside";
    /// Switches for the CUDA plug-in's own kernels, by commas: `-fattn_quant` turns one off, `+fattn_quant` on, `-all` leaves
    /// everything to llama.cpp; docs/kernels.md lists them. PLATEAU_KERNELS says the same.
    model.kernels --"kernels": Kind::Text, or "default";
    /// Map the file instead of reading it: faster start, pages are dropped under memory pressure.
    model.mmap: Kind::Bool;
    /// Lock the weights in RAM (needs the memlock limit raised).
    model.mlock: Kind::Bool;

    /// Tokens in the KV cache, shared by all sequences; `model` is the length that the model was trained for.
    engine.ctx_tokens --"ctx-tokens" --"ctx": int(256, 16_777_216), or "model";
    /// Sequences generated at once.
    engine.parallel --"parallel": int(1, 8);
    /// Most tokens in one step over all sequences.
    engine.batch_tokens --"batch-tokens": int(1, 65_536);
    /// Tokens that the device takes at once, and prompt tokens of a step while nothing generates; the compute buffer grows
    /// with it.
    engine.ubatch_tokens --"ubatch-tokens" --"ubatch": int(1, 16_384);
    /// Element type of cached keys: the sensitive half of the cache.
    engine.cache_type_k --"cache-type-k": Kind::Choice(CacheType::WORDS);
    /// Element type of cached values; a quantized one needs flash attention.
    engine.cache_type_v --"cache-type-v": Kind::Choice(CacheType::WORDS);
    /// Attention without a matrix of scores.
    engine.flash_attention --"flash-attention": Kind::Choice(FlashAttention::WORDS);
    /// CPU threads while generating; `cores` is one a physical core.
    engine.threads --"threads": int(1, 1024), or "cores";
    /// CPU threads while reading prompts; `cores` is one a physical core.
    engine.threads_batch --"threads-batch": int(1, 1024), or "cores";
    /// Requests that may wait; one more is answered with 503.
    engine.queue_capacity: int(1, 65_536);
    /// Most prompt tokens in a step while other sequences generate: smaller is smoother for them.
    engine.prefill_chunk_tokens: int(1, 65_536);
    /// Seconds that one step may last before /health says that the engine hangs.
    engine.stall_seconds: int(1, 86_400);

    /// Address to listen at.
    server.host --"host": Kind::Text;
    /// Port to listen at; 0 lets the system pick one.
    server.port --"port": int(0, 65_535);
    /// Bearer key that clients must send; `none` serves everyone who reaches the port.
    server.api_key --"api-key": Kind::Text, or "none";
    /// Origins that browsers may call from (CORS).
    server.cors_origins: Kind::List;
    /// Host headers accepted besides loopback names and the bound address; "*" accepts all.
    server.allowed_hosts: Kind::List;
    /// Seconds that a client may keep the server waiting: for the head of a request, also on a connection kept open after an
    /// answer, and for the next piece of its body. Answers take as long as they take.
    server.read_timeout_seconds: int(1, 3600);
    /// Seconds between keep-alive comments in a stream that has nothing else to say.
    server.ping_seconds: int(1, 3600);
    /// Seconds that running generations get when the server stops.
    server.grace_seconds: int(0, 3600);
    /// Report an overflow with OpenAI's code context_length_exceeded instead of llama.cpp's error type.
    server.openai_overflow_code: Kind::Bool;

    /// Largest request body in bytes.
    limits.body_bytes: int(1024, 1_073_741_824);
    /// Deepest nesting of a request's JSON.
    limits.json_depth: int(8, 120);
    /// Most messages in a request.
    limits.messages: int(1, 1_000_000);
    /// Most tools in a request.
    limits.tools: int(0, 10_000);
    /// Most stop strings in a request.
    limits.stop_strings: int(0, 1024);
    /// Longest stop string in bytes.
    limits.stop_string_bytes: int(1, 65_536);
    /// Most choices (`n`) in a request.
    limits.n: int(1, 128);
    /// Work that rendering the chat template may take, in minijinja's fuel.
    limits.template_fuel: int(10_000, 10_000_000_000);

    /// Jinja file that replaces the model's chat template; `gguf` keeps the model's own.
    chat.template: Kind::Path, or "gguf";
    /// Does the model think when a request does not say; `template` leaves it to the chat template.
    chat.thinking --"thinking": Kind::Bool, or "template";
    /// How a system message after the first user message is wrapped; {} is its text.
    chat.late_system_wrapper: Kind::Text;
    /// Is a well-formed call to a declared tool a call also where the model has not closed its thinking; it ends the thinking then.
    chat.calls_end_thinking: Kind::Bool;

    /// Shape of the thinking when a request does not say: a grammar of `plateau grammar list` or a GBNF file; `none` leaves it free.
    thinking.grammar: Kind::Text, or "none";
    /// Most tokens of the thinking when a request does not say; it is closed there and the answer begins. `none` has no bound.
    thinking.budget_tokens --"thinking-budget": int(0, 16_777_216), or "none";
    /// What is written at the end of thinking that is closed at its bound.
    thinking.message: Kind::Text;
    /// Bound of the thinking for `reasoning_effort: "minimal"`, where the chat template knows no efforts; `none` has no bound.
    thinking.effort_minimal_tokens: int(0, 16_777_216), or "none";
    /// The same for "low".
    thinking.effort_low_tokens: int(0, 16_777_216), or "none";
    /// The same for "medium".
    thinking.effort_medium_tokens: int(0, 16_777_216), or "none";
    /// The same for "high" and above.
    thinking.effort_high_tokens: int(0, 16_777_216), or "none";

    /// Temperature; 0 always takes the most probable token.
    sampling.temperature --"temperature" --"temp": float(0.0, 10.0);
    /// Keep the k most probable tokens; 0 is off.
    sampling.top_k --"top-k": int(0, 1_000_000);
    /// Keep the most probable tokens up to this total; 1 is off.
    sampling.top_p --"top-p": float(0.0, 1.0);
    /// Drop tokens less probable than this share of the best; 0 is off.
    sampling.min_p --"min-p": float(0.0, 1.0);
    /// Locally typical sampling; 1 is off.
    sampling.typical_p: float(0.0, 1.0);
    /// Divides the logits of tokens seen before; 1 is off.
    sampling.repeat_penalty: float(0.01, 10.0);
    /// Taken once from the logits of tokens seen before; 0 is off.
    sampling.presence_penalty: float(-2.0, 2.0);
    /// Taken from the logits of tokens seen before, once for each time; 0 is off.
    sampling.frequency_penalty: float(-2.0, 2.0);
    /// Tokens that the three penalties look back over; -1 is all, 0 is off.
    sampling.penalty_last_n: int(-1, 16_777_216);

    /// Most tokens of an answer when a request does not say; `context` generates until the context is full.
    generation.max_tokens --"max-tokens": int(1, 16_777_216), or "context";

    /// Draft with the model's MTP head, where the file has one; `false` loads neither its weights nor its cache.
    speculative.mtp --"mtp": Kind::Bool;
    /// Draft with what followed the same words earlier in prompt and answer.
    speculative.lookup --"lookup": Kind::Bool;
    /// Draft only as much as pays, by measured acceptance and cost; `false` always drafts the most.
    speculative.adaptive: Kind::Bool;
    /// Most tokens that the MTP head drafts for a sequence in a step; requests may ask for fewer, 0 is off.
    speculative.n_max --"draft-max": int(0, 8);
    /// A draft of fewer tokens is dropped.
    speculative.n_min: int(0, 8);
    /// The MTP head stops drafting where its best token is less probable; 0 is off.
    speculative.p_min --"draft-p-min": float(0.0, 1.0);
    /// Most tokens that lookup drafts for a sequence in a step, 0 is off. A hybrid model keeps one recurrent state a sequence
    /// for each token of the longest draft.
    speculative.lookup_n_max: int(0, 15);
    /// Element type of cached keys of the MTP head.
    speculative.cache_type_k: Kind::Choice(CacheType::WORDS);
    /// Element type of cached values of the MTP head; a quantized one needs flash attention.
    speculative.cache_type_v: Kind::Choice(CacheType::WORDS);

    /// Host memory in MiB for the states that later prompts go on from; 0 is off, `auto` a quarter of what is free at the start.
    cache.ram_mib --"cache-ram": int(0, 16_777_216), or "auto";
    /// Folder where these states survive the process, in a subfolder for each model and configuration; `none` keeps nothing on
    /// disk. What clients sent is in the files: keep the folder to yourself.
    cache.disk_dir --"cache-dir": Kind::Path, or "none";
    /// Disk space in MiB for the states of one model and configuration.
    cache.disk_mib --"cache-disk": int(1, 1_073_741_824);
    /// Tokens between states of a prompt without marks; `auto` is a power of two from 128 up, such that a full context takes a
    /// quarter of the memory.
    cache.interval_tokens: int(16, 16_777_216), or "auto";
    /// Compute every so many restores again and compare, at the cost of the prefill; `never` trusts.
    cache.check_every: int(1, 1_000_000), or "never";

    /// Where images are encoded: on the GPU, if there is one, or on the CPU, which takes seconds and no memory of the GPU.
    vision.device: Kind::Choice(VisionDevice::WORDS);
    /// Keep the encoder loaded; `false` loads it for each image and frees its memory after, at the cost of reading the file.
    vision.keep_loaded: Kind::Bool;
    /// Smaller images are enlarged to so many tokens; `encoder` is its own bound.
    vision.min_tokens: int(1, 65_536), or "encoder";
    /// Larger images are shrunk to so many tokens; the encoder's compute buffer grows with it. `encoder` is its own bound.
    vision.max_tokens: int(1, 65_536), or "encoder";
    /// Host memory in MiB for encoded images, so that one that comes again is not encoded again.
    vision.cache_mib: int(0, 1_048_576);

    /// Most images in a request.
    images.max_per_request: int(1, 4096);
    /// Largest image file in bytes.
    images.max_bytes: int(1024, 1_073_741_824);
    /// Longest side of an image in pixels.
    images.max_side: int(16, 32_768);
    /// Most pixels of an image; decoding one takes up to 16 bytes a pixel for a moment.
    images.max_pixels: int(1024, 1_000_000_000);
    /// Most pixels of all images of a request together.
    images.total_pixels: int(1024, 4_000_000_000);
    /// Tokens to which images with `detail: "low"` are shrunk.
    images.low_tokens: int(16, 65_536);
    /// Images decoded at once, over all requests: each takes a core, and the memory of `images.max_pixels`.
    images.decoders: int(1, 64);
    /// Largest request body in bytes where the model sees images; `limits.body_bytes` holds where it is more.
    images.body_bytes: int(1024, 1_073_741_824);
    /// Folder from which `file://` URLs in requests are read, without following links; `none` refuses them. Whoever may send a
    /// request can see all images in it.
    images.dir: Kind::Path, or "none";
    /// Fetch images from `http://` and `https://` URLs in requests, from the open internet alone. The server then sends
    /// requests wherever its clients say.
    images.fetch: Kind::Bool;
    /// Hosts that images are fetched from: `example.org`, or `.example.org` for all names below it; empty is all.
    images.fetch_hosts: Kind::List;
    /// Ports that images are fetched from.
    images.fetch_ports: Kind::List;
    /// Seconds that fetching all images of a request may take.
    images.fetch_seconds: int(1, 600);
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn samples(setting: &Setting) -> Vec<Value> {
        let mut samples = match setting.kind {
            Kind::Bool => vec![Value::Bool(true), Value::Bool(false)],
            Kind::Int { min, max } => vec![Value::Int(min), Value::Int(max)],
            Kind::Float { .. } => vec![Value::Float(0.5)],
            Kind::Text | Kind::Path => vec![Value::Text("x".into())],
            Kind::List => vec![Value::List(vec!["x".into()])],
            Kind::Choice(words) => words.iter().map(|word| Value::Text((*word).into())).collect(),
        };
        samples.extend(setting.absent.map(|_| Value::Absent));
        samples
    }

    #[test]
    fn every_value_in_range_can_be_written_and_reads_back() {
        let mut profile = Profile::demo();
        for setting in SETTINGS {
            for sample in samples(setting) {
                assert!(setting.write(&mut profile, &sample), "{} refuses {sample:?}", setting.key);
                assert_eq!(setting.read(&profile), sample, "{}", setting.key);
            }
        }
    }

    #[test]
    fn only_optional_fields_have_a_word_for_no_value() {
        for setting in SETTINGS {
            let takes_none = setting.write(&mut Profile::demo(), &Value::Absent);
            assert_eq!(takes_none, setting.absent.is_some(), "{}", setting.key);
        }
    }

    #[test]
    fn no_two_settings_share_a_flag() {
        let mut seen = HashSet::new();
        for setting in SETTINGS {
            assert!(seen.insert(setting.flag()), "--{}", setting.flag());
            for short in setting.short_flags {
                assert!(seen.insert((*short).to_owned()), "--{short}");
            }
        }
    }

    #[test]
    fn names_are_derived_from_the_key() {
        let setting = Setting::find("engine.ctx_tokens").unwrap();
        assert_eq!(setting.env(), "PLATEAU_ENGINE_CTX_TOKENS");
        assert_eq!(setting.flag(), "engine-ctx-tokens");
        assert_eq!(setting.section(), "engine");
        assert_eq!(setting.parse("model"), Ok(Value::Absent));
    }
}
