//! `plateau bench`: its command line, and the row of the table.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::machine;
use super::report::Report;
use super::run::{self, RunArgs};
use crate::app::Failure;
use crate::check::bench::{self, Bench, RowFacts};
use crate::check::client::Client;
use crate::check::facts::Facts;
use crate::check::memory::Memory;
use crate::check::results::RunError;
use crate::check::session::Session;
use crate::config::resolve;
use crate::config::resolve::Layers;

/// Where the results of other checks of the same server are looked for.
const RESULTS_ROOT: &str = "plateau-results";

#[derive(Clone, Debug, clap::Args)]
pub struct BenchArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Measured runs of each task
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Runs before them that do not count
    #[arg(long, value_name = "N", default_value_t = 3)]
    warm: u32,
    /// Tokens of prompts whose prefill is measured; 0 is a short one
    #[arg(long, value_name = "TOKENS,..", value_delimiter = ',', default_values_t = [0, 10_000, 90_000])]
    depths: Vec<u64>,
    /// Another server, asked in turns with the first one
    #[arg(long, value_name = "URL")]
    against: Option<String>,
    /// Model to name to the other server [default: the first that it lists]
    #[arg(long, value_name = "NAME", requires = "against")]
    against_model: Option<String>,
    /// Add a row of Markdown to this file
    #[arg(long, value_name = "FILE")]
    row: Option<PathBuf>,
    /// Profile of the server, for the row [default: what the server says]
    #[arg(long, value_name = "NAME|FILE")]
    profile: Option<String>,
}

pub fn run(args: &BenchArgs) -> Result<Report, Failure> {
    let bench = Bench { runs: args.runs as usize, warm: args.warm as usize, depths: args.depths.clone() };
    // A row that names a profile that does not exist would be a dead path: found before anything is measured.
    let named = args.profile.as_deref().map(|name| Ok::<_, Failure>((name.to_owned(), kv(name)?))).transpose()?;
    let other = match &args.against {
        Some(url) => {
            let client = Client::new(url, args.run.target.key()?);
            Some(client.map_err(|error| Failure::Usage(error.to_string()))?)
        }
        None => None,
    };
    let mut settings = bench.settings();
    settings["against"] = json!(args.against);
    run::run(&args.run, "bench", settings, async |session, run| {
        let mut other = match &other {
            Some(client) => Some(second(session, client, args.against_model.as_deref()).await?),
            None => None,
        };
        if let Some(other) = &other {
            run.report.measured["against"] = other.facts.json();
        }
        let client = session.client.clone();
        let clock = || machine::clock_mhz(&client, args.run.gpu);
        bench::run(session, other.as_mut(), run, &bench, &clock).await?;
        let Some(path) = &args.row else { return Ok(()) };
        let facts = match (&named, &session.facts.profile) {
            (Some((profile, kv)), _) => RowFacts { profile: profile.clone(), kv: kv.clone(), command: args.command() },
            (None, Some(profile)) => {
                let kv = kv(profile).unwrap_or_else(|_| "?".to_owned());
                RowFacts { profile: profile.clone(), kv, command: args.command() }
            }
            (None, None) => RowFacts { profile: "-".to_owned(), kv: "?".to_owned(), command: args.command() },
        };
        run.report.server = session.facts.json();
        bench::append_row(path, &run.report, &facts, Path::new(RESULTS_ROOT))
    })
}

impl BenchArgs {
    /// The command that repeats it.
    fn command(&self) -> String {
        let depths: Vec<String> = self.depths.iter().map(ToString::to_string).collect();
        let against = self.against.as_ref().map_or(String::new(), |url| format!(" --against {url}"));
        let (runs, warm, depths) = (self.runs, self.warm, depths.join(","));
        format!("plateau bench --runs {runs} --warm {warm} --depths {depths}{against}")
    }
}

/// Types of K and V of a profile that exists.
fn kv(profile: &str) -> Result<String, Failure> {
    let layers = Layers { profile: Some(profile.to_owned()), ..Layers::default() };
    let engine = resolve(&layers)?.profile.engine;
    Ok(format!("{}/{}", engine.cache_type_k.word(), engine.cache_type_v.word()))
}

async fn second<'a>(session: &Session<'a>, client: &Client, model: Option<&str>) -> Result<Session<'a>, RunError> {
    let facts = Facts::ask(client, model, None).await.map_err(|error| RunError::Unavailable(error.to_string()))?;
    let memory = Memory::Absent("the first server's is watched".to_owned());
    let seed = uuid::Uuid::new_v4().as_u64_pair().0;
    let mut other = Session::new(client.clone(), facts, memory, session.progress, seed);
    other.timeout_scale = session.timeout_scale;
    Ok(other)
}
