//! `plateau check grammar-eval`: does bounded thinking cost answers? The same code problems under several conditions (free
//! thinking, a prompt that asks for brevity, none, each shipped grammar), the answers executed, the differences tested.
//!
//! One greedy answer a problem and condition. Every result is written down at once, so that a run that was killed goes on
//! where it stopped. What it deliberately does not do: start a server, or compare models.

mod code;
mod condition;
mod error;
mod job;
mod journal;
mod markdown;
mod options;
mod problem;
mod record;
mod report;
mod sandbox;
mod shape;
mod statistics;

use std::collections::HashSet;

use futures_util::StreamExt;

use super::client::Client;
use job::{Bench, Job};
use journal::Journal;
use sandbox::Sandbox;

pub use condition::{Condition, Dialect};
pub use error::CheckError;
pub use options::Options;
pub use problem::Problem;
pub use record::{Outcome, Record};
pub use report::Report;
pub use sandbox::Limits;
pub use shape::{SHAPES, Shape};

/// Requests in a row that fail before the run stops: the server is gone.
const MAX_FAULTS_IN_A_ROW: usize = 8;

/// Runs what is not done yet and reports on all. `progress` gets a line after each result.
///
/// # Errors
/// What cannot be read, a server that cannot be reached or does not answer any more, a journal of other settings, and a
/// Python that does not run.
pub async fn run(options: &Options, progress: impl Fn(&str)) -> Result<Report, CheckError> {
    let problems = problem::read(&options.problems, options.limit)?;
    let client =
        Client::new(&options.url, options.key.clone()).map_err(|error| CheckError::Usage(error.to_string()))?;
    let model = match (&options.model, options.conditions.iter().any(|condition| condition.needs_server())) {
        (Some(model), _) => model.clone(),
        (None, true) => job::first_model(&client, options.timeout).await?,
        (None, false) => String::new(),
    };
    let sandbox = Sandbox::find(&options.python, options.limits).await?;
    let settings = journal::Settings::of(options, &model, &problems);
    let (mut journal, mut records) = Journal::open(&options.journal, &settings)?;
    let done: HashSet<(String, String)> =
        records.iter().filter(|record| record.outcome != Outcome::Error).map(Record::key).collect();
    let jobs: Vec<Job> = problems
        .iter()
        .flat_map(|problem| options.conditions.iter().map(move |condition| Job { problem, condition: *condition }))
        .filter(|job| !done.contains(&job.key()))
        .collect();
    progress(&format!("{} results are there, {} to do", done.len(), jobs.len()));
    let bench = Bench { options, client: &client, sandbox: &sandbox, model: &model };
    let (total, mut faults) = (jobs.len(), 0);
    let mut results =
        futures_util::stream::iter(jobs.iter().map(|job| bench.run(job))).buffer_unordered(options.concurrency);
    let mut at = 0;
    while let Some(record) = results.next().await {
        at += 1;
        journal.add(&record)?;
        progress(&format!("{at}/{total} {}", record.line()));
        faults = if record.outcome == Outcome::Error { faults + 1 } else { 0 };
        let last = record.detail.clone();
        records.push(record);
        if faults >= MAX_FAULTS_IN_A_ROW {
            return Err(CheckError::Gone { faults, last });
        }
    }
    Ok(Report::new(settings, sandbox.guards(), &problems, records))
}
