//! Are the pictures of a request what its prompt says they are.

use std::sync::Arc;

use super::generation::GenerationRequest;
use super::item::PromptItem;
use crate::engine::vision::picture::{Picture, PictureRow, VisionFacts};

/// Are the pictures of a prompt whole, small enough and all there.
pub(in crate::engine) fn check(request: &GenerationRequest, vision: Option<&VisionFacts>) -> Result<(), &'static str> {
    let mut rows = request.prompt.iter().filter_map(PromptItem::picture).peekable();
    if rows.peek().is_none() {
        return Ok(());
    }
    let Some(vision) = vision else { return Err("the model sees no pictures") };
    if request.prompt.last().is_some_and(|item| item.picture().is_some()) {
        return Err("the prompt ends in a picture");
    }
    let mut before: Option<PictureRow> = None;
    for item in request.prompt.iter() {
        let next = item.picture();
        let fits = match (before.filter(|row| !row.is_last()), next) {
            (Some(row), next) => next == Some(PictureRow { index: row.index + 1, ..row }),
            (None, Some(row)) => row.index == 0 && row.grid.n_tokens() > 0,
            (None, None) => true,
        };
        if !fits {
            return Err("a picture of the prompt is not whole");
        }
        before = next;
    }
    rows.filter(|row| row.index == 0).try_for_each(|row| {
        if row.grid.n_tokens() > vision.max_tokens as usize {
            return Err("a picture has more tokens than the model's eyes give");
        }
        let of = |picture: &&Arc<Picture>| picture.key == row.key && picture.grid == row.grid;
        let picture = request.pictures.iter().find(of).ok_or("a picture of the prompt is missing")?;
        let n_bytes = 3 * u64::from(picture.width_px) * u64::from(picture.height_px);
        if n_bytes == 0 || n_bytes != picture.rgb.len() as u64 {
            return Err("a picture's pixels are not as many as its size says");
        }
        Ok(())
    })
}
