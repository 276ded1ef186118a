//! What plateau needs to know of a model before llama.cpp loads it.

use super::{Gguf, GgufError};
use crate::units::{Bytes, Token};

/// How the vocabulary treats a token (`tokenizer.ggml.token_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    Normal,
    Unknown,
    /// Special, never produced from text unless special tokens are parsed (`<|im_end|>`).
    Control,
    /// Matched in any text (`<think>`).
    UserDefined,
    Unused,
    Byte,
}

/// The tokenizer as the file describes it.
#[derive(Clone, Debug)]
pub struct VocabFacts {
    /// `tokenizer.ggml.model`: "gpt2" (byte-level BPE), "llama" (SentencePiece), ...
    pub model: String,
    /// `tokenizer.ggml.pre`: the pre-tokenizer, e.g. "qwen35"; empty where absent.
    pub pre: String,
    /// Token texts as stored (byte-level alphabet for gpt2).
    pub tokens: Vec<String>,
    pub kinds: Vec<TokenKind>,
    pub merges: Vec<String>,
    pub bos: Option<Token>,
    pub eos: Option<Token>,
    /// Every token that ends a generation: eos, eot, eom and the texts that llama.cpp treats so.
    pub eog: Vec<Token>,
    pub add_bos: bool,
}

/// Sizes of the recurrent state (Gated DeltaNet layers).
#[derive(Clone, Copy, Debug)]
pub struct RecurrentFacts {
    pub n_layer: u32,
    /// Convolution and delta state of one sequence, one plane, all layers (f32).
    pub conv_bytes: Bytes,
    pub state_bytes: Bytes,
}

/// Bytes of the tensors by purpose.
#[derive(Clone, Copy, Debug)]
pub struct TensorBytes {
    pub trunk: Bytes,
    /// The MTP block; zero where the file has none.
    pub mtp: Bytes,
    /// Token embedding and output head.
    pub embedding: Bytes,
}

/// Model facts by architecture-independent names.
#[derive(Clone, Debug)]
pub struct ModelFacts {
    pub architecture: String,
    pub name: String,
    pub size_label: String,
    pub n_params: u64,
    /// Trunk layers (without MTP).
    pub n_layer: u32,
    pub n_layer_mtp: u32,
    /// Layers with a KV cache among the trunk's.
    pub n_layer_attention: u32,
    pub n_embd: u32,
    pub n_head: u32,
    pub n_head_kv: u32,
    pub head_dim_k: u32,
    pub head_dim_v: u32,
    pub n_ctx_train: u32,
    pub n_vocab: u32,
    pub n_ff: u32,
    /// Most frequent tensor type by bytes, e.g. "q4_k".
    pub quantization: String,
    pub recurrent: Option<RecurrentFacts>,
    pub tensor_bytes: TensorBytes,
    pub chat_template: Option<String>,
}

impl ModelFacts {
    /// Derives the facts; required keys that are missing or absurd are named.
    pub fn from_gguf(gguf: &Gguf) -> Result<ModelFacts, GgufError> {
        let _ = gguf;
        unimplemented!()
    }
}

impl VocabFacts {
    pub fn from_gguf(gguf: &Gguf) -> Result<VocabFacts, GgufError> {
        let _ = gguf;
        unimplemented!()
    }
}
