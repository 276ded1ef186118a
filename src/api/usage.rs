//! Usage and timings of a request, over all its choices.

use super::choice::End;
use super::wire::{CacheBody, DraftBody, EncodingBody, PromptDetails, ReasoningTokens, TimingsBody, UsageBody};
use crate::engine::{DraftCount, DraftTotals, GenerationRequest, Restored, Timings, Usage};

/// Usage and timings of a request over its choices.
#[derive(Clone, Debug, Default)]
pub struct UsageTotals {
    n_per_prompt: usize,
    usage: Usage,
    /// Over all choices, as `timings`: `usage` has it once a prompt.
    n_cached: usize,
    reasoning_tokens: Option<usize>,
    /// Of the prompts that have images.
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

impl UsageTotals {
    pub fn new(n_per_prompt: usize) -> UsageTotals {
        UsageTotals { n_per_prompt, ..UsageTotals::default() }
    }

    /// A prompt's images are known from the beginning, and count once.
    pub fn add_images(&mut self, request: &GenerationRequest) {
        if !request.images.is_empty() {
            let n = request.prompt.iter().filter(|item| item.image().is_some()).count();
            self.image_tokens = Some(self.image_tokens.unwrap_or(0) + n);
        }
    }

    /// A prompt counts once, with its first choice; generated tokens all count. Choices run side by
    /// side: their times are not added, the longest is the request's.
    pub fn add(&mut self, index: usize, end: &End) {
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let mut totals = UsageTotals::new(2);
        for (index, end) in [end(10, 1), end(10, 2), end(20, 3), end(20, 4)].iter().enumerate() {
            totals.add(index, end);
        }
        let usage = totals.usage();
        assert_eq!((usage.prompt_tokens, usage.completion_tokens, usage.total_tokens), (30, 10, 40));
        assert_eq!(usage.prompt_tokens_details.cached_tokens, 2);
        let timings = totals.timings();
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
        let mut totals = UsageTotals::new(2);
        totals.add(0, &drafting_end([20, 11], [4, 3], &[[10, 8], [10, 5], [4, 1]]));
        totals.add(1, &drafting_end([6, 3], [0, 0], &[[4, 3], [2, 0]]));
        let timings = serde_json::to_value(totals.timings()).unwrap();
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
        let mut totals = UsageTotals::new(1);
        totals.add(0, &drafting_end([0, 0], [0, 0], &[]));
        let timings = serde_json::to_value(totals.timings()).unwrap();
        let names: Vec<&String> = timings.as_object().unwrap().keys().filter(|name| name.contains("draft")).collect();
        assert_eq!((names, timings.get("accepted_per_position")), (vec![], None));
    }
}
