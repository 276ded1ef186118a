//! `plateau bench`: rates of decode and prefill of a server, or of two against one another in turn.

mod row;
mod statistics;

use std::time::Instant;

use serde_json::{Value, json};

use super::answer::Answer;
use super::ceiling::{self, Unit};
use super::client::ClientError;
use super::prompts;
use super::results::RunError;
use super::run::Run;
use super::session::{Ask, Session};
use super::verdict::{Check, Plot, Status};

pub use row::{RowFacts, append_row, checks_of, filled_of};
pub use statistics::Spread;

/// A spread above this, or clocks that fell by more, and runs cannot be held against others.
const MAX_CV: f64 = 0.05;
/// Runs at each depth.
const DEPTH_RUNS: usize = 3;
const DEPTH_MAX_TOKENS: u32 = 16;

/// What to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bench {
    pub runs: usize,
    pub warm: usize,
    /// Tokens of prompts whose prefill is measured; 0 is a short one.
    pub depths: Vec<u64>,
}

impl Bench {
    pub fn settings(&self) -> Value {
        json!({"runs": self.runs, "warm": self.warm, "depths": self.depths})
    }
}

/// Reads the GPU's clock in MHz.
pub type Clock<'a> = &'a (dyn Fn() -> Option<u32> + Sync);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    Narrative,
    Code,
}

impl Task {
    fn name(self) -> &'static str {
        match self {
            Task::Narrative => "narrative",
            Task::Code => "code",
        }
    }

    fn ask(self, session: &mut Session<'_>) -> Ask {
        let (text, max_tokens) = match self {
            Task::Narrative => ("Write a detailed essay of 800 words that explains attention in transformers.", 1000),
            Task::Code => ("Write quicksort in Python, with comments that explain each step.", 800),
        };
        let ask = Ask::user(format!("{} {text}", session.salt()), max_tokens).at(0.6);
        ask.and("top_p", json!(0.95)).and("top_k", json!(20))
    }
}

/// One run of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sample {
    decode: f64,
    wall: f64,
    ttft_ms: f64,
    acceptance: Option<f64>,
    clock: Option<u32>,
}

/// Measures one server, or two in turns: each round asks both, and the one that is asked first changes.
///
/// # Errors
/// Results that cannot be written. What the servers do wrong is in the report.
pub async fn run<'a>(
    session: &mut Session<'a>,
    mut other: Option<&mut Session<'a>>,
    run: &mut Run,
    bench: &Bench,
    clock: Clock<'_>,
) -> Result<(), RunError> {
    let not_proved = ["requests at the same time", "answers that are right", "other prompts"];
    run.report.not_proved = not_proved.map(str::to_owned).to_vec();
    let watch = session.memory.watch();
    for task in [Task::Narrative, Task::Code] {
        let start = Instant::now();
        let done = tasks(session, other.as_deref_mut(), bench, (task, clock)).await;
        let check = match done {
            Ok(samples) => judged(task.name(), &samples),
            Err(error) => {
                let check = Check::fail(task.name(), session.explain(&error)).with(json!({"error": error.kind()}));
                run.add(session, check, start)?;
                if run.goes_on(session, &error).await {
                    continue;
                }
                return Ok(());
            }
        };
        run.add(session, check, start)?;
    }
    depths(session, other, run, bench).await?;
    watch.also(session.memory.read().await);
    run.report.measured["peak_mib"] = json!(watch.peak());
    run.keep()
}

type Samples = [Vec<Sample>; 2];

async fn tasks<'a>(
    session: &mut Session<'a>,
    mut other: Option<&mut Session<'a>>,
    bench: &Bench,
    (task, clock): (Task, Clock<'_>),
) -> Result<Samples, ClientError> {
    let mut samples: Samples = Default::default();
    for round in 0..bench.warm + bench.runs {
        let is_warm = round < bench.warm;
        for side in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
            let asked: &mut Session<'a> = match (side, other.as_deref_mut()) {
                (0, _) => session,
                (_, Some(other)) => other,
                _ => continue,
            };
            asked.progress.now(&format!("{} {} of {}", task.name(), round + 1, bench.warm + bench.runs));
            let ask = task.ask(asked);
            let answer = asked.streamed(&ask).await?;
            let sample = sample(&answer, clock()).ok_or_else(|| ClientError::Malformed {
                url: asked.client.base().to_owned(),
                expected: "a stream with usage and more than one piece".to_owned(),
            })?;
            let kind = if is_warm { "warm-up" } else { "run" };
            let (name, server) = (task.name(), ["", " (against)"][side]);
            let line =
                format!("{name} {kind}{server}: {:.1} tok/s, {:.0} ms to the first", sample.decode, sample.ttft_ms);
            asked.progress.line(&line);
            if !is_warm {
                samples[side].push(sample);
            }
        }
    }
    Ok(samples)
}

