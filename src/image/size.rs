//! How many tokens an image of some size becomes, and the size to which one with too many is brought.
//!
//! The rule is the encoder's own (`qwen3vl_merger` in mtmd: sides to whole tokens, the area within bounds), step by step and in
//! its types: a side in f32 decides which of two whole numbers it becomes. The engine compares the grid that comes of it with
//! the one that the encoder used.

/// The encoder's bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Pixels of one token's side.
    pub token_px: u32,
    pub min_tokens: u32,
    pub max_tokens: u32,
}

/// Columns and rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokens {
    pub nx: u32,
    pub ny: u32,
}

impl Tokens {
    pub fn n(self) -> u32 {
        self.nx.saturating_mul(self.ny)
    }
}

/// A size in pixels with what becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    pub width: u32,
    pub height: u32,
    pub tokens: Tokens,
}

impl Rule {
    /// Of an image of `width` by `height` pixels, neither of them 0.
    pub fn tokens(&self, width: u32, height: u32) -> Tokens {
        let side = self.token_px.max(1) as f32;
        let area = u64::from(self.token_px) * u64::from(self.token_px);
        let (min, max) = (u64::from(self.min_tokens) * area, u64::from(self.max_tokens) * area);
        let (w, h) = (width as f32, height as f32);
        let Tokens { nx, ny } = self.rounded(width, height);
        let rounded = u64::from(nx) * u64::from(ny) * area;
        if rounded > max {
            let shrink = (h * w / max as f32).sqrt();
            let floor = |pixels: f32| ((pixels / shrink / side).floor() as u32).max(1);
            return Tokens { nx: floor(w), ny: floor(h) };
        }
        if rounded < min {
            let grow = (min as f32 / (h * w)).sqrt();
            let ceil = |pixels: f32| (pixels * grow / side).ceil() as u32;
            return Tokens { nx: ceil(w), ny: ceil(h) };
        }
        Tokens { nx, ny }
    }

    /// Each side to whole tokens.
    fn rounded(&self, width: u32, height: u32) -> Tokens {
        let side = self.token_px.max(1) as f32;
        let round = |pixels: u32| ((pixels as f32 / side).round() as u32).max(1);
        Tokens { nx: round(width), ny: round(height) }
    }

