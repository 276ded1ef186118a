//! `plateau check ceiling`: does what boots also fill? Prompts of growing length up to the end of the context, each with a
//! fact to find again, while the memory that is left is watched.
//!
//! Two verdicts, because they are two questions: the boundary (memory and sizes) and the recall (the model).

mod judge;
mod rung;

use std::time::Instant;

use serde_json::{Value, json};

use super::client::ClientError;
use super::prompts;
use super::results::RunError;
use super::run::Run;
use super::session::{Ask, Session};
use super::verdict::{Check, Plot};

pub use judge::{Slope, boundary, recall, slope};
pub use rung::{Outcome, Rung, grouped};

/// Where the rungs are kept, a line each.
pub const RUNGS_FILE: &str = "ceiling.jsonl";
/// Tokens of the answer to a needle.
const MAX_TOKENS: u32 = 30;
/// Units of filler in the probe that measures a unit.
const PROBE_UNITS: usize = 20;
/// Shares of a context that is smaller than the first rung.
const SMALL: [f64; 4] = [0.25, 0.50, 0.75, 0.92];

/// How to climb.
#[derive(Clone, Debug, PartialEq)]
pub struct Ladder {
    /// Tokens of the first rung, and between two.
    pub from: u64,
    pub step: u64,
    /// The share of the context that the last rung has.
    pub fraction: f64,
    /// What must stay free, in MiB.
    pub margin_mib: f64,
    /// The first and the last rung only.
    pub fast: bool,
}

impl Default for Ladder {
    fn default() -> Ladder {
        Ladder { from: 95_000, step: 30_000, fraction: 0.92, margin_mib: 1024.0, fast: false }
    }
}

impl Ladder {
    pub fn settings(&self) -> Value {
        json!({"from": self.from, "step": self.step, "fraction": self.fraction, "margin_mib": self.margin_mib,
            "fast": self.fast})
    }

    /// Tokens of the rungs in a context of this size; the last one is exactly at the fraction.
    pub fn targets(&self, n_ctx: u64) -> Vec<u64> {
        let share = |share: f64| (n_ctx as f64 * share) as u64;
        let last = share(self.fraction);
        let mut targets: Vec<u64> = if last <= self.from {
            SMALL.into_iter().map(|part| share(part.min(self.fraction))).collect()
        } else {
            let regular = std::iter::successors(Some(self.from), |at| Some(at + self.step.max(1)));
            regular.take_while(|at| *at < last).chain([last]).collect()
        };
        targets.dedup();
        if self.fast && targets.len() > 2 {
            targets = vec![targets[0], last];
        }
        targets
    }
}

/// Climbs, and adds the two verdicts to the run.
///
/// # Errors
/// A context that nobody states, and results that cannot be written.
pub async fn run(session: &mut Session<'_>, run: &mut Run, ladder: &Ladder) -> Result<(), RunError> {
    let Some(n_ctx) = session.facts.n_ctx else {
        return Err(RunError::Usage("the server does not state its context; name it with --ctx".to_owned()));
    };
    let not_proved = ["a deeper context", "requests at the same time", "images", "other batch sizes"];
    run.report.not_proved.extend(not_proved.map(str::to_owned));
    let start = Instant::now();
    let done: Vec<Rung> =
        run.results.lines(RUNGS_FILE).into_iter().filter_map(|line| serde_json::from_value(line).ok()).collect();
    // A line that was not written to its end goes.
    let whole: String =
        done.iter().filter_map(|rung| serde_json::to_string(rung).ok()).map(|line| line + "\n").collect();
    run.results.write(RUNGS_FILE, &whole)?;
    if !done.is_empty() {
        session.progress.line(&format!("{} rungs are there already", done.len()));
    }
    let rungs = climb(session, run, ladder, n_ctx, done).await?;
    run.report.plots.extend(plots(&rungs, ladder));
    let unit = run.report.measured.get("unit_tokens").is_some();
    let boundary = if unit || !rungs.is_empty() {
        boundary(&rungs, ladder, n_ctx)
    } else {
        Check::unknown("BOUNDARY", "the size of the filler could not be measured: no usage.prompt_tokens")
    };
    if let Some(slope) = slope(&rungs) {
        run.report.measured["slope_mib_per_1k"] = json!(slope.mib_per_1k);
        run.report.measured["slope_r2"] = json!(slope.r2);
    }
    run.report.measured["rungs"] = json!(rungs);
    run.add(session, boundary, start)?;
    run.add(session, recall(&rungs), start)
}

/// The rungs that are not done yet, until the end or a wall.
async fn climb(
    session: &mut Session<'_>,
    run: &mut Run,
    ladder: &Ladder,
    n_ctx: u64,
    mut rungs: Vec<Rung>,
) -> Result<Vec<Rung>, RunError> {
    let targets = ladder.targets(n_ctx);
    if rungs.last().is_some_and(Rung::is_end) || rungs.len() >= targets.len() {
        return Ok(rungs);
    }
    let mut unit = match measure_unit(session).await {
        Ok(Some(unit)) => unit,
        Ok(None) => return Ok(rungs),
        Err(error) => {
            run.report.notes.push(format!("the probe failed: {}", session.explain(&error)));
            run.goes_on(session, &error).await;
            return Ok(rungs);
        }
    };
    run.report.measured["unit_tokens"] = json!(unit.per_unit);
    for (i, target) in targets.iter().enumerate().skip(rungs.len()) {
        session.progress.step(i, targets.len());
        session.progress.now(&format!("rung {target}"));
        let (rung, error) = climb_one(session, *target, &unit).await;
        session.progress.line(&rung.line());
        let line = serde_json::to_string(&rung).map_err(|error| RunError::Internal(error.to_string()))?;
        run.results.append(RUNGS_FILE, &line)?;
        unit.refine(*target, &rung);
        let is_end = rung.is_end();
        rungs.push(rung);
        run.report.measured["rungs"] = json!(rungs);
        run.keep()?;
        if let Some(error) = error {
            run.goes_on(session, &error).await;
        }
        if is_end || run.report.lost {
            break;
        }
    }
    session.progress.step(targets.len(), targets.len());
    Ok(rungs)
}

