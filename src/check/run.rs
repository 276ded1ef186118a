//! A run in progress: what is measured is written down at once, so that whatever ends the run, it is kept.

use std::path::PathBuf;
use std::time::Instant;

use super::results::{Results, RunError, write_json, write_whole};
use super::session::Session;
use super::verdict::{Check, Report};
use super::{client::ClientError, html};

/// The report as it grows, and where it goes.
pub struct Run {
    pub report: Report,
    pub results: Results,
    json: Option<PathBuf>,
    html: Option<PathBuf>,
    start: Instant,
}

/// Files beside the folder of results.
#[derive(Clone, Debug, Default)]
pub struct Outputs {
    pub results: Option<PathBuf>,
    pub json: Option<PathBuf>,
    pub html: Option<PathBuf>,
}

impl Run {
    /// # Errors
    /// A folder of another run, or one that cannot be written.
    pub fn begin(report: Report, outputs: Outputs) -> Result<Run, RunError> {
        let results = Results::open(outputs.results.as_deref(), &report)?;
        let run = Run { report, results, json: outputs.json, html: outputs.html, start: Instant::now() };
        run.results.write_report(&run.report)?;
        Ok(run)
    }

    /// Takes up a check's result, shows it and writes it down.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn add(&mut self, session: &Session<'_>, check: Check, since: Instant) -> Result<(), RunError> {
        let check = Check { seconds: since.elapsed().as_secs_f64(), ..check };
        session.progress.line(&format!("{:<4}  {}  {}", check.status.word(), check.name, check.detail));
        self.report.server = session.facts.json();
        self.report.checks.push(check);
        self.keep()
    }

    /// # Errors
    /// A file that cannot be written.
    pub fn keep(&mut self) -> Result<(), RunError> {
        self.report.seconds = self.start.elapsed().as_secs_f64();
        self.report.verdict = self.report.judge();
        self.results.write_report(&self.report)
    }

    /// After a request that failed: is there a server for the next one? Notes it where there is none.
    pub async fn goes_on(&mut self, session: &Session<'_>, error: &ClientError) -> bool {
        if error.is_lost() && !session.is_back().await {
            self.report.lost = true;
        }
        !self.report.lost
    }

    /// The end, by itself or by Ctrl-C: verdict, and the files that were asked for.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn finish(mut self, interrupted: bool) -> Result<Report, RunError> {
        self.report.interrupted = interrupted;
        self.keep()?;
        if let Some(path) = &self.json {
            write_json(path, &self.report)?;
        }
        if let Some(path) = &self.html {
            write_whole(path, &html::page(&self.report))?;
        }
        Ok(self.report)
    }
}
