//! Prompt lookup: drafts what followed the same tokens earlier in prompt and answer.
//!
//! An index from the hash of an n-gram to the place where it last ended. Whatever the index says is
//! checked against the tokens themselves, so a collision or an overwritten entry costs a draft but
//! never gives a false match. It does not decide whether a match is worth a draft: that is
//! `policy`.

use crate::units::Token;

/// Shortest match: two tokens in common are found in almost any text and say little about the
/// third.
pub(in crate::engine) const MIN_MATCH: usize = 3;
/// Longest match that is counted. Longer ones do not predict better, and the count bounds the time
/// of a look-up.
pub(in crate::engine) const MAX_MATCH: usize = 32;
/// The second n-gram of the index. The last place where three tokens stood is often not the one
/// that is being quoted (code and JSON repeat short runs everywhere); eight in common rarely
/// mislead, and text of another kind still has the short ones.
const LONG_GRAM: usize = 8;

const MIN_TABLE_LOG2: u32 = 10;
/// One MiB.
const MAX_TABLE_LOG2: u32 = 18;

/// The index of one sequence.
pub(in crate::engine) struct Lookup {
    /// Index of the token after an n-gram of either length, by the n-gram's hash; 0: none. Later
    /// n-grams overwrite.
    table: Box<[u32]>,
    /// The place that the end of the history has been following, 0: none. A long quotation stays on
    /// its track although single n-grams of it also stand elsewhere, or have been overwritten in
    /// the table.
    followed: usize,
}

/// An earlier occurrence of the end of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Found {
    /// Tokens in common, `MIN_MATCH..=MAX_MATCH`.
    pub n_match: usize,
    /// Index in the history of the token after the earlier occurrence.
    pub at: usize,
}

impl Lookup {
    /// `capacity_hint`: tokens expected. More are fine, older n-grams are then forgotten sooner.
    pub fn new(capacity_hint: usize) -> Lookup {
        // Two n-grams a token, and as much room again so that few meet.
        let wanted = capacity_hint.saturating_mul(4).clamp(1 << MIN_TABLE_LOG2, 1 << MAX_TABLE_LOG2);
        Lookup { table: vec![0; wanted.next_power_of_two()].into_boxed_slice(), followed: 0 }
    }

    /// Takes the last token of `history`. Call it for each token in order, prompt and answer alike.
    /// Constant time.
    pub fn push(&mut self, history: &[Token]) {
        let Some((last, before)) = history.split_last() else { return };
        // What ends before the new token has a continuation now; what ends with it has none yet.
        for n in [MIN_MATCH, LONG_GRAM] {
            if let (Some(slot), Ok(next)) = (self.slot(before, &[], n), u32::try_from(before.len())) {
                self.table[slot] = next;
            }
        }
        let follows = self.followed > 0 && before.get(self.followed) == Some(last);
        self.followed = if follows { self.followed + 1 } else { 0 };
        self.followed = self.find(history).map_or(0, |found| found.at);
    }

    /// The best earlier occurrence of the end of `history`: the longest match, of equally long ones
    /// the most recent.
    pub fn find(&self, history: &[Token]) -> Option<Found> {
        self.find_after(history, &[])
    }

    /// As `find`, for `history` followed by `drafted`, which is not part of it: the match may span
    /// both.
    pub fn find_after(&self, history: &[Token], drafted: &[Token]) -> Option<Found> {
        let followed = if self.followed == 0 { 0 } else { self.followed + drafted.len() };
        let indexed = |n| self.slot(history, drafted, n).map_or(0, |slot| self.table[slot] as usize);
        let mut best: Option<Found> = None;
        // The followed place comes first: among matches that are too long to count, it is the one
        // known to be longest.
        for at in [followed, indexed(LONG_GRAM), indexed(MIN_MATCH)] {
            let n_match = common(history, drafted, at);
            let better = match best {
                None => n_match >= MIN_MATCH,
                Some(b) => n_match > b.n_match || (n_match == b.n_match && n_match < MAX_MATCH && at > b.at),
            };
            if better {
                best = Some(Found { n_match, at });
            }
        }
        best
    }

    /// Appends up to `n` tokens that followed the occurrence to `out`, which holds what is drafted
    /// after `history` already: nothing after `find`, the tokens given as `drafted` after
    /// `find_after`. Where the copied run reaches the end of `history` it goes on with `out`
    /// itself, so a loop is continued as a loop. Gives `n` tokens unless `found` is not of this
    /// history.
    pub fn continue_from(&self, history: &[Token], found: Found, n: usize, out: &mut Vec<Token>) {
        for at in found.at..found.at.saturating_add(n) {
            let next = match at.checked_sub(history.len()) {
                None => history.get(at),
                Some(after) => out.get(after),
            };
            let Some(&next) = next else { return };
            out.push(next);
        }
    }

