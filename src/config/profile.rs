//! The validated profile: one value for every setting. Built by `file`, read by all layers.

use std::path::PathBuf;

use super::images::ImagesConfig;

/// Everything that will run.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    pub name: String,
    /// One line for `profile list`.
    pub description: String,
    pub model: ModelConfig,
    pub engine: EngineConfig,
    pub server: ServerConfig,
    pub limits: LimitsConfig,
    pub chat: ChatConfig,
    pub thinking: ThinkingConfig,
    pub sampling: SamplingDefaults,
    pub generation: GenerationDefaults,
    pub speculative: SpeculativeConfig,
    pub cache: CacheConfig,
    pub vision: VisionConfig,
    pub images: ImagesConfig,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// `None`: the embedded demo model.
    pub path: Option<PathBuf>,
    /// Where the projector is.
    pub mmproj: Projector,
    /// Name shown by `/v1/models`; `None`: from the GGUF.
    pub alias: Option<String>,
    /// Layers on the GPU; `None`: all.
    pub gpu_layers: Option<u32>,
    /// Folder searched for `libggml-cuda*.so` and other plug-ins; `None`: the executable's folder.
    pub plugin_dir: Option<PathBuf>,
    /// Switches for the kernels of the CUDA plug-in, "-name,+name"; `None`: as the plug-in comes.
    pub kernels: Option<String>,
    pub mmap: bool,
    pub mlock: bool,
}

/// What lets the model see images.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Projector {
    /// The demo model's own with the demo model, none with others.
    #[default]
    Auto,
    /// Images are off.
    Off,
    /// The demo model's own, which is in the executable.
    Embedded,
    /// A GGUF file of its own.
    File(PathBuf),
}

impl Projector {
    /// The words that stand for `Off` and `Embedded`.
    pub const OFF: &'static str = "none";
    pub const EMBEDDED: &'static str = "embedded";
}

/// KV cache element types that profiles may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheType {
    F32,
    F16,
    Bf16,
    Q8_0,
    Q5_1,
    Q5_0,
    Q4_1,
    Q4_0,
}