    /// The largest size of the same shape, no larger than the image, that has at most `budget` tokens and that the encoder
    /// need not shrink: this is done here, before the image waits for the model. The rule alone does not keep its own bound,
    /// either: it enlarges an image of one pixel's width whose length is beyond it. Where no size keeps the budget (it is
    /// below the smallest image's), the one with the fewest tokens.
    pub fn fit(&self, width: u32, height: u32, budget: u32) -> Fit {
        let budget = budget.min(self.max_tokens);
        let long = width.max(height);
        let scaled = |to: u32| {
            let scale = |side: u32| {
                let scaled = (u64::from(side) * u64::from(to) + u64::from(long) / 2) / u64::from(long);
                (scaled as u32).clamp(1, side)
            };
            let (width, height) = (scale(width), scale(height));
            Fit { width, height, tokens: self.tokens(width, height) }
        };
        let keeps = |size: &Fit| size.tokens.n() <= budget && self.rounded(size.width, size.height).n() <= budget;
        let whole = scaled(long);
        if keeps(&whole) {
            return whole;
        }
        // Sides that are rounded down leave room for half as much again.
        let area = f64::from(budget) * f64::from(self.token_px).powi(2);
        let guess = f64::from(long) * (area / (f64::from(width) * f64::from(height))).sqrt();
        let from = (guess as u32).saturating_mul(2).saturating_add(self.token_px).clamp(1, long);
        let sizes = || (1..=from).rev().map(scaled);
        sizes().find(keeps).or_else(|| sizes().min_by_key(|size| size.tokens.n())).unwrap_or(whole)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As the encoder of the demo model and of the models it stands for has it.
    const RULE: Rule = Rule { token_px: 32, min_tokens: 8, max_tokens: 4096 };

    fn n(width: u32, height: u32) -> (u32, u32) {
        let Tokens { nx, ny } = RULE.tokens(width, height);
        (nx, ny)
    }

    /// Worked out with the C++ types by hand: 16 rounds up, 80 is half of 5 and rounds away from zero.
    #[test]
    fn sizes_become_the_grids_of_the_encoder() {
        for (size, grid) in [
            ((512, 512), (16, 16)),
            ((96, 96), (3, 3)),
            ((80, 112), (3, 4)),
            ((79, 113), (2, 4)),
            ((1, 1), (3, 3)),
            ((64, 64), (3, 3)),
            ((64, 128), (2, 4)),
            ((1, 100), (1, 29)),
            ((4000, 1), (125, 1)),
            ((1, 16_000), (1, 500)),
            ((2048, 2048), (64, 64)),
            ((2064, 2048), (64, 63)),
            ((8192, 8192), (64, 64)),
            ((4000, 3000), (73, 55)),
            ((16_000, 16_000), (64, 64)),
        ] {
            assert_eq!(n(size.0, size.1), grid, "{size:?}");
        }
    }

    #[test]
    fn a_long_thin_image_is_brought_into_bounds_that_the_rule_breaks() {
        let rule = Rule { max_tokens: 64, ..RULE };
        assert!(rule.tokens(1, 16_000).n() > 1000, "the rule enlarges it");
        let fit = rule.fit(1, 16_000, 64);
        assert_eq!((fit.width, fit.tokens), (1, Tokens { nx: 1, ny: 64 }));
        assert!(fit.height <= 2064, "{fit:?}");
    }

    #[test]
    fn a_smaller_budget_shrinks_and_keeps_the_shape() {
        let fit = RULE.fit(1024, 1024, 256);
        assert_eq!(fit.tokens, Tokens { nx: 16, ny: 16 });
        assert_eq!((fit.width, fit.height), (527, 527), "as much as rounds to 16 x 16");
        let wide = RULE.fit(1920, 1080, 256);
        assert!(wide.tokens.n() > 220 && wide.tokens.n() <= 256, "{wide:?}");
        assert!((f64::from(wide.width) / f64::from(wide.height) - 16.0 / 9.0).abs() < 0.01, "{wide:?}");
        let same = RULE.fit(300, 200, 256);
        assert_eq!((same.width, same.height), (300, 200));
    }

    #[test]
    fn an_impossible_budget_gives_the_smallest_image() {
        assert_eq!(RULE.fit(1000, 1000, 1).tokens, Tokens { nx: 3, ny: 3 });
    }

    proptest! {
        #[test]
        fn every_size_fits_its_budget(w in 1_u32..16_385, h in 1_u32..16_385, budget in 64_u32..5000, max in 64_u32..5000) {
            let rule = Rule { max_tokens: max, ..RULE };
            let fit = rule.fit(w, h, budget);
            prop_assert!(fit.tokens.n() <= budget.min(max), "{fit:?}");
            prop_assert!(fit.width >= 1 && fit.height >= 1 && fit.width <= w && fit.height <= h);
            prop_assert_eq!(rule.tokens(fit.width, fit.height), fit.tokens);
            let unshrunk = rule.rounded(fit.width, fit.height);
            prop_assert!(unshrunk.n() <= budget.min(max), "the encoder has nothing to shrink");
            if rule.rounded(w, h).n() <= budget.min(max) && rule.tokens(w, h).n() <= budget.min(max) {
                prop_assert_eq!((fit.width, fit.height), (w, h));
            }
        }

        #[test]
        fn grids_stay_in_bounds_and_near_the_shape(w in 1_u32..8193, h in 1_u32..8193) {
            let Tokens { nx, ny } = RULE.tokens(w, h);
            prop_assert!(nx >= 1 && ny >= 1 && nx * ny <= RULE.max_tokens && nx * ny >= RULE.min_tokens.min(nx * ny));
            if w.min(h) >= 512 {
                let (shape, grid) = (f64::from(w) / f64::from(h), f64::from(nx) / f64::from(ny));
                prop_assert!((shape / grid - 1.0).abs() < 0.2, "{w} x {h}: {nx} x {ny}");
            }
            let turned = RULE.tokens(h, w);
            prop_assert_eq!((turned.ny, turned.nx), (nx, ny));
        }
    }
}
