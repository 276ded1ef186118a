//! The command lines of the checks that take long: ceiling, stress, soak.

use super::report::Report;
use super::run::{self, RunArgs};
use crate::app::Failure;
use crate::check::ceiling::{self, Ladder};
use crate::check::soak::{self, Mode, Soak};
use crate::check::stress::{self, Stress};

#[derive(Clone, Debug, clap::Args)]
pub struct CeilingArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Tokens of the first prompt
    #[arg(long, value_name = "TOKENS", default_value_t = 95_000, value_parser = clap::value_parser!(u64).range(1..))]
    from: u64,
    /// Tokens between two prompts
    #[arg(long, value_name = "TOKENS", default_value_t = 30_000, value_parser = clap::value_parser!(u64).range(1..))]
    step: u64,
    /// Share of the context that the last prompt has
    #[arg(long, value_name = "SHARE", default_value_t = 0.92)]
    fraction: f64,
    /// Memory that must stay free
    #[arg(long, value_name = "MIB", default_value_t = 1024.0)]
    margin_mib: f64,
    /// The first and the last prompt only
    #[arg(long)]
    fast: bool,
}

#[derive(Clone, Debug, clap::Args)]
pub struct StressArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Without the needles of 60K and 90K, and with two prompts of the ladder
    #[arg(long)]
    fast: bool,
    /// Characters of the large result of a tool
    #[arg(long, value_name = "CHARACTERS", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    tool_chars: u32,
    /// Memory that must stay free on the ladder
    #[arg(long, value_name = "MIB", default_value_t = 1024.0)]
    margin_mib: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ModeArg {
    /// One conversation a session, grown by results of tools to 22-25K tokens
    Continuous,
    /// Requests that have nothing to do with one another
    Fresh,
}

#[derive(Clone, Debug, clap::Args)]
pub struct SoakArgs {
    #[command(flatten)]
    run: RunArgs,
    /// What a session is
    #[arg(long, value_enum, default_value_t = ModeArg::Continuous)]
    mode: ModeArg,
    /// Sessions [default: 5, or 20 of fresh requests]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    sessions: Option<u32>,
    /// Turns of a session
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    turns: u32,
    /// Go on with sessions for so long
    #[arg(long, value_name = "HOURS")]
    hours: Option<f64>,
    /// Growth of memory that fails
    #[arg(long, value_name = "MIB", default_value_t = 200.0)]
    growth_mib: f64,
    /// Share of the decode rate that must last
    #[arg(long, value_name = "SHARE", default_value_t = 0.80)]
    retention: f64,
    /// Tokens that the last turn of a conversation has [default: what its results bring, 22-25K]
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(1500..))]
    depth_tokens: Option<u64>,
    /// Share of requests whose stream is dropped
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    aborts: f64,
}

fn share(name: &str, value: f64, least: f64) -> Result<f64, Failure> {
    let is_one = value >= least && value <= 1.0;
    if is_one { Ok(value) } else { Err(Failure::Usage(format!("--{name} {value} is not from {least} to 1"))) }
}

fn amount(name: &str, value: f64) -> Result<f64, Failure> {
    let is_one = value.is_finite() && value >= 0.0;
    if is_one { Ok(value) } else { Err(Failure::Usage(format!("--{name} {value} is not 0 or more"))) }
}

pub fn ceiling(args: &CeilingArgs) -> Result<Report, Failure> {
    let ladder = Ladder {
        from: args.from,
        step: args.step,
        fraction: share("fraction", args.fraction, 0.01)?,
        margin_mib: amount("margin-mib", args.margin_mib)?,
        fast: args.fast,
    };
    run::run(&args.run, "check ceiling", ladder.settings(), async |session, run| {
        ceiling::run(session, run, &ladder).await
    })
}

pub fn stress(args: &StressArgs) -> Result<Report, Failure> {
    let margin_mib = amount("margin-mib", args.margin_mib)?;
    let ladder = Ladder { margin_mib, ..Ladder::default() };
    let stress = Stress { fast: args.fast, tool_chars: args.tool_chars as usize, ladder };
    run::run(&args.run, "check stress", stress.settings(), async |session, run| {
        stress::run(session, run, &stress).await
    })
}

pub fn soak(args: &SoakArgs) -> Result<Report, Failure> {
    let mode = match args.mode {
        ModeArg::Continuous => Mode::Continuous,
        ModeArg::Fresh => Mode::Fresh,
    };
    let standard = Soak::new(mode);
    let soak = Soak {
        sessions: args.sessions.map_or(standard.sessions, |n| n as usize),
        turns: args.turns as usize,
        hours: args.hours.map(|hours| amount("hours", hours)).transpose()?,
        growth_mib: amount("growth-mib", args.growth_mib)?,
        retention: share("retention", args.retention, 0.0)?,
        depth_tokens: args.depth_tokens,
        aborts: share("aborts", args.aborts, 0.0)?,
        ..standard
    };
    run::run(&args.run, "check soak", soak.settings(), async |session, run| soak::run(session, run, &soak).await)
}
