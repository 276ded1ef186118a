//! The memory plan: what a model needs, with its context *full*, on the card and on the host. Pure arithmetic over sizes that
//! the caller read from the file and the devices; `alternatives` names what would fit where this does not.
//!
//! Weights, KV cache and recurrent state are exact. Compute buffers, the device's own context and the process are estimates
//! and marked so; docs/vram.md derives them. What drafting takes is in `drafting`, what pictures take in `pictures`.

mod alternatives;
mod drafting;
mod pictures;

use crate::units::Bytes;

pub use alternatives::{Alternative, Change, alternatives};
pub use drafting::mtp_kv_bytes_per_token;
pub use pictures::PictureSizes;

use super::profile::{EngineConfig, FlashAttention, SpeculativeConfig};

/// llama.cpp rounds the KV cache up to whole blocks of so many tokens.
const KV_PAD_TOKENS: u64 = 256;

/// Driver, kernels and cuBLAS of one CUDA process, fitted to a measured total (docs/vram.md).
const DEVICE_CONTEXT: Bytes = Bytes(350 << 20);

/// Left free on the card: the desktop, fragmentation, and what other programs take while the server runs.
const CARD_MARGIN: Bytes = Bytes(1 << 30);

/// Left free on the host.
const HOST_MARGIN: Bytes = Bytes(256 << 20);

/// The process without the model: code, HTTP, connections.
const PROCESS: Bytes = Bytes(96 << 20);

/// Host bytes for each token of the vocabulary: texts, merges and pieces of the tokenizer.
const TOKENIZER_BYTES_PER_TOKEN: u64 = 400;

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
    /// `None`: the model gets no pictures.
    pub pictures: Option<PictureSizes>,
}

/// What is free before the model is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeMemory {
    /// `None`: there is no card.
    pub card: Option<Bytes>,
    pub host: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Card,
    Host,
}

impl Place {
    pub fn name(self) -> &'static str {
        match self {
            Place::Card => "card",
            Place::Host => "host",
        }
    }
}

/// One line of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub what: &'static str,
    /// Where the number comes from.
    pub note: String,
    pub place: Place,
    pub bytes: Bytes,
    pub estimate: bool,
}

/// Everything that one configuration needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Tokens in the KV cache after rounding.
    pub ctx_tokens: u32,
    pub kv_bytes_per_token: Bytes,
    pub items: Vec<Item>,
}

/// A place that is too small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortfall {
    pub place: Place,
    /// With the margin.
    pub need: Bytes,
    pub free: Bytes,
}

impl Plan {
    /// `gpu_layers` as in the profile: `None` is all of them. Without a card everything is on the host.
    pub fn new(
        model: &ModelSizes,
        engine: &EngineConfig,
        speculative: &SpeculativeConfig,
        gpu_layers: Option<u32>,
        has_card: bool,
    ) -> Plan {
        Builder::new(model, engine, speculative, gpu_layers, has_card).plan()
    }

    /// Bytes needed at a place, margin left out.
    pub fn need(&self, place: Place) -> Bytes {
        self.items.iter().filter(|item| item.place == place).map(|item| item.bytes).sum()
    }

    /// Kept free at a place.
    pub fn margin(&self, place: Place) -> Bytes {
        match place {
            Place::Card if self.need(Place::Card) == Bytes(0) => Bytes(0),
            Place::Card => CARD_MARGIN,
            Place::Host => HOST_MARGIN,
        }
    }

    /// Every place that is too small for what it has to hold and its margin; empty: the plan fits.
    pub fn shortfalls(&self, free: &FreeMemory) -> Vec<Shortfall> {
        [(Place::Card, free.card.unwrap_or(Bytes(0))), (Place::Host, free.host)]
            .into_iter()
            .map(|(place, free)| Shortfall { place, need: self.need(place) + self.margin(place), free })
            .filter(|short| short.need > short.free)
            .collect()
    }

    pub fn fits(&self, free: &FreeMemory) -> bool {
        self.shortfalls(free).is_empty()
    }
}

/// Does llama.cpp take this shape with these cache types: blocks of a quantized cache never straddle two heads.
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

impl ModelSizes {
    pub fn has_mtp_head(&self) -> bool {
        self.n_layer_mtp > 0
    }
    /// The most that `gpu_layers` can mean: llama.cpp counts the output head and the MTP block as layers, the latter also
    /// where it is not loaded.
    fn n_layer_placed(&self) -> u32 {
        self.n_layer + self.n_layer_mtp + 1
    }
}

