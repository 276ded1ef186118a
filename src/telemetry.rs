//! Logging start-up, and the metrics of the server as typed values.
//!
//! Nothing here is global: `Metrics` is a value that whoever counts is handed. Environment variables are read in `config`,
//! HTTP belongs to `api`: this module only renders text.

mod drafts;
mod family;
mod gpus;
mod image_files;
mod images;
mod kernels;
mod logging;
mod metrics;
pub mod names;
mod prefix;
mod records;

pub use drafts::DRAFT_POSITIONS;
pub use gpus::GpuGauges;
pub use kernels::{KernelReader, KernelState};
pub use logging::{LogFormat, TelemetryError, start_logging};
pub use metrics::Metrics;
pub use prefix::CacheGauges;
pub use records::{DraftRecord, Drafted, EngineAges, EngineGauges, Outcome, RequestRecord};