fn sample(answer: &Answer, clock: Option<u32>) -> Option<Sample> {
    Some(Sample {
        decode: answer.stream_decode_tps()?,
        wall: answer.completion_tokens? as f64 / answer.elapsed.as_secs_f64().max(1e-9),
        ttft_ms: answer.first?.as_secs_f64() * 1000.0,
        acceptance: answer.acceptance_length(),
        clock,
    })
}

fn spread(samples: &[Sample], of: fn(&Sample) -> f64) -> Spread {
    Spread::of(&samples.iter().map(of).collect::<Vec<f64>>())
}

fn judged(name: &str, [own, other]: &Samples) -> Check {
    let decode = spread(own, |s| s.decode);
    let (wall, ttft) = (spread(own, |s| s.wall), spread(own, |s| s.ttft_ms));
    let accepted: Vec<f64> = own.iter().filter_map(|s| s.acceptance).collect();
    let acceptance = (!accepted.is_empty()).then(|| Spread::of(&accepted).mean);
    let clocks: Vec<f64> = own.iter().filter_map(|s| s.clock.map(f64::from)).collect();
    let fell = clocks.first().zip(clocks.last()).map(|(first, last)| 1.0 - last / first.max(1.0));
    let mut text = format!("{decode} tok/s, wall {:.1}, first token {:.0} ms", wall.mean, ttft.mean);
    if let Some(length) = acceptance {
        text.push_str(&format!(", {length:.2} tokens a step"));
    }
    let mut measured = json!({"decode": decode, "wall": wall, "ttft_ms": ttft, "acceptance_length": acceptance,
        "clock_fell": fell});
    if !other.is_empty() {
        let ratios: Vec<f64> = own.iter().zip(other).map(|(a, b)| a.decode / b.decode).collect();
        let ratio = Spread::of(&ratios);
        let against = spread(other, |s| s.decode);
        text.push_str(&format!(
            "; {:.3} times the other ({:.3} to {:.3}), which does {against}",
            ratio.mean, ratio.min, ratio.max
        ));
        measured["against"] = json!({"decode": against, "ratio": ratio});
    }
    let is_wide = decode.cv() > MAX_CV;
    let is_hot = fell.is_some_and(|share| share > MAX_CV);
    let check = match (is_wide, is_hot) {
        (false, false) => Check::pass(name, text),
        (true, _) => Check::warn(name, format!("{text}; not comparable: the spread is above 5 %")),
        (_, true) => Check::warn(name, format!("{text}; not comparable: the clocks fell by more than 5 %")),
    };
    check.with(measured)
}

/// Prefill at each depth.
async fn depths(
    session: &mut Session<'_>,
    mut other: Option<&mut Session<'_>>,
    run: &mut Run,
    bench: &Bench,
) -> Result<(), RunError> {
    let (mut prefill, mut decode) = (Vec::new(), Vec::new());
    for depth in &bench.depths {
        let (name, start) = (format!("prefill {depth}"), Instant::now());
        let room = session.facts.n_ctx.map(|n_ctx| n_ctx.saturating_sub(u64::from(DEPTH_MAX_TOKENS) + 64));
        if room.is_some_and(|room| *depth > room) {
            let why = format!("does not fit {}", session.facts.n_ctx.unwrap_or(0));
            run.add(session, Check::absent(&name, why), start)?;
            continue;
        }
        let own = at_depth(session, *depth).await;
        let check = match own {
            Ok(Some(own)) => {
                prefill.push((own.tokens, own.rate.mean));
                decode.extend(own.decode.map(|rate| (own.tokens, rate)));
                let against = match other.as_deref_mut() {
                    Some(other) => at_depth(other, *depth).await.ok().flatten(),
                    None => None,
                };
                own.check(&name, against.as_ref())
            }
            Ok(None) => Check::unknown(&name, "the server does not tell the tokens of a prompt"),
            Err(error) => {
                run.add(session, Check::fail(&name, session.explain(&error)), start)?;
                if run.goes_on(session, &error).await {
                    continue;
                }
                break;
            }
        };
        run.add(session, check, start)?;
    }
    let plot = |title: &str, points: Vec<(f64, f64)>| Plot {
        title: title.to_owned(),
        x: "tokens of the prompt".to_owned(),
        y: "tokens a second".to_owned(),
        lines: vec![(String::new(), points)],
    };
    run.report.plots = vec![plot("Prefill over depth", prefill), plot("Decode over depth", decode)];
    Ok(())
}

/// What was measured at a depth.
struct Depth {
    tokens: f64,
    /// Tokens of the prompt over the time to the first token.
    rate: Spread,
    ttft_ms: f64,
    /// As the server says.
    told: Option<f64>,
    decode: Option<f64>,
    is_cached: bool,
}

