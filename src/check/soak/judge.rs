//! The rules of a soak: rows in, checks out.

use std::fmt::Write as _;

use serde_json::json;

use super::ledger::Row;
use super::settings::{Mode, Seen, Soak};
use crate::check::verdict::{Check, Report, Status};

/// Warnings.
const MAX_TTFT_RATIO: f64 = 1.5;
/// Below this a time to the first token is noise.
const MIN_TTFT_MS: f64 = 100.0;
const MAX_TURN_MS: u64 = 30_000;
const MAX_SWING_MIB: f64 = 500.0;
/// Share of empty turns that fails.
const MAX_SILENT: f64 = 0.5;
/// The share of the conversation so far that a next turn should find cached.
const MIN_CACHED: f64 = 0.5;

/// All checks over what was seen so far.
pub fn checks(seen: &Seen, soak: &Soak) -> Vec<Check> {
    let mut checks = vec![requests(seen), growth(seen, soak), retention(seen, soak), silent(seen, soak), engine(seen)];
    if soak.mode == Mode::Continuous {
        checks.push(depth(seen, soak));
        checks.push(cache(seen, soak));
    }
    checks.extend([ttft(seen), long_turns(seen), swing(seen), host(seen, soak)]);
    checks
}

fn inconclusive(name: &str, why: &str) -> Check {
    Check::new(name, Status::Inconclusive, why)
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    (n > 0).then(|| if n % 2 == 1 { values[n / 2] } else { f64::midpoint(values[n / 2 - 1], values[n / 2]) })
}

fn requests(seen: &Seen) -> Check {
    const NAME: &str = "requests";
    let faults: Vec<&Row> = seen.rows.iter().filter(|row| row.is_fault()).collect();
    let (n, aborted) = (seen.rows.len(), seen.rows.iter().filter(|row| row.status == "aborted").count());
    let text = format!("{n} turns, {aborted} aborted by us, {} calls put in", seen.synthesised);
    match faults.first() {
        _ if n == 0 => inconclusive(NAME, "no turn"),
        Some(first) => {
            let (session, turn, error) = (first.session, first.turn, &first.error);
            Check::fail(
                NAME,
                format!("{} of {text} failed, first session {session} turn {turn}: {error}", faults.len()),
            )
        }
        None => Check::pass(NAME, text),
    }
}

/// Memory at the ends of sessions without a fault; what the prefix cache holds is meant to be there.
fn ends(seen: &Seen) -> Vec<f64> {
    let last = seen.rows.last().map_or(0, |row| row.session);
    let clean = (1..=last).filter(|n| !seen.rows.iter().any(|row| row.session == *n && row.is_fault()));
    clean.filter_map(|n| used(seen.rows.iter().rfind(|row| row.session == n)?)).collect()
}

/// Where the host's memory is what is watched, the cache's own bytes are no growth.
fn used(row: &Row) -> Option<f64> {
    let used = row.gpu_after_mib?;
    let is_host = row.host_mib.is_some_and(|host| (host - used).abs() < 64.0);
    let cache = row.cache_bytes.filter(|_| is_host).map_or(0.0, |bytes| bytes / f64::from(1 << 20));
    Some(used - cache)
}

fn growth(seen: &Seen, soak: &Soak) -> Check {
    const NAME: &str = "memory growth";
    let ends = ends(seen);
    let (Some(first), Some(last), true) = (ends.first(), ends.last(), ends.len() > 1) else {
        let is_read = seen.rows.iter().any(|row| row.gpu_after_mib.is_some());
        let why = if is_read { "fewer than two sessions without a fault" } else { "memory was not measured" };
        return inconclusive(NAME, why);
    };
    let (growth, limit) = (last - first, soak.growth_mib);
    let text = format!("{growth:+.0} MiB from session to session, {limit:.0} allowed");
    let check = if growth > limit { Check::fail(NAME, text) } else { Check::pass(NAME, text) };
    check.with(json!({"growth_mib": growth, "baseline_mib": first}))
}

