//! Are the images of a request what its prompt says they are.

use std::sync::Arc;

use super::generation::GenerationRequest;
use super::item::PromptItem;
use crate::engine::vision::image::{Image, ImageRow, VisionFacts};

/// Are the images of a prompt whole, small enough and all there.
pub(in crate::engine) fn check(request: &GenerationRequest, vision: Option<&VisionFacts>) -> Result<(), &'static str> {
    let mut rows = request.prompt.iter().filter_map(PromptItem::image).peekable();
    if rows.peek().is_none() {
        return Ok(());
    }
    let Some(vision) = vision else { return Err("the model sees no images") };
    if request.prompt.last().is_some_and(|item| item.image().is_some()) {
        return Err("the prompt ends in an image");
    }
    let mut before: Option<ImageRow> = None;
    for item in request.prompt.iter() {
        let next = item.image();
        let fits = match (before.filter(|row| !row.is_last()), next) {
            (Some(row), next) => next == Some(ImageRow { index: row.index + 1, ..row }),
            (None, Some(row)) => row.index == 0 && row.grid.n_tokens() > 0,
            (None, None) => true,
        };
        if !fits {
            return Err("an image of the prompt is not whole");
        }
        before = next;
    }
    rows.filter(|row| row.index == 0).try_for_each(|row| {
        if row.grid.n_tokens() > vision.max_tokens as usize {
            return Err("an image has more tokens than the vision encoder gives");
        }
        let of = |image: &&Arc<Image>| image.key == row.key && image.grid == row.grid;
        let image = request.images.iter().find(of).ok_or("an image of the prompt is missing")?;
        let n_bytes = 3 * u64::from(image.width_px) * u64::from(image.height_px);
        if n_bytes == 0 || n_bytes != image.rgb.len() as u64 {
            return Err("an image's pixels are not as many as its size says");
        }
        Ok(())
    })
}
