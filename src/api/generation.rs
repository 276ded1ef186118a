//! All choices of one request as one stream of updates, and the road from a prepared request to its response.
//!
//! Dropping a `Generation` cancels every choice: that is how a client that leaves is noticed, in a stream (the body is
//! dropped) and in a whole answer (the handler is).

use std::collections::VecDeque;
use std::pin::Pin;

use axum::http::HeaderMap;
use axum::response::Response;
use futures_util::stream::{SelectAll, Stream, StreamExt, unfold};

use super::choice::{ChoiceReader, End, Update};
use super::error::ApiError;
use super::lower::Reply;
use super::render::Render;
use super::wire::{CacheBody, DraftBody, EncodingBody, PromptDetails, ReasoningTokens, TimingsBody, UsageBody};
use super::{ApiState, ID_HEADER, IGNORED_HEADER, WIDENED_HEADER, collect, sse};
use crate::chat::Prepared;
use crate::engine::{
    DraftCount, DraftTotals, EngineError, Event, EventStream, GenerationRequest, Handle, Restored, SubmitError,
    Timings, Usage,
};
use crate::text::tokenizer::Tokenizer;

/// Most names in `x-plateau-ignored`, and most characters of each: a header has to stay small.
const MAX_IGNORED: usize = 32;
const MAX_IGNORED_CHARS: usize = 64;

/// The same of `x-plateau-widened`.
const MAX_WIDENED: usize = 16;
const MAX_WIDENED_CHARS: usize = 200;

type Events = Pin<Box<dyn Stream<Item = (usize, Event)> + Send>>;

/// The running choices of one request.
pub struct Generation {
    readers: Vec<ChoiceReader>,
    events: SelectAll<Events>,
    updates: VecDeque<(usize, Update)>,
    tally: Tally,
}

impl Generation {
    /// Submits every choice; one that is not taken cancels those before it.
    pub fn start(prepared: Prepared, handle: &Handle, tokenizer: &Tokenizer) -> Result<Generation, SubmitError> {
        let Prepared { requests, n_per_prompt, format, echo: _, ignored: _, widened: _ } = prepared;
        let mut events = SelectAll::new();
        let mut readers = Vec::with_capacity(requests.len());
        let mut tally = Tally::new(n_per_prompt);
        for (index, request) in requests.into_iter().enumerate() {
            if index.checked_rem(n_per_prompt) == Some(0) {
                tally.add_pictures(&request);
            }
            events.push(indexed(index, handle.submit(request)?));
            readers.push(ChoiceReader::new(format.clone(), tokenizer));
        }
        Ok(Generation { readers, events, updates: VecDeque::new(), tally })
    }

    pub fn n_choices(&self) -> usize {
        self.readers.len()
    }

    /// The next update of any choice; `None` after all have ended. `Failed` is the last one.
    pub async fn next(&mut self) -> Option<(usize, Update)> {
        loop {
            if let Some((index, update)) = self.updates.pop_front() {
                if let Update::End(end) = &update {
                    self.tally.add(index, end);
                }
                if matches!(update, Update::Failed(_)) {
                    self.events.clear();
                    self.updates.clear();
                }
                return Some((index, update));
            }
            let (index, event) = self.events.next().await?;
            let mut read = VecDeque::new();
            if let Some(reader) = self.readers.get_mut(index) {
                reader.read(event, &mut read);
            }
            self.updates.extend(read.into_iter().map(|update| (index, update)));
        }
    }

    /// Sums over the choices that have ended.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }
}

/// The events of one choice with its index, up to the terminal one. A stream that breaks off ends in a failure.
fn indexed(index: usize, stream: EventStream) -> Events {
    Box::pin(unfold(Some(stream), move |state| async move {
        let mut stream = state?;
        let event = stream.next().await.unwrap_or(Event::Failed(EngineError::Dead));
        let more = !matches!(event, Event::Finished(_) | Event::Failed(_));
        Some(((index, event), more.then_some(stream)))
    }))
}

