//! A run of a check from the command line: its server, its memory, where its results go, Ctrl-C, exit codes.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::live::Live;
use super::machine::{self, Which};
use super::report::Report;
use super::target::Target;
use crate::app::{self, Failure};
use crate::check::client::ClientError;
use crate::check::facts::Facts;
use crate::check::results::RunError;
use crate::check::run::{Outputs, Run};
use crate::check::session::Session;
use crate::check::verdict::{self, Verdict};

/// What every run takes.
#[derive(Clone, Debug, clap::Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub target: Target,
    /// Tokens of the server's context, where it does not state them
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(1..))]
    pub ctx: Option<u64>,
    /// Folder of the results; a run of other settings in it is not overwritten
    /// [default: plateau-results/TIME-COMMAND]
    #[arg(long, value_name = "FOLDER")]
    results: Option<PathBuf>,
    /// Write the report as JSON, too (schema plateau-check/1)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report as one HTML page with plots, too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Whose memory to watch
    #[arg(long, value_enum, default_value_t = Which::Auto)]
    memory: Which,
    /// Number of the GPU whose memory is watched [default: the largest]
    #[arg(long, value_name = "N")]
    pub gpu: Option<u32>,
    /// Multiplies all time limits
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    timeout_scale: f64,
    /// Repeat the prompts of a run
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
}

impl RunArgs {
    fn settings(&self, more: Value) -> Value {
        let mut settings = json!({
            "url": self.target.url, "model": self.target.model, "ctx": self.ctx, "seed": self.seed,
            "timeout_scale": self.timeout_scale, "memory": format!("{:?}", self.memory).to_lowercase(),
        });
        if let (Some(settings), Value::Object(more)) = (settings.as_object_mut(), more) {
            settings.extend(more);
        }
        settings
    }
}

/// Does the work against the server that the arguments name. Ctrl-C ends it, and what was measured is kept.
pub fn run(
    args: &RunArgs,
    command: &str,
    settings: Value,
    work: impl AsyncFnOnce(&mut Session<'_>, &mut Run) -> Result<(), RunError>,
) -> Result<Report, Failure> {
    if !(args.timeout_scale.is_finite() && args.timeout_scale > 0.0) {
        return Err(Failure::Usage(format!("--timeout-scale {} is not above 0", args.timeout_scale)));
    }
    let client = args.target.client()?;
    let report = verdict::Report::new(command, args.settings(settings));
    let outputs = Outputs { results: args.results.clone(), json: args.json.clone(), html: args.html.clone() };
    let live = Live::new();
    let report = app::runtime()?.block_on(async {
        let facts = Facts::ask(&client, args.target.model.as_deref(), args.ctx).await.map_err(unreachable)?;
        let memory = machine::memory(args.memory, args.gpu, &client, &facts).await;
        let mut run = Run::begin(report, outputs).map_err(failure)?;
        let seed = args.seed.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0);
        run.report.server = facts.json();
        run.report.rig = machine::rig(&client, &facts, args.gpu);
        run.report.measured = json!({"seed": seed, "memory_source": memory.source()});
        let mut session = Session::new(client, facts, memory, &live, seed);
        session.timeout_scale = args.timeout_scale;
        session.host = machine::process_memory(&session.client).map(|(_, read)| read);
        let interrupted = tokio::select! {
            done = work(&mut session, &mut run) => { done.map_err(failure)?; false }
            _ = tokio::signal::ctrl_c() => true,
        };
        run.report.server = session.facts.json();
        let dir = run.results.dir().display().to_string();
        let mut report = run.finish(interrupted).map_err(failure)?;
        report.notes.push(format!("results: {dir}"));
        Ok::<_, Failure>(report)
    })?;
    drop(live);
    let code = match (report.lost, report.verdict) {
        (true, _) => Failure::UNAVAILABLE,
        (_, Verdict::Pass) => 0,
        _ => Failure::FAULT,
    };
    Ok(Report { text: report.text(), code })
}

fn unreachable(error: ClientError) -> Failure {
    match error {
        ClientError::Url(_) => Failure::Usage(error.to_string()),
        error => Failure::Unavailable(error.to_string()),
    }
}

fn failure(error: RunError) -> Failure {
    match error {
        RunError::Usage(text) => Failure::Usage(text),
        RunError::Unavailable(text) => Failure::Unavailable(text),
        RunError::Internal(text) => Failure::Internal(text),
    }
}
