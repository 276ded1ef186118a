//! What images take: the encoder's weights, its compute buffer for the largest image, and
//! encoded images on the host. Without a projector nothing of it is in a plan.

use crate::units::Bytes;

use super::builder::Builder;
use super::table::Place;

/// Patches of a token.
const PATCHES_PER_TOKEN: u64 = 4;

impl Builder<'_> {
    pub(super) fn images(&mut self) {
        let Some(sizes) = self.model.images else { return };
        let place = if sizes.on_gpu && self.has_gpu { Place::Gpu } else { Place::Host };
        self.exact("image encoder", place, sizes.weights, String::new());
        let patches = u64::from(sizes.max_tokens) * PATCHES_PER_TOKEN;
        let floats = sizes.floats_per_patch();
        let note = format!("an image of {} tokens: {patches} patches x {floats} x 4 B", sizes.max_tokens);
        self.estimate("encoder buffer", place, patches * floats * 4, note);
        let rows = u64::from(sizes.max_tokens) * u64::from(self.model.n_embd) * 4;
        let note = "encoded ones that are kept, and one that is needed".to_owned();
        self.exact("images", Place::Host, Bytes(sizes.cache.0.max(rows)), note);
    }
}
