//! The sampling chain: bias, penalties, cut to candidates, truncation, temperature, pick.
//!
//! Order: `logit_bias`; repeat, presence and frequency penalties; DRY; mask; then `top_k`,
//! `typical_p`, `top_p`, `min_p`, XTC; then temperature; then the pick. This is the default order
//! of llama.cpp, so the truncations look at the distribution at temperature 1: a high temperature
//! flattens what they left and never widens it.
//!
//! Greedy (temperature 0) takes the largest logit after bias, penalties, DRY and mask; truncations,
//! XTC among them, have no say there. Without any truncation the pick is from the whole vocabulary,
//! exactly. A token that is 87 or more (after temperature, in natural-log units) below the best has
//! probability 0: `f32` cannot hold it.
//!
//! The module draws no conclusions from tokens: stopping, and what a mask allows, are decided
//! elsewhere.

use super::distribution::{Distribution, Shape};
use super::error::SampleError;
use super::mask::Mask;
use super::overlay::Overlay;
use super::params::SamplingParams;
use super::row::{BLOCK, Peaks, Row, weight};
use super::shortlist::Shortlist;
use super::stream::Stream;

/// Sampling state of one sequence: parameters, random stream, token history for penalties, reused
/// buffers. `Clone` gives the state per draft position that verification needs.
///
/// The same seed, parameters and logits give the same tokens on every machine. A token takes one
/// number from the stream, two where XTC is on and the temperature is not 0.
#[derive(Clone)]
pub struct Sampler {
    params: SamplingParams,
    stream: Stream,
    overlay: Overlay,
    buffers: Buffers,
}

/// Working memory, kept between tokens so that a warm sampler allocates nothing.
#[derive(Default)]
struct Buffers {
    maxima: Vec<f32>,
    sums: Vec<f32>,
    shortlist: Shortlist,
    /// What XTC struck out of a whole row, and the block maxima of what it left.
    banned: Vec<(u32, f32)>,
    left: Vec<f32>,
}

impl Clone for Buffers {
    /// Nothing in them outlives a call, so a copy of a sampler starts with empty ones.
    fn clone(&self) -> Buffers {
        Buffers::default()
    }
}

/// The random numbers that the coming tokens will take: a copy of the stream, to draft with.
#[derive(Clone)]
pub struct Foresight(Stream);

impl Sampler {
    pub fn new(params: SamplingParams) -> Sampler {
        let stream = Stream::new(params.seed);
        let overlay = Overlay::new(&params);
        Sampler { params, stream, overlay, buffers: Buffers::default() }
    }

    /// Takes a token into the history (prompt tokens too, in order), without drawing randomness.
    /// Constant time.
    pub fn accept(&mut self, token: u32) {
        self.overlay.accept(token);
    }

    /// Picks a token from `logits` (raw, one f32 a token of the vocabulary). Does not accept it.
    /// Ties: the lowest id.
    pub fn sample(&mut self, logits: &[f32], mask: Option<Mask<'_>>) -> Result<u32, SampleError> {
        let row = Row::new(logits, self.overlay.changed(logits)?, mask);
        let distribution = distribution(&self.params, row, &mut self.stream, &mut self.buffers)?;
        Ok(distribution.pick(self.stream.unit()))
    }

    /// The random numbers from here on.
    pub fn foresight(&self) -> Foresight {
        Foresight(self.stream.clone())
    }

    /// What `sample` would pick where `foresight` stands, if `logits`, a draft head's, were the
    /// model's; moves it on. The same number picks from both distributions, so that they agree
    /// wherever they are alike, and the pick from the model's owes nothing to the draft. Penalties
    /// and bias are those of the last accepted token: drafts are no history yet.
    pub fn guess(
        &mut self,
        logits: &[f32],
        mask: Option<Mask<'_>>,
        foresight: &mut Foresight,
    ) -> Result<u32, SampleError> {
        let row = Row::new(logits, self.overlay.changed(logits)?, mask);
        let distribution = distribution(&self.params, row, &mut foresight.0, &mut self.buffers)?;
        Ok(distribution.pick(foresight.0.unit()))
    }

    /// Probability of `token` in the softmax of the raw row; 0 where the row is broken.
    pub fn confidence(&mut self, logits: &[f32], token: u32) -> f64 {
        let row = Row::new(logits, &[], None);
        let Buffers { maxima, sums, .. } = &mut self.buffers;
        match row.peaks(maxima) {
            Ok(peaks) if peaks.top.is_finite() => {
                f64::from(weight(row.value(token), peaks.top, 1.0)) / row.sums(peaks, 1.0, sums)
            }
            _ => 0.0,
        }
    }

