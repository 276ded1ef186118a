//! The two verdicts over a ladder, and the slope of memory.

use serde_json::json;

use super::rung::grouped;
use super::{Ladder, Outcome, Rung};
use crate::check::verdict::{Check, Status};

/// Growth of memory with fill, by least squares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slope {
    /// MiB that a thousand tokens take.
    pub mib_per_1k: f64,
    /// How well a line fits; 1 where nothing changes.
    pub r2: f64,
}

/// From free memory after each rung that was filled. `None`: fewer than two of them have a reading.
pub fn slope(rungs: &[Rung]) -> Option<Slope> {
    let filled = rungs.iter().filter(|rung| rung.is_filled());
    let points: Vec<(f64, f64)> =
        filled.filter_map(|rung| Some((rung.tokens? as f64 / 1000.0, rung.free_after?))).collect();
    let n = points.len() as f64;
    let (mean_x, mean_y) = (points.iter().map(|p| p.0).sum::<f64>() / n, points.iter().map(|p| p.1).sum::<f64>() / n);
    let sum = |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|(x, y)| of(x - mean_x, y - mean_y)).sum::<f64>();
    let (xx, xy, yy) = (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
    let is_line = points.len() >= 2 && xx > 0.0;
    // Free memory falls as tokens come.
    is_line.then(|| Slope { mib_per_1k: -xy / xx, r2: if yy > 0.0 { xy * xy / (xx * yy) } else { 1.0 } })
}

/// Memory and sizes.
pub fn boundary(rungs: &[Rung], ladder: &Ladder, n_ctx: u64) -> Check {
    const NAME: &str = "BOUNDARY";
    let deepest = rungs.iter().filter(|rung| rung.is_filled()).filter_map(|rung| rung.tokens).max();
    let filled = deepest.map_or("nothing filled".to_owned(), |n| format!("filled {}", grouped(n as f64)));
    let slope = slope(rungs);
    let slope_text = slope.map_or(String::new(), |s| format!(", slope {:.1} MiB/1K (R^2 {:.2})", s.mib_per_1k, s.r2));
    let text = format!("{filled} of {}{slope_text}", grouped(n_ctx as f64));
    let lowest = rungs.iter().filter_map(|rung| Some((rung.free_lowest?, rung)));
    let lowest = lowest.min_by(|(a, _), (b, _)| a.total_cmp(b));
    let is_unread = rungs.iter().any(|rung| rung.is_filled() && rung.free_lowest.is_none());
    let is_cached = rungs.iter().any(|rung| rung.outcome == Outcome::Cached);
    let has_end = rungs.iter().any(|rung| rung.is_filled() && rung.target == last_target(ladder, n_ctx));
    let stop = rungs.last().filter(|rung| rung.is_end());
    let at = |rung: &Rung| grouped(rung.target as f64);
    let check = match (stop, lowest) {
        (Some(rung), _) if rung.outcome == Outcome::Wall => {
            Check::fail(NAME, format!("{text}; wall at {}: {}", at(rung), rung.detail))
        }
        (Some(rung), _) if rung.outcome == Outcome::Refused => {
            let (at, detail) = (at(rung), &rung.detail);
            Check::fail(
                NAME,
                format!("{text}; sizing: {at} tokens refused by a context that should hold them: {detail}"),
            )
        }
        (_, Some((free, rung))) if free < ladder.margin_mib => {
            let (free, margin) = (grouped(free), grouped(ladder.margin_mib));
            Check::fail(NAME, format!("{text}; {free} MiB free at {}, less than {margin}", at(rung)))
        }
        (Some(rung), _) => Check::warn(NAME, format!("{text}; timeout at {}: {}", at(rung), rung.detail)),
        (None, _) if rungs.is_empty() || is_cached => {
            let why = if is_cached { "a rung came from a cache, although its prompt is new" } else { "no rung" };
            Check::new(NAME, Status::Inconclusive, format!("{text}; {why}"))
        }
        (None, None) => Check::new(NAME, Status::Inconclusive, format!("{text}; memory was not measured")),
        (None, Some(_)) if is_unread => {
            Check::new(NAME, Status::Inconclusive, format!("{text}; memory was not measured at every rung"))
        }
        (None, Some(_)) if !has_end => {
            Check::new(NAME, Status::Inconclusive, format!("{text}; the last rung was not reached"))
        }
        (None, Some((free, _))) => Check::pass(NAME, format!("{text}, {} MiB free at least", grouped(free))),
    };
    let measured = json!({
        "filled_tokens": deepest, "n_ctx": n_ctx, "lowest_free_mib": lowest.map(|(free, _)| free),
        "slope_mib_per_1k": slope.map(|s| s.mib_per_1k), "stopped_by": stop.map(|rung| rung.outcome.name()),
    });
    check.with(measured)
}