/// The rates of the first and of the last quarter of the sessions.
fn retention(seen: &Seen, soak: &Soak) -> Check {
    const NAME: &str = "decode retention";
    let last = seen.rows.last().map_or(0, |row| row.session);
    let quarter = last.div_ceil(4).max(1);
    let rates = |from: usize, to: usize| {
        let rows = seen.rows.iter().filter(|row| row.status == "ok" && (from..=to).contains(&row.session));
        median(rows.filter_map(|row| row.decode_tps).collect())
    };
    let (Some(first), Some(end), true) = (rates(1, quarter), rates(last + 1 - quarter.min(last), last), last > 1)
    else {
        return inconclusive(NAME, "fewer than two sessions with a rate of decode");
    };
    let share = end / first;
    let text = format!("{:.0} % ({first:.1} to {end:.1} tok/s), {:.0} % asked", share * 100.0, soak.retention * 100.0);
    let check = if share < soak.retention { Check::fail(NAME, text) } else { Check::pass(NAME, text) };
    check.with(json!({"retention": share}))
}

fn silent(seen: &Seen, soak: &Soak) -> Check {
    const NAME: &str = "silent answers";
    let long = soak.silent_after.as_millis() as u64;
    let ok: Vec<&Row> = seen.rows.iter().filter(|row| row.status == "ok").collect();
    let n = ok.iter().filter(|row| row.is_empty && row.elapsed_ms >= long).count();
    let share = n as f64 / ok.len().max(1) as f64;
    let text = format!("{n} of {} turns ended well and empty", ok.len());
    match (n, ok.is_empty()) {
        (_, true) => inconclusive(NAME, "no turn ended well"),
        (0, _) => Check::pass(NAME, text),
        _ if share >= MAX_SILENT => Check::fail(NAME, text),
        _ => Check::warn(NAME, text),
    }
}

fn engine(seen: &Seen) -> Check {
    const NAME: &str = "engine at rest";
    match &seen.at_rest {
        None => Check::unknown(NAME, "not looked at: the run did not reach its end"),
        Some(Ok(())) => Check::pass(NAME, "nothing runs when nobody asks, and a small request is answered"),
        Some(Err(why)) => Check::fail(NAME, why.clone()),
    }
}

fn depth(seen: &Seen, soak: &Soak) -> Check {
    const NAME: &str = "depth";
    let last = seen.rows.iter().filter(|row| row.turn == soak.turns).filter_map(|row| row.prompt_tokens).max();
    let min = soak.min_depth();
    match last {
        Some(n) if n >= min => Check::pass(NAME, format!("{n} tokens at turn {}", soak.turns)),
        Some(n) => {
            inconclusive(NAME, &format!("did not reach the depth: {n} tokens at turn {}, {min} needed", soak.turns))
        }
        None => inconclusive(NAME, "did not reach the depth: no last turn with a count of tokens"),
    }
}

/// Does a turn begin from the one before it? If not, each turn processes the whole conversation again (cliff 3).
fn cache(seen: &Seen, soak: &Soak) -> Check {
    const NAME: &str = "turns from the cache";
    let pairs = seen.rows.windows(2).filter(|pair| pair[0].session == pair[1].session && pair[0].status == "ok");
    let shares = pairs.filter_map(|pair| {
        let before = pair[0].prompt_tokens.filter(|n| *n > 0)?;
        Some(pair[1].cached_tokens? as f64 / before as f64)
    });
    let slope = ttft_slope(seen);
    let slope = slope.map_or(String::new(), |ms| format!(", first token {ms:.0} ms later for 1K new tokens"));
    match median(shares.collect()) {
        None if soak.turns < 2 => Check::absent(NAME, "one turn a session"),
        None => Check::absent(NAME, "the server does not tell what was cached"),
        Some(share) => {
            let text = format!("{:.0} % of the turn before (median){slope}", share * 100.0);
            let check = if share < MIN_CACHED {
                Check::warn(NAME, format!("{text}: each turn processes the conversation again (cliff 3)"))
            } else {
                Check::pass(NAME, text)
            };
            check.with(json!({"cached_share": share}))
        }
    }
}

/// Milliseconds of the first token for a thousand tokens that were not cached, by least squares.
fn ttft_slope(seen: &Seen) -> Option<f64> {
    let point = |row: &Row| {
        let new = row.prompt_tokens?.checked_sub(row.cached_tokens?)?;
        Some((new as f64 / 1000.0, row.ttft_ms?))
    };
    let points: Vec<(f64, f64)> = seen.rows.iter().filter(|row| row.status == "ok").filter_map(point).collect();
    slope(&points)
}

fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let n = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0 / n, y + point.1 / n));
    let xx: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    let xy: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    (points.len() > 1 && xx > 0.0).then(|| xy / xx)
}

