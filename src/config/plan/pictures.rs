//! What pictures take: the encoder's weights, its compute buffer for the largest picture, and encoded pictures on the host.
//! Without a projector nothing of it is in a plan.

use crate::config::profile::{VisionConfig, VisionDevice};
use crate::units::Bytes;

use super::{Builder, Place};

/// Patches of a token.
const PATCHES_PER_TOKEN: u64 = 4;

/// A picture encoder as its file and the profile have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PictureSizes {
    pub weights: Bytes,
    /// Width inside, and of the feed-forward part.
    pub width: u32,
    pub n_ff: u32,
    pub n_head: u32,
    /// Pixels of a token's side.
    pub token_px: u32,
    /// Tokens of the largest picture.
    pub max_tokens: u32,
    /// It is to be on the card, if there is one.
    pub on_card: bool,
    pub cache: Bytes,
}

impl PictureSizes {
    /// Puts in what the profile says.
    pub fn placed(self, vision: &VisionConfig) -> PictureSizes {
        let (_, max_tokens) = vision.bounds(0, self.max_tokens);
        let on_card = vision.device == VisionDevice::Gpu;
        PictureSizes { max_tokens, on_card, cache: Bytes(u64::from(vision.cache_mib) << 20), ..self }
    }

    /// Numbers of a patch that live at once: some of the encoder's width, one of the feed-forward part, and its pixels, which
    /// are spread out twice for the two halves of the convolution.
    fn floats_per_patch(&self) -> u64 {
        let side = u64::from(self.token_px) / 2;
        8 * u64::from(self.width) + u64::from(self.n_ff) + 2 * 3 * side * side
    }
}

impl Builder<'_> {
    pub(super) fn pictures(&mut self) {
        let Some(sizes) = self.model.pictures else { return };
        let place = if sizes.on_card && self.has_card { Place::Card } else { Place::Host };
        self.exact("picture encoder", place, sizes.weights, String::new());
        let patches = u64::from(sizes.max_tokens) * PATCHES_PER_TOKEN;
        let floats = sizes.floats_per_patch();
        let note = format!("a picture of {} tokens: {patches} patches x {floats} x 4 B", sizes.max_tokens);
        self.estimate("encoder buffer", place, patches * floats * 4, note);
        let rows = u64::from(sizes.max_tokens) * u64::from(self.model.n_embd) * 4;
        let note = "encoded ones that are kept, and one that is needed".to_owned();
        self.exact("pictures", Place::Host, Bytes(sizes.cache.0.max(rows)), note);
    }
}