/// A plan in the making.
struct Builder<'a> {
    model: &'a ModelSizes,
    engine: &'a EngineConfig,
    /// What is in effect with this model.
    speculative: SpeculativeConfig,
    /// Trunk layers on the card.
    layers_on_card: u32,
    /// The card is filled from the end: the output head first, the MTP block, the last layers.
    head_on_card: bool,
    mtp_on_card: bool,
    has_card: bool,
    ctx: u64,
    items: Vec<Item>,
}

impl<'a> Builder<'a> {
    fn new(
        model: &'a ModelSizes,
        engine: &'a EngineConfig,
        speculative: &SpeculativeConfig,
        gpu_layers: Option<u32>,
        has_card: bool,
    ) -> Builder<'a> {
        let wanted = if has_card { gpu_layers.unwrap_or(u32::MAX) } else { 0 };
        let ctx = u64::from(engine.ctx_tokens.unwrap_or(model.n_ctx_train)).next_multiple_of(KV_PAD_TOKENS);
        Builder {
            model,
            engine,
            speculative: speculative.in_effect(model.has_mtp_head()),
            layers_on_card: wanted.saturating_sub(1 + model.n_layer_mtp).min(model.n_layer),
            head_on_card: wanted > 0,
            mtp_on_card: wanted > model.n_layer_mtp,
            has_card,
            ctx,
            items: Vec::new(),
        }
    }

    fn plan(mut self) -> Plan {
        self.weights();
        self.cache();
        self.drafting();
        self.pictures();
        let places = [(Place::Card, self.head_on_card), (Place::Host, self.layers_on_card < self.model.n_layer)];
        for (place, _) in places.into_iter().filter(|(_, computes)| *computes) {
            self.compute(place);
        }
        self.overhead();
        self.items.retain(|item| item.bytes > Bytes(0));
        Plan {
            ctx_tokens: u32::try_from(self.ctx).unwrap_or(u32::MAX),
            kv_bytes_per_token: kv_bytes_per_token(self.model, self.engine),
            items: self.items,
        }
    }

    fn weights(&mut self) {
        let model = *self.model;
        self.by_layer("weights", model.trunk, |n| format!("{n} layers"));
        self.exact("token embedding", Place::Host, model.token_embedding, "stays on the host".to_owned());
        match (model.output_head, self.head_on_card) {
            (Some(head), true) => self.exact("output head", Place::Card, head, String::new()),
            (Some(head), false) => self.exact("output head", Place::Host, head, String::new()),
            (None, true) => {
                self.exact("output head", Place::Card, model.token_embedding, "copy of the embedding".to_owned())
            }
            (None, false) => {}
        }
    }

    fn cache(&mut self) {
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

    /// Compute buffers of one backend: they are reserved for the largest batch over the full context.
    fn compute(&mut self, place: Place) {
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
        if flash && quantized && place == Place::Card {
            let per_token = self.scratch_bytes_per_token();
            let note = format!("one layer's KV as f16, {per_token} B a token");
            self.estimate("attention scratch", place, per_token * self.ctx, note);
        }
    }

    /// The K and V of one layer as f16.
    fn scratch_bytes_per_token(&self) -> u64 {
        u64::from(self.model.n_head_kv) * u64::from(self.model.head_dim_k + self.model.head_dim_v) * 2
    }

    fn overhead(&mut self) {
        if self.items.iter().any(|item| item.place == Place::Card && item.bytes > Bytes(0)) {
            self.estimate("device context", Place::Card, DEVICE_CONTEXT.0, "driver and kernels".to_owned());
        }
        let tokenizer = u64::from(self.model.n_vocab) * TOKENIZER_BYTES_PER_TOKEN;
        self.estimate("process", Place::Host, PROCESS.0 + tokenizer, "server and tokenizer".to_owned());
    }

    /// Splits something that all layers share alike.
    fn by_layer(&mut self, what: &'static str, bytes: Bytes, note: impl Fn(u32) -> String) {
        let n_layer = u64::from(self.model.n_layer.max(1));
        let on_card = u128::from(bytes.0) * u128::from(self.layers_on_card) / u128::from(n_layer);
        let on_card = Bytes(u64::try_from(on_card).unwrap_or(u64::MAX));
        self.exact(what, Place::Card, on_card, note(self.layers_on_card));
        self.exact(what, Place::Host, Bytes(bytes.0 - on_card.0), note(self.model.n_layer - self.layers_on_card));
    }

    fn exact(&mut self, what: &'static str, place: Place, bytes: Bytes, note: String) {
        self.items.push(Item { what, note, place, bytes, estimate: false });
    }

    fn estimate(&mut self, what: &'static str, place: Place, bytes: u64, note: String) {
        self.items.push(Item { what, note, place, bytes: Bytes(bytes), estimate: true });
    }
}

#[cfg(test)]
mod tests;
