//! A logits row as the chain sees it: raw logits, the few values that bias and penalties changed,
//! and a mask, read block by block without copying the row. It does not choose anything: it finds
//! maxima and sums.

use super::error::SampleError;
use super::exp::exp;
use super::mask::Mask;

/// Tokens in a block: a whole number of mask words, small enough to look through, large enough to
/// keep block lists short.
pub(super) const BLOCK: usize = 128;
const SIGN: u32 = 1 << 31;
const WORD_BITS: usize = 32;

pub(super) type Block = [f32; BLOCK];

/// One row. A value in `changed` replaces the raw logit; a token that `mask` forbids counts as
/// -inf.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    logits: &'a [f32],
    /// (token, logit), ascending by token, each token once.
    changed: &'a [(u32, f32)],
    mask: Option<Mask<'a>>,
}

/// What the first pass over a row finds: the largest value of each block and of the row.
#[derive(Clone, Copy)]
pub(super) struct Peaks<'a> {
    pub(super) maxima: &'a [f32],
    pub(super) top: f32,
}

impl<'a> Row<'a> {
    pub(super) fn new(logits: &'a [f32], changed: &'a [(u32, f32)], mask: Option<Mask<'a>>) -> Row<'a> {
        Row { logits, changed, mask }
    }

    /// The same row, where `tokens` (ascending) have no probability. `changed` is room for it.
    pub(super) fn without<'b>(self, tokens: impl Iterator<Item = u32>, changed: &'b mut Vec<(u32, f32)>) -> Row<'b>
    where
        'a: 'b,
    {
        changed.clear();
        let mut old = self.changed.iter().copied().peekable();
        for token in tokens {
            while let Some(entry) = old.next_if(|entry| entry.0 < token) {
                changed.push(entry);
            }
            old.next_if(|entry| entry.0 == token);
            changed.push((token, f32::NEG_INFINITY));
        }
        changed.extend(old);
        Row { changed, ..self }
    }

    pub(super) fn len(&self) -> usize {
        self.logits.len()
    }

