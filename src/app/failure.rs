//! How a command ends without having done what was asked.

use crate::config::ConfigError;

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
