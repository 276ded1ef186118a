//! One accepted request on its way: what it must have in the KV cache, its sampler, its text, its
//! events.
//!
//! A sequence does not know where it sits. It keeps all of its state while it waits, also when it
//! was set back to the queue in the middle of its answer: then prompt and answer so far are simply
//! what must be processed again.

pub(in crate::engine) mod clock;
pub(in crate::engine) mod context;
mod finish;
mod image_spans;
mod output;
pub(in crate::engine) mod sink;

use std::sync::Arc;
use std::time::Instant;

use crate::engine::constraint::state::{Allowed, ConstraintState};
use crate::engine::request::breakpoint::Breakpoint;
use crate::engine::request::error::EngineError;
use crate::engine::request::event::{Event, Finish, FinishReason, Logprob, Restored, Usage};
use crate::engine::request::generation::GenerationRequest;
use crate::engine::request::item::{Extent, PromptItem, whole};
use crate::engine::speculative::drafts::{DraftRules, SequenceDrafts};
use crate::engine::speculative::policy::offer::Offer;
use crate::engine::vision::image::Image;
use crate::sampling::{Sampler, logprobs};
use crate::telemetry::Metrics;
use crate::text::Tokenizer;
use crate::units::Token;
use clock::{Clock, Ending, Totals};
use context::EngineContext;
use finish::Limits;
use image_spans::ImageSpans;
use output::Output;
use sink::{Sink, Terminal};

/// State of a request between submission and its terminal event.
pub(in crate::engine) struct Sequence {
    id: String,
    /// Prompt and answer so far; the last item is not in the KV cache yet.
    pub items: Vec<PromptItem>,
    /// The images among them: it may have to be processed again at any time.
    pub images: Vec<Arc<Image>>,
    pub image_spans: ImageSpans,
    /// Images that the state it began from held.
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
    /// Where its client expects later prompts to branch off.
    pub breakpoints: Vec<Breakpoint>,
    /// Items after which a prefill chunk ends, ascending: there the state is checkpointed.
    pub chunk_boundaries: Vec<Breakpoint>,
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
    pub drafts: SequenceDrafts,
    constraint: Option<ConstraintState>,
    /// It was in a batch that ran out of memory before.
    pub out_of_memory: bool,
}

impl Sequence {
    pub fn new(request: GenerationRequest, sink: Sink, context: &EngineContext) -> Sequence {
        let GenerationRequest {
            id,
            prompt,
            images,
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
            sampling.logit_bias.extend(context.facts.eog.iter().map(|token| (token.0, f32::NEG_INFINITY)));
        }
        let mut sampler = Sampler::new(sampling);
        prompt.iter().filter_map(PromptItem::token).for_each(|token| sampler.accept(token.0));
        let n_prompt = Extent::of(&prompt).n_tokens;
        let image_spans = ImageSpans::of(&prompt);
        let drafts = SequenceDrafts::new(context.draftable(speculative), &prompt);
        Sequence {
            id,
            items: prompt.to_vec(),
            images,
            image_spans,
            n_restored: 0,
            n_tokens: n_prompt,
            n_prompt,
            n_cached: 0,
            n_generated: 0,
            max_tokens,
            cache_prompt,
            store: cache.store,
            breakpoints: cache.breakpoints,
            chunk_boundaries: Vec::new(),
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
            drafts,
            constraint: ConstraintState::new(constraint, context.facts.n_vocab, &context.facts.eog),
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
    pub fn to_next_boundary(&self, n_done: usize) -> usize {
        let next = self.chunk_boundaries.partition_point(|boundary| boundary.at <= n_done);
        self.chunk_boundaries.get(next).map_or(usize::MAX, |boundary| boundary.at - n_done)
    }

    /// Can a state be saved after `n_done` items: there are some, and they do not end inside a
    /// image.
    pub fn is_whole(&self, n_done: usize) -> bool {
        n_done > 0 && whole(&self.items, n_done) == n_done
    }

    /// Tokens that may be drafted: of those that may still come all but one, which the last row of
    /// a step gives anyway.
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
        self.drafts.offer(mtp, room, self.constraint.as_mut(), tokenizer)
    }

    /// Takes a proposal of the MTP head into the draft.
    pub fn propose(&mut self, logits: &[f32], context: &EngineContext) {
        let (constraint, tokenizer, eog) = (self.constraint.as_mut(), &context.tokenizer, &context.facts.eog);
        self.drafts.propose(logits, DraftRules { sampler: &mut self.sampler, constraint, tokenizer, eog });
    }

    /// The draft is made, of `n` tokens at most. Returns its length.
    pub fn finish_draft(&mut self, n: usize, tokenizer: &Tokenizer) -> usize {
        self.drafts.finish(n, self.constraint.as_mut(), tokenizer)
    }

    /// Works out what the next token may be and, while `more`, each token after those of the draft.
    pub fn precompute_masks(&mut self, tokenizer: &Tokenizer, more: impl FnMut() -> bool) {
        if let Some(constraint) = &mut self.constraint {
            constraint.precompute_masks(&self.drafts.draft.tokens, tokenizer, more);
        }
    }

    /// Picks the next token from `logits` and takes it into the sampler's history.
    fn pick(&mut self, logits: &[f32]) -> Result<Token, EngineError> {
        let allowed = match &mut self.constraint {
            None => Allowed::Any,
            Some(constraint) => constraint.allowed().map_err(EngineError::Constraint)?,
        };
        let sampled = match allowed {
            Allowed::Only(token) => token,
            Allowed::Any => Token(self.sampler.sample(logits, None).map_err(EngineError::Sample)?),
            Allowed::Among(mask) => Token(self.sampler.sample(logits, Some(mask)).map_err(EngineError::Sample)?),
        };
        let token = self.constraint.as_ref().map_or(sampled, |constraint| constraint.meant(sampled));
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
        context: &EngineContext,
        now: Instant,
        metrics: &Metrics,
    ) -> Result<Option<FinishReason>, EngineError> {
        let eog = if self.ignore_eos { &[][..] } else { &context.facts.eog };
        let limits = Limits { eog, max_tokens: self.max_tokens, n_ctx: context.facts.n_ctx };
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
        if let Some(constraint) = &mut self.constraint {
            constraint.take(token, &context.tokenizer).map_err(EngineError::Constraint)?;
        }
        self.items.push(PromptItem::Token(token));
        self.drafts.push(token);
        self.n_tokens += 1;
        let logprob = self.logprobs.map(|n| logprob(&context.tokenizer, logits, token, n));
        let hidden = !self.show_control && context.tokenizer.is_control(token);
        let bytes = if hidden { &[] } else { context.tokenizer.piece(token) };
        if let Some(stop) = self.output.push(token, bytes, logprob, &mut self.sink.pending) {
            return Ok(Some(FinishReason::Stop(stop)));
        }
        if self.constraint.as_ref().is_some_and(ConstraintState::is_done) {
            return Ok(Some(FinishReason::Complete));
        }
        Ok(limits.reached(self.n_generated, self.n_tokens))
    }

    /// Reports the end and makes the terminal event, to be sent by the caller. The completion
    /// counts every token sampled, also the one that ended it.
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
            let n_shown = self.image_spans.len() - self.n_restored;
            metrics.images_found(self.n_restored, n_shown.saturating_sub(self.clock.n_encoded));
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
