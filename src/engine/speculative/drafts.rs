//! What drafting keeps for one sequence: the draft of the coming step, the index of its text, how
//! well drafts went.

use super::lookup::{Found, Lookup};
use super::policy::acceptance::Acceptance;
use super::policy::offer::{Offer, TextOffer};
use crate::engine::constraint::state::{Allowed, ConstraintState};
use crate::engine::request::draft::{DraftCount, DraftSource, DraftTotals, MAX_DRAFT_TOKENS, SpeculativeParams};
use crate::engine::request::item::PromptItem;
use crate::sampling::{Foresight, Mask, Sampler};
use crate::text::Tokenizer;
use crate::units::Token;

/// The draft of one step: tokens of the MTP head or such that the constraint forces, then such that
/// followed the same words earlier, then filling that only brings the sequence to the common number
/// of rows.
#[derive(Debug, Default)]
pub(in crate::engine) struct Draft {
    pub tokens: Vec<Token>,
    pub n_mtp: usize,
    pub n_forced: usize,
    pub n_lookup: usize,
    /// Length of the match that the looked-up tokens followed.
    n_match: usize,
}

impl Draft {
    pub fn clear(&mut self) {
        self.tokens.clear();
        (self.n_mtp, self.n_forced, self.n_lookup, self.n_match) = (0, 0, 0, 0);
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
    /// What the constraint leaves no choice about.
    forced: Vec<Token>,
    /// The sampler's numbers for the draft in the making.
    foresight: Option<Foresight>,
    /// Nothing is to follow in this draft.
    ended: bool,
}

/// What a draft of a sequence has to look at beside the head's logits.
pub(in crate::engine) struct DraftRules<'a> {
    pub sampler: &'a mut Sampler,
    pub constraint: Option<&'a mut ConstraintState>,
    pub tokenizer: &'a Tokenizer,
    /// Tokens that end a generation.
    pub eog: &'a [Token],
}

struct Text {
    history: Vec<Token>,
    lookup: Lookup,
}

impl SequenceDrafts {
    pub fn new(params: SpeculativeParams, prompt: &[PromptItem]) -> SequenceDrafts {
        let text = (params.lookup_max > 0).then(|| {
            let mut text = Text { history: Vec::with_capacity(prompt.len()), lookup: Lookup::new(prompt.len()) };
            prompt.iter().filter_map(PromptItem::token).for_each(|token| text.push(token));
            text
        });
        SequenceDrafts {
            params,
            draft: Draft::default(),
            totals: DraftTotals::default(),
            acceptance: Acceptance::new(),
            text,
            found: None,
            forced: Vec::new(),
            foresight: None,
            ended: false,
        }
    }

    /// Drafts the most, whether it pays or not.
    pub fn drafts_most(&self) -> bool {
        !self.params.adaptive
    }

    /// The sequence got a token.
    pub fn push(&mut self, token: Token) {
        if let Some(text) = &mut self.text {
            text.push(token);
        }
    }