fn ttft(seen: &Seen) -> Check {
    const NAME: &str = "time to the first token";
    let last = seen.rows.last().map_or(0, |row| row.session);
    let of = |session: usize, turn: usize| {
        let mut rows = seen.rows.iter().filter(|row| row.status == "ok");
        rows.find(|row| row.session == session && row.turn == turn)?.ttft_ms
    };
    let turns = seen.rows.iter().map(|row| row.turn).max().unwrap_or(0);
    let ratios = (1..=turns).filter_map(|turn| {
        let (first, end) = (of(1, turn)?, of(last, turn)?);
        (last > 1).then(|| (end / first.max(MIN_TTFT_MS), turn))
    });
    match ratios.max_by(|a, b| a.0.total_cmp(&b.0)) {
        None => Check::absent(NAME, "fewer than two sessions to compare"),
        Some((ratio, turn)) => {
            let text = format!("{ratio:.2} times the first session's at turn {turn}, at most");
            if ratio > MAX_TTFT_RATIO { Check::warn(NAME, text) } else { Check::pass(NAME, text) }
        }
    }
}

fn long_turns(seen: &Seen) -> Check {
    const NAME: &str = "long turns";
    let longest = seen.rows.iter().map(|row| row.elapsed_ms).max().unwrap_or(0);
    let text = format!("{:.1} s at most", longest as f64 / 1000.0);
    if longest > MAX_TURN_MS { Check::warn(NAME, text) } else { Check::pass(NAME, text) }
}

fn swing(seen: &Seen) -> Check {
    const NAME: &str = "memory swing";
    let used = seen.rows.iter().filter_map(|row| row.gpu_after_mib);
    let (low, high) = used.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), mib| (l.min(mib), h.max(mib)));
    if high < low {
        return Check::absent(NAME, "memory was not measured");
    }
    let text = format!("{:.0} MiB between turns", high - low);
    if high - low > MAX_SWING_MIB { Check::warn(NAME, text) } else { Check::pass(NAME, text) }
}

/// The process's own memory after the first quarter of the run, without what the prefix cache holds.
fn host(seen: &Seen, soak: &Soak) -> Check {
    const NAME: &str = "host memory";
    let rows = &seen.rows[seen.rows.len() / 4..];
    let point = |row: &Row| {
        let cache = row.cache_bytes.map_or(0.0, |bytes| bytes / f64::from(1 << 20));
        Some((row.t_ms as f64 / 3_600_000.0, row.host_mib? - cache))
    };
    let points: Vec<(f64, f64)> = rows.iter().filter_map(point).collect();
    match slope(&points) {
        None => Check::absent(NAME, "the server's process is not on this machine, or not to be seen"),
        Some(slope) => {
            let hours = points.last().zip(points.first()).map_or(0.0, |(last, first)| last.0 - first.0);
            let rise = slope * hours;
            let text = format!("{rise:+.0} MiB after warm-up ({slope:+.0} an hour), the prefix cache left out");
            let check = if rise > soak.growth_mib { Check::warn(NAME, text) } else { Check::pass(NAME, text) };
            check.with(json!({"mib_per_hour": slope, "rise_mib": rise}))
        }
    }
}

/// summary.md.
pub(super) fn summary(report: &Report, soak: &Soak, seen: &Seen) -> String {
    let mode = soak.mode_name();
    let mut out = format!("# Soak, {mode}: {}\n\n| verdict | check | seen |\n|---|---|---|\n", report.verdict.word());
    for check in &report.checks {
        let detail = check.detail.replace('|', "\\|").replace('\n', " ");
        let _ = writeln!(out, "| {} | {} | {detail} |", check.status.word(), check.name);
    }
    out.push_str("\n| turn | prompt tokens | cached | first token ms | decode tok/s |\n|---|---|---|---|---|\n");
    for turn in 1..=soak.turns {
        let of = |value: fn(&Row) -> Option<f64>| {
            let rows = seen.rows.iter().filter(|row| row.turn == turn && row.status == "ok");
            median(rows.filter_map(value).collect()).map_or("-".to_owned(), |value| format!("{value:.0}"))
        };
        let tokens = of(|row| row.prompt_tokens.map(|n| n as f64));
        let cached = of(|row| row.cached_tokens.map(|n| n as f64));
        let (ttft, rate) = (of(|row| row.ttft_ms), of(|row| row.decode_tps));
        let _ = writeln!(out, "| {turn} | {tokens} | {cached} | {ttft} | {rate} |");
    }
    out.push_str("\nMedians over the sessions. Not shown:\n\n");
    for line in &report.not_proved {
        let _ = writeln!(out, "- {line}");
    }
    out
}