    /// Where the table keeps the last `n` tokens of `history` followed by `drafted`.
    fn slot(&self, history: &[Token], drafted: &[Token], n: usize) -> Option<usize> {
        let from_history = n.saturating_sub(drafted.len());
        let start = history.len().checked_sub(from_history)?;
        let drafted = &drafted[drafted.len().saturating_sub(n)..];
        // The length is part of the hash, so both kinds of n-gram share one table.
        let mut hash = n as u64;
        for token in history[start..].iter().chain(drafted) {
            hash = (hash.rotate_left(5) ^ u64::from(token.0)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        // The table has at least 2^10 entries; the upper bits of a product are the mixed ones.
        Some((hash >> (64 - self.table.len().trailing_zeros())) as usize)
    }
}

/// Tokens that `history[..at]` and `history` followed by `drafted` have in common at their ends, up
/// to `MAX_MATCH`; 0 where no token of the history stands at `at`.
fn common(history: &[Token], drafted: &[Token], at: usize) -> usize {
    if at >= history.len() {
        return 0;
    }
    let end = drafted.iter().rev().chain(history.iter().rev());
    history[..at].iter().rev().zip(end).take(MAX_MATCH).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tokens(ids: &[u32]) -> Vec<Token> {
        ids.iter().map(|&id| Token(id)).collect()
    }

    fn indexed(history: &[Token], capacity: usize) -> Lookup {
        let mut lookup = Lookup::new(capacity);
        (1..=history.len()).for_each(|n| lookup.push(&history[..n]));
        lookup
    }

    /// Distinct-looking text without structure: a fixed pseudo-random walk over `n_vocab` ids.
    fn text(n: usize, n_vocab: u32, seed: u64) -> Vec<Token> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            Token((state >> 33) as u32 % n_vocab)
        };
        (0..n).map(|_| next()).collect()
    }

    /// Drafts `n` at a time for `answer` after `prompt`; returns the tokens accepted and the steps
    /// it took.
    fn decode(prompt: &[Token], answer: &[Token], n: usize) -> (usize, usize) {
        let mut history = prompt.to_vec();
        let mut lookup = indexed(&history, prompt.len() + answer.len());
        let (mut accepted, mut n_steps, mut draft) = (0, 0, Vec::new());
        let goal = prompt.len() + answer.len();
        while history.len() < goal {
            let rest = &answer[history.len() - prompt.len()..];
            draft.clear();
            if let Some(found) = lookup.find(&history) {
                lookup.continue_from(&history, found, n, &mut draft);
            }
            let kept = draft.iter().zip(rest).take_while(|(a, b)| a == b).count();
            accepted += kept;
            n_steps += 1;
            for &token in &rest[..(kept + 1).min(rest.len())] {
                history.push(token);
                lookup.push(&history);
            }
        }
        (accepted, n_steps)
    }

    #[test]
    fn a_quoted_passage_of_500_tokens_is_drafted_whole() {
        let prompt = text(4000, 50_000, 1);
        let (accepted, n_steps) = decode(&prompt, &prompt[1700..2200], 16);
        // Three tokens to find it (one or two more where their entry was overwritten), then 17 a
        // step.
        assert!(n_steps <= 5 + 500usize.div_ceil(17), "{n_steps} steps");
        assert!(accepted >= 500 - n_steps, "{accepted} accepted");
    }

    #[test]
    fn a_passage_made_of_common_short_runs_stays_on_its_track() {
        // Seven ids: every three tokens stand in many places, so the short n-gram alone would
        // mislead all the time.
        let prompt = text(3000, 7, 2);
        let (_, n_steps) = decode(&prompt, &prompt[500..1000], 16);
        assert!(n_steps <= 60, "{n_steps} steps");
    }

    #[test]
    fn a_passage_at_the_far_end_of_a_full_table_is_still_followed() {
        let prompt = text(400_000, 50_000, 3);
        let (_, n_steps) = decode(&prompt, &prompt[1000..1500], 16);
        assert!(n_steps <= 120, "{n_steps} steps: most n-grams are overwritten, but one that is left is enough");
    }

    #[test]
    fn a_loop_is_continued_as_a_loop() {
        let history = tokens(&[9, 1, 2, 3, 1, 2, 3]);
        let lookup = indexed(&history, 16);
        let found = lookup.find(&history).unwrap();
        assert_eq!(found, Found { n_match: 3, at: 4 });
        let mut out = Vec::new();
        lookup.continue_from(&history, found, 7, &mut out);
        assert_eq!(out, tokens(&[1, 2, 3, 1, 2, 3, 1]));
    }

    #[test]
    fn a_match_spans_the_history_and_what_was_drafted_after_it() {
        let history = tokens(&[1, 2, 3, 4, 5, 6, 7, 8, 20, 1, 2]);
        let lookup = indexed(&history, 16);
        assert_eq!(lookup.find(&history), None);
        let mut draft = tokens(&[3, 4]);
        let found = lookup.find_after(&history, &draft).unwrap();
        assert_eq!(found, Found { n_match: 4, at: 4 });
        lookup.continue_from(&history, found, 3, &mut draft);
        assert_eq!(draft, tokens(&[3, 4, 5, 6, 7]));
    }

