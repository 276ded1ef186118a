//! What drafting keeps for one sequence: the draft of the coming step, the index of its text, how well drafts went.

use super::lookup::{Found, Lookup};
use super::policy::{Acceptance, LookupOffer, Offer};
use crate::engine::request::{DraftSource, DraftTotals, MAX_DRAFT_TOKENS, PromptItem, SpeculativeParams};
use crate::sampling::{Foresight, Sampler};
use crate::units::Token;

/// The draft of one step: tokens of the MTP head, then such that followed the same words earlier, then filling that only
/// brings the sequence to the common number of rows.
#[derive(Debug, Default)]
pub(in crate::engine) struct Draft {
    pub tokens: Vec<Token>,
    pub n_mtp: usize,
    pub n_lookup: usize,
    /// Length of the match that the looked-up tokens followed.
    n_match: usize,
}

impl Draft {
    pub fn clear(&mut self) {
        self.tokens.clear();
        (self.n_mtp, self.n_lookup, self.n_match) = (0, 0, 0);
    }
}

/// Kept with the sequence, also while it waits.
pub(in crate::engine) struct SequenceDrafts {
    pub params: SpeculativeParams,
    pub draft: Draft,
    pub totals: DraftTotals,
    acceptance: Acceptance,
    /// Prompt and answer, and where their words stood before; `None` where lookup is off.
    text: Option<Text>,
    found: Option<Found>,
    /// The sampler's numbers for the draft in the making.
    foresight: Option<Foresight>,
    /// Nothing is to follow in this draft.
    ended: bool,
}

struct Text {
    history: Vec<Token>,
    lookup: Lookup,
}

impl SequenceDrafts {
    pub fn new(params: SpeculativeParams, prompt: &[PromptItem]) -> SequenceDrafts {
        let text = (params.lookup_max > 0).then(|| {
            let mut text = Text { history: Vec::with_capacity(prompt.len()), lookup: Lookup::new(prompt.len()) };
            prompt.iter().for_each(|PromptItem::Token(token)| text.push(*token));
            text
        });
        SequenceDrafts {
            params,
            draft: Draft::default(),
            totals: DraftTotals::default(),
            acceptance: Acceptance::new(),
            text,
            found: None,
            foresight: None,
            ended: false,
        }
    }

    /// Drafts the most, whether it pays or not.
    pub fn is_fixed(&self) -> bool {
        !self.params.adaptive
    }

    /// The sequence got a token.
    pub fn push(&mut self, token: Token) {
        if let Some(text) = &mut self.text {
            text.push(token);
        }
    }

    /// What can be drafted of at most `room` tokens.
    pub fn offer(&mut self, mtp: bool, room: usize) -> Offer<'_> {
        let lookup_max = room.min(self.params.lookup_max as usize);
        self.found = self.text.as_ref().filter(|_| lookup_max > 0).and_then(|text| text.lookup.find(&text.history));
        let mtp_max = if mtp { room.min(self.params.mtp_max as usize) } else { 0 };
        let lookup = self.found.map(|found| LookupOffer { n_tokens: lookup_max, n_match: found.n_match });
        Offer { acceptance: &self.acceptance, mtp_max, lookup }
    }

    /// A step begins: there is no draft.
    pub fn begin(&mut self) {
        self.draft.clear();
        self.foresight = None;
        self.ended = false;
    }

    /// May the MTP head add to the draft.
    pub fn is_guessing(&self) -> bool {
        !self.ended
    }

    /// The MTP head's guess by the rules of `sampler`, which is not changed. Ends the draft where the guess is too improbable
    /// or ends the generation.
    pub fn guess(&mut self, sampler: &mut Sampler, logits: &[f32], eog: &[Token]) {
        let foresight = self.foresight.get_or_insert_with(|| sampler.foresight());
        // A row that cannot be sampled is no draft; the model's own may be better.
        let Ok(token) = sampler.guess(logits, None, foresight) else {
            self.ended = true;
            return;
        };
        let p_min = f64::from(self.params.p_min);
        if p_min > 0.0 && sampler.confidence(logits, token) < p_min {
            self.ended = true;
            return;
        }
        self.ended = eog.contains(&Token(token));
        self.draft.tokens.push(Token(token));
        self.draft.n_mtp += 1;
    }

    /// Drafts `n` tokens of what `offer` found.
    pub fn look_up(&mut self, n: usize) {
        if let (Some(text), Some(found)) = (&self.text, self.found) {
            self.draft.n_match = found.n_match;
            text.lookup.continue_from(&text.history, found, n, &mut self.draft.tokens);
        }
    }

    /// The draft is made, of `n` tokens at most: goes on behind the MTP head's where the text has gone that way before, and
    /// drops what is too short. Returns its length.
    pub fn finish(&mut self, n: usize) -> usize {
        if !self.ended {
            self.extend(n);
        }
        self.draft.tokens.truncate(n);
        self.draft.n_mtp = self.draft.n_mtp.min(n);
        self.draft.n_lookup = self.draft.tokens.len() - self.draft.n_mtp;
        if self.draft.tokens.len() < self.params.n_min as usize {
            self.draft.clear();
        }
        self.draft.tokens.len()
    }

    fn extend(&mut self, n: usize) {
        let wanted = n.min(self.params.lookup_max as usize).saturating_sub(self.draft.tokens.len());
        let Some(text) = self.text.as_ref().filter(|_| wanted > 0 && self.draft.n_mtp > 0) else { return };
        if let Some(found) = text.lookup.find_after(&text.history, &self.draft.tokens) {
            self.draft.n_match = found.n_match;
            text.lookup.continue_from(&text.history, found, wanted, &mut self.draft.tokens);
        }
    }

    /// Brings the draft to `n` tokens.
    pub fn fill(&mut self, n: usize, last: Token) {
        let filling = self.draft.tokens.last().copied().unwrap_or(last);
        self.draft.tokens.resize(n, filling);
    }

    /// The step is over: of the draft the first `n_accepted` tokens were right, and the one after them was wrong where
    /// `rejected`; the rest was not looked at.
    pub fn verified(&mut self, n_accepted: usize, rejected: bool) {
        let Draft { n_mtp, n_lookup, n_match, .. } = self.draft;
        self.totals.n_steps += 1;
        let n_own = n_mtp + n_lookup;
        self.totals.mtp.drafted += n_mtp as u32;
        self.totals.mtp.accepted += n_accepted.min(n_mtp) as u32;
        self.totals.lookup.drafted += n_lookup as u32;
        self.totals.lookup.accepted += n_accepted.clamp(n_mtp, n_own) as u32 - n_mtp as u32;
        for (i, position) in self.totals.by_position.iter_mut().enumerate().take(n_own.min(MAX_DRAFT_TOKENS)) {
            position.drafted += 1;
            position.accepted += u32::from(i < n_accepted);
        }
        let n_seen = n_accepted + usize::from(rejected);
        let of =
            |n: usize, before: usize| (n.min(n_seen.saturating_sub(before)), n.min(n_accepted.saturating_sub(before)));
        let (drafted, accepted) = of(n_mtp, 0);
        if drafted > 0 {
            self.acceptance.observe(DraftSource::Mtp, 0, drafted, accepted);
        }
        let (drafted, accepted) = of(n_lookup, n_mtp);
        if drafted > 0 && n_accepted >= n_mtp {
            self.acceptance.observe(DraftSource::Lookup, n_match, drafted, accepted);
        }
        self.draft.clear();
    }
}

impl Text {
    fn push(&mut self, token: Token) {
        self.history.push(token);
        self.lookup.push(&self.history);
    }
}
