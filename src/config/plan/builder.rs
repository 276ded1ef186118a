//! A plan in the making: what is where, and how items are added. What the items are is in `base`,
//! `drafting` and `images`.

use crate::config::profile::{EngineConfig, SpeculativeConfig};
use crate::units::Bytes;

use super::sizes::ModelSizes;
use super::table::{Item, Place};

/// llama.cpp rounds the KV cache up to whole blocks of so many tokens.
const KV_PAD_TOKENS: u64 = 256;

/// A plan in the making.
pub(super) struct Builder<'a> {
    pub(super) model: &'a ModelSizes,
    pub(super) engine: &'a EngineConfig,
    /// What is in effect with this model.
    pub(super) speculative: SpeculativeConfig,
    /// Trunk layers on the GPU.
    pub(super) layers_on_gpu: u32,
    /// The GPU is filled from the end: the output head first, the MTP block, the last layers.
    pub(super) head_on_gpu: bool,
    pub(super) mtp_on_gpu: bool,
    pub(super) has_gpu: bool,
    pub(super) ctx: u64,
    pub(super) items: Vec<Item>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(
        model: &'a ModelSizes,
        engine: &'a EngineConfig,
        speculative: &SpeculativeConfig,
        gpu_layers: Option<u32>,
        has_gpu: bool,
    ) -> Builder<'a> {
        let wanted = if has_gpu { gpu_layers.unwrap_or(u32::MAX) } else { 0 };
        let ctx = u64::from(engine.ctx_tokens.unwrap_or(model.n_ctx_train)).next_multiple_of(KV_PAD_TOKENS);
        Builder {
            model,
            engine,
            speculative: speculative.in_effect(model.has_mtp_head()),
            layers_on_gpu: wanted.saturating_sub(1 + model.n_layer_mtp).min(model.n_layer),
            head_on_gpu: wanted > 0,
            mtp_on_gpu: wanted > model.n_layer_mtp,
            has_gpu,
            ctx,
            items: Vec::new(),
        }
    }

    /// Rows with logits in a step: the last token of each sequence and its draft.
    pub(super) fn output_rows(&self) -> u64 {
        u64::from(self.engine.parallel) * u64::from(1 + self.speculative.draft_tokens_max())
    }

    /// The K and V of one layer as f16.
    pub(super) fn scratch_bytes_per_token(&self) -> u64 {
        u64::from(self.model.n_head_kv) * u64::from(self.model.head_dim_k + self.model.head_dim_v) * 2
    }

    /// Splits something that all layers share alike.
    pub(super) fn by_layer(&mut self, what: &'static str, bytes: Bytes, note: impl Fn(u32) -> String) {
        let n_layer = u64::from(self.model.n_layer.max(1));
        let on_gpu = u128::from(bytes.0) * u128::from(self.layers_on_gpu) / u128::from(n_layer);
        let on_gpu = Bytes(u64::try_from(on_gpu).unwrap_or(u64::MAX));
        self.exact(what, Place::Gpu, on_gpu, note(self.layers_on_gpu));
        self.exact(what, Place::Host, Bytes(bytes.0 - on_gpu.0), note(self.model.n_layer - self.layers_on_gpu));
    }

    pub(super) fn exact(&mut self, what: &'static str, place: Place, bytes: Bytes, note: String) {
        self.items.push(Item { what, note, place, bytes, estimate: false });
    }

    pub(super) fn estimate(&mut self, what: &'static str, place: Place, bytes: u64, note: String) {
        self.items.push(Item { what, note, place, bytes: Bytes(bytes), estimate: true });
    }
}
