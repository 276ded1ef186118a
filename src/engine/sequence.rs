//! One accepted request on its way: what it must have in the KV cache, its sampler, its text, its events.
//!
//! A sequence does not know where it sits. It keeps all of its state while it waits, also when it was set back to the
//! queue in the middle of its answer: then prompt and answer so far are simply what must be processed again.

use std::sync::Arc;
use std::time::Instant;

use super::EngineError;
use super::accept::Limits;
use super::clock::{Clock, Ending, Totals};
use super::draft::{Offer, Rules, SequenceDrafts};
use super::gallery::Gallery;
use super::guide::{Allowed, Guide};
use super::handle::Fixed;
use super::output::Output;
use super::picture::{Grid, Picture, PictureKey};
use super::request::{
    Event, Finish, FinishReason, GenerationRequest, Logprob, Mark, PromptItem, Restored, Usage, whole,
};
use super::sink::{Sink, Terminal};
use crate::sampling::{Sampler, logprobs};
use crate::telemetry::Metrics;
use crate::text::Tokenizer;
use crate::units::{Pos, Token};

/// How far a list of items has come: pictures take more tokens than positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    pub n_items: usize,
    /// Room in the KV cache.
    pub n_tokens: usize,
    pub n_pos: usize,
}

impl Extent {
    pub fn of(items: &[PromptItem]) -> Extent {
        let mut extent = Extent::default();
        items.iter().for_each(|item| extent.advance(item));
        extent
    }

    pub fn advance(&mut self, item: &PromptItem) {
        self.n_items += 1;
        self.n_tokens += item.n_tokens();
        self.n_pos += item.n_pos();
    }

    /// The position after it.
    pub fn pos(&self) -> Pos {
        Pos(u32::try_from(self.n_pos).expect("n_ctx, the bound of every position, fits llama.cpp's 32 bits"))
    }
}

/// A picture in a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sight {
    key: PictureKey,
    grid: Grid,
    /// Its items.
    start: usize,
    end: usize,
}

impl Sight {
    fn all(prompt: &[PromptItem]) -> Vec<Sight> {
        let first = |(start, item): (usize, &PromptItem)| {
            let row = item.picture().filter(|row| row.index == 0)?;
            Some(Sight { key: row.key, grid: row.grid, start, end: start + row.grid.n_tokens() })
        };
        prompt.iter().enumerate().filter_map(first).collect()
    }
}

/// The picture that a sequence needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NextPicture {
    pub key: PictureKey,
    pub grid: Grid,
    /// Its first item that is still to come.
    pub at: usize,
}

/// State of a request between submission and its terminal event.
pub(super) struct Sequence {
    id: String,
    /// Prompt and answer so far; the last item is not in the KV cache yet.
    pub items: Vec<PromptItem>,
    /// The pictures among them: it may have to be processed again at any time.
    pub pictures: Vec<Arc<Picture>>,
    /// Where they stand, in order.
    sights: Vec<Sight>,
    /// Pictures that the state it began from held.
    pub n_restored: usize,
    /// Tokens of `items`.
    pub n_tokens: usize,
    pub n_prompt: usize,
    pub n_cached: usize,
    pub n_generated: usize,
    pub max_tokens: Option<u32>,
    pub cache_prompt: bool,
    /// Save states of it.
    pub store: bool,
    pub marks: Vec<Mark>,
    /// Where its prompt is cut into steps, ascending.
    pub cuts: Vec<Mark>,
    pub restored: Restored,
    ignore_eos: bool,
    logprobs: Option<u8>,
    progress: bool,
    show_control: bool,
    sampler: Sampler,
    output: Output,
    pub clock: Clock,
    pub sink: Sink,
    /// Order of arrival at the engine.
    pub serial: u64,
    /// Tokens of the KV cache that are promised to it while it is in a slot.
    pub reserve: usize,
    pub drafts: SequenceDrafts,
    guide: Option<Guide>,
    /// It was in a batch that ran out of memory before.
    pub out_of_memory: bool,
}

