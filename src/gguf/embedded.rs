//! The demo model and its projector inside the executable, as files for as long as somebody needs a path.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// The GGUF of `vendor/demo-model`.
static DEMO: &[u8] = include_bytes!("../../vendor/demo-model/plateau-demo-q8_0.gguf");

/// Its projector.
static DEMO_PROJECTOR: &[u8] = include_bytes!("../../vendor/demo-model/plateau-demo-mmproj-f16.gguf");

/// How the embedded model is called in messages, where a path would stand.
pub const NAME: &str = "plateau-demo (embedded)";
/// And its projector.
pub const PROJECTOR_NAME: &str = "plateau-demo projector (embedded)";

/// A copy of the model with a path that holds in this process, until it is dropped. It may be dropped as soon as the model
/// is loaded: a memory map keeps the contents alive.
pub struct EmbeddedFile {
    path: PathBuf,
    _copy: Copy,
}

/// What keeps the contents. Where the system has a path for it, the file has no name, so that no end of the process leaves
/// it behind: a signal runs no destructors.
enum Copy {
    Nameless { _file: File },
    Named { _file: NamedTempFile },
}

impl EmbeddedFile {
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn nameless(contents: &[u8]) -> io::Result<EmbeddedFile> {
        let mut file = tempfile::tempfile()?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        // Without such paths nothing needs to be written.
        path.metadata()?;
        file.write_all(contents)?;
        Ok(EmbeddedFile { path, _copy: Copy::Nameless { _file: file } })
    }

    fn named(contents: &[u8]) -> io::Result<EmbeddedFile> {
        let mut file = tempfile::Builder::new().prefix("plateau-demo-").suffix(".gguf").tempfile()?;
        file.write_all(contents)?;
        Ok(EmbeddedFile { path: file.path().to_owned(), _copy: Copy::Named { _file: file } })
    }
}

/// Writes the model to a temporary file.
pub fn write() -> io::Result<EmbeddedFile> {
    write_out(DEMO)
}

/// As `write`, of the model's projector.
pub fn write_projector() -> io::Result<EmbeddedFile> {
    write_out(DEMO_PROJECTOR)
}

fn write_out(contents: &[u8]) -> io::Result<EmbeddedFile> {
    EmbeddedFile::nameless(contents).or_else(|_| EmbeddedFile::named(contents))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_holds_the_model_and_goes_away() {
        for file in [write().unwrap(), EmbeddedFile::named(DEMO).unwrap()] {
            let path = file.path().to_owned();
            assert_eq!(std::fs::read(&path).unwrap(), DEMO);
            assert!(DEMO.starts_with(b"GGUF"));
            drop(file);
            // A descriptor's number may have been given to another file of another test.
            assert!(path.starts_with("/proc") || !path.exists());
        }
    }

    /// Which nobody would clean up: the default action of a signal runs no destructors.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_signal_during_the_load_leaves_no_copy_behind() {
        let file = write().unwrap();
        let target = std::fs::read_link(file.path()).unwrap();
        assert!(!target.exists(), "{} has a name", target.display());
    }
}
