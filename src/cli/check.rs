//! `plateau check`: judge a server over HTTP, ours or another.

mod grammar_eval;
mod report;

use std::io::Write as _;

use crate::app::Failure;
use crate::check::cache::{self, Sweep};
use crate::check::client::{Client, ClientError};

use report::Report;

#[derive(Debug, clap::Subcommand)]
pub enum CheckCommand {
    /// Is a cached answer the cold one, at every prompt length?
    ///
    /// Asks each prompt three times: to fill the cache, from the cache, and with cache_prompt off. Run it while nobody else uses
    /// the server. Exit code 1 when answers differ or there is no verdict.
    Cache {
        /// Root of the server
        #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8020")]
        url: String,
        /// The server's key
        #[arg(long, value_name = "KEY")]
        key: Option<String>,
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
}

pub fn run(command: &CheckCommand) -> Result<Report, Failure> {
    match command {
        CheckCommand::GrammarEval(args) => grammar_eval::run(args),
        CheckCommand::Cache { url, key, from, to, step, max_tokens } => {
            let client = Client::new(url, key.clone()).map_err(|error| Failure::Usage(error.to_string()))?;
            let sweep = Sweep { from: (*from).max(1), to: *to, step: *step, max_tokens: *max_tokens };
            let mut progress = |n: usize| {
                if n.is_multiple_of(64) {
                    // Only a sign of life.
                    let _ = writeln!(std::io::stderr(), "{n} of {to}");
                }
            };
            let outcome = cache::sweep(&client, sweep, &mut progress).map_err(failure)?;
            Ok(Report { text: outcome.report(), passed: outcome.passed() })
        }
    }
}

fn failure(error: ClientError) -> Failure {
    Failure::Unavailable(error.to_string())
}