/// Usage and timings of a request over its choices.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    n_per_prompt: usize,
    usage: Usage,
    /// Over all choices, as `timings`: `usage` has it once a prompt.
    n_cached: usize,
    reasoning_tokens: Option<usize>,
    /// Of the prompts that have pictures.
    image_tokens: Option<usize>,
    timings: Timings,
    drafts: DraftTotals,
    cache: CacheBody,
}

fn add_drafts(sum: &mut DraftTotals, new: &DraftTotals) {
    let DraftTotals { n_steps, mtp, lookup, forced, by_position } = new;
    let add = |sum: &mut DraftCount, new: &DraftCount| {
        sum.drafted = sum.drafted.saturating_add(new.drafted);
        sum.accepted = sum.accepted.saturating_add(new.accepted);
    };
    sum.n_steps = sum.n_steps.saturating_add(*n_steps);
    add(&mut sum.mtp, mtp);
    add(&mut sum.lookup, lookup);
    add(&mut sum.forced, forced);
    sum.by_position.iter_mut().zip(by_position).for_each(|(sum, new)| add(sum, new));
}

fn draft_body(drafts: &DraftTotals) -> Option<DraftBody> {
    let all = drafts.all();
    let ratio = |count: &DraftCount| f64::from(count.accepted) / f64::from(count.drafted);
    (all.drafted > 0).then(|| DraftBody {
        draft_n: all.drafted,
        draft_n_accepted: all.accepted,
        accepted_per_position: drafts.by_position.iter().take_while(|count| count.drafted > 0).map(ratio).collect(),
        draft_n_lookup: drafts.lookup.drafted,
        draft_n_lookup_accepted: drafts.lookup.accepted,
        draft_n_forced: drafts.forced.drafted,
        draft_n_forced_accepted: drafts.forced.accepted,
    })
}

fn cache_body(end: &End) -> CacheBody {
    let Restored { tier, restore_ms, why } = &end.restored;
    CacheBody {
        restored_from: end.usage.cached,
        tier: tier.as_str(),
        restore_ms: *restore_ms,
        prefilled: end.usage.prompt - end.usage.cached,
        why: why.as_str(),
        reason: why.to_string(),
    }
}

impl Tally {
    fn new(n_per_prompt: usize) -> Tally {
        Tally { n_per_prompt, ..Tally::default() }
    }

    /// A prompt's pictures are known from the beginning, and count once.
    fn add_pictures(&mut self, request: &GenerationRequest) {
        if !request.pictures.is_empty() {
            let n = request.prompt.iter().filter(|item| item.picture().is_some()).count();
            self.image_tokens = Some(self.image_tokens.unwrap_or(0) + n);
        }
    }

    /// A prompt counts once, with its first choice; generated tokens all count. Choices run side by side: their times are
    /// not added, the longest is the request's.
    fn add(&mut self, index: usize, end: &End) {
        if index.checked_rem(self.n_per_prompt) == Some(0) {
            self.usage.prompt += end.usage.prompt;
            self.usage.cached += end.usage.cached;
        }
        self.n_cached += end.usage.cached;
        self.usage.completion += end.usage.completion;
        if let Some(n) = end.reasoning_tokens {
            self.reasoning_tokens = Some(self.reasoning_tokens.unwrap_or(0) + n);
        }
        if index == 0 {
            self.cache = cache_body(end);
        }
        add_drafts(&mut self.drafts, &end.drafts);
        let (sum, new) = (&mut self.timings, &end.timings);
        sum.prompt_n += new.prompt_n;
        sum.predicted_n += new.predicted_n;
        sum.prompt_ms = sum.prompt_ms.max(new.prompt_ms);
        sum.predicted_ms = sum.predicted_ms.max(new.predicted_ms);
        sum.ttft_ms = sum.ttft_ms.max(new.ttft_ms);
        sum.queue_ms = sum.queue_ms.max(new.queue_ms);
        sum.encode_n += new.encode_n;
        sum.encode_ms = sum.encode_ms.max(new.encode_ms);
    }