    /// The first pass. NaN anywhere in the raw row is an error, also under the mask: such a row
    /// came from a broken step.
    pub(super) fn peaks<'b>(&self, maxima: &'b mut Vec<f32>) -> Result<Peaks<'b>, SampleError> {
        maxima.clear();
        let mut magnitude = 0;
        self.for_each(
            |_| true,
            |index, block| {
                let raw = &self.logits[index * BLOCK..self.logits.len().min((index + 1) * BLOCK)];
                magnitude = magnitude.max(largest_magnitude(raw));
                maxima.push(block_max(block));
            },
        );
        if magnitude > f32::INFINITY.to_bits()
            && let Some(token) = self.logits.iter().position(|x| x.is_nan())
        {
            return Err(SampleError::NotANumber { token: token as u32 });
        }
        let top = maxima.iter().fold(f32::NEG_INFINITY, |top, &x| if x > top { x } else { top });
        Ok(Peaks { maxima, top })
    }

    /// Sum of e^((x - top) * scale) over each block, and over the row.
    pub(super) fn sums(&self, peaks: Peaks<'_>, scale: f32, sums: &mut Vec<f32>) -> f64 {
        sums.clear();
        self.for_each(|_| true, |_, block| sums.push(block_sum(block, peaks.top, scale)));
        sums.iter().map(|&sum| f64::from(sum)).sum()
    }

    /// The mean of (x - top) over the row's distribution at temperature 1, `total` being the sum of
    /// all weights.
    pub(super) fn mean(&self, peaks: Peaks<'_>, total: f64) -> f32 {
        let mut sum = 0.0;
        self.for_each(|_| true, |_, block| sum += f64::from(block_moment(block, peaks.top)));
        (sum / total) as f32
    }

    /// Calls `visit` for the blocks that `wanted` names, in order. A block past the row's end is
    /// filled up with -inf.
    #[inline(always)]
    pub(super) fn for_each(&self, mut wanted: impl FnMut(usize) -> bool, mut visit: impl FnMut(usize, &Block)) {
        let mut changed = self.changed;
        for (index, chunk) in self.logits.chunks(BLOCK).enumerate() {
            let end = (index + 1) * BLOCK;
            let here = changed.iter().take_while(|(token, _)| (*token as usize) < end).count();
            let (patches, rest) = changed.split_at(here);
            changed = rest;
            if !wanted(index) {
                continue;
            }
            match <&Block>::try_from(chunk) {
                Ok(block) if patches.is_empty() && self.mask.is_none() => visit(index, block),
                _ => visit(index, &self.patched(index, chunk, patches)),
            }
        }
    }

    /// One block by value.
    pub(super) fn block(&self, index: usize) -> Block {
        let start = index * BLOCK;
        let end = self.logits.len().min(start + BLOCK);
        let first = self.changed.partition_point(|(token, _)| (*token as usize) < start);
        let last = self.changed.partition_point(|(token, _)| (*token as usize) < end);
        self.patched(index, &self.logits[start..end], &self.changed[first..last])
    }

    /// One value; -inf past the end.
    pub(super) fn value(&self, token: u32) -> f32 {
        let index = token as usize;
        if index >= self.logits.len() || !self.mask.is_none_or(|mask| mask.allows(token)) {
            return f32::NEG_INFINITY;
        }
        match self.changed.binary_search_by_key(&token, |entry| entry.0) {
            Ok(at) => self.changed[at].1,
            Err(_) => self.logits[index],
        }
    }

    fn patched(&self, index: usize, chunk: &[f32], patches: &[(u32, f32)]) -> Block {
        let mut block = [f32::NEG_INFINITY; BLOCK];
        block[..chunk.len()].copy_from_slice(chunk);
        for &(token, logit) in patches {
            block[token as usize % BLOCK] = logit;
        }
        if let Some(mask) = self.mask {
            let words = mask.0.iter().copied().chain(std::iter::repeat(0)).skip(index * BLOCK / WORD_BITS);
            for (part, word) in block.chunks_mut(WORD_BITS).zip(words) {
                forbid(part, word);
            }
        }
        block
    }
}

/// Puts -inf where `word` has a zero bit.
fn forbid(part: &mut [f32], word: u32) {
    if word == u32::MAX {
        return;
    }
    for (bit, x) in part.iter_mut().enumerate() {
        *x = if word >> bit & 1 == 1 { *x } else { f32::NEG_INFINITY };
    }
}

/// e^((x - top) * scale): the weight of a value beside the row's largest.
#[inline(always)]
pub(super) fn weight(x: f32, top: f32, scale: f32) -> f32 {
    exp((x - top) * scale)
}

/// The largest magnitude as bits: over `f32::INFINITY`'s only where there is a NaN of either sign.
#[inline(always)]
fn largest_magnitude(values: &[f32]) -> u32 {
    values.iter().fold(0, |largest, x| largest.max(x.to_bits() & !SIGN))
}

/// By way of integers of the same order: a float maximum minds NaN, and the compiler keeps such
/// loops scalar.
#[inline(always)]
fn block_max(block: &Block) -> f32 {
    let key = |bits: i32| bits ^ ((bits >> 31) & i32::MAX);
    let largest = block.iter().fold(i32::MIN, |largest, x| largest.max(key(x.to_bits().cast_signed())));
    f32::from_bits(key(largest).cast_unsigned())
}

fn block_sum(block: &Block, top: f32, scale: f32) -> f32 {
    let mut quarter = [0.0; BLOCK / 4];
    weigh_quarters(block, top, scale, &mut quarter);
    add_up(&quarter)
}

/// Sum of (x - top) * e^(x - top).
fn block_moment(block: &Block, top: f32) -> f32 {
    let mut quarter = [0.0; BLOCK / 4];
    moment_quarters(block, top, &mut quarter);
    add_up(&quarter)
}

