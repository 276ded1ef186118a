//! `plateau check`: judge a server over HTTP, ours or another.

pub mod bench;
mod grammar_eval;
mod live;
mod long;
mod machine;
mod report;
mod run;
mod target;

use std::io::Write as _;

use serde_json::json;

use run::RunArgs;
use target::Target;

use crate::app::{self, Failure};
use crate::check::cache::{self, Sweep};
use crate::check::client::ClientError;
use crate::check::full::{self, Extent};

use report::{Report, code};

#[derive(Debug, clap::Subcommand)]
pub enum CheckCommand {
    /// Is a cached answer the cold one, at every prompt length?
    ///
    /// Asks each prompt three times: to fill the cache, from the cache, and with cache_prompt off. Run it while nobody else uses
    /// the server. Exit code 1 when answers differ or there is no verdict.
    Cache {
        #[command(flatten)]
        target: Target,
        /// Words of the shortest prompt, about a token each
        #[arg(long, value_name = "WORDS", default_value_t = 1)]
        from: usize,
        /// Words of the longest prompt
        #[arg(long, value_name = "WORDS", default_value_t = 512)]
        to: usize,
        /// Distance of the lengths
        #[arg(long, value_name = "WORDS", default_value_t = 1)]
        step: usize,
        /// Tokens to generate for each
        #[arg(long, value_name = "TOKENS", default_value_t = 8)]
        max_tokens: usize,
    },
    /// Does bounded thinking cost answers? Code problems under several conditions, on any OpenAI-compatible server
    ///
    /// The answers are executed, in a child process with limits, so trust the model or run this in a container. Results are
    /// kept as they come: the same command goes on where it stopped. Exit code 1 when a grammar did not hold or a request
    /// got no answer.
    GrammarEval(grammar_eval::GrammarEvalArgs),
    /// Does the server answer, call a tool and stream? Four checks, seconds
    ///
    /// Works on plateau, llama-server, vLLM, SGLang or another server with OpenAI's chat API. Exit code 1 when a check failed
    /// or one that is needed could not be made, 69 when the server cannot be reached.
    Quick(RunArgs),
    /// The checks of quick, and thinking, streamed calls, a long answer, drafts, kernels: nine, a minute or two
    ///
    /// Works on plateau, llama-server, vLLM, SGLang or another server with OpenAI's chat API. What a server does not tell is
    /// skipped with the reason. Exit code 1 when a check failed or one that is needed could not be made, 69 when the server
    /// cannot be reached or was lost.
    Full(RunArgs),
    /// Does the context that boots also fill? Prompts up to its end, and the memory that is left after each
    ///
    /// Prints two verdicts: BOUNDARY (memory and sizes) and RECALL (was a fact found again). The rungs are kept as they come:
    /// the same command with the same --results goes on after the last whole one. A server that hits a wall is never
    /// restarted. Exit code 1 unless the boundary passed, 69 when the server was lost.
    Ceiling(long::CeilingArgs),
    /// What agents do to a server: needles, large results of tools, many tools, long reasoning, and the ladder of ceiling
    ///
    /// Takes 10 to 20 minutes on a GPU, and leaves out what does not fit the context.
    Stress(long::StressArgs),
    /// The same work again and again: growth of memory, loss of speed, empty answers, time to the first token
    ///
    /// Keeps a row a turn in ledger.csv, and a summary. Without a reading of memory the run is inconclusive.
    Soak(long::SoakArgs),
}

pub fn run(command: &CheckCommand) -> Result<Report, Failure> {
    match command {
        CheckCommand::GrammarEval(args) => grammar_eval::run(args),
        CheckCommand::Quick(args) => full(args, Extent::Quick),
        CheckCommand::Full(args) => full(args, Extent::Full),
        CheckCommand::Ceiling(args) => long::ceiling(args),
        CheckCommand::Stress(args) => long::stress(args),
        CheckCommand::Soak(args) => long::soak(args),
        CheckCommand::Cache { target, from, to, step, max_tokens } => {
            let client = target.client()?;
            let sweep = Sweep { from: (*from).max(1), to: *to, step: *step, max_tokens: *max_tokens };
            let mut progress = |n: usize| {
                if n.is_multiple_of(64) {
                    // Only a sign of life.
                    let _ = writeln!(std::io::stderr(), "{n} of {to}");
                }
            };
            let outcome = app::runtime()?.block_on(cache::sweep(&client, sweep, &mut progress)).map_err(failure)?;
            Ok(Report { text: outcome.report(), code: code(outcome.passed()) })
        }
    }
}

fn full(args: &RunArgs, extent: Extent) -> Result<Report, Failure> {
    let command = if extent == Extent::Quick { "check quick" } else { "check full" };
    run::run(args, command, json!({}), async |session, run| full::run(session, run, extent).await)
}

fn failure(error: ClientError) -> Failure {
    Failure::Unavailable(error.to_string())
}
