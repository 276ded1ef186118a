//! The plan as a value: items at places, what they add up to, and whether that fits.

use crate::units::Bytes;

/// Left free on the GPU: the desktop, fragmentation, and what other programs take while the server
/// runs.
const GPU_MARGIN: Bytes = Bytes(1 << 30);

/// Left free on the host.
const HOST_MARGIN: Bytes = Bytes(256 << 20);

/// What is free before the model is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeMemory {
    /// `None`: there is no GPU.
    pub gpu: Option<Bytes>,
    pub host: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Gpu,
    Host,
}

impl Place {
    pub fn name(self) -> &'static str {
        match self {
            Place::Gpu => "GPU",
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
    /// Bytes needed at a place, margin left out.
    pub fn need(&self, place: Place) -> Bytes {
        self.items.iter().filter(|item| item.place == place).map(|item| item.bytes).sum()
    }

    /// Kept free at a place.
    pub fn margin(&self, place: Place) -> Bytes {
        match place {
            Place::Gpu if self.need(Place::Gpu) == Bytes(0) => Bytes(0),
            Place::Gpu => GPU_MARGIN,
            Place::Host => HOST_MARGIN,
        }
    }

    /// Every place that is too small for what it has to hold and its margin; empty: the plan fits.
    pub fn shortfalls(&self, free: &FreeMemory) -> Vec<Shortfall> {
        [(Place::Gpu, free.gpu.unwrap_or(Bytes(0))), (Place::Host, free.host)]
            .into_iter()
            .map(|(place, free)| Shortfall { place, need: self.need(place) + self.margin(place), free })
            .filter(|short| short.need > short.free)
            .collect()
    }

    pub fn fits(&self, free: &FreeMemory) -> bool {
        self.shortfalls(free).is_empty()
    }
}