/// Tokens of a prompt: what it costs without filler, and each unit of filler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    pub fixed: f64,
    pub per_unit: f64,
}

impl Unit {
    /// A long prompt tells more than the probe.
    fn refine(&mut self, target: u64, rung: &Rung) {
        let n_units = self.count(target);
        if let (Some(tokens), true) = (rung.tokens, n_units > 0 && rung.is_filled()) {
            self.per_unit = ((tokens as f64 - self.fixed) / n_units as f64).max(1.0);
        }
    }

    /// Units that bring a prompt to so many tokens, never above.
    pub fn count(&self, tokens: u64) -> usize {
        ((tokens as f64 - self.fixed) / self.per_unit).max(0.0) as usize
    }
}

/// Two probes: one with filler and one without. `None`: the server does not tell the tokens of a prompt.
pub async fn measure_unit(session: &mut Session<'_>) -> Result<Option<Unit>, ClientError> {
    let mut sizes = [0.0; 2];
    for (size, n_units) in sizes.iter_mut().zip([0, PROBE_UNITS]) {
        let needle = prompts::needle(session);
        let text = prompts::haystack(session, n_units, 0.5, &needle);
        let answer = session.whole(&Ask::user(text, 1)).await?;
        match answer.prompt_tokens {
            Some(tokens) => *size = tokens as f64,
            None => return Ok(None),
        }
    }
    let per_unit = (sizes[1] - sizes[0]) / PROBE_UNITS as f64;
    Ok((per_unit > 0.0).then_some(Unit { fixed: sizes[0], per_unit }))
}

/// One rung, and the error that it ended with.
pub async fn climb_one(session: &mut Session<'_>, target: u64, unit: &Unit) -> (Rung, Option<ClientError>) {
    let needle = prompts::needle(session);
    let depth = 0.2 + 0.6 * session.share();
    let text = prompts::haystack(session, unit.count(target), depth, &needle);
    let before = session.memory.read().await;
    let watch = session.memory.watch();
    watch.also(before);
    let start = Instant::now();
    let asked = session.streamed(&Ask::user(text, MAX_TOKENS).of_tokens(target).within(600)).await;
    let after = session.memory.read().await;
    watch.also(after);
    let mut rung = Rung {
        target,
        depth,
        seconds: start.elapsed().as_secs_f64(),
        free_before: before.map(|reading| reading.free),
        free_lowest: watch.lowest(),
        free_after: after.map(|reading| reading.free),
        ..Rung::default()
    };
    match asked {
        Ok(answer) => {
            rung.take(&answer, &needle.secret);
            (rung, None)
        }
        Err(error) => {
            rung.outcome = Outcome::of(&error);
            rung.detail = session.explain(&error);
            (rung, Some(error))
        }
    }
}

/// Memory and speed over the tokens that were filled.
pub fn plots(rungs: &[Rung], ladder: &Ladder) -> Vec<Plot> {
    let line = |of: fn(&Rung) -> Option<f64>| -> Vec<(f64, f64)> {
        rungs.iter().filter_map(|rung| Some((rung.tokens? as f64, of(rung)?))).collect()
    };
    let lowest = line(|rung| rung.free_lowest);
    let margin = lowest.iter().map(|(x, _)| (*x, ladder.margin_mib)).collect();
    let memory = Plot {
        title: "Free memory over fill".to_owned(),
        x: "tokens filled".to_owned(),
        y: "MiB free".to_owned(),
        lines: vec![
            ("after".to_owned(), line(|rung| rung.free_after)),
            ("lowest".to_owned(), lowest),
            ("margin".to_owned(), margin),
        ],
    };
    let speed = |title: &str, of: fn(&Rung) -> Option<f64>| Plot {
        title: title.to_owned(),
        x: "tokens filled".to_owned(),
        y: "tokens a second".to_owned(),
        lines: vec![(String::new(), line(of))],
    };
    vec![
        memory,
        speed("Prefill over depth", |rung| rung.prefill_tps),
        speed("Decode over depth", |rung| rung.decode_tps),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_rung_is_at_the_fraction_and_a_small_context_has_four() {
        let ladder = Ladder::default();
        assert_eq!(ladder.targets(204_800), [95_000, 125_000, 155_000, 185_000, 188_416]);
        assert_eq!(ladder.targets(262_144).last(), Some(&241_172));
        assert_eq!(ladder.targets(32_768), [8192, 16_384, 24_576, 30_146]);
        let fast = Ladder { fast: true, ..Ladder::default() };
        assert_eq!(fast.targets(204_800), [95_000, 188_416]);
        assert_eq!(fast.targets(32_768), [8192, 30_146]);
        let unit = Unit { fixed: 40.0, per_unit: 60.0 };
        assert_eq!((unit.count(100), unit.count(159), unit.count(10)), (1, 1, 0));
    }
}
