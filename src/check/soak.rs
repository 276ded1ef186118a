//! `plateau check soak`: the same work again and again. Does memory grow, does the speed last, do turns come back empty, does
//! the time to the first token stay flat?

mod judge;
mod ledger;
mod settings;
mod turns;

use std::time::{Duration, Instant};

use serde_json::json;

use super::client::ClientError;
use super::facts::{Kind, SHORT_TIMEOUT};
use super::memory::{Reading, metric};
use super::results::RunError;
use super::run::Run;
use super::session::{Ask, Session};
use super::verdict::{Check, Plot, Report};

pub use judge::checks;
pub use ledger::{LEDGER_FILE, Row};
pub use settings::{Mode, Seen, Soak};
use turns::Conversation;

/// Runs the sessions. What is measured is judged anew after each turn.
///
/// # Errors
/// Results that cannot be written.
pub async fn run(session: &mut Session<'_>, run: &mut Run, soak: &Soak) -> Result<(), RunError> {
    let not_shown = [
        "that any kernel or setting was needed (run it again with the kernel off)",
        "deeper contexts",
        "other clients",
        "other work: this is no failure signal on this sample at this depth",
    ];
    run.report.not_proved = not_shown.map(str::to_owned).to_vec();
    let start = Instant::now();
    let scale = match turns::scale(session, soak).await {
        Ok(Ok(scale)) => scale,
        Ok(Err(why)) => return run.add(session, Check::unknown("depth", why), start),
        Err(error) => {
            run.add(session, Check::fail("requests", session.explain(&error)), start)?;
            run.goes_on(session, &error).await;
            return Ok(());
        }
    };
    run.results.write(LEDGER_FILE, &format!("{}\n", Row::HEAD))?;
    let mut seen = Seen::default();
    let end = soak.hours.map(|hours| start + Duration::from_secs_f64(hours * 3600.0));
    let mut at = 0;
    while at < soak.sessions || end.is_some_and(|end| Instant::now() < end) {
        at += 1;
        session.progress.step((at - 1).min(soak.sessions), soak.sessions.max(at));
        if one_session(session, run, soak, &mut seen, (at, start, scale)).await? {
            break;
        }
    }
    if !run.report.lost {
        seen.at_rest = Some(rest(session).await);
    }
    judge_now(run, soak, &seen)?;
    for check in &run.report.checks {
        session.progress.line(&format!("{:<4}  {}  {}", check.status.word(), check.name, check.detail));
    }
    Ok(())
}

fn judge_now(run: &mut Run, soak: &Soak, seen: &Seen) -> Result<(), RunError> {
    run.report.checks = checks(seen, soak);
    run.report.measured["synthesised_calls"] = json!(seen.synthesised);
    run.report.measured["turns"] = json!(seen.rows.len());
    run.report.plots = plots(&seen.rows);
    // As if this were the end: whatever ends the run, the summary is of all that was seen.
    let whole = Report { interrupted: false, ..run.report.clone() };
    run.results.write("summary.md", &judge::summary(&Report { verdict: whole.judge(), ..whole }, soak, seen))?;
    run.keep()
}

/// The turns of one session. Is the run over?
async fn one_session(
    session: &mut Session<'_>,
    run: &mut Run,
    soak: &Soak,
    seen: &mut Seen,
    (at, start, scale): (usize, Instant, f64),
) -> Result<bool, RunError> {
    let mut conversation = Conversation::begin(session);
    for turn in 1..=soak.turns {
        session.progress.now(&format!("session {at}, turn {turn}"));
        let ask = match soak.mode {
            Mode::Continuous => conversation.next(session, turn, soak.turns, scale),
            Mode::Fresh => turns::fresh(session, turn),
        };
        let is_aborted = soak.aborts > 0.0 && session.share() < soak.aborts;
        let mut row = Row { session: at, turn, t_ms: start.elapsed().as_millis() as u64, ..Row::default() };
        let error = one_turn(session, &ask, is_aborted, &mut row, &mut conversation).await;
        run.results.append(LEDGER_FILE, &row.csv())?;
        session.progress.line(&row.line());
        seen.rows.push(row);
        seen.synthesised += usize::from(conversation.take_synthesised());
        judge_now(run, soak, seen)?;
        if let Some(error) = error {
            let goes_on = run.goes_on(session, &error).await;
            // The rest of this conversation has no meaning without the answer.
            return Ok(!goes_on);
        }
    }
    Ok(false)
}