async fn at_depth(session: &mut Session<'_>, depth: u64) -> Result<Option<Depth>, ClientError> {
    let unit =
        if depth == 0 { Some(Unit { fixed: 0.0, per_unit: 1.0 }) } else { ceiling::measure_unit(session).await? };
    let Some(unit) = unit else { return Ok(None) };
    let (mut rates, mut times, mut told, mut decode) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut tokens, mut is_cached) = (0.0, false);
    for i in 0..DEPTH_RUNS {
        session.progress.now(&format!("prefill of {depth}, {} of {DEPTH_RUNS}", i + 1));
        let needle = prompts::needle(session);
        let text = prompts::haystack(session, unit.count(depth), 0.5, &needle);
        let ask = Ask::user(text, DEPTH_MAX_TOKENS).of_tokens(depth).within(300);
        let answer = session.streamed(&ask).await?;
        let (Some(n), Some(first)) = (answer.prompt_tokens, answer.first) else { return Ok(None) };
        tokens = n as f64;
        is_cached |= answer.cached_tokens.unwrap_or(0) * 100 > n;
        rates.push(n as f64 / first.as_secs_f64().max(1e-9));
        times.push(first.as_secs_f64() * 1000.0);
        told.extend(answer.prefill_tps);
        decode.extend(answer.decode_rate());
    }
    let mean = |values: &[f64]| (!values.is_empty()).then(|| Spread::of(values).mean);
    let (told, decode, ttft_ms) = (mean(&told), mean(&decode), Spread::of(&times).mean);
    Ok(Some(Depth { tokens, rate: Spread::of(&rates), ttft_ms, told, decode, is_cached }))
}

impl Depth {
    fn check(&self, name: &str, against: Option<&Depth>) -> Check {
        let told = self.told.map_or(String::new(), |rate| format!(", the server says {rate:.0}"));
        let mut text = format!("{} tok/s by the first token ({:.0} ms){told}", self.rate, self.ttft_ms);
        let mut measured =
            json!({"tokens": self.tokens, "prefill": self.rate, "ttft_ms": self.ttft_ms, "told": self.told});
        if let Some(other) = against {
            let ratio = self.rate.mean / other.rate.mean;
            text.push_str(&format!("; {ratio:.3} times the other, which does {}", other.rate));
            measured["against"] = json!({"prefill": other.rate, "ratio": ratio});
        }
        // A short prompt is over in a few milliseconds, whose spread says nothing.
        let is_wide = self.rate.cv() > MAX_CV && self.ttft_ms > 100.0;
        let status = if is_wide || self.is_cached { Status::Warn } else { Status::Pass };
        let why = match (self.is_cached, is_wide) {
            (true, _) => "; not comparable: prompts came from a cache",
            (_, true) => "; not comparable: the spread is above 5 %",
            _ => "",
        };
        Check::new(name, status, text + why).with(measured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(rates: &[f64], clocks: &[u32]) -> Vec<Sample> {
        let clocks = clocks.iter().map(|mhz| Some(*mhz)).chain(std::iter::repeat(None));
        let sample =
            |(decode, clock): (&f64, _)| Sample { decode: *decode, wall: 1.0, ttft_ms: 1.0, acceptance: None, clock };
        rates.iter().zip(clocks).map(sample).collect()
    }

    #[test]
    fn what_cannot_be_compared_is_said_and_pairs_have_their_ratio() {
        let even = samples(&[100.0, 101.0, 99.0], &[]);
        let steady = judged("narrative", &[even.clone(), Vec::new()]);
        assert_eq!(steady.status, Status::Pass, "{steady:?}");
        let wide = judged("narrative", &[samples(&[100.0, 60.0], &[]), Vec::new()]);
        assert!(wide.status == Status::Warn && wide.detail.contains("spread is above 5 %"), "{wide:?}");
        let hot = judged("narrative", &[samples(&[100.0, 99.0], &[1900, 1700]), Vec::new()]);
        assert!(hot.status == Status::Warn && hot.detail.contains("clocks fell"), "{hot:?}");
        let pair = judged("narrative", &[even, samples(&[50.0, 50.5, 33.0], &[])]);
        assert!(pair.detail.contains("2.333 times the other (2.000 to 3.000)"), "{pair:?}");
    }

    #[test]
    fn a_prefill_that_was_cached_is_no_figure() {
        let depth = |is_cached, rates: &[f64]| {
            let (rate, tokens) = (Spread::of(rates), 1000.0);
            Depth { tokens, rate, ttft_ms: 500.0, told: None, decode: None, is_cached }.check("prefill 1000", None)
        };
        assert_eq!(depth(false, &[100.0, 100.0]).status, Status::Pass);
        assert_eq!(depth(true, &[100.0, 100.0]).status, Status::Warn);
        assert_eq!(depth(false, &[100.0, 50.0]).status, Status::Warn);
    }
}