impl CacheType {
    /// Names in profiles, most precise first; the same as llama.cpp's.
    pub const WORDS: &'static [&'static str] = &["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"];
    const ALL: [CacheType; 8] = [
        CacheType::F32,
        CacheType::F16,
        CacheType::Bf16,
        CacheType::Q8_0,
        CacheType::Q5_1,
        CacheType::Q5_0,
        CacheType::Q4_1,
        CacheType::Q4_0,
    ];

    pub fn from_word(word: &str) -> Option<CacheType> {
        CacheType::ALL.into_iter().find(|t| t.word() == word)
    }
    pub fn word(self) -> &'static str {
        match self {
            CacheType::F32 => "f32",
            CacheType::F16 => "f16",
            CacheType::Bf16 => "bf16",
            CacheType::Q8_0 => "q8_0",
            CacheType::Q5_1 => "q5_1",
            CacheType::Q5_0 => "q5_0",
            CacheType::Q4_1 => "q4_1",
            CacheType::Q4_0 => "q4_0",
        }
    }
    /// Bytes of 32 elements, scales included.
    pub fn bytes_per_32(self) -> u64 {
        match self {
            CacheType::F32 => 128,
            CacheType::F16 | CacheType::Bf16 => 64,
            CacheType::Q8_0 => 34,
            CacheType::Q5_1 => 24,
            CacheType::Q5_0 => 22,
            CacheType::Q4_1 => 20,
            CacheType::Q4_0 => 18,
        }
    }
    /// Stored in blocks of 32 with a scale.
    pub fn is_quantized(self) -> bool {
        !matches!(self, CacheType::F32 | CacheType::F16 | CacheType::Bf16)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlashAttention {
    Auto,
    On,
    Off,
}

impl FlashAttention {
    /// Names in profiles.
    pub const WORDS: &'static [&'static str] = &["auto", "on", "off"];

    pub fn from_word(word: &str) -> Option<FlashAttention> {
        [FlashAttention::Auto, FlashAttention::On, FlashAttention::Off].into_iter().find(|f| f.word() == word)
    }
    pub fn word(self) -> &'static str {
        match self {
            FlashAttention::Auto => "auto",
            FlashAttention::On => "on",
            FlashAttention::Off => "off",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct EngineConfig {
    /// Tokens in the KV cache, shared by all sequences; `None`: the model's training length.
    pub ctx_tokens: Option<u32>,
    /// Sequences at once, 1..=8.
    pub parallel: u32,
    pub batch_tokens: u32,
    pub ubatch_tokens: u32,
    pub cache_type_k: CacheType,
    pub cache_type_v: CacheType,
    pub flash_attention: FlashAttention,
    /// `None`: one a physical core.
    pub threads: Option<u32>,
    pub threads_batch: Option<u32>,
    /// Requests that may wait; one more gets 503.
    pub queue_capacity: u32,
    /// Most prefill tokens in a step while other sequences decode.
    pub prefill_chunk_tokens: u32,
    /// Seconds after which a step counts as hanging.
    pub stall_seconds: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    pub host: String,
    pub port: u16,
    /// Bearer key; `None`: open.
    pub api_key: Option<String>,
    /// Origins allowed by CORS; empty: none.
    pub cors_origins: Vec<String>,
    /// Host header values allowed besides loopback names and the bound address; "*" allows all.
    pub allowed_hosts: Vec<String>,
    /// Seconds that a client may keep the server waiting for the head of a request or for more of its body.
    pub read_timeout_seconds: u32,
    /// Seconds between SSE comments while nothing else is sent.
    pub ping_seconds: u32,
    /// Seconds that running generations get at shutdown.
    pub grace_seconds: u32,
    /// Use OpenAI's `context_length_exceeded` as the code of an overflow instead of llama.cpp's error type.
    pub openai_overflow_code: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct LimitsConfig {
    pub body_bytes: u64,
    pub json_depth: u32,
    pub messages: u32,
    pub tools: u32,
    pub stop_strings: u32,
    pub stop_string_bytes: u32,
    pub n: u32,
    /// minijinja fuel for one template rendering.
    pub template_fuel: u64,
}

/// How later system messages are folded.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatConfig {
    /// Jinja file that replaces the GGUF's template.
    pub template: Option<PathBuf>,
    /// Default of `enable_thinking` when the request says nothing; `None`: the template's own default.
    pub thinking: Option<bool>,
    /// Wrapper for a system message after the first user message; `{}` is its text.
    pub late_system_wrapper: String,
    /// A well-formed call to a declared tool inside unclosed thinking is a call and ends the thinking; else it is thinking.
    pub calls_end_thinking: bool,
}

/// Bounds on thinking where a request sets none. `None`: no bound.
#[derive(Clone, Debug, PartialEq)]
pub struct ThinkingConfig {
    /// Name of a shipped grammar or path of a GBNF file.
    pub grammar: Option<String>,
    pub budget_tokens: Option<u32>,
    /// Written before thinking is closed at its bound.
    pub message: String,
    /// Bounds by the degree of effort that a request asks for.
    pub effort_minimal_tokens: Option<u32>,
    pub effort_low_tokens: Option<u32>,
    pub effort_medium_tokens: Option<u32>,
    pub effort_high_tokens: Option<u32>,
}

impl Default for ThinkingConfig {
    /// Thinking is free unless a request asks for little effort.
    fn default() -> ThinkingConfig {
        ThinkingConfig {
            grammar: None,
            budget_tokens: None,
            message: "\nThe time for thinking is over, so I answer now.\n".into(),
            effort_minimal_tokens: Some(256),
            effort_low_tokens: Some(1024),
            effort_medium_tokens: Some(4096),
            effort_high_tokens: None,
        }
    }
}

/// Defaults of sampling fields.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingDefaults {
    pub temperature: f32,
    pub top_k: u32,
    pub top_p: f32,
    pub min_p: f32,
    pub typical_p: f32,
    pub repeat_penalty: f32,
    pub presence_penalty: f32,
    pub frequency_penalty: f32,
    /// -1: all, 0: off.
    pub penalty_last_n: i32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct GenerationDefaults {
    /// `None`: until the context is full.
    pub max_tokens: Option<u32>,
}

/// Drafting. Both sources off: no MTP context, no rollback states, no MTP weights.
#[derive(Clone, Debug, PartialEq)]
pub struct SpeculativeConfig {
    /// Draft with the model's MTP head, where it has one.
    pub mtp: bool,
    /// Draft with what followed the same words earlier in prompt and answer.
    pub lookup: bool,
    /// Draft only as much as pays, by measured acceptance and cost; else always the most.
    pub adaptive: bool,
    /// Most tokens that the MTP head drafts for a sequence in a step.
    pub n_max: u32,
    /// A draft of fewer tokens is dropped.
    pub n_min: u32,
    /// The MTP head stops where its best token is less probable.
    pub p_min: f32,
    /// Most tokens that lookup drafts for a sequence in a step. The larger of `n_max` and this one sets the number of
    /// recurrent states that are kept for rollback.
    pub lookup_n_max: u32,
    /// Element types of the MTP head's own KV cache.
    pub cache_type_k: CacheType,
    pub cache_type_v: CacheType,
}

/// The prefix cache: states of prompts and answers that later prompts go on from.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheConfig {
    /// Host memory for saved states; 0: off; `None`: a quarter of what is free.
    pub ram_mib: Option<u32>,
    /// Folder of the disk tier; `None`: there is none.
    pub disk_dir: Option<PathBuf>,
    pub disk_mib: u32,
    /// Tokens between saved states where a prompt has no marks; `None`: by the size of a state.
    pub interval_tokens: Option<u32>,
    /// Every so many restores are computed again and compared; `None`: none is.
    pub check_every: Option<u32>,
}

impl Default for CacheConfig {
    fn default() -> CacheConfig {
        CacheConfig { ram_mib: None, disk_dir: None, disk_mib: 20_480, interval_tokens: None, check_every: None }
    }
}

/// How images are encoded.
#[derive(Clone, Debug, PartialEq)]
pub struct VisionConfig {
    pub device: VisionDevice,
    /// Else the encoder is loaded for each image and freed after it.
    pub keep_loaded: bool,
    /// Tokens of the smallest and the largest image; `None`: as the encoder has them.
    pub min_tokens: Option<u32>,
    pub max_tokens: Option<u32>,
    /// Host memory for encoded images.
    pub cache_mib: u32,
}

impl Default for VisionConfig {
    fn default() -> VisionConfig {
        VisionConfig {
            device: VisionDevice::Gpu,
            keep_loaded: true,
            min_tokens: None,
            max_tokens: None,
            cache_mib: 256,
        }
    }
}

/// What computes the encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VisionDevice {
    /// The GPU where there is one.
    Gpu,
    Cpu,
}

