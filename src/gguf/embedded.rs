//! The demo model inside the executable, as a file for as long as somebody needs a path.

use std::io::{self, Write};

use tempfile::NamedTempFile;

/// The GGUF of `vendor/demo-model`.
static DEMO: &[u8] = include_bytes!("../../vendor/demo-model/plateau-demo-q8_0.gguf");

/// How the embedded model is called in messages, where a path would stand.
pub const NAME: &str = "plateau-demo (embedded)";

/// Writes the model to a temporary file, which is removed when the value is dropped. It may be dropped as soon as the model
/// is loaded: a memory map keeps the contents alive without the name.
pub fn write() -> io::Result<NamedTempFile> {
    let mut file = tempfile::Builder::new().prefix("plateau-demo-").suffix(".gguf").tempfile()?;
    file.write_all(DEMO)?;
    file.flush()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_holds_the_model_and_goes_away() {
        let file = write().unwrap();
        let path = file.path().to_owned();
        assert_eq!(std::fs::read(&path).unwrap(), DEMO);
        assert!(DEMO.starts_with(b"GGUF"));
        drop(file);
        assert!(!path.exists());
    }
}
