//! Sizes of a model as its file gives them, and what follows from them and the cache types alone.

use crate::config::profile::{CacheType, EngineConfig, SpeculativeConfig, VisionConfig, VisionDevice};
use crate::units::Bytes;

/// Sizes of a model, as its file gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelSizes {
    /// Layers without the embedding, the output head and the MTP block.
    pub trunk: Bytes,
    pub token_embedding: Bytes,
    /// `None`: the embedding serves as head, too.
    pub output_head: Option<Bytes>,
    /// The MTP block, loaded only where it drafts; zero where the file has none.
    pub mtp: Bytes,
    /// State of one sequence over all recurrent layers.
    pub recurrent: Option<Bytes>,
    pub n_layer: u32,
    /// Attention layers of the MTP block behind the trunk.
    pub n_layer_mtp: u32,
    /// Layers of the trunk that keep keys and values.
    pub n_layer_attention: u32,
    pub n_embd: u32,
    pub n_ff: u32,
    pub n_vocab: u32,
    pub n_head: u32,
    pub n_head_kv: u32,
    pub head_dim_k: u32,
    pub head_dim_v: u32,
    pub n_ctx_train: u32,
    /// `None`: the model gets no images.
    pub images: Option<ImageSizes>,
}

impl ModelSizes {
    pub fn has_mtp_head(&self) -> bool {
        self.n_layer_mtp > 0
    }

    /// The most that `gpu_layers` can mean: llama.cpp counts the output head and the MTP block as
    /// layers, the latter also where it is not loaded.
    pub(super) fn n_layer_placed(&self) -> u32 {
        self.n_layer + self.n_layer_mtp + 1
    }
}

/// An image encoder as its file and the profile have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageSizes {
    pub weights: Bytes,
    /// Width inside, and of the feed-forward part.
    pub width: u32,
    pub n_ff: u32,
    pub n_head: u32,
    /// Pixels of a token's side.
    pub token_px: u32,
    /// Tokens of the largest image.
    pub max_tokens: u32,
    /// It is to be on the GPU, if there is one.
    pub on_gpu: bool,
    pub cache: Bytes,
}

impl ImageSizes {
    /// Puts in what the profile says.
    pub fn placed(self, vision: &VisionConfig) -> ImageSizes {
        let (_, max_tokens) = vision.bounds(0, self.max_tokens);
        let on_gpu = vision.device == VisionDevice::Gpu;
        ImageSizes { max_tokens, on_gpu, cache: Bytes(u64::from(vision.cache_mib) << 20), ..self }
    }

    /// Numbers of a patch that live at once: some of the encoder's width, one of the feed-forward
    /// part, and its pixels, which are spread out twice for the two halves of the convolution.
    pub(super) fn floats_per_patch(&self) -> u64 {
        let side = u64::from(self.token_px) / 2;
        8 * u64::from(self.width) + u64::from(self.n_ff) + 2 * 3 * side * side
    }
}

/// Does llama.cpp take this shape with these cache types: blocks of a quantized cache never
/// straddle two heads.
pub fn cache_types_fit(
    model: &ModelSizes,
    engine: &EngineConfig,
    speculative: &SpeculativeConfig,
) -> Result<(), String> {
    let halves = [
        ("engine.cache_type_k", engine.cache_type_k, model.head_dim_k),
        ("engine.cache_type_v", engine.cache_type_v, model.head_dim_v),
        ("speculative.cache_type_k", speculative.cache_type_k, model.head_dim_k),
        ("speculative.cache_type_v", speculative.cache_type_v, model.head_dim_v),
    ];
    let n_used = if speculative.in_effect(model.has_mtp_head()).mtp { halves.len() } else { 2 };
    for (key, cache_type, head_dim) in halves.into_iter().take(n_used) {
        if cache_type.is_quantized() && !head_dim.is_multiple_of(32) {
            return Err(format!(
                "{key} = \"{}\" needs heads of a multiple of 32, and the model's have {head_dim}; use \"f16\"",
                cache_type.word()
            ));
        }
    }
    Ok(())
}

/// Bytes that one token takes in the KV cache over all attention layers.
pub fn kv_bytes_per_token(model: &ModelSizes, engine: &EngineConfig) -> Bytes {
    let heads = u64::from(model.n_layer_attention) * u64::from(model.n_head_kv);
    let k = heads * u64::from(model.head_dim_k) * engine.cache_type_k.bytes_per_32();
    let v = heads * u64::from(model.head_dim_v) * engine.cache_type_v.bytes_per_32();
    Bytes((k + v).div_ceil(32))
}

/// Bytes that one token takes in the MTP head's own cache.
pub fn mtp_kv_bytes_per_token(model: &ModelSizes, speculative: &SpeculativeConfig) -> Bytes {
    let heads = u64::from(model.n_layer_mtp) * u64::from(model.n_head_kv);
    let bytes = |head_dim: u32, cache_type: CacheType| heads * u64::from(head_dim) * cache_type.bytes_per_32();
    let both = bytes(model.head_dim_k, speculative.cache_type_k) + bytes(model.head_dim_v, speculative.cache_type_v);
    Bytes(both.div_ceil(32))
}
