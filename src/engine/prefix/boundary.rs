//! Where a state is saved while a prompt is processed, and what a saved state is likely to be good
//! for.
//!
//! Pure: the prompt's length and its breakpoints in, places out. The same prompt always gets the
//! same places, with and without a cache, so that a restored run computes the very steps of a cold
//! one from there on.

use crate::engine::request::breakpoint::{Breakpoint, BreakpointKind};
use crate::engine::request::item::{PromptItem, whole};
use crate::engine::vision::image::ImageRow;

/// Messages at the end of a prompt before each of which a state is saved, however close they are:
/// what clients edit.
const LAST_MESSAGES: usize = 4;

/// Distances before the end of a prompt, each rounded down to a multiple of itself: an edit near
/// the end, of a prompt without breakpoints, recomputes about as much as it is away.
const TAIL_STEPS: [usize; 3] = [128, 512, 2048];

/// Finest automatic spacing.
const MIN_INTERVAL: usize = 128;
/// A model of attention alone can be truncated anywhere, so states only matter where its rows have
/// left the cache; shorter steps would slow its prefill for little.
const ATTENTION_INTERVAL: usize = 2048;
/// The share of the budget that the states of one full context may take by the automatic spacing: a
/// quarter.
const INTERVAL_SHARE: u64 = 4;

/// Spacing of the states of a prompt without breakpoints: as fine as a full context of them fits a
/// quarter of `budget`, a power of two, at least 128 tokens.
pub fn interval_tokens(n_ctx: usize, point_bytes: u64, budget: u64) -> usize {
    if point_bytes == 0 {
        return ATTENTION_INTERVAL;
    }
    let n_points = (budget / INTERVAL_SHARE / point_bytes).max(1);
    let n_points = usize::try_from(n_points).unwrap_or(usize::MAX);
    n_ctx.div_ceil(n_points).next_power_of_two().max(MIN_INTERVAL)
}

/// Places in a prompt, ascending, each in `1..items.len()`: the last one leaves one item to
/// process. `interval` is in items. None lies inside an image; there is one after each.
pub fn plan(items: &[PromptItem], breakpoints: &[Breakpoint], interval: usize) -> Vec<Breakpoint> {
    let Some(last) = items.len().checked_sub(1).filter(|last| *last > 0) else { return Vec::new() };
    let mut places: Vec<Breakpoint> =
        spaced(breakpoints, interval).filter(|breakpoint| (1..=last).contains(&breakpoint.at)).collect();
    places.extend((1..).map(|i| i * interval.max(1)).take_while(|at| *at < last).map(grid));
    let steps = TAIL_STEPS.iter().filter(|step| **step < interval);
    places.extend(steps.map(|step| last.saturating_sub(*step) / step * step).filter(|at| *at > 0).map(grid));
    places.push(Breakpoint { at: last, kind: BreakpointKind::PromptEnd });
    places.iter_mut().for_each(|place| place.at = whole(items, place.at));
    places.retain(|place| place.at > 0);
    let ends = items[..last].iter().zip(1..).filter(|(item, _)| item.image().is_some_and(ImageRow::is_last));
    places.extend(ends.map(|(_, at)| Breakpoint { at, kind: BreakpointKind::Image }));
    places.sort_by_key(|breakpoint| (breakpoint.at, std::cmp::Reverse(likelihood(breakpoint.kind))));
    places.dedup_by_key(|breakpoint| breakpoint.at);
    places
}

fn grid(at: usize) -> Breakpoint {
    Breakpoint { at, kind: BreakpointKind::Grid }
}

/// The breakpoints worth a state: all but messages in the middle of a long conversation that follow
/// another place too closely.
fn spaced(breakpoints: &[Breakpoint], interval: usize) -> impl Iterator<Item = Breakpoint> + '_ {
    let n_messages = breakpoints.iter().filter(|breakpoint| breakpoint.kind == BreakpointKind::Message).count();
    let (mut seen, mut before) = (0, 0);
    breakpoints.iter().copied().filter(move |breakpoint| {
        let recent = match breakpoint.kind {
            BreakpointKind::Message => {
                seen += 1;
                seen + LAST_MESSAGES > n_messages
            }
            BreakpointKind::Thinking | BreakpointKind::ThinkingEnd => seen + LAST_MESSAGES > n_messages,
            _ => true,
        };
        let keep = recent || breakpoint.at >= before + interval;
        if keep {
            before = breakpoint.at;
        }
        keep
    })
}