async fn one_turn(
    session: &mut Session<'_>,
    ask: &Ask,
    is_aborted: bool,
    row: &mut Row,
    conversation: &mut Conversation,
) -> Option<ClientError> {
    let before = session.memory.read().await;
    let watch = session.memory.watch();
    watch.also(before);
    let max_events = if is_aborted { 1 + session.below(16) as usize } else { usize::MAX };
    let asked = session.streamed_until(ask, max_events).await;
    let after = session.memory.read().await;
    watch.also(after);
    let used = |reading: Option<Reading>| reading.map(|reading| reading.used);
    (row.gpu_before_mib, row.gpu_after_mib, row.gpu_peak_mib) = (used(before), used(after), watch.peak());
    row.host_mib = session.host.as_ref().and_then(|read| read()).map(|reading| reading.used);
    if session.facts.kind == Kind::Plateau
        && let Ok(text) = session.client.get_text("/metrics", SHORT_TIMEOUT).await
    {
        row.kv_fill = metric(&text, "plateau_kv_fill_tokens");
        row.cache_bytes = metric(&text, "plateau_cache_bytes");
    }
    match asked {
        Ok((answer, fault)) => {
            row.take(&answer);
            "ok".clone_into(&mut row.status);
            if is_aborted && fault.is_none() {
                "aborted".clone_into(&mut row.status);
            }
            conversation.take(&answer);
            fault.inspect(|fault| row.fail(fault))
        }
        Err(error) => {
            row.fail(&error);
            Some(error)
        }
    }
}

/// Nothing runs when nobody asks, and a small request is answered.
async fn rest(session: &mut Session<'_>) -> Result<(), String> {
    if session.facts.kind == Kind::Plateau {
        idle(session).await?;
    }
    let asked = session.whole(&Ask::user("Say yes.", 8).within(60)).await;
    asked.map(|_| ()).map_err(|error| format!("a small request at the end: {}", session.explain(&error)))
}

/// Waits until the gauges say that nothing runs.
async fn idle(session: &Session<'_>) -> Result<(), String> {
    const PATIENCE: Duration = Duration::from_secs(10);
    const LOOK: Duration = Duration::from_millis(200);
    let end = Instant::now() + PATIENCE.min(session.revival);
    loop {
        let text = session.client.get_text("/metrics", SHORT_TIMEOUT).await.map_err(|error| error.to_string())?;
        let busy = ["plateau_active_sequences", "plateau_queue_depth"].map(|name| metric(&text, name).unwrap_or(0.0));
        if busy == [0.0, 0.0] {
            return Ok(());
        }
        if Instant::now() >= end {
            let [active, queued] = busy;
            return Err(format!("{active} sequences run and {queued} wait although nobody asks"));
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn plots(rows: &[Row]) -> Vec<Plot> {
    let good = || rows.iter().filter(|row| row.status == "ok");
    let last = rows.last().map_or(0, |row| row.session);
    let of_session = |n: usize| -> Vec<(f64, f64)> {
        good().filter(|row| row.session == n).filter_map(|row| Some((row.turn as f64, row.ttft_ms?))).collect()
    };
    let over_time = |of: fn(&Row) -> Option<f64>| -> Vec<(f64, f64)> {
        rows.iter().filter_map(|row| Some((row.t_ms as f64 / 1000.0, of(row)?))).collect()
    };
    let depth = good().filter_map(|row| Some((row.prompt_tokens? as f64, row.decode_tps?)));
    let mut depth: Vec<(f64, f64)> = depth.collect();
    depth.sort_by(|a, b| a.0.total_cmp(&b.0));
    let plot = |title: &str, x: &str, y: &str, lines: Vec<(String, Vec<(f64, f64)>)>| Plot {
        title: title.to_owned(),
        x: x.to_owned(),
        y: y.to_owned(),
        lines,
    };
    let name = |n: usize| (format!("session {n}"), of_session(n));
    vec![
        plot("Time to the first token over turns", "turn", "ms", vec![name(1), name(last)]),
        plot(
            "Memory over time",
            "seconds",
            "MiB used",
            vec![
                ("after".to_owned(), over_time(|row| row.gpu_after_mib)),
                ("host".to_owned(), over_time(|row| row.host_mib)),
            ],
        ),
        plot("Decode over depth", "tokens of the prompt", "tokens a second", vec![(String::new(), depth)]),
    ]
}