impl Sequence {
    pub fn new(request: GenerationRequest, sink: Sink, fixed: &Fixed) -> Sequence {
        let GenerationRequest {
            id,
            prompt,
            pictures,
            mut sampling,
            stop,
            max_tokens,
            ignore_eos,
            logprobs,
            cache_prompt,
            cache,
            progress,
            show_control,
            speculative,
            constraint,
            arrived,
        } = request;
        if ignore_eos {
            sampling.logit_bias.extend(fixed.facts.eog.iter().map(|token| (token.0, f32::NEG_INFINITY)));
        }
        let mut sampler = Sampler::new(sampling);
        prompt.iter().filter_map(PromptItem::token).for_each(|token| sampler.accept(token.0));
        let n_prompt = Extent::of(&prompt).n_tokens;
        let sights = Sight::all(&prompt);
        let drafts = SequenceDrafts::new(fixed.draftable(speculative), &prompt);
        Sequence {
            id,
            items: prompt.to_vec(),
            pictures,
            sights,
            n_restored: 0,
            n_tokens: n_prompt,
            n_prompt,
            n_cached: 0,
            n_generated: 0,
            max_tokens,
            cache_prompt,
            store: cache.store,
            marks: cache.marks,
            cuts: Vec::new(),
            restored: Restored::default(),
            ignore_eos,
            logprobs,
            progress,
            show_control,
            sampler,
            output: Output::new(stop),
            clock: Clock::new(arrived),
            sink,
            serial: 0,
            reserve: 0,
            drafts,
            guide: Guide::new(constraint, fixed.facts.n_vocab, &fixed.facts.eog),
            out_of_memory: false,
        }
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    /// It was in a slot before.
    pub fn started(&self) -> bool {
        self.clock.admitted.is_some()
    }

    /// It grows as it needs; the others have said how far they may go.
    pub fn is_elastic(&self) -> bool {
        self.max_tokens.is_none()
    }

    /// Items up to the next place where a step must end.
    pub fn to_next_cut(&self, n_done: usize) -> usize {
        let next = self.cuts.partition_point(|cut| cut.at <= n_done);
        self.cuts.get(next).map_or(usize::MAX, |cut| cut.at - n_done)
    }

    /// Can a state be saved after `n_done` items: there are some, and they do not end inside a picture.
    pub fn is_whole(&self, n_done: usize) -> bool {
        n_done > 0 && whole(&self.items, n_done) == n_done
    }

    /// Pictures among the first `n_done` items.
    pub fn n_pictures_before(&self, n_done: usize) -> usize {
        self.sights.partition_point(|sight| sight.end <= n_done)
    }

    /// The first picture with rows beyond `n_done` items.
    pub fn next_picture(&self, n_done: usize) -> Option<NextPicture> {
        let n_before = self.sights.partition_point(|sight| sight.end <= n_done);
        let sight = self.sights.get(n_before)?;
        Some(NextPicture { key: sight.key, grid: sight.grid, at: sight.start.max(n_done) })
    }

    /// The first item beyond `n_done` of a picture that `gallery` has not.
    pub fn first_unseen(&self, n_done: usize, gallery: &Gallery) -> Option<usize> {
        let n_before = self.sights.partition_point(|sight| sight.end <= n_done);
        let unseen = self.sights[n_before..].iter().find(|sight| !gallery.has(sight.key, sight.grid));
        unseen.map(|sight| sight.start.max(n_done))
    }

    /// Tokens that may be drafted: of those that may still come all but one, which the last row of a step gives anyway.
    pub fn n_draftable(&self, n_ctx: usize) -> usize {
        let more = self.max_tokens.map_or(usize::MAX, |max| (max as usize).saturating_sub(self.n_generated + 1));
        more.min(n_ctx.saturating_sub(self.n_tokens))
    }

    /// The last item of prompt and answer, where it is a token.
    pub fn last_token(&self) -> Option<Token> {
        self.items.last().and_then(PromptItem::token)
    }

    /// What can be drafted of at most `room` tokens.
    pub fn offer(&mut self, mtp: bool, room: usize, tokenizer: &Tokenizer) -> Offer<'_> {
        self.drafts.offer(mtp, room, self.guide.as_mut().map(|guide| (guide, tokenizer)))
    }

    /// Takes a guess of the MTP head into the draft.
    pub fn guess(&mut self, logits: &[f32], fixed: &Fixed) {
        let (guide, tokenizer, eog) = (self.guide.as_mut(), &fixed.tokenizer, &fixed.facts.eog);
        self.drafts.guess(logits, Rules { sampler: &mut self.sampler, guide, tokenizer, eog });
    }

    /// The draft is made, of `n` tokens at most. Returns its length.
    pub fn finish_draft(&mut self, n: usize, tokenizer: &Tokenizer) -> usize {
        self.drafts.finish(n, self.guide.as_mut().map(|guide| (guide, tokenizer)))
    }

    /// Works out what the next token may be, and, while `more`, each token after those of the draft.
    pub fn foresee(&mut self, tokenizer: &Tokenizer, more: impl FnMut() -> bool) {
        if let Some(guide) = &mut self.guide {
            guide.foresee(&self.drafts.draft.tokens, tokenizer, more);
        }
    }

    /// Picks the next token from `logits` and takes it into the sampler's history.
    fn pick(&mut self, logits: &[f32]) -> Result<Token, EngineError> {
        let allowed = match &mut self.guide {
            None => Allowed::Any,
            Some(guide) => guide.allowed().map_err(EngineError::Constraint)?,
        };
        let sampled = match allowed {
            Allowed::Only(token) => token,
            Allowed::Any => Token(self.sampler.sample(logits, None).map_err(EngineError::Sample)?),
            Allowed::Among(mask) => Token(self.sampler.sample(logits, Some(mask)).map_err(EngineError::Sample)?),
        };
        let token = self.guide.as_ref().map_or(sampled, |guide| guide.meant(sampled));
        self.sampler.accept(token.0);
        Ok(token)
    }

