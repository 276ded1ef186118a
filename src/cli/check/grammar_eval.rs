//! `plateau check grammar-eval`: its command line, and where its report goes.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use super::report::{Report, code};
use super::target::Target;
use crate::app::{self, Failure};
use crate::check::grammar_eval::{self, CheckError, Condition, Dialect, Limits, Options, SHAPES};

#[derive(Debug, clap::Args)]
pub struct GrammarEvalArgs {
    #[command(flatten)]
    target: Target,
    /// Problems: JSONL in the form of HumanEval (task_id, prompt, entry_point, test)
    #[arg(long, value_name = "FILE")]
    problems: PathBuf,
    /// Take the first problems alone
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// Condition to compare; may be given several times: free, terse, off, budget, reference (the file's own solutions), or
    /// a name of `plateau grammar list` [default: free, terse, off and every grammar]
    #[arg(long = "condition", value_name = "NAME", value_parser = condition)]
    conditions: Vec<Condition>,
    /// How the server takes a grammar: `thinking` (plateau), `grammar` (llama-server), `structured-outputs` (vLLM)
    #[arg(long, value_name = "DIALECT", value_parser = dialect, default_value = "thinking")]
    grammar_as: Dialect,
    /// Tokens of thinking under a grammar, and under the condition budget
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    budget_tokens: Option<u32>,
    /// Tokens of thinking and answer together
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: u32,
    /// Temperature; 0 is greedy
    #[arg(long, value_name = "T", default_value_t = 0.0)]
    temperature: f64,
    /// Requests at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    concurrency: u32,
    /// Seconds that a request may take
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..))]
    timeout: u32,
    /// Where results are kept and added to
    #[arg(long, value_name = "FILE", default_value = "grammar-eval.jsonl")]
    results: PathBuf,
    /// Write the report as JSON too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Python that runs the answers
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: String,
    /// Seconds of processor time that a program may use
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    cpu_seconds: u32,
    /// Seconds that a program may take
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    wall_seconds: u32,
    /// Memory that a program may use, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(64..))]
    memory_mib: u32,
}

fn condition(name: &str) -> Result<Condition, String> {
    Condition::find(name).ok_or_else(|| {
        let shapes: Vec<&str> = SHAPES.iter().map(|shape| shape.name).collect();
        format!("not one of free, terse, off, budget, reference, {}", shapes.join(", "))
    })
}

fn dialect(name: &str) -> Result<Dialect, String> {
    let all = [Dialect::Thinking, Dialect::Grammar, Dialect::StructuredOutputs];
    let found = all.into_iter().find(|dialect| dialect.name() == name);
    found.ok_or_else(|| "not one of thinking, grammar, structured-outputs".to_owned())
}

impl GrammarEvalArgs {
    fn options(&self) -> Result<Options, Failure> {
        let mut conditions: Vec<Condition> = Vec::new();
        for condition in &self.conditions {
            if !conditions.contains(condition) {
                conditions.push(*condition);
            }
        }
        if !(0.0..=2.0).contains(&self.temperature) {
            return Err(Failure::Usage(format!("--temperature {} is not from 0 to 2", self.temperature)));
        }
        Ok(Options {
            url: self.target.url.clone(),
            model: self.target.model.clone(),
            key: self.target.key()?,
            problems: self.problems.clone(),
            limit: self.limit.map(|n| n as usize),
            conditions: if conditions.is_empty() { Condition::standard() } else { conditions },
            dialect: self.grammar_as,
            budget_tokens: self.budget_tokens,
            max_tokens: self.max_tokens,
            temperature: self.temperature,
            concurrency: self.concurrency as usize,
            timeout: Duration::from_secs(self.timeout.into()),
            journal: self.results.clone(),
            python: self.python.clone(),
            limits: Limits {
                cpu_seconds: self.cpu_seconds,
                wall_seconds: self.wall_seconds,
                memory_bytes: u64::from(self.memory_mib) << 20,
            },
        })
    }
}

/// The report as Markdown, and whether the check found no fault.
pub fn run(args: &GrammarEvalArgs) -> Result<Report, Failure> {
    let options = args.options()?;
    let progress = |line: &str| _ = writeln!(std::io::stderr(), "{line}");
    let report = app::runtime()?.block_on(grammar_eval::run(&options, progress)).map_err(failure)?;
    if let Some(path) = &args.json {
        write_json(path, &report)?;
    }
    Ok(Report { text: report.markdown(), code: code(report.is_clean()) })
}

fn write_json(path: &std::path::Path, report: &grammar_eval::Report) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(report).map_err(|error| Failure::Internal(error.to_string()))?;
    std::fs::write(path, text + "\n")
        .map_err(|error| Failure::Unavailable(format!("cannot write {}: {error}", path.display())))
}

fn failure(error: CheckError) -> Failure {
    let text = error.to_string();
    match error {
        CheckError::Usage(_) => Failure::Usage(text),
        CheckError::Malformed { .. } => Failure::Malformed(text),
        _ => Failure::Unavailable(text),
    }
}