    pub fn usage(&self) -> UsageBody {
        let Usage { prompt, cached, completion } = self.usage;
        UsageBody {
            prompt_tokens: prompt,
            completion_tokens: completion,
            total_tokens: prompt + completion,
            prompt_tokens_details: PromptDetails { cached_tokens: cached, image_tokens: self.image_tokens },
            completion_tokens_details: self
                .reasoning_tokens
                .map(|reasoning_tokens| ReasoningTokens { reasoning_tokens }),
        }
    }

    pub fn timings(&self) -> TimingsBody {
        let Timings { queue_ms, prompt_n, prompt_ms, predicted_n, predicted_ms, ttft_ms, encode_n, encode_ms } =
            self.timings;
        let ratio = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
        TimingsBody {
            cache_n: self.n_cached,
            prompt_n,
            prompt_ms,
            prompt_per_token_ms: ratio(prompt_ms, prompt_n as f64),
            prompt_per_second: ratio(prompt_n as f64 * 1000.0, prompt_ms),
            predicted_n,
            predicted_ms,
            predicted_per_token_ms: ratio(predicted_ms, predicted_n as f64),
            predicted_per_second: ratio(predicted_n as f64 * 1000.0, predicted_ms),
            ttft_ms,
            queue_ms,
            encoding: (encode_n > 0).then_some(EncodingBody { encode_n, encode_ms }),
            cache: self.cache.clone(),
            drafts: draft_body(&self.drafts),
        }
    }
}

/// A request that is ready to run.
pub struct Job<R> {
    pub id: String,
    pub prepared: Prepared,
    pub reply: Reply,
    pub render: R,
    pub ignored: Vec<String>,
}

/// Submits a job and answers it in the way that was asked for.
pub async fn respond<R: Render>(state: &ApiState, job: Job<R>) -> Result<Response, ApiError> {
    let Job { id, prepared, reply, render, mut ignored } = job;
    ignored.extend(prepared.ignored.iter().cloned());
    let widened = prepared.widened.clone();
    let openai_overflow = state.profile.server.openai_overflow_code;
    let generation = Generation::start(prepared, &state.handle, &state.tokenizer)
        .map_err(|error| ApiError::refused(error, openai_overflow))?;
    let mut response = match reply.stream {
        true => sse::stream(state, generation, render, reply.include_usage),
        false => collect::whole(generation, render).await?,
    };
    let headers = response.headers_mut();
    if let Ok(value) = id.parse() {
        headers.insert(ID_HEADER, value);
    }
    report_ignored(headers, &ignored);
    report_widened(headers, &widened);
    Ok(response)
}

/// Tells the client which fields had no effect.
pub fn report_ignored(headers: &mut HeaderMap, ignored: &[String]) {
    if ignored.is_empty() {
        return;
    }
    tracing::debug!(?ignored, "fields without effect");
    if let Ok(value) = shown(ignored).parse() {
        headers.insert(IGNORED_HEADER, value);
    }
}

/// Tells the client which parts of its schemas do not hold as strictly as they say.
fn report_widened(headers: &mut HeaderMap, widened: &[String]) {
    if widened.is_empty() {
        return;
    }
    tracing::debug!(?widened, "parts of schemas hold less strictly than asked for");
    let printable = |c: char| if c.is_ascii_graphic() && c != '|' || c == ' ' { c } else { '?' };
    let line = |line: &String| line.chars().take(MAX_WIDENED_CHARS).map(printable).collect::<String>();
    let mut lines: Vec<String> = widened.iter().take(MAX_WIDENED).map(line).collect();
    if widened.len() > MAX_WIDENED {
        lines.push(format!("and {} more", widened.len() - MAX_WIDENED));
    }
    if let Ok(value) = lines.join(" | ").parse() {
        headers.insert(WIDENED_HEADER, value);
    }
}

