//! The parts of a plan put together.

use crate::config::profile::{EngineConfig, SpeculativeConfig};
use crate::units::Bytes;

use super::builder::Builder;
use super::sizes::{ModelSizes, kv_bytes_per_token};
use super::table::{Place, Plan};

impl Plan {
    /// `gpu_layers` as in the profile: `None` is all of them. Without a GPU everything is on the
    /// host.
    pub fn new(
        model: &ModelSizes,
        engine: &EngineConfig,
        speculative: &SpeculativeConfig,
        gpu_layers: Option<u32>,
        has_gpu: bool,
    ) -> Plan {
        let mut builder = Builder::new(model, engine, speculative, gpu_layers, has_gpu);
        builder.weights();
        builder.cache();
        builder.drafting();
        builder.images();
        let places = [(Place::Gpu, builder.head_on_gpu), (Place::Host, builder.layers_on_gpu < builder.model.n_layer)];
        for (place, _) in places.into_iter().filter(|(_, computes)| *computes) {
            builder.compute(place);
        }
        builder.overhead();
        builder.items.retain(|item| item.bytes > Bytes(0));
        Plan {
            ctx_tokens: u32::try_from(builder.ctx).unwrap_or(u32::MAX),
            kv_bytes_per_token: kv_bytes_per_token(builder.model, builder.engine),
            items: builder.items,
        }
    }
}
