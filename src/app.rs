//! Composition root: a validated profile becomes a running engine, a router and a server, and ends in order. The only place
//! that knows every layer; it decides nothing that a layer could decide alone.

pub mod cache;
mod card_watch;
pub mod devices;
pub mod fit;
pub mod machine;
pub mod model;
mod serve;
mod start;

use crate::config::ConfigError;
use crate::config::plan::FreeMemory;
use crate::units::Bytes;

pub use serve::serve;
pub use start::{Started, start};

use devices::Device;
use machine::HostMemory;

/// Why a command ends without having done what was asked, each kind with its exit code (sysexits).
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("{0}")]
    Config(#[from] ConfigError),
    #[error("{0}")]
    Usage(String),
    /// A model file that is not what it should be.
    #[error("{0}")]
    Malformed(String),
    /// The plan of memory, as a table.
    #[error("the model does not fit at full context\n\n{0}\nTo start anyway: --allow-overcommit")]
    NoFit(String),
    #[error("{0}")]
    Unavailable(String),
    #[error("internal error: {0}")]
    Internal(String),
    /// The engine's thread still runs: the process must end by `leave`.
    #[error("the engine hangs in a step and was left behind{0}")]
    Stuck(String),
}

impl Failure {
    /// A check that ran to its end and found something wrong.
    pub const FAULT: u8 = 1;
    pub const USAGE: u8 = 64;
    pub const MALFORMED: u8 = 65;
    pub const UNAVAILABLE: u8 = 69;
    pub const INTERNAL: u8 = 70;

    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Config(_) | Failure::Usage(_) => Failure::USAGE,
            Failure::Malformed(_) => Failure::MALFORMED,
            Failure::NoFit(_) | Failure::Unavailable(_) => Failure::UNAVAILABLE,
            Failure::Internal(_) | Failure::Stuck(_) => Failure::INTERNAL,
        }
    }
}

/// How to start, beside the profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct StartOptions {
    /// Start although the memory plan says that the model does not fit with a full context
    #[arg(long)]
    pub allow_overcommit: bool,
}

/// "0.1.0 (llama.cpp 0.6.0)".
#[cfg(feature = "native")]
pub fn version() -> String {
    format!("{} (llama.cpp {})", env!("CARGO_PKG_VERSION"), crate::llama::backend::version())
}

/// "0.1.0 (without model runtime)".
#[cfg(not(feature = "native"))]
pub fn version() -> String {
    format!("{} (without model runtime)", env!("CARGO_PKG_VERSION"))
}

/// Ends the process while the engine's thread still runs.
#[cfg(feature = "native")]
pub fn leave(code: u8) -> ! {
    crate::llama::backend::exit_now(code)
}

/// Without native code there is nothing that an ordinary exit could break.
#[cfg(not(feature = "native"))]
pub fn leave(code: u8) -> ! {
    std::process::exit(code.into())
}

/// Two workers: requests are prepared and streamed here, the model has its own thread.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|e| Failure::Internal(format!("the async runtime does not start: {e}")))
}

/// What a model may take: the first card that the runtime can use, and the host.
pub fn free_memory(host: &HostMemory, devices: &[Device]) -> FreeMemory {
    let card: Option<Bytes> = devices.iter().find(|device| device.is_card).map(|device| device.free);
    FreeMemory { card, host: host.free() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str, is_card: bool, free: u64) -> Device {
        let text = || name.to_owned();
        Device { name: text(), description: text(), backend: text(), is_card, free: Bytes(free), total: Bytes(free) }
    }

    #[test]
    fn a_card_without_a_backend_for_it_is_not_planned_with() {
        let host = HostMemory { available: Bytes(7), ..HostMemory::default() };
        let cpu = device("CPU", false, 7);
        assert_eq!(free_memory(&host, std::slice::from_ref(&cpu)), FreeMemory { card: None, host: Bytes(7) });
        let both = [cpu, device("CUDA0", true, 24)];
        assert_eq!(free_memory(&host, &both).card, Some(Bytes(24)));
    }
}