/// Names as a header can carry them.
fn shown(ignored: &[String]) -> String {
    let printable = |c: char| if c.is_ascii_graphic() && c != ',' { c } else { '?' };
    let name = |name: &String| name.chars().take(MAX_IGNORED_CHARS).map(printable).collect::<String>();
    let mut names: Vec<String> = ignored.iter().take(MAX_IGNORED).map(name).collect();
    if ignored.len() > MAX_IGNORED {
        names.push(format!("and-{}-more", ignored.len() - MAX_IGNORED));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_stays_small_and_printable_whatever_the_fields_are_called() {
        let names: Vec<String> = (0..100).map(|i| format!("\u{1F600}\r\nx: {i}{}", "y".repeat(10_000))).collect();
        let text = shown(&names);
        assert!(text.len() < 4096 && text.ends_with(", and-68-more"), "{text}");
        assert!(text.parse::<axum::http::HeaderValue>().is_ok());
    }

    #[test]
    fn a_prompt_counts_once_and_every_answer_counts() {
        let end = |prompt, completion| End {
            finish_reason: "stop",
            usage: Usage { prompt, cached: 1, completion },
            timings: Timings { prompt_n: prompt - 1, ..Timings::default() },
            drafts: DraftTotals::default(),
            restored: Restored::default(),
            reasoning_tokens: Some(2),
        };
        let mut tally = Tally::new(2);
        for (index, end) in [end(10, 1), end(10, 2), end(20, 3), end(20, 4)].iter().enumerate() {
            tally.add(index, end);
        }
        let usage = tally.usage();
        assert_eq!((usage.prompt_tokens, usage.completion_tokens, usage.total_tokens), (30, 10, 40));
        assert_eq!(usage.prompt_tokens_details.cached_tokens, 2);
        let timings = tally.timings();
        assert_eq!((timings.cache_n, timings.prompt_n), (4, 56), "timings are of the work of all choices");
        assert_eq!(usage.completion_tokens_details, Some(ReasoningTokens { reasoning_tokens: 8 }));
    }
    fn drafting_end(mtp: [u32; 2], lookup: [u32; 2], by_position: &[[u32; 2]]) -> End {
        let count = |[drafted, accepted]: [u32; 2]| DraftCount { drafted, accepted };
        let mut drafts = DraftTotals { n_steps: 10, mtp: count(mtp), lookup: count(lookup), ..DraftTotals::default() };
        drafts.by_position.iter_mut().zip(by_position).for_each(|(slot, c)| *slot = count(*c));
        End {
            finish_reason: "stop",
            usage: Usage::default(),
            timings: Timings::default(),
            drafts,
            restored: Restored::default(),
            reasoning_tokens: None,
        }
    }

    #[test]
    fn drafts_are_summed_over_choices_with_a_share_for_each_position() {
        let mut tally = Tally::new(2);
        tally.add(0, &drafting_end([20, 11], [4, 3], &[[10, 8], [10, 5], [4, 1]]));
        tally.add(1, &drafting_end([6, 3], [0, 0], &[[4, 3], [2, 0]]));
        let timings = serde_json::to_value(tally.timings()).unwrap();
        let expected = serde_json::json!({
            "draft_n": 30, "draft_n_accepted": 17, "draft_n_lookup": 4, "draft_n_lookup_accepted": 3,
            "draft_n_forced": 0, "draft_n_forced_accepted": 0,
            "accepted_per_position": [11.0 / 14.0, 5.0 / 12.0, 0.25],
        });
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(timings[name], *value, "{name}");
        }
    }

    #[test]
    fn timings_without_a_draft_say_nothing_of_drafts() {
        let mut tally = Tally::new(1);
        tally.add(0, &drafting_end([0, 0], [0, 0], &[]));
        let timings = serde_json::to_value(tally.timings()).unwrap();
        let names: Vec<&String> = timings.as_object().unwrap().keys().filter(|name| name.contains("draft")).collect();
        assert_eq!((names, timings.get("accepted_per_position")), (vec![], None));
    }
}