fn add_up(quarter: &[f32; BLOCK / 4]) -> f32 {
    // Parts onto each other: a fixed order, and short in place of one long chain.
    let eight: [f32; 8] = std::array::from_fn(|i| (quarter[i] + quarter[i + 8]) + (quarter[i + 16] + quarter[i + 24]));
    let four: [f32; 4] = std::array::from_fn(|i| eight[i] + eight[i + 4]);
    (four[0] + four[2]) + (four[1] + four[3])
}

/// The weights of a block, its four quarters added up. A function of its own on purpose: with the
/// rest of the sum in sight the compiler gives up on vectors.
#[inline(never)]
fn weigh_quarters(block: &Block, top: f32, scale: f32, sums: &mut [f32; BLOCK / 4]) {
    let (low, high) = block.split_at(BLOCK / 2);
    let (a, b) = low.split_at(BLOCK / 4);
    let (c, d) = high.split_at(BLOCK / 4);
    for (i, sum) in sums.iter_mut().enumerate() {
        let one = weight(a[i], top, scale) + weight(b[i], top, scale);
        let two = weight(c[i], top, scale) + weight(d[i], top, scale);
        *sum = one + two;
    }
}

/// As `weigh_quarters`, each weight times its distance from the top.
#[inline(never)]
fn moment_quarters(block: &Block, top: f32, sums: &mut [f32; BLOCK / 4]) {
    // Where the weight is 0 the distance may be infinite: any finite one does.
    let distance = |x: f32| if x - top > -128.0 { x - top } else { -128.0 };
    let moment = |x: f32| distance(x) * weight(x, top, 1.0);
    let (low, high) = block.split_at(BLOCK / 2);
    let (a, b) = low.split_at(BLOCK / 4);
    let (c, d) = high.split_at(BLOCK / 4);
    for (i, sum) in sums.iter_mut().enumerate() {
        *sum = (moment(a[i]) + moment(b[i])) + (moment(c[i]) + moment(d[i]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_view_of_a_row_agrees_with_the_single_value(
            logits in prop::collection::vec(-5.0_f32..5.0, 1..400),
            edits in prop::collection::btree_map(0_u32..400, -9.0_f32..9.0, 0..20),
            mask in prop::option::of(prop::collection::vec(any::<u32>(), 0..14)),
        ) {
            let changed: Vec<(u32, f32)> = edits.into_iter().filter(|e| (e.0 as usize) < logits.len()).collect();
            let row = Row::new(&logits, &changed, mask.as_deref().map(Mask));
            let expected: Vec<f32> = (0..logits.len() as u32).map(|token| row.value(token)).collect();
            let mut seen = Vec::new();
            row.for_each(|_| true, |index, block| {
                assert_eq!(&row.block(index), block);
                seen.extend_from_slice(block);
            });
            prop_assert!(seen[logits.len()..].iter().all(|&x| x == f32::NEG_INFINITY));
            prop_assert_eq!(&seen[..logits.len()], &expected[..]);
            let mut maxima = Vec::new();
            let peaks = row.peaks(&mut maxima).unwrap();
            prop_assert_eq!(peaks.top, expected.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        }

        #[test]
        fn a_row_without_some_tokens_is_the_row_elsewhere(
            logits in prop::collection::vec(-5.0_f32..5.0, 1..400),
            edits in prop::collection::btree_map(0_u32..400, -9.0_f32..9.0, 0..20),
            struck in prop::collection::btree_set(0_u32..400, 0..20),
        ) {
            let inside = |token: &u32| (*token as usize) < logits.len();
            let changed: Vec<(u32, f32)> = edits.into_iter().filter(|e| inside(&e.0)).collect();
            let row = Row::new(&logits, &changed, None);
            let mut room = Vec::new();
            let left = row.without(struck.iter().copied().filter(inside), &mut room);
            for token in 0..logits.len() as u32 {
                let expected = if struck.contains(&token) { f32::NEG_INFINITY } else { row.value(token) };
                prop_assert_eq!(left.value(token), expected);
            }
            let mut maxima = Vec::new();
            let top = (0..logits.len() as u32).map(|token| left.value(token)).fold(f32::NEG_INFINITY, f32::max);
            prop_assert_eq!(left.peaks(&mut maxima).unwrap().top, top);
        }
    }
}
