//! The command line: what can be typed, and which part of the program answers. Settings are not listed here: their flags are
//! generated from the table in `config` (`flags`).

mod cache;
mod check;
pub mod doctor;
mod flags;
mod grammar;
mod inspect;
mod profiles;
pub mod reference;
mod run;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::app::{self, Failure, StartOptions, terminal};
use crate::config::env;
use crate::gguf::{Gguf, GgufError};
use crate::telemetry::{LogFormat, start_logging};

pub use flags::SettingFlags;

const EXIT_CODES: &str = "Exit codes: 0 done, 1 a check found a fault, 64 wrong usage or configuration, 65 malformed model file or grammar, 69 the model does not \
    fit or something is unavailable, 70 internal error.";

/// Serves one hybrid language model from one GPU, or from none, through the OpenAI API.
#[derive(Debug, Parser)]
#[command(name = "plateau", version = app::version(), after_help = EXIT_CODES, max_term_width = 120)]
pub struct Cli {
    /// What to log: a level (error, warn, info, debug, trace) or a filter such as `info,plateau=debug`
    /// [env: PLATEAU_LOG] [default: info for serve, warn otherwise]
    #[arg(long, global = true, value_name = "FILTER", help_heading = "Logging")]
    log: Option<String>,
    /// Log one JSON object a line [env: PLATEAU_LOG_JSON=true]
    #[arg(long, global = true, help_heading = "Logging")]
    log_json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Load a model and serve it over HTTP until interrupted
    ///
    /// Without --model the embedded demo model is served. The port is opened only after the model is loaded. What cannot fit
    /// with a full context is refused with the memory plan and with what would fit. The first SIGINT or SIGTERM lets running
    /// answers end (server.grace_seconds), the second ends them at their next step, the third stops at once.
    Serve {
        #[command(flatten)]
        settings: SettingFlags,
        #[command(flatten)]
        options: StartOptions,
    },
    /// Chat with a model in this terminal, without a server
    ///
    /// With a prompt (or text on standard input): one answer, then the end. Without: a conversation; /reset forgets it, /exit
    /// or an end of file leaves it, Ctrl-C stops an answer. Thinking is shown dim on standard error.
    Run(run::RunArgs),
    /// List, show and check profiles
    #[command(subcommand)]
    Profile(ProfileCommand),
    /// Judge a running server, ours or another, by what it answers
    #[command(subcommand)]
    Check(check::CheckCommand),
    /// Measure decode and prefill of a running server, ours or another, or of two in turns
    ///
    /// Narrative and code, warm-up first, then prefill at depths. With --against each round asks both servers and the order
    /// changes; the ratio is printed with its extremes. Spreads above 5 % and falling clocks are said. Exit code 1 when a
    /// measurement failed, 69 when a server cannot be reached.
    Bench(check::bench::BenchArgs),
    /// List, show and check grammars
    #[command(subcommand)]
    Grammar(grammar::GrammarCommand),
    /// Look at the prefix cache: what is saved, and why requests processed what they did
    #[command(subcommand)]
    Cache(cache::CacheCommand),
    /// Report machine, backends, GPUs and model, and whether the profile fits
    ///
    /// Reads the model's header only. Exit code 0 when it fits, 69 when it does not.
    Doctor {
        #[command(flatten)]
        settings: SettingFlags,
    },
    /// Check a GGUF file's header and print what it says
    ///
    /// Exit code 65 with the byte offset when the file is malformed.
    InspectGguf {
        /// The file (the first part of a split model)
        file: PathBuf,
        /// List every tensor
        #[arg(long)]
        tensors: bool,
    },
}

#[derive(Debug, Subcommand)]
enum ProfileCommand {
    /// List the built-in profiles
    List,
    /// Print every value of a profile with the place that it comes from
    Show(ProfileArgs),
    /// Validate a profile without starting anything
    Check(ProfileArgs),
}

#[derive(Debug, clap::Args)]
struct ProfileArgs {
    /// Built-in profile or path of a profile file; the same as --profile
    #[arg(value_name = "NAME|FILE", conflicts_with = "profile")]
    name: Option<String>,
    #[command(flatten)]
    settings: SettingFlags,
}

impl ProfileArgs {
    fn flags(&self) -> SettingFlags {
        let mut flags = self.settings.clone();
        flags.profile = self.name.clone().or(flags.profile);
        flags
    }
}