    /// The distribution that `sample` would pick from. Draws for XTC where that is on, and for
    /// nothing else.
    pub fn distribution<'a>(
        &'a mut self,
        logits: &'a [f32],
        mask: Option<Mask<'a>>,
    ) -> Result<Distribution<'a>, SampleError> {
        let row = Row::new(logits, self.overlay.changed(logits)?, mask);
        distribution(&self.params, row, &mut self.stream, &mut self.buffers)
    }
}

fn distribution<'a>(
    params: &SamplingParams,
    row: Row<'a>,
    stream: &mut Stream,
    buffers: &'a mut Buffers,
) -> Result<Distribution<'a>, SampleError> {
    let Buffers { maxima, sums, shortlist, banned, left } = buffers;
    let peaks = row.peaks(maxima)?;
    if peaks.top == f32::NEG_INFINITY {
        return Err(SampleError::NothingLeft);
    }
    if params.temperature <= 0.0 {
        return Ok(Distribution(Shape::Certain(first_of_the_largest(row, peaks))));
    }
    // A temperature next to 0 must not turn the best token's 0 * scale into NaN.
    let scale = params.temperature.recip().min(f32::MAX);
    let strikes = params.xtc.strikes(stream);
    match cut(params, row, peaks, sums, shortlist) {
        Cut::Nothing if strikes => {
            shortlist.take_top_choices(row, peaks, params.xtc.threshold, row.sums(peaks, 1.0, sums));
            let row = row.without(shortlist.all_but_the_least(), banned);
            return Ok(whole(row, row.peaks(left)?, scale, sums));
        }
        Cut::Nothing => return Ok(whole(row, peaks, scale, sums)),
        Cut::Before(next) => truncate(params, next, shortlist),
    }
    if strikes {
        shortlist.exclude_top_choices(params.xtc.threshold);
    }
    let total = shortlist.weigh(scale);
    Ok(Distribution(Shape::List { list: &shortlist.list, weights: &shortlist.weights, total }))
}

/// Nothing of `row` is cut off.
fn whole<'a>(row: Row<'a>, peaks: Peaks<'a>, scale: f32, sums: &'a mut Vec<f32>) -> Distribution<'a> {
    let total = row.sums(peaks, scale, sums);
    Distribution(Shape::Whole { row, peaks, scale, sums, total })
}

/// The truncations, in their order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Truncation {
    Typical,
    TopP,
    MinP,
    Done,
}

enum Cut {
    /// No truncation is on; the shortlist was not filled.
    Nothing,
    /// The shortlist is filled, and this truncation is the next one due.
    Before(Truncation),
}

/// Fills the shortlist by the first truncation that is on, directly from the row.
fn cut(params: &SamplingParams, row: Row<'_>, peaks: Peaks<'_>, sums: &mut Vec<f32>, shortlist: &mut Shortlist) -> Cut {
    if peaks.top == f32::INFINITY {
        shortlist.take_infinite(row, peaks);
        if params.top_k > 0 {
            shortlist.list.truncate(params.top_k as usize);
        }
        return Cut::Before(Truncation::Typical);
    }
    let top_k = params.top_k as usize;
    if top_k > 0 && top_k < row.len() {
        shortlist.take_top_k(row, peaks, top_k);
        Cut::Before(Truncation::Typical)
    } else if params.typical_p < 1.0 {
        let total = row.sums(peaks, 1.0, sums);
        shortlist.take_typical(row, peaks, params.typical_p, total);
        Cut::Before(Truncation::TopP)
    } else if params.top_p < 1.0 {
        let total = row.sums(peaks, 1.0, sums);
        shortlist.take_nucleus(row, peaks, params.top_p, total);
        Cut::Before(Truncation::MinP)
    } else if params.min_p > 0.0 {
        shortlist.take_min_p(row, peaks, params.min_p);
        Cut::Before(Truncation::Done)
    } else {
        Cut::Nothing
    }
}

/// The truncations from `next` on.
fn truncate(params: &SamplingParams, next: Truncation, shortlist: &mut Shortlist) {
    if next <= Truncation::Typical && params.typical_p < 1.0 {
        shortlist.keep_typical(params.typical_p);
    }
    if next <= Truncation::TopP && params.top_p < 1.0 {
        shortlist.keep_top_p(params.top_p);
    }
    if next <= Truncation::MinP && params.min_p > 0.0 {
        shortlist.keep_min_p(params.min_p);
    }
}

fn first_of_the_largest(row: Row<'_>, peaks: Peaks<'_>) -> u32 {
    let is_top = |x: &f32| *x == peaks.top;
    let index = peaks.maxima.iter().position(is_top).expect("the top is one of the maxima");
    let at = row.block(index).iter().position(is_top).expect("a block holds its own maximum");
    (index * BLOCK + at) as u32
}
