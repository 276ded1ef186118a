//! The profiles inside the binary: the files of `configs/`.

use super::error::ConfigError;
use super::file::ProfileFile;

/// Used when no profile is named and no model either.
pub const DEFAULT: &str = "demo";

/// Used when no profile is named but a model is.
pub const ANY_MODEL: &str = "generic";

/// (name, path in the source tree, text), in the order of `profile list`.
const FILES: &[(&str, &str, &str)] = &[
    ("demo", "configs/demo.toml", include_str!("../../configs/demo.toml")),
    ("generic", "configs/generic.toml", include_str!("../../configs/generic.toml")),
    ("agent", "configs/agent.toml", include_str!("../../configs/agent.toml")),
    ("vision", "configs/vision.toml", include_str!("../../configs/vision.toml")),
    ("bounded-thinking", "configs/bounded-thinking.toml", include_str!("../../configs/bounded-thinking.toml")),
];

pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, ..)| *name)
}

/// Parses the built-in profile `name`; `None`: there is no such profile.
pub fn load(name: &str) -> Option<Result<ProfileFile, ConfigError>> {
    FILES.iter().find(|(n, ..)| *n == name).map(|(_, path, text)| ProfileFile::parse(path, text))
}
