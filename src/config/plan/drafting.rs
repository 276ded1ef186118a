//! What drafting takes: the MTP head with its cache and buffers, the recurrent states that a
//! rejected draft is rolled back to, and the rows of logits that check a draft. With drafting off
//! nothing of it is in a plan.

use crate::config::profile::FlashAttention;
use crate::units::Bytes;

use super::builder::Builder;
use super::sizes::{ModelSizes, mtp_kv_bytes_per_token};
use super::table::Place;

/// Most rows that the head takes at once while it reads along with a prompt. Its mask covers the
/// whole context, so that the target's micro-batch would cost it twice this at 512.
const MTP_UBATCH_TOKENS: u32 = 256;

impl Builder<'_> {
    pub(super) fn drafting(&mut self) {
        let draft_tokens = u64::from(self.speculative.draft_tokens_max());
        if draft_tokens == 0 {
            return;
        }
        if self.speculative.mtp {
            self.mtp_head();
        }
        let parallel = u64::from(self.engine.parallel);
        if let Some(state) = self.model.recurrent {
            let note = format!("{parallel} sequences x {draft_tokens} x {state}");
            let all = Bytes(state.0.saturating_mul(parallel * draft_tokens));
            self.by_layer("rollback states", all, |_| note.clone());
            if self.layers_on_gpu < self.model.n_layer {
                // The CPU computes the states of a layer into a buffer before they go to their
                // places; a GPU writes them there.
                let n_layer = u64::from(self.model.n_layer - self.model.n_layer_attention).max(1);
                let note = "states of one layer".to_owned();
                self.estimate("rollback scratch", Place::Host, all.0 / n_layer, note);
            }
        }
        let logits = self.output_rows() * u64::from(self.model.n_vocab) * 4;
        // The target hands out the hidden state of every row of a step.
        let hidden = u64::from(self.engine.batch_tokens) * u64::from(self.model.n_embd) * 4;
        let (bytes, note) = match self.speculative.mtp {
            true => (logits + hidden, "logits and hidden states that the host reads"),
            false => (logits, "logits that the host reads"),
        };
        self.estimate("output rows", Place::Host, bytes, note.to_owned());
    }

    fn mtp_head(&mut self) {
        let model = *self.model;
        let place = if self.mtp_on_gpu { Place::Gpu } else { Place::Host };
        self.exact("MTP weights", place, model.mtp, String::new());
        let per_token = mtp_kv_bytes_per_token(&model, &self.speculative);
        let (k, v) = (self.speculative.cache_type_k.word(), self.speculative.cache_type_v.word());
        let note = format!("{} tokens x {} B, {k}/{v}", self.ctx, per_token.0);
        self.exact("MTP KV cache", place, Bytes(per_token.0.saturating_mul(self.ctx)), note);
        for (what, bytes, note) in self.mtp_buffers(place) {
            self.estimate(what, place, bytes, note);
        }
    }

    /// Compute buffers of the head's context: one layer over few rows and the whole context.
    fn mtp_buffers(&self, place: Place) -> Vec<(&'static str, u64, String)> {
        let (model, engine) = (self.model, self.engine);
        let rows = u64::from(engine.ubatch_tokens.min(engine.batch_tokens).min(MTP_UBATCH_TOKENS));
        let width = mtp_width(model);
        let flash = engine.flash_attention != FlashAttention::Off;
        let mask_bytes = if flash { 2 } else { 4 };
        let outputs = u64::from(engine.parallel);
        let mut buffers = vec![
            ("MTP activations", rows * width * 4, format!("{rows} rows x {width} x 4 B")),
            ("MTP logits", outputs * u64::from(model.n_vocab) * 4, format!("{outputs} rows")),
            ("MTP mask", rows * self.ctx * mask_bytes, format!("{rows} rows x {} tokens", self.ctx)),
        ];
        if !flash {
            let scores = rows * self.ctx * u64::from(model.n_head) * 4;
            buffers.push(("MTP scores", scores, "flash attention is off".to_owned()));
        }
        let (k, v) = (self.speculative.cache_type_k, self.speculative.cache_type_v);
        if flash && place == Place::Gpu && (k.is_quantized() || v.is_quantized()) {
            let scratch = self.scratch_bytes_per_token() * self.ctx;
            buffers.push(("MTP scratch", scratch, "its KV as f16".to_owned()));
        }
        buffers
    }
}

/// Floats of a row that live at once: token and hidden state side by side, query and gate, the
/// feed-forward.
pub(super) fn mtp_width(model: &ModelSizes) -> u64 {
    2 * u64::from(model.n_embd) + 2 * u64::from(model.n_head) * u64::from(model.head_dim_k) + u64::from(model.n_ff)
}
