//! `--image`: files of this machine, decoded as the server decodes what requests bring.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::app::Failure;
use crate::chat::images::{Detail, finish};
use crate::config::ImagesConfig;
use crate::engine::{Image, VisionFacts};
use crate::image::{ImageRefusal, Limits, Probe};

/// Reads and decodes the files.
///
/// # Errors
/// `Usage`: not an image, or the model has no vision; `Unavailable`: a file cannot be read.
pub(super) fn load(
    files: &[PathBuf],
    vision: Option<&VisionFacts>,
    config: &ImagesConfig,
) -> Result<Vec<Arc<Image>>, Failure> {
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let Some(vision) = vision else {
        let message = "--image: this model has no vision; give its projector with --mmproj";
        return Err(Failure::Usage(message.to_owned()));
    };
    let limits = Limits { bytes: config.max_bytes, side: config.max_side, pixels: config.max_pixels };
    let one = |path: &PathBuf| {
        let bytes = read(path, config.max_bytes)
            .map_err(|error| Failure::Unavailable(format!("cannot read {}: {error}", path.display())))?;
        let decode = || finish(Probe::read(&bytes, &limits)?.decode()?, vision, Detail::Full, config.low_tokens);
        decode()
            .map(Arc::new)
            .map_err(|error: ImageRefusal| Failure::Usage(format!("--image {}: {error}", path.display())))
    };
    files.iter().map(one).collect()
}

/// One byte more than the limit is enough to be refused.
fn read(path: &Path, limit: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(bytes)
}
