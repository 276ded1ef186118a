//! Writes GGUF bytes for the tests of the reader and of the facts: good ones, and ones that no honest writer would.

use std::io::Cursor;

use plateau::gguf::{Gguf, GgufError};

pub const U32: u32 = 4;
pub const STRING: u32 = 8;
pub const ARRAY: u32 = 9;

/// Writes GGUF bytes; every field can be given a value that no honest writer would.
#[derive(Clone)]
pub struct Writer {
    pub version: u32,
    pub n_tensors: Option<u64>,
    pub n_pairs: Option<u64>,
    pub pairs: Vec<Vec<u8>>,
    pub tensors: Vec<Vec<u8>>,
    pub data: u64,
}

fn text(value: &str) -> Vec<u8> {
    [&(value.len() as u64).to_le_bytes()[..], value.as_bytes()].concat()
}

impl Writer {
    pub fn new() -> Writer {
        Writer { version: 3, n_tensors: None, n_pairs: None, pairs: Vec::new(), tensors: Vec::new(), data: 0 }
    }

    pub fn pair(mut self, key: &str, kind: u32, value: &[u8]) -> Writer {
        self.pairs.push([&text(key)[..], &kind.to_le_bytes(), value].concat());
        self
    }

    pub fn u32(self, key: &str, value: u32) -> Writer {
        self.pair(key, U32, &value.to_le_bytes())
    }

    pub fn string(self, key: &str, value: &str) -> Writer {
        self.pair(key, STRING, &text(value))
    }

    pub fn array(self, key: &str, kind: u32, n: u64, values: &[u8]) -> Writer {
        self.pair(key, ARRAY, &[&kind.to_le_bytes()[..], &n.to_le_bytes(), values].concat())
    }

    pub fn strings(self, key: &str, values: &[&str]) -> Writer {
        let bytes: Vec<u8> = values.iter().flat_map(|value| text(value)).collect();
        self.array(key, STRING, values.len() as u64, &bytes)
    }

    pub fn tensor(mut self, name: &str, dims: &[u64], kind: u32, offset: u64) -> Writer {
        let dims_bytes: Vec<u8> = dims.iter().flat_map(|dim| dim.to_le_bytes()).collect();
        let n_dims = (dims.len() as u32).to_le_bytes();
        self.tensors.push([&text(name)[..], &n_dims, &dims_bytes, &kind.to_le_bytes(), &offset.to_le_bytes()].concat());
        self
    }

    /// An f32 vector behind the tensors before it.
    pub fn vector(mut self, name: &str, n: u64) -> Writer {
        let offset = self.data;
        self.data = (offset + 4 * n).next_multiple_of(32);
        self.tensor(name, &[n], 0, offset)
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(self.version.to_le_bytes());
        bytes.extend(self.n_tensors.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        bytes.extend(self.n_pairs.unwrap_or(self.pairs.len() as u64).to_le_bytes());
        bytes.extend(self.pairs.concat());
        bytes.extend(self.tensors.concat());
        bytes.resize(bytes.len().next_multiple_of(32) + self.data as usize, 0);
        bytes
    }

    pub fn parse(&self) -> Result<Gguf, GgufError> {
        parse(&self.bytes())
    }
}

pub fn parse(bytes: &[u8]) -> Result<Gguf, GgufError> {
    Gguf::parse(Cursor::new(bytes), bytes.len() as u64)
}

pub fn tiny() -> Writer {
    Writer::new()
        .string("general.architecture", "llama")
        .u32("llama.block_count", 1)
        .u32("llama.embedding_length", 8)
        .u32("llama.context_length", 128)
        .u32("llama.attention.head_count", 2)
        .string("tokenizer.ggml.model", "gpt2")
        .strings("tokenizer.ggml.tokens", &["a", "b", "<|im_end|>"])
        .vector("token_embd.weight", 8)
        .vector("blk.0.attn_norm.weight", 8)
}