fn last_target(ladder: &Ladder, n_ctx: u64) -> u64 {
    ladder.targets(n_ctx).last().copied().unwrap_or(0)
}

/// The model: a miss is no fault of memory.
pub fn recall(rungs: &[Rung]) -> Check {
    const NAME: &str = "RECALL";
    let answered = rungs.iter().filter(|rung| rung.is_filled());
    let (n, missed): (usize, Vec<String>) = answered.fold((0, Vec::new()), |(n, mut missed), rung| {
        if rung.outcome == Outcome::Missed {
            missed.push(grouped(rung.target as f64));
        }
        (n + 1, missed)
    });
    match (n, missed.is_empty()) {
        (0, _) => Check::absent(NAME, "no rung was answered"),
        (_, true) => Check::pass(NAME, format!("{n} of {n} facts found")),
        _ => Check::warn(NAME, format!("{} of {n} facts found, missed at {}", n - missed.len(), missed.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rung(target: u64, outcome: Outcome, free: Option<f64>) -> Rung {
        let (free_before, free_lowest, free_after) = (free, free, free);
        Rung { target, tokens: Some(target), outcome, free_before, free_lowest, free_after, ..Rung::default() }
    }

    #[test]
    fn the_slope_is_that_of_the_line() {
        let line = |tokens: u64| rung(tokens, Outcome::Recalled, Some(2623.0 - 7.9 * tokens as f64 / 1000.0));
        let found = slope(&[line(95_000), line(125_000), line(155_000)]).unwrap();
        assert!((found.mib_per_1k - 7.9).abs() < 1e-6 && found.r2 > 0.999_999, "{found:?}");
        assert_eq!(slope(&[line(95_000)]), None);
        let flat = slope(&[rung(1, Outcome::Recalled, Some(5.0)), rung(2, Outcome::Recalled, Some(5.0))]).unwrap();
        assert_eq!((flat.mib_per_1k, flat.r2), (0.0, 1.0));
    }

    #[test]
    fn every_way_to_end_has_its_verdict() {
        let ladder = Ladder { from: 100, step: 100, fraction: 1.0, ..Ladder::default() };
        let good = |target| rung(target, Outcome::Recalled, Some(2000.0));
        let cases: [(Vec<Rung>, Status, &str); 9] = [
            (vec![good(100), good(200)], Status::Pass, "filled 200 of 200"),
            (vec![good(100), rung(200, Outcome::Missed, Some(2000.0))], Status::Pass, "filled 200"),
            (vec![good(100), rung(200, Outcome::Wall, Some(9.0))], Status::Fail, "wall at 200"),
            (vec![good(100), rung(200, Outcome::Refused, None)], Status::Fail, "sizing"),
            (
                vec![good(100), rung(200, Outcome::Recalled, Some(396.0))],
                Status::Fail,
                "396 MiB free at 200, less than 1,024",
            ),
            (vec![good(100), rung(200, Outcome::Timeout, None)], Status::Warn, "timeout at 200"),
            (
                vec![rung(100, Outcome::Recalled, None), rung(200, Outcome::Recalled, None)],
                Status::Inconclusive,
                "not measured",
            ),
            (vec![good(100), rung(200, Outcome::Cached, Some(2000.0))], Status::Inconclusive, "from a cache"),
            (vec![good(100)], Status::Inconclusive, "not reached"),
        ];
        for (rungs, status, part) in cases {
            let check = boundary(&rungs, &ladder, 200);
            assert!(check.status == status && check.detail.contains(part), "{check:?}");
        }
        assert_eq!(recall(&[good(100)]).status, Status::Pass);
        let missed = recall(&[good(100), rung(200, Outcome::Missed, None)]);
        assert!(missed.status == Status::Warn && missed.detail.contains("1 of 2"), "{missed:?}");
        assert_eq!(recall(&[rung(100, Outcome::Wall, None)]).status, Status::Skip);
    }
}