/// Parses the process's arguments, runs the command, maps its failure to an exit code.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors; clap prints them to standard output.
            let code = if error.use_stderr() { Failure::USAGE } else { 0 };
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    let env = env::variables();
    match cli.log_as(&env).and_then(|()| cli.command.run(&env)) {
        Ok(code) => code,
        Err(failure) => {
            let _ = writeln!(std::io::stderr(), "plateau: {failure}");
            if let Failure::Stuck(_) = failure {
                app::leave(failure.exit_code());
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

impl Cli {
    fn log_as(&self, env: &[env::Variable]) -> Result<(), Failure> {
        let default = if matches!(self.command, Command::Serve { .. }) { "info" } else { "warn" };
        let filter = self.log.as_deref().or(env::value(env, env::LOG)).unwrap_or(default);
        let json = self.log_json || env::value(env, env::LOG_JSON) == Some("true");
        let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr()) && !env::no_color();
        let format = if json { LogFormat::Json } else { LogFormat::Text { ansi } };
        start_logging(filter, format).map_err(|e| Failure::Usage(e.to_string()))
    }
}

impl Command {
    fn run(&self, env: &[env::Variable]) -> Result<ExitCode, Failure> {
        match self {
            Command::Serve { settings, options } => {
                app::serve(settings.resolve(env)?.profile, options).map(|()| ExitCode::SUCCESS)
            }
            Command::Run(args) => run::run(args, env).map(|()| ExitCode::SUCCESS),
            Command::Profile(ProfileCommand::List) => print(&profiles::list()?),
            Command::Profile(ProfileCommand::Show(args)) => print(&profiles::show(&args.flags(), env)?),
            Command::Profile(ProfileCommand::Check(args)) => print(&profiles::check(&args.flags(), env)?),
            Command::Grammar(command) => match grammar::run(command)? {
                grammar::Report::Fine(text) => print(&text),
                grammar::Report::Wrong(text) => {
                    let _ = write!(std::io::stderr(), "{text}");
                    Ok(ExitCode::from(Failure::MALFORMED))
                }
            },
            Command::Cache(command) => {
                let report = cache::run(command)?;
                print(&report.text)?;
                Ok(ExitCode::from(if report.fine { 0 } else { Failure::MALFORMED }))
            }
            Command::Check(command) => {
                let report = check::run(command)?;
                print(&report.text)?;
                Ok(ExitCode::from(report.code))
            }
            Command::Bench(args) => {
                let report = check::bench::run(args)?;
                print(&report.text)?;
                Ok(ExitCode::from(report.code))
            }
            Command::Doctor { settings } => {
                let report = doctor::report(&settings.resolve(env)?.profile)?;
                print(&report.text)?;
                Ok(ExitCode::from(if report.fits { 0 } else { Failure::UNAVAILABLE }))
            }
            Command::InspectGguf { file, tensors } => match Gguf::open(file) {
                Ok(gguf) => print(&inspect::report(&gguf, *tensors)),
                Err(GgufError::Io { path, source }) => {
                    Err(Failure::Unavailable(format!("cannot read {path}: {source}")))
                }
                Err(malformed) => Err(Failure::Malformed(format!("{}: {malformed}", file.display()))),
            },
        }
    }
}

fn print(text: &str) -> Result<ExitCode, Failure> {
    terminal::say(text).map(|()| ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn serve(args: &[&str]) -> SettingFlags {
        let args = ["plateau", "serve"].iter().chain(args);
        let Command::Serve { settings, .. } = Cli::try_parse_from(args).unwrap().command else { panic!("not serve") };
        settings
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn long_and_short_names_set_the_same_setting() {
        for flag in ["--engine-ctx-tokens", "--ctx-tokens", "--ctx"] {
            let given = serve(&[flag, "4096"]).given;
            assert_eq!((given.len(), given[0].key, given[0].text.as_str()), (1, "engine.ctx_tokens", "4096"));
        }
        assert_eq!(serve(&["--model", "x.gguf"]).given[0].key, "model.path");
    }

    #[test]
    fn the_last_of_two_equal_flags_holds() {
        assert_eq!(serve(&["--port", "1", "--server-port=2"]).given[0].text, "2");
    }

    #[test]
    fn negative_values_are_values() {
        assert_eq!(serve(&["--sampling-penalty-last-n", "-1"]).given[0].text, "-1");
    }

    #[test]
    fn every_argument_has_a_help_text() {
        let mut open = vec![Cli::command()];
        while let Some(command) = open.pop() {
            assert!(command.get_about().is_some(), "{}", command.get_name());
            for arg in command.get_arguments() {
                assert!(arg.get_help().is_some(), "{} of {}", arg.get_id(), command.get_name());
            }
            open.extend(command.get_subcommands().cloned());
        }
    }
}
