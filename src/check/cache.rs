//! The residue sweep: at every prompt length, is the cached answer the cold one.
//!
//! Works against any server with OpenAI's completions that reports `cached_tokens`. A server whose cache cannot be switched off
//! for a request shows itself: its cold answers report cached tokens.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::client::{Client, ClientError, LONG_TIMEOUT};

/// What to sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// Words of the shortest and the longest prompt, about a token each.
    pub from: usize,
    pub to: usize,
    pub step: usize,
    pub max_tokens: usize,
}

/// What a sweep came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    pub n_prompts: usize,
    /// Second answers that began from the cache.
    pub n_cached: usize,
    /// Cold answers that did too.
    pub n_not_cold: usize,
    pub prompt_tokens: u64,
    /// Tokens that second answers processed again, one a prompt left out.
    pub excess_tokens: u64,
    /// Lengths with other text, and with other log-probabilities beside the same text.
    pub other_text: Vec<usize>,
    pub other_logprobs: Vec<usize>,
}

impl Outcome {
    /// Nothing speaks against the cache, and it was used.
    pub fn passed(&self) -> bool {
        self.other_text.is_empty() && self.other_logprobs.is_empty() && self.n_cached > 0 && self.n_not_cold == 0
    }

    /// The verdict for people.
    pub fn report(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "prompts            {}", self.n_prompts);
        let _ = writeln!(out, "second from cache  {}", self.n_cached);
        let _ = writeln!(out, "processed again    {} tokens beyond one a prompt", self.excess_tokens);
        let _ = writeln!(out, "other text         {} {:?}", self.other_text.len(), first(&self.other_text));
        let _ = writeln!(out, "other logprobs     {} {:?}", self.other_logprobs.len(), first(&self.other_logprobs));
        let verdict = match self {
            _ if self.passed() => "PASS: every cached answer was the cold one, to the last logprob",
            Outcome { n_not_cold: 1.., .. } => {
                "INCONCLUSIVE: cold answers came from the cache; there is nothing to compare with"
            }
            Outcome { n_cached: 0, .. } => "INCONCLUSIVE: no answer came from the cache",
            Outcome { other_text, .. } if other_text.is_empty() => {
                "DIFFERS: the text is the same, the log-probabilities are not: rounding, or a state that is nearly right"
            }
            _ => "FAIL: cached answers differ from cold ones",
        };
        let _ = writeln!(out, "{verdict}");
        let _ = writeln!(
            out,
            "not proved: other prompts and lengths, several requests at once, sampling with temperature, a restart"
        );
        out
    }
}

fn first(lengths: &[usize]) -> &[usize] {
    &lengths[..lengths.len().min(8)]
}

/// One answer.
struct Answer {
    text: String,
    logprobs: Value,
    prompt: u64,
    cached: u64,
}

/// Three answers to each prompt: one that fills the cache, one from it, one without.
///
/// # Errors
/// What the client says of a request without an answer.
pub async fn sweep(
    client: &Client,
    sweep: Sweep,
    progress: &mut (dyn FnMut(usize) + Send),
) -> Result<Outcome, ClientError> {
    let mut outcome = Outcome::default();
    for n in (sweep.from..=sweep.to).step_by(sweep.step.max(1)) {
        progress(n);
        let prompt = prompt(n);
        ask(client, &prompt, sweep.max_tokens, true).await?;
        let cached = ask(client, &prompt, sweep.max_tokens, true).await?;
        let cold = ask(client, &prompt, sweep.max_tokens, false).await?;
        outcome.n_prompts += 1;
        outcome.prompt_tokens += cached.prompt;
        outcome.n_cached += usize::from(cached.cached > 0);
        outcome.n_not_cold += usize::from(cold.cached > 0);
        outcome.excess_tokens += (cached.prompt - cached.cached).saturating_sub(1);
        if cached.text != cold.text {
            outcome.other_text.push(n);
        } else if cached.logprobs != cold.logprobs {
            outcome.other_logprobs.push(n);
        }
    }
    Ok(outcome)
}

/// Words without meaning that differ from length to length at the first one, so that prompts share nothing.
fn prompt(n: usize) -> String {
    const WORDS: [&str; 8] = ["river", "stone", "lamp", "bird", "tree", "box", "dog", "house"];
    let mut out = format!("{n}");
    for i in 1..n {
        let _ = write!(out, " {}", WORDS[(i * i + i * n / 3) % WORDS.len()]);
    }
    out
}

async fn ask(client: &Client, prompt: &str, max_tokens: usize, cached: bool) -> Result<Answer, ClientError> {
    let body = json!({
        "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "seed": 1, "logprobs": 1, "cache_prompt": cached,
    });
    let answer = client.post("/v1/completions", &body, LONG_TIMEOUT).await?;
    let (choice, usage) = (&answer["choices"][0], &answer["usage"]);
    Ok(Answer {
        text: choice["text"].as_str().unwrap_or_default().to_owned(),
        logprobs: choice["logprobs"]["token_logprobs"].clone(),
        prompt: usage["prompt_tokens"].as_u64().unwrap_or(0),
        cached: usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::scripted;

    fn completion(text: &str, logprob: f64, cached: u64) -> Value {
        json!({
            "choices": [{ "text": text, "logprobs": { "token_logprobs": [logprob] } }],
            "usage": { "prompt_tokens": 10, "prompt_tokens_details": { "cached_tokens": cached } },
        })
    }

    const SWEEP: Sweep = Sweep { from: 1, to: 3, step: 1, max_tokens: 4 };

    fn swept(answer: impl Fn(bool, usize) -> Value + Send + 'static) -> Outcome {
        let url = scripted::json(move |body, i| answer(body["cache_prompt"] == true, i));
        let client = Client::new(&url, None).unwrap();
        scripted::runtime().block_on(sweep(&client, SWEEP, &mut |_| {})).unwrap()
    }

    #[test]
    fn a_cache_that_tells_the_truth_passes() {
        let outcome = swept(|cached, _| completion("same", -0.5, if cached { 9 } else { 0 }));
        assert!(outcome.passed(), "{outcome:?}");
        assert!(outcome.report().contains("PASS"));
    }

    #[test]
    fn a_cache_that_lies_is_found_by_text_and_by_logprobs() {
        let text =
            swept(|cached, i| completion(if cached && i > 3 { "other" } else { "same" }, -0.5, u64::from(cached)));
        assert_eq!(text.other_text, [2, 3]);
        assert!(text.report().contains("FAIL"));
        let nearly = swept(|cached, _| completion("same", if cached { -0.5 } else { -0.6 }, u64::from(cached)));
        assert_eq!(nearly.other_logprobs, [1, 2, 3]);
        assert!(nearly.report().contains("DIFFERS"));
    }

    #[test]
    fn without_a_cache_or_without_a_cold_answer_there_is_no_verdict() {
        assert!(swept(|_, _| completion("same", -0.5, 0)).report().contains("INCONCLUSIVE"));
        assert!(swept(|_, _| completion("same", -0.5, 5)).report().contains("INCONCLUSIVE"));
    }
}
