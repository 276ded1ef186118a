//! What plateau needs to know of a model before llama.cpp loads it.

use std::collections::{HashMap, HashSet};

use super::metadata::{Keys, error};
use super::reader::{Gguf, GgufError, TensorInfo, Value};
use super::recurrent::{self, RecurrentFacts, Shape, is_delta_net};
use crate::units::Bytes;

/// llama.cpp keeps its layers in arrays of this length and aborts above it.
const MAX_LAYERS: u64 = 512;
/// Likewise.
const MAX_EXPERTS: u64 = 1024;
const MAX_WIDTH: u64 = 1 << 24;

/// Bytes of the tensors by purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// Heads, KV heads and feed-forward width are the largest of all layers, where they differ.
    pub n_head: u32,
    pub n_head_kv: u32,
    pub head_dim_k: u32,
    pub head_dim_v: u32,
    pub n_ctx_train: u32,
    pub n_vocab: u32,
    /// Zero where every layer is a mixture of experts.
    pub n_ff: u32,
    /// Most frequent tensor type by bytes, e.g. "q4_k".
    pub quantization: String,
    pub recurrent: Option<RecurrentFacts>,
    pub tensor_bytes: TensorBytes,
    pub chat_template: Option<String>,
}

impl ModelFacts {
    /// Derives the facts; required keys that are missing or absurd are named, and so is a tensor that an MTP head lacks.
    pub fn from_gguf(gguf: &Gguf) -> Result<ModelFacts, GgufError> {
        let keys = Keys::new(gguf);
        let architecture = keys.text("general.architecture")?;
        let key = |name: &str| format!("{architecture}.{name}");
        let n_layer_all = keys.integer(&key("block_count"), 1..=MAX_LAYERS)? as usize;
        let n_layer_mtp = keys.optional_integer(&key("nextn_predict_layers"), 0..=n_layer_all as u64 - 1)?.unwrap_or(0);
        let n_layer = n_layer_all - n_layer_mtp as usize;
        let n_embd = keys.integer(&key("embedding_length"), 1..=MAX_WIDTH)?;
        let heads = Heads::read(&keys, architecture, n_layer_all, n_embd)?;
        check_what_aborts(&keys, architecture, n_layer_all)?;
        check_rope(&keys, architecture, heads.dim_k)?;
        let shape =
            Shape { architecture, n_layer, n_layer_all, n_embd, heads_kv: &heads.kv_by_layer, n_head: heads.n_head };
        let layers = recurrent::layers(&keys, &shape)?;
        let n_recurrent = layers.iter().filter(|(recurrent, _)| *recurrent).count();
        check_tensors(gguf, architecture, n_layer, n_embd, n_layer_all)?;
        Ok(ModelFacts {
            name: keys.optional_text("general.name")?.unwrap_or_default().to_owned(),
            size_label: keys.optional_text("general.size_label")?.unwrap_or_default().to_owned(),
            n_params: gguf.tensors.iter().map(n_elements).fold(0, u64::saturating_add),
            n_layer: n_layer as u32,
            n_layer_mtp: n_layer_mtp as u32,
            n_layer_attention: layers.iter().filter(|(_, attention)| *attention).count() as u32,
            n_embd: n_embd as u32,
            n_head: heads.n_head as u32,
            n_head_kv: heads.kv_by_layer.iter().copied().max().unwrap_or(0) as u32,
            head_dim_k: heads.dim_k as u32,
            head_dim_v: heads.dim_v as u32,
            n_ctx_train: keys.integer(&key("context_length"), 1..=1 << 31)? as u32,
            n_vocab: n_vocab(&keys, gguf)?,
            n_ff: largest(&keys, &key("feed_forward_length"), n_layer_all)?,
            quantization: quantization(gguf),
            recurrent: recurrent::facts(&keys, &shape, n_recurrent)?,
            tensor_bytes: bytes_by_purpose(gguf, n_layer),
            chat_template: keys.optional_text("tokenizer.chat_template")?.map(str::to_owned),
            architecture: architecture.to_owned(),
        })
    }
}