    /// What can be drafted of at most `room` tokens.
    pub fn offer(
        &mut self,
        mtp: bool,
        room: usize,
        constraint: Option<&mut ConstraintState>,
        tokenizer: &Tokenizer,
    ) -> Offer<'_> {
        self.forced.clear();
        if let Some(constraint) = constraint.filter(|_| room > 0) {
            constraint.forced(room, tokenizer, &mut self.forced);
        }
        let lookup_max = room.min(self.params.lookup_max as usize);
        self.found = self.text.as_ref().filter(|_| lookup_max > 0).and_then(|text| text.lookup.find(&text.history));
        let mtp_max = if mtp { room.min(self.params.mtp_max as usize) } else { 0 };
        let lookup =
            |found: Found| TextOffer { source: DraftSource::Lookup, n_tokens: lookup_max, n_match: found.n_match };
        let text = match self.forced.len() {
            0 => self.found.map(lookup),
            n_tokens => Some(TextOffer { source: DraftSource::Forced, n_tokens, n_match: 0 }),
        };
        Offer { acceptance: &self.acceptance, mtp_max, text }
    }

    /// A step begins: there is no draft.
    pub fn begin(&mut self) {
        self.draft.clear();
        self.foresight = None;
        self.ended = false;
    }

    /// May the MTP head add to the draft.
    pub fn wants_more(&self) -> bool {
        !self.ended
    }

    /// The MTP head's proposal by the rules of the sampler, which is not changed, and of the
    /// constraint, which has tried the draft so far. Ends the draft where the proposal is too
    /// improbable or ends the generation.
    pub fn propose(&mut self, logits: &[f32], rules: DraftRules<'_>) {
        let DraftRules { sampler, mut constraint, tokenizer, eog } = rules;
        if let Some(constraint) = &mut constraint
            && self.propose_unmasked(logits, sampler, constraint, tokenizer)
        {
            return;
        }
        let allowed = constraint.as_deref_mut().map_or(Ok(Allowed::Any), ConstraintState::allowed);
        let sampled = match allowed {
            // The model's own row may fail in the same way; then the generation hears of it.
            Err(_) => None,
            Ok(Allowed::Only(token)) => Some(token),
            Ok(Allowed::Any) => self.pick(logits, sampler, None),
            Ok(Allowed::Among(mask)) => self.pick(logits, sampler, Some(mask)),
        };
        let token = sampled.map(|token| constraint.as_deref().map_or(token, |constraint| constraint.meant(token)));
        let Some(token) = token else {
            self.ended = true;
            return;
        };
        self.ended = eog.contains(&token);
        if !self.ended && constraint.is_some_and(|constraint| !constraint.try_token(token, tokenizer)) {
            self.ended = true;
            return;
        }
        self.draft.tokens.push(token);
        self.draft.n_mtp += 1;
    }

    /// Proposes as if nothing were forbidden. Mostly that is allowed, and no mask is worked out
    /// while the device waits; false where it is not, and nothing has changed.
    fn propose_unmasked(
        &mut self,
        logits: &[f32],
        sampler: &mut Sampler,
        constraint: &mut ConstraintState,
        tokenizer: &Tokenizer,
    ) -> bool {
        if constraint.required().is_some() {
            return false;
        }
        let before = self.foresight.clone();
        let token = self.pick(logits, sampler, None).map(|token| constraint.meant(token));
        match token.filter(|token| constraint.try_token(*token, tokenizer)) {
            Some(token) => {
                self.draft.tokens.push(token);
                self.draft.n_mtp += 1;
                true
            }
            None => {
                self.foresight = before;
                false
            }
        }
    }

    /// `None`: a row that cannot be sampled is no draft, nor is a token that is too improbable.
    fn pick(&mut self, logits: &[f32], sampler: &mut Sampler, mask: Option<Mask<'_>>) -> Option<Token> {
        let foresight = self.foresight.get_or_insert_with(|| sampler.foresight());
        let token = sampler.guess(logits, mask, foresight).ok()?;
        let p_min = f64::from(self.params.p_min);
        (p_min <= 0.0 || sampler.confidence(logits, token) >= p_min).then_some(Token(token))
    }

    /// Drafts `n` tokens of what the constraint forces.
    pub fn force(&mut self, n: usize) {
        self.draft.tokens.extend(self.forced.iter().take(n));
        self.draft.n_forced = self.draft.tokens.len();
    }

    /// Drafts `n` tokens of what `offer` found.
    pub fn look_up(&mut self, n: usize) {
        if let (Some(text), Some(found)) = (&self.text, self.found) {
            self.draft.n_match = found.n_match;
            text.lookup.continue_from(&text.history, found, n, &mut self.draft.tokens);
        }
    }

    /// The draft is made, of `n` tokens at most: goes on behind the MTP head's or what is forced
    /// where the text has gone that way before, and drops what the constraint forbids and what is
    /// too short. Returns its length.
    pub fn finish(&mut self, n: usize, constraint: Option<&mut ConstraintState>, tokenizer: &Tokenizer) -> usize {
        if !self.ended {
            self.extend(n);
        }
        self.draft.tokens.truncate(n);
        if let Some(constraint) = constraint {
            // The head's tokens were tried as they came.
            let rest = self.draft.n_mtp.min(n)..self.draft.tokens.len();
            let n_right = rest.clone().take_while(|&i| constraint.try_token(self.draft.tokens[i], tokenizer)).count();
            self.draft.tokens.truncate(rest.start + n_right);
            constraint.rollback();
        }
        let n = self.draft.tokens.len();
        self.draft.n_mtp = self.draft.n_mtp.min(n);
        self.draft.n_forced = self.draft.n_forced.min(n);
        self.draft.n_lookup = n - self.draft.n_mtp - self.draft.n_forced;
        if self.draft.tokens.len() < self.params.n_min as usize {
            self.draft.clear();
        }
        self.draft.tokens.len()
    }

    fn extend(&mut self, n: usize) {
        let wanted = n.min(self.params.lookup_max as usize).saturating_sub(self.draft.tokens.len());
        let lead = self.draft.n_mtp + self.draft.n_forced;
        let Some(text) = self.text.as_ref().filter(|_| wanted > 0 && lead > 0) else { return };
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

    /// The step is over: of the draft the first `n_accepted` tokens were right, and the one after
    /// them was wrong where `rejected`; the rest was not looked at.
    pub fn verified(&mut self, n_accepted: usize, rejected: bool) {
        let Draft { n_mtp, n_forced, n_lookup, n_match, .. } = self.draft;
        let lead = n_mtp + n_forced;
        let n_own = lead + n_lookup;
        self.totals.n_steps += 1;
        let add = |count: &mut DraftCount, drafted: usize, accepted: usize| {
            count.drafted += drafted as u32;
            count.accepted += accepted.min(drafted) as u32;
        };
        add(&mut self.totals.mtp, n_mtp, n_accepted);
        add(&mut self.totals.forced, n_forced, n_accepted);
        add(&mut self.totals.lookup, n_lookup, n_accepted.saturating_sub(lead));
        for (i, position) in self.totals.by_position.iter_mut().enumerate().take(n_own.min(MAX_DRAFT_TOKENS)) {
            position.drafted += 1;
            position.accepted += u32::from(i < n_accepted);
        }
        let n_seen = n_accepted + usize::from(rejected);
        let of =
            |n: usize, before: usize| (n.min(n_seen.saturating_sub(before)), n.min(n_accepted.saturating_sub(before)));
        for (source, n) in [(DraftSource::Mtp, n_mtp), (DraftSource::Forced, n_forced)] {
            let (drafted, accepted) = of(n, 0);
            if drafted > 0 {
                self.acceptance.observe(source, 0, drafted, accepted);
            }
        }
        let (drafted, accepted) = of(n_lookup, lead);
        if drafted > 0 && n_accepted >= lead {
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