impl VisionDevice {
    /// Names in profiles.
    pub const WORDS: &'static [&'static str] = &["gpu", "cpu"];

    pub fn from_word(word: &str) -> Option<VisionDevice> {
        [VisionDevice::Gpu, VisionDevice::Cpu].into_iter().find(|device| device.word() == word)
    }
    pub fn word(self) -> &'static str {
        match self {
            VisionDevice::Gpu => "gpu",
            VisionDevice::Cpu => "cpu",
        }
    }
}

impl ModelConfig {
    /// What lets this model see images: never `Auto`.
    pub fn projector(&self) -> Projector {
        match (&self.mmproj, &self.path) {
            (Projector::Auto, None) => Projector::Embedded,
            (Projector::Auto, Some(_)) => Projector::Off,
            (given, _) => given.clone(),
        }
    }
}

impl VisionConfig {
    /// Tokens of the smallest and the largest image, where the encoder has these bounds.
    pub fn bounds(&self, min: u32, max: u32) -> (u32, u32) {
        let max = self.max_tokens.unwrap_or(max.max(self.min_tokens.unwrap_or(0)));
        (self.min_tokens.unwrap_or(min).min(max), max)
    }
}

impl Default for SpeculativeConfig {
    fn default() -> SpeculativeConfig {
        SpeculativeConfig {
            mtp: true,
            lookup: true,
            adaptive: true,
            n_max: 3,
            n_min: 0,
            p_min: 0.0,
            lookup_n_max: 8,
            cache_type_k: CacheType::F16,
            cache_type_v: CacheType::F16,
        }
    }
}