impl ModelFacts {
    /// Can a few tokens of a sequence be taken back: always with attention alone; of the recurrent architectures llama.cpp
    /// keeps earlier states for these.
    pub fn can_roll_back(&self) -> bool {
        self.recurrent.is_none() || matches!(self.architecture.as_str(), "qwen35" | "qwen35moe" | "qwen4exp")
    }
}

struct Heads {
    n_head: u64,
    kv_by_layer: Vec<u64>,
    dim_k: u64,
    dim_v: u64,
}

impl Heads {
    /// Zero heads: a model without attention.
    fn read(keys: &Keys<'_>, architecture: &str, n_layer_all: usize, n_embd: u64) -> Result<Heads, GgufError> {
        let key = |name: &str| format!("{architecture}.attention.{name}");
        let by_layer = keys.per_layer(&key("head_count"), n_layer_all, 0..=65_536)?;
        if by_layer.is_none() && is_delta_net(architecture) {
            return Err(error(&key("head_count"), "is missing"));
        }
        let by_layer = by_layer.unwrap_or_else(|| vec![0; n_layer_all]);
        let kv_by_layer = keys.per_layer(&key("head_count_kv"), n_layer_all, 0..=65_536)?;
        let n_head = by_layer.iter().copied().max().unwrap_or(0);
        let usual = n_embd.checked_div(n_head).unwrap_or(0);
        let dim = |name: &str| Ok(keys.optional_integer(&key(name), 0..=65_536)?.unwrap_or(usual));
        let (dim_k, dim_v) = (dim("key_length")?, dim("value_length")?);
        if n_head > 0 && dim_k == 0 {
            return Err(error(&key("key_length"), "is 0 in a model with attention"));
        }
        Ok(Heads { n_head, kv_by_layer: kv_by_layer.unwrap_or(by_layer), dim_k, dim_v })
    }
}

/// Values for which llama.cpp aborts the process instead of refusing the file.
fn check_what_aborts(keys: &Keys<'_>, architecture: &str, n_layer_all: usize) -> Result<(), GgufError> {
    let key = |name: &str| format!("{architecture}.{name}");
    let scaling = key("rope.scaling.type");
    match keys.optional_text(&scaling)? {
        None | Some("none" | "linear" | "yarn" | "longrope") => {}
        Some(other) => return Err(error(&scaling, format!("is {other:?}, not none, linear, yarn or longrope"))),
    }
    let n_expert = keys.optional_integer(&key("expert_count"), 0..=MAX_EXPERTS)?.unwrap_or(0);
    let one_is_none = architecture.starts_with("hunyuan") && n_expert <= 1;
    let used = key("expert_used_count");
    let most = keys.per_layer(&used, n_layer_all, 0..=MAX_EXPERTS)?.unwrap_or_default().into_iter().max().unwrap_or(0);
    if !one_is_none && (most > n_expert || (most == 0) != (n_expert == 0)) {
        return Err(error(&used, format!("is {most} of {n_expert} experts")));
    }
    Ok(())
}

/// Positions and norms that end the process, hang it or turn every logit into NaN at the first request.
fn check_rope(keys: &Keys<'_>, architecture: &str, head_dim: u64) -> Result<(), GgufError> {
    let key = |name: &str| format!("{architecture}.{name}");
    for name in ["rope.freq_base", "rope.freq_base_swa"] {
        keys.check_number(&key(name), 1e-3..=1e12)?;
    }
    for name in ["attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"] {
        keys.check_number(&key(name), 0.0..=1.0)?;
    }
    if !is_delta_net(architecture) {
        return Ok(());
    }
    let count = key("rope.dimension_count");
    let rotated = keys.optional_integer(&count, 2..=head_dim.max(2))?.unwrap_or(head_dim);
    if rotated % 2 != 0 {
        return Err(error(&count, format!("is {rotated}, not even")));
    }
    let sections = key("rope.dimension_sections");
    let Some(values) = keys.optional_array(&sections)? else { return Ok(()) };
    let sum = values.iter().try_fold(0u64, |sum, value| match value {
        Value::U64(part) => sum.checked_add(*part),
        Value::I64(part) => u64::try_from(*part).ok().and_then(|part| sum.checked_add(part)),
        _ => None,
    });
    match sum {
        Some(sum) if sum > 0 && sum <= rotated / 2 => Ok(()),
        _ => Err(error(&sections, format!("do not divide the {} rotated pairs", rotated / 2))),
    }
}