    #[test]
    fn of_equally_long_matches_the_recent_one_wins_and_a_longer_one_before_it() {
        let recent = tokens(&[1, 2, 3, 50, 1, 2, 3, 60, 1, 2, 3]);
        assert_eq!(indexed(&recent, 16).find(&recent), Some(Found { n_match: 3, at: 7 }));
        let mut longer = tokens(&[1, 2, 3, 4, 5, 6, 7, 8, 50, 99, 6, 7, 8, 60]);
        longer.extend(tokens(&[1, 2, 3, 4, 5, 6, 7, 8]));
        assert_eq!(indexed(&longer, 16).find(&longer), Some(Found { n_match: 8, at: 8 }));
    }

    #[test]
    fn memory_is_bounded_whatever_is_expected_or_comes() {
        assert_eq!(Lookup::new(0).table.len(), 1 << 10);
        assert_eq!(Lookup::new(usize::MAX).table.len(), 1 << 18);
        assert_eq!(indexed(&text(5000, 100, 4), 0).table.len(), 1 << 10);
    }

    #[test]
    fn an_occurrence_of_another_history_gives_no_tokens_instead_of_a_panic() {
        let history = tokens(&[1, 2, 3]);
        let mut out = Vec::new();
        let found = Found { n_match: 3, at: 40 };
        Lookup::new(0).continue_from(&history, found, 4, &mut out);
        assert_eq!(out, []);
        Lookup::new(0).continue_from(&history, Found { at: usize::MAX, ..found }, 4, &mut out);
        assert_eq!(out, []);
    }

    /// By hand: the tokens that the occurrence and the end have in common.
    fn true_match(all: &[Token], at: usize) -> usize {
        (1..=MAX_MATCH.min(at)).take_while(|&k| all[at - k] == all[all.len() - k]).count()
    }

    proptest! {
        #[test]
        fn every_match_is_true_and_inside_the_history(
            ids in prop::collection::vec(0u32..6, 0..300),
            drafted in prop::collection::vec(0u32..6, 0..12),
        ) {
            let (history, drafted) = (tokens(&ids), tokens(&drafted));
            let lookup = indexed(&history, 0);
            let all: Vec<Token> = history.iter().chain(&drafted).copied().collect();
            for (drafted, all) in [(&[][..], &history), (&drafted[..], &all)] {
                if let Some(found) = lookup.find_after(&history, drafted) {
                    prop_assert!(found.at < history.len());
                    prop_assert!(found.n_match >= MIN_MATCH && found.n_match <= MAX_MATCH);
                    prop_assert_eq!(found.n_match, true_match(all, found.at));
                    let mut out = drafted.to_vec();
                    lookup.continue_from(&history, found, 20, &mut out);
                    prop_assert_eq!(out.len(), drafted.len() + 20);
                    // What was copied is what follows, read from the history and then from the
                    // draft itself.
                    let text: Vec<Token> = history.iter().chain(&out).copied().collect();
                    for i in 0..20 {
                        prop_assert_eq!(text[found.at + i], out[drafted.len() + i]);
                    }
                }
            }
        }

        #[test]
        fn what_stands_there_is_found_unless_overwritten(ids in prop::collection::vec(0u32..9, 3..100)) {
            let history = tokens(&ids);
            let lookup = indexed(&history, 0);
            let stands_there = (MIN_MATCH..history.len()).any(|at| true_match(&history, at) >= MIN_MATCH);
            if stands_there && lookup.find(&history).is_none() {
                let slot = lookup.slot(&history, &[], MIN_MATCH).unwrap();
                prop_assert!(lookup.table[slot] != 0, "it was never indexed");
            }
        }

        #[test]
        fn collisions_are_harmless(ids in prop::collection::vec(0u32..40, 1..200), junk in prop::collection::vec(any::<u32>(), 1024)) {
            let history = tokens(&ids);
            let mut lookup = indexed(&history, 0);
            for (entry, junk) in lookup.table.iter_mut().zip(junk) {
                *entry = if junk % 3 == 0 { junk } else { junk % 256 };
            }
            lookup.followed = ids[0] as usize;
            if let Some(found) = lookup.find(&history) {
                prop_assert!(found.at < history.len());
                prop_assert_eq!(found.n_match, true_match(&history, found.at));
            }
            lookup.push(&history);
        }

        #[test]
        fn an_index_built_at_once_equals_one_that_grew_between_looks(ids in prop::collection::vec(0u32..5, 1..60)) {
            let history = tokens(&ids);
            let mut grown = Lookup::new(0);
            for n in 1..=history.len() {
                grown.push(&history[..n]);
                let _ = grown.find_after(&history[..n], &history[..n.min(4)]);
                prop_assert_eq!(grown.find(&history[..n]), indexed(&history[..n], 0).find(&history[..n]));
            }
        }
    }
}