    /// Tells the client how far the prompt is, where it asked.
    pub fn report_progress(&self, n_done: usize, now: Instant) {
        if !self.progress || self.n_generated > 0 {
            return;
        }
        let started = self.clock.prefill_started.unwrap_or(now);
        self.sink.progress(Event::Progress {
            done: n_done.min(self.n_prompt),
            total: self.n_prompt,
            cached: self.n_cached,
            elapsed_ms: now.saturating_duration_since(started).as_secs_f64() * 1000.0,
        });
    }

    /// Takes one token from `logits`. `Some`: the generation is over.
    pub fn sample(
        &mut self,
        logits: &[f32],
        fixed: &Fixed,
        now: Instant,
        metrics: &Metrics,
    ) -> Result<Option<FinishReason>, EngineError> {
        let eog = if self.ignore_eos { &[][..] } else { &fixed.facts.eog };
        let limits = Limits { eog, max_tokens: self.max_tokens, n_ctx: fixed.facts.n_ctx };
        self.clock.prefilled.get_or_insert(now);
        // Only a request for no tokens at all is at its end here.
        if let Some(reason) = limits.reached(self.n_generated, self.n_tokens) {
            return Ok(Some(reason));
        }
        let token = self.pick(logits)?;
        self.n_generated += 1;
        if let Some(last) = self.clock.last_token.replace(now) {
            metrics.token_interval(now.saturating_duration_since(last));
        }
        if let Some(reason) = limits.ends_at(token) {
            return Ok(Some(reason));
        }
        if let Some(guide) = &mut self.guide {
            guide.take(token, &fixed.tokenizer).map_err(EngineError::Constraint)?;
        }
        self.items.push(PromptItem::Token(token));
        self.drafts.push(token);
        self.n_tokens += 1;
        let logprob = self.logprobs.map(|n| logprob(&fixed.tokenizer, logits, token, n));
        let hidden = !self.show_control && fixed.tokenizer.is_control(token);
        let bytes = if hidden { &[] } else { fixed.tokenizer.piece(token) };
        if let Some(stop) = self.output.push(token, bytes, logprob, &mut self.sink.pending) {
            return Ok(Some(FinishReason::Stop(stop)));
        }
        if self.guide.as_ref().is_some_and(Guide::is_done) {
            return Ok(Some(FinishReason::Complete));
        }
        Ok(limits.reached(self.n_generated, self.n_tokens))
    }

    /// Reports the end and makes the terminal event, to be sent by the caller. The completion counts every token sampled,
    /// also the one that ended it.
    pub fn end(mut self, mut ending: Ending, metrics: &Metrics) -> (Sink, Terminal) {
        let usage = Usage { prompt: self.n_prompt, cached: self.n_cached, completion: self.n_generated };
        if let Ending::Finished(reason) = &mut ending
            && !matches!(reason, FinishReason::Stop(_))
            && let Some(stop) = self.output.finish(&mut self.sink.pending)
        {
            *reason = FinishReason::Stop(stop);
        }
        let totals = Totals { usage, empty: self.output.is_empty(), drafts: self.drafts.totals };
        self.clock.report(&self.id, &ending, totals, metrics);
        if self.clock.prefilled.is_some() {
            let n_shown = self.sights.len() - self.n_restored;
            metrics.pictures_found(self.n_restored, n_shown.saturating_sub(self.clock.n_encoded));
        }
        let terminal = match ending {
            Ending::Failed(error) => Terminal::Failed(error),
            Ending::Finished(reason) => {
                let pending = std::mem::take(&mut self.sink.pending);
                Terminal::Finished(Box::new(Finish {
                    reason,
                    text: pending.text,
                    tokens: pending.tokens,
                    logprobs: pending.logprobs,
                    usage,
                    timings: self.clock.timings(usage),
                    drafts: self.drafts.totals,
                    restored: self.restored,
                }))
            }
        };
        (self.sink, terminal)
    }
}

fn logprob(tokenizer: &Tokenizer, logits: &[f32], token: Token, n: u8) -> Logprob {
    let of = logprobs(logits, token.0, usize::from(n));
    let top = of.top.iter().map(|t| {
        let token = Token(t.token);
        (token, tokenizer.text(token), tokenizer.piece(token).to_vec(), t.logprob)
    });
    Logprob {
        token,
        text: tokenizer.text(token),
        bytes: tokenizer.piece(token).to_vec(),
        logprob: of.logprob,
        top: top.collect(),
    }
}