impl SpeculativeConfig {
    /// What is left of it for a model: a source that may draft no token is off, and so is MTP without a head.
    pub fn in_effect(&self, has_mtp_head: bool) -> SpeculativeConfig {
        SpeculativeConfig {
            mtp: self.mtp && self.n_max > 0 && has_mtp_head,
            lookup: self.lookup && self.lookup_n_max > 0,
            ..self.clone()
        }
    }

    /// Most drafted tokens of a sequence in a step; 0: drafting is off.
    pub fn draft_tokens_max(&self) -> u32 {
        let mtp = if self.mtp { self.n_max } else { 0 };
        let lookup = if self.lookup { self.lookup_n_max } else { 0 };
        mtp.max(lookup)
    }
}

impl Profile {
    /// The built-in `demo` profile as a value: the defaults under every profile file, and what tests of other layers use.
    /// `tests/config.rs` keeps `configs/demo.toml` equal to it.
    pub fn demo() -> Profile {
        Profile {
            name: "demo".into(),
            description: "the embedded demo model on the CPU".into(),
            model: ModelConfig {
                path: None,
                mmproj: Projector::Auto,
                alias: None,
                gpu_layers: None,
                plugin_dir: None,
                kernels: None,
                mmap: true,
                mlock: false,
            },
            engine: EngineConfig {
                ctx_tokens: Some(32_768),
                parallel: 4,
                batch_tokens: 2048,
                ubatch_tokens: 512,
                cache_type_k: CacheType::F16,
                cache_type_v: CacheType::F16,
                flash_attention: FlashAttention::Auto,
                threads: None,
                threads_batch: None,
                queue_capacity: 64,
                prefill_chunk_tokens: 512,
                stall_seconds: 300,
            },
            server: ServerConfig {
                host: "127.0.0.1".into(),
                port: 8020,
                api_key: None,
                cors_origins: Vec::new(),
                allowed_hosts: Vec::new(),
                read_timeout_seconds: 30,
                ping_seconds: 5,
                grace_seconds: 10,
                openai_overflow_code: false,
            },
            limits: LimitsConfig {
                body_bytes: 32 << 20,
                json_depth: 64,
                messages: 4096,
                tools: 512,
                stop_strings: 16,
                stop_string_bytes: 1024,
                n: 8,
                template_fuel: 10_000_000,
            },
            chat: ChatConfig {
                template: None,
                thinking: None,
                late_system_wrapper: "[system]\n{}".into(),
                calls_end_thinking: true,
            },
            thinking: ThinkingConfig::default(),
            sampling: SamplingDefaults {
                temperature: 0.6,
                top_k: 20,
                top_p: 0.95,
                min_p: 0.0,
                typical_p: 1.0,
                repeat_penalty: 1.0,
                presence_penalty: 0.0,
                frequency_penalty: 0.0,
                penalty_last_n: 64,
            },
            generation: GenerationDefaults { max_tokens: None },
            speculative: SpeculativeConfig::default(),
            cache: CacheConfig::default(),
            vision: VisionConfig::default(),
            images: ImagesConfig::default(),
        }
    }
}
