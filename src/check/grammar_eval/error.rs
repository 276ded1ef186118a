//! Why an evaluation cannot begin or go on.

use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    /// A file that is not what it should be.
    #[error("{}: {message}", path.display())]
    Malformed { path: PathBuf, message: String },
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Server(String),
    #[error(
        "{faults} requests in a row failed, the last with: {last}\nThe results so far are kept; the same command goes on"
    )]
    Gone { faults: usize, last: String },
    #[error("{0}")]
    Sandbox(String),
}

impl CheckError {
    pub(super) fn read(path: &Path) -> impl FnOnce(std::io::Error) -> CheckError {
        let path = path.to_owned();
        move |source| CheckError::Read { path, source }
    }

    pub(super) fn write(path: &Path) -> impl FnOnce(std::io::Error) -> CheckError {
        let path = path.to_owned();
        move |source| CheckError::Write { path, source }
    }

    pub(super) fn malformed(path: &Path, message: impl Into<String>) -> CheckError {
        CheckError::Malformed { path: path.to_owned(), message: message.into() }
    }
}
