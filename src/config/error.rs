//! What is wrong with a setting, where it was written and how to mend it.

use std::fmt;

/// Where a value comes from, weakest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Built in: no layer wrote it.
    Default,
    /// A profile file; built-in profiles are named by their path in the source tree.
    File {
        file: String,
        line: usize,
    },
    Env(String),
    /// With its dashes.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { file, line } => write!(f, "{file}:{line}"),
            Origin::Env(name) => f.write_str(name),
            Origin::Flag(flag) => f.write_str(flag),
        }
    }
}

/// A configuration that cannot run. `key` is the path in a profile file, or the file's name where the whole file is meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} ({origin}): {message}; {fix}")]
pub struct ConfigError {
    pub key: String,
    pub origin: Origin,
    pub message: String,
    pub fix: String,
}