/// How likely a prompt is to go on from such a place, against a place without meaning.
pub(super) fn likelihood(kind: BreakpointKind) -> u32 {
    match kind {
        BreakpointKind::System => 16,
        BreakpointKind::Turn => 12,
        BreakpointKind::AnswerEnd => 8,
        BreakpointKind::PromptEnd | BreakpointKind::Message => 6,
        // Images are dear: their encoding is saved with their rows.
        BreakpointKind::Image => 5,
        BreakpointKind::ThinkingEnd => 3,
        BreakpointKind::Thinking => 2,
        BreakpointKind::Grid => 1,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::engine::vision::image::{Grid, ImageKey};
    use crate::units::Token;

    fn words(n: usize) -> Vec<PromptItem> {
        vec![PromptItem::Token(Token(7)); n]
    }

    fn image(nx: u16, ny: u16) -> Vec<PromptItem> {
        ImageRow::all(ImageKey::new(1), Grid { nx, ny }).map(PromptItem::Image).collect()
    }

    fn at(places: &[Breakpoint]) -> Vec<usize> {
        places.iter().map(|breakpoint| breakpoint.at).collect()
    }

    #[test]
    fn a_prompt_without_marks_is_saved_by_the_interval_and_near_its_end() {
        assert_eq!(at(&plan(&words(500), &[], 128)), [128, 256, 384, 499]);
        assert_eq!(at(&plan(&words(10_000), &[], 8192)), [6144, 8192, 9216, 9856, 9999]);
        assert_eq!(at(&plan(&words(2), &[], 128)), [1]);
        assert!(plan(&words(1), &[], 128).is_empty() && plan(&words(0), &[], 128).is_empty());
    }

    /// Users lost every early state to those of one long prompt's end.
    #[test]
    fn the_system_prompt_and_the_last_messages_always_have_a_place() {
        let mut breakpoints = vec![Breakpoint { at: 300, kind: BreakpointKind::System }];
        breakpoints.extend((1..60).map(|i| Breakpoint { at: 300 + i * 50, kind: BreakpointKind::Message }));
        breakpoints.push(Breakpoint { at: 3300, kind: BreakpointKind::Turn });
        let places = at(&plan(&words(3304), &breakpoints, 1024));
        for place in [300, 3300, 3250, 3200, 3150, 3100, 3303] {
            assert!(places.contains(&place), "{place} in {places:?}");
        }
        assert!(places.len() < 20, "{places:?}");
    }

    #[test]
    fn there_is_a_place_after_each_image_and_none_inside() {
        let prompt = [words(100), image(10, 10), words(2), image(3, 3), image(2, 2), words(20)].concat();
        let breakpoint = |at| Breakpoint { at, kind: BreakpointKind::Message };
        let places = plan(&prompt, &[breakpoint(90), breakpoint(150), breakpoint(211)], 128);
        let found: Vec<_> = places.iter().map(|breakpoint| (breakpoint.at, breakpoint.kind)).collect();
        let image = |at| (at, BreakpointKind::Image);
        let expected = [
            (90, BreakpointKind::Message),
            (100, BreakpointKind::Message),
            image(200),
            (211, BreakpointKind::Message),
            image(215),
            (234, BreakpointKind::PromptEnd),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn the_spacing_grows_with_the_size_of_a_state_and_shrinks_with_the_budget() {
        assert_eq!(interval_tokens(32_768, 300_000, 4 << 30), 128);
        assert_eq!(interval_tokens(131_072, 150 << 20, 16 << 30), 8192);
        assert_eq!(interval_tokens(131_072, 150 << 20, 64 << 30), 2048);
        assert_eq!(interval_tokens(1000, 0, 0), 2048);
        assert_eq!(interval_tokens(1000, 1, 0), 1024);
        assert_eq!(interval_tokens(1000, 1 << 40, 1), 1024);
    }

    proptest! {
        #[test]
        fn places_are_ordered_and_leave_something_to_do(
            n in 0usize..5000,
            breakpoints in prop::collection::btree_set(0usize..6000, 0..40),
            interval in 1usize..3000,
        ) {
            let breakpoints: Vec<Breakpoint> = breakpoints.into_iter().map(|at| Breakpoint { at, kind: BreakpointKind::Message }).collect();
            let places = at(&plan(&words(n), &breakpoints, interval));
            prop_assert!(places.windows(2).all(|w| w[0] < w[1]));
            prop_assert!(places.iter().all(|at| (1..n).contains(at)));
            prop_assert_eq!(places.last().copied(), (n > 1).then(|| n - 1));
            // An edit anywhere recomputes no more than the interval.
            for edit in [n / 3, n / 2, n.saturating_sub(1)] {
                let from = places.iter().rev().find(|at| **at <= edit).copied().unwrap_or(0);
                prop_assert!(edit - from <= interval);
            }
        }
    }
}