fn largest(keys: &Keys<'_>, key: &str, n_layer_all: usize) -> Result<u32, GgufError> {
    let widths = keys.per_layer(key, n_layer_all, 0..=MAX_WIDTH)?.unwrap_or_default();
    Ok(widths.into_iter().max().unwrap_or(0) as u32)
}

fn n_vocab(keys: &Keys<'_>, gguf: &Gguf) -> Result<u32, GgufError> {
    let tokens = keys.optional_array("tokenizer.ggml.tokens")?.map(|tokens| tokens.len() as u64);
    let rows = gguf.tensor("token_embd.weight").and_then(|embedding| embedding.dims.get(1)).copied();
    let n_vocab = tokens.or(rows).unwrap_or(0);
    match u32::try_from(n_vocab) {
        Ok(n_vocab) if n_vocab > 0 && n_vocab <= i32::MAX as u32 => Ok(n_vocab),
        _ => Err(error("tokenizer.ggml.tokens", format!("holds {n_vocab} tokens"))),
    }
}

/// Tensors without which llama.cpp's graph would fail at the first request rather than at load.
fn check_tensors(
    gguf: &Gguf,
    architecture: &str,
    n_layer: usize,
    n_embd: u64,
    n_layer_all: usize,
) -> Result<(), GgufError> {
    let missing =
        |name: &str, why: &str| Err(GgufError::Tensor { name: name.to_owned(), what: format!("is missing: {why}") });
    if gguf.tensor("token_embd.weight").is_none() {
        return missing("token_embd.weight", "without a token embedding this is no model that can be served alone");
    }
    if !is_delta_net(architecture) {
        return Ok(());
    }
    let names: HashSet<&str> = gguf.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    for layer in 0..n_layer {
        let name = format!("blk.{layer}.attn_norm.weight");
        if !names.contains(name.as_str()) {
            return missing(&name, "the trunk is not whole (a file of the MTP head alone cannot be served)");
        }
    }
    for layer in n_layer..n_layer_all {
        for (name, dims) in [("eh_proj", &[2 * n_embd, n_embd][..]), ("enorm", &[n_embd]), ("hnorm", &[n_embd])] {
            let name = format!("blk.{layer}.nextn.{name}.weight");
            match gguf.tensor(&name) {
                None => return missing(&name, &format!("{architecture}.nextn_predict_layers declares an MTP head")),
                Some(tensor) if tensor.dims != dims => {
                    let what = format!("has the shape {:?}, not {dims:?}", tensor.dims);
                    return Err(GgufError::Tensor { name, what });
                }
                Some(_) => {}
            }
        }
    }
    Ok(())
}

fn n_elements(tensor: &TensorInfo) -> u64 {
    tensor.dims.iter().copied().fold(1, u64::saturating_mul)
}

fn quantization(gguf: &Gguf) -> String {
    let mut by_type: HashMap<&str, u64> = HashMap::new();
    for tensor in &gguf.tensors {
        let bytes = by_type.entry(tensor.type_name).or_default();
        *bytes = bytes.saturating_add(tensor.bytes);
    }
    // The name decides between equals, so that the answer does not change from run to run.
    let most = by_type.into_iter().max_by_key(|&(name, bytes)| (bytes, name));
    most.map(|(name, _)| name.to_owned()).unwrap_or_default()
}

fn bytes_by_purpose(gguf: &Gguf, n_layer: usize) -> TensorBytes {
    let mut bytes = TensorBytes::default();
    for tensor in &gguf.tensors {
        let layer = tensor.name.strip_prefix("blk.").and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
        let purpose = match (layer, tensor.name.as_str()) {
            (Some(layer), _) if layer >= n_layer => &mut bytes.mtp,
            (_, "token_embd.weight" | "output.weight") => &mut bytes.embedding,
            _ => &mut bytes.trunk,
        };
        *purpose = *purpose + Bytes(tensor.bytes);
    }
    bytes
}
