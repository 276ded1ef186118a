//! What every model takes: weights, caches, compute buffers, the process.

use crate::config::profile::FlashAttention;
use crate::units::Bytes;

use super::builder::Builder;
use super::sizes::kv_bytes_per_token;
use super::table::Place;

/// Driver, kernels and cuBLAS of one CUDA process, fitted to a measured total (docs/vram.md).
const DEVICE_CONTEXT: Bytes = Bytes(350 << 20);

/// The process without the model: code, HTTP, connections.
const PROCESS: Bytes = Bytes(96 << 20);

/// Host bytes for each token of the vocabulary: texts, merges and pieces of the tokenizer.
const TOKENIZER_BYTES_PER_TOKEN: u64 = 400;

impl Builder<'_> {
    pub(super) fn weights(&mut self) {
        let model = *self.model;
        self.by_layer("weights", model.trunk, |n| format!("{n} layers"));
        self.exact("token embedding", Place::Host, model.token_embedding, "stays on the host".to_owned());
        match (model.output_head, self.head_on_gpu) {
            (Some(head), true) => self.exact("output head", Place::Gpu, head, String::new()),
            (Some(head), false) => self.exact("output head", Place::Host, head, String::new()),
            (None, true) => {
                self.exact("output head", Place::Gpu, model.token_embedding, "copy of the embedding".to_owned())
            }
            (None, false) => {}
        }
    }

    pub(super) fn cache(&mut self) {
        let engine = self.engine;
        let per_token = kv_bytes_per_token(self.model, engine);
        let (k, v) = (engine.cache_type_k.word(), engine.cache_type_v.word());
        let note = format!("{} tokens x {} B, {k}/{v}", self.ctx, per_token.0);
        self.by_layer("KV cache", Bytes(per_token.0.saturating_mul(self.ctx)), |_| note.clone());
        if let Some(state) = self.model.recurrent {
            let note = format!("{} sequences x {state}", engine.parallel);
            let all = Bytes(state.0.saturating_mul(u64::from(engine.parallel)));
            self.by_layer("recurrent state", all, |_| note.clone());
        }
    }

    /// Compute buffers of one backend: they are reserved for the largest batch over the full
    /// context.
    pub(super) fn compute(&mut self, place: Place) {
        let model = self.model;
        let rows = u64::from(self.engine.ubatch_tokens.min(self.engine.batch_tokens));
        let flash = self.engine.flash_attention != FlashAttention::Off;
        let width = 8 * u64::from(model.n_embd) + 5 * u64::from(model.n_ff);
        let outputs = self.output_rows();
        self.estimate("activations", place, rows * width * 4, format!("{rows} rows x {width} x 4 B"));
        self.estimate("logits", place, outputs * u64::from(model.n_vocab) * 4, format!("{outputs} rows"));
        let mask_bytes = if flash { 2 } else { 4 };
        self.estimate(
            "attention mask",
            place,
            rows * self.ctx * mask_bytes,
            format!("{rows} rows x {} tokens", self.ctx),
        );
        if !flash {
            let scores = rows * self.ctx * u64::from(model.n_head) * 4;
            self.estimate("attention scores", place, scores, "flash attention is off".to_owned());
        }
        let quantized = self.engine.cache_type_k.is_quantized() || self.engine.cache_type_v.is_quantized();
        if flash && quantized && place == Place::Gpu {
            let per_token = self.scratch_bytes_per_token();
            let note = format!("one layer's KV as f16, {per_token} B a token");
            self.estimate("attention scratch", place, per_token * self.ctx, note);
        }
    }

    pub(super) fn overhead(&mut self) {
        if self.items.iter().any(|item| item.place == Place::Gpu && item.bytes > Bytes(0)) {
            self.estimate("device context", Place::Gpu, DEVICE_CONTEXT.0, "driver and kernels".to_owned());
        }
        let tokenizer = u64::from(self.model.n_vocab) * TOKENIZER_BYTES_PER_TOKEN;
        self.estimate("process", Place::Host, PROCESS.0 + tokenizer, "server and tokenizer".to_owned());
    }
}
