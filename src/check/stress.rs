//! `plateau check stress`: what agents do to a server on one GPU, request by request, and the ladder to the end of the
//! context.

use std::time::Instant;

use serde_json::{Value, json};

use super::ceiling::{self, Ladder, Outcome};
use super::client::ClientError;
use super::prompts;
use super::results::RunError;
use super::run::Run;
use super::session::{Ask, Session};
use super::verdict::{Check, Status};

/// Said after every run: what needles cannot show.
pub const NEEDLE_NOTE: &str = "needles do not test KV precision: at 32K all formats recall 100 % while the 99.9 % KLD tail \
    falls to 54 %: run check kld";
const SMALL_NEEDLES: [u64; 2] = [10_000, 30_000];
const LARGE_NEEDLES: [u64; 2] = [60_000, 90_000];
/// Tokens of thinking and answer that a hard question must bring.
const MIN_REASONING_TOKENS: u64 = 500;
const MIN_TOOL_ANSWER_CHARS: usize = 50;

/// How far to go.
#[derive(Clone, Debug, PartialEq)]
pub struct Stress {
    /// Without the large needles, and with two rungs of the ladder.
    pub fast: bool,
    /// Characters of the large result of a tool.
    pub tool_chars: usize,
    pub ladder: Ladder,
}

impl Default for Stress {
    fn default() -> Stress {
        Stress { fast: false, tool_chars: 100_000, ladder: Ladder::default() }
    }
}

impl Stress {
    pub fn settings(&self) -> Value {
        json!({"fast": self.fast, "tool_chars": self.tool_chars, "ladder": self.ladder.settings()})
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    SmallNeedles,
    ToolResult,
    OneShot,
    Agent,
    Coding,
    Reasoning,
    LargeNeedles,
}

impl Probe {
    const ALL: [Probe; 7] = [
        Probe::SmallNeedles,
        Probe::ToolResult,
        Probe::OneShot,
        Probe::Agent,
        Probe::Coding,
        Probe::Reasoning,
        Probe::LargeNeedles,
    ];

    fn name(self) -> &'static str {
        match self {
            Probe::SmallNeedles => "needles 10K, 30K",
            Probe::ToolResult => "large tool result",
            Probe::OneShot => "ten tools, one shot",
            Probe::Agent => "agent, several turns",
            Probe::Coding => "coding with a plan",
            Probe::Reasoning => "long reasoning",
            Probe::LargeNeedles => "needles 60K, 90K",
        }
    }
}

/// Runs the probes and the ladder.
///
/// # Errors
/// A context that nobody states, and results that cannot be written.
pub async fn run(session: &mut Session<'_>, run: &mut Run, stress: &Stress) -> Result<(), RunError> {
    let Some(n_ctx) = session.facts.n_ctx else {
        return Err(RunError::Usage("the server does not state its context; name it with --ctx".to_owned()));
    };
    run.report.notes.push(NEEDLE_NOTE.to_owned());
    run.report.not_proved.push("hours of use, growth over sessions (check soak)".to_owned());
    let probes = Probe::ALL.into_iter().filter(|probe| !(stress.fast && *probe == Probe::LargeNeedles));
    let probes: Vec<Probe> = probes.collect();
    for (i, probe) in probes.iter().enumerate() {
        session.progress.step(i, probes.len() + 1);
        session.progress.now(probe.name());
        let start = Instant::now();
        let (check, error) = match one(session, *probe, n_ctx, stress).await {
            Ok(check) => (check, None),
            Err(error) => (failed(session, probe.name(), &error), Some(error)),
        };
        run.add(session, check, start)?;
        if let Some(error) = error
            && !run.goes_on(session, &error).await
        {
            return Ok(());
        }
    }
    let ladder = Ladder { fast: stress.fast, ..stress.ladder.clone() };
    ceiling::run(session, run, &ladder).await
}

fn failed(session: &Session<'_>, name: &str, error: &ClientError) -> Check {
    Check::fail(name, session.explain(error)).with(json!({"error": error.kind()}))
}

async fn one(session: &mut Session<'_>, probe: Probe, n_ctx: u64, stress: &Stress) -> Result<Check, ClientError> {
    let name = probe.name();
    match probe {
        Probe::SmallNeedles => needles(session, name, n_ctx, SMALL_NEEDLES).await,
        Probe::LargeNeedles => needles(session, name, n_ctx, LARGE_NEEDLES).await,
        Probe::ToolResult => tool_result(session, name, n_ctx, stress.tool_chars).await,
        Probe::OneShot => {
            let ask = one_shot(session);
            answered(session, name, n_ctx, &ask).await
        }
        Probe::Agent => {
            let ask = agent(session);
            answered(session, name, n_ctx, &ask).await
        }
        Probe::Coding => {
            let ask = coding(session);
            answered(session, name, n_ctx, &ask).await
        }
        Probe::Reasoning => reasoning(session, name, n_ctx).await,
    }
}

/// The reason to leave a request out: its prompt and answer do not fit the context.
fn too_long(prompt_tokens: u64, max_tokens: u32, n_ctx: u64) -> Option<String> {
    let room = n_ctx.saturating_sub(max_tokens.into());
    (prompt_tokens > room).then(|| format!("{prompt_tokens} tokens and {max_tokens} of answer do not fit {n_ctx}"))
}

async fn needles(session: &mut Session<'_>, name: &str, n_ctx: u64, targets: [u64; 2]) -> Result<Check, ClientError> {
    const MAX_TOKENS: u32 = 30;
    if let Some(why) = too_long(targets[0], MAX_TOKENS, n_ctx) {
        return Ok(Check::absent(name, why));
    }
    let Some(unit) = ceiling::measure_unit(session).await? else {
        return Ok(Check::unknown(name, "the server does not tell the tokens of a prompt"));
    };
    let (mut texts, mut status, mut rungs) = (Vec::new(), Status::Pass, Vec::new());
    for target in targets {
        if too_long(target, MAX_TOKENS, n_ctx).is_some() {
            texts.push(format!("{target} does not fit"));
            continue;
        }
        let (rung, error) = ceiling::climb_one(session, target, &unit).await;
        if let Some(error) = error {
            return Err(error);
        }
        if rung.outcome != Outcome::Recalled {
            // Answered, and wrong: the model's, and no fault of the server.
            status = Status::Warn;
        }
        texts.push(format!("{} at {}", rung.outcome.name(), rung.tokens.unwrap_or(target)));
        rungs.push(rung);
    }
    Ok(Check::new(name, status, texts.join(", ")).with(json!({"rungs": rungs})))
}

async fn tool_result(session: &mut Session<'_>, name: &str, n_ctx: u64, n_chars: usize) -> Result<Check, ClientError> {
    const MAX_TOKENS: u32 = 500;
    if session.facts.tools == Some(false) {
        return Ok(Check::absent(name, "the chat template does not mention tools"));
    }
    let Some(tokens) = estimated(session, n_chars).await? else {
        return Ok(Check::unknown(name, "the server does not tell the tokens of a prompt"));
    };
    if let Some(why) = too_long(tokens, MAX_TOKENS, n_ctx) {
        return Ok(Check::absent(name, format!("about {why}")));
    }
    let (salt, text) = (session.salt(), prompts::filler_chars(session, n_chars));
    let mut messages = vec![json!({"role": "user", "content": format!("{salt} Read the file notes/log.txt.")})];
    messages.extend(prompts::call_and_result("call_1", "read_file", &json!({"path": "notes/log.txt"}), &text));
    messages.push(json!({"role": "user", "content": "Say in two sentences what the file is about."}));
    let ask = Ask::messages(messages.into(), MAX_TOKENS).with_tools(prompts::agent_tools(1)).of_tokens(tokens);
    let answer = session.streamed(&ask.within(240)).await?;
    let n = answer.content.chars().count();
    let seen = format!(
        "{} tokens of prompt, {n} characters, {} calls",
        answer.prompt_tokens.unwrap_or(tokens),
        answer.calls.len()
    );
    let measured = json!({"prompt_tokens": answer.prompt_tokens, "prefill_tps": answer.prefill_rate()});
    let check = if !answer.calls.is_empty() || n >= MIN_TOOL_ANSWER_CHARS {
        Check::pass(name, seen)
    } else if answer.is_empty() {
        Check::fail(name, format!("{seen}: no answer"))
    } else {
        Check::fail(name, format!("{seen}; {MIN_TOOL_ANSWER_CHARS} characters or a call at least"))
    };
    Ok(check.with(measured))
}

/// Tokens of so many characters of filler, by a probe.
async fn estimated(session: &mut Session<'_>, n_chars: usize) -> Result<Option<u64>, ClientError> {
    const PROBE_CHARS: usize = 4000;
    let text = prompts::filler_chars(session, PROBE_CHARS);
    let answer = session.whole(&Ask::user(text, 1)).await?;
    Ok(answer.prompt_tokens.map(|n| n * n_chars as u64 / PROBE_CHARS as u64))
}

/// Any answer that a server says is whole will do.
async fn answered(session: &mut Session<'_>, name: &str, n_ctx: u64, ask: &Ask) -> Result<Check, ClientError> {
    if ask.tools.is_some() && session.facts.tools == Some(false) {
        return Ok(Check::absent(name, "the chat template does not mention tools"));
    }
    // Four characters a token is on the safe side for no text of ours but code.
    let tokens = ask.messages.to_string().len() as u64 / 3;
    if let Some(why) = too_long(tokens, ask.max_tokens, n_ctx) {
        return Ok(Check::absent(name, format!("about {why}")));
    }
    let answer = session.streamed(ask).await?;
    let n = answer.completion_tokens.unwrap_or(0);
    let text = format!("{n} tokens, {} calls, finish {}", answer.calls.len(), answer.finish);
    let measured = json!({"completion_tokens": n, "prompt_tokens": answer.prompt_tokens,
        "decode_tps": answer.decode_rate(), "finish": answer.finish});
    let check =
        if answer.is_empty() { Check::fail(name, format!("{text}: no answer")) } else { Check::pass(name, text) };
    Ok(check.with(measured))
}

fn agent_system(session: &mut Session<'_>, n_parts: usize) -> String {
    const PART: &str = "You work in a repository with the user. Read before you write. Change as little as needed. Say what \
        you are about to do in one sentence. When a command fails, read its output and find the cause before you try \
        again. Never invent files. Keep names, style and tests of the project. ";
    format!("{} {}", session.salt(), PART.repeat(n_parts))
}

/// About 5,000 characters of system prompt, ten tools that must not be called.
fn one_shot(session: &mut Session<'_>) -> Ask {
    let system = agent_system(session, 16);
    let messages = json!([
        {"role": "system", "content": system},
        {"role": "user", "content": "Write a function in Python that reads a CSV file and returns its rows as dictionaries."}
    ]);
    let ask = Ask::messages(messages, 2000).with_tools(prompts::agent_tools(10)).within(180);
    ask.and("tool_choice", json!("none"))
}

/// A conversation with a file that was read.
fn agent(session: &mut Session<'_>) -> Ask {
    let system = agent_system(session, 8);
    let file: String =
        (1..=80).map(|n| format!("{n:>3}  def step_{n}(state):\n         return state + {n}\n")).collect();
    let mut messages = vec![
        json!({"role": "system", "content": system}),
        json!({"role": "user", "content": "Look at src/steps.py and tell me what it does."}),
    ];
    messages.extend(prompts::call_and_result("call_1", "read_file", &json!({"path": "src/steps.py"}), &file));
    messages
        .push(json!({"role": "assistant", "content": "It has eighty functions that each add a number to a state."}));
    messages.push(json!({"role": "user", "content": "Find where step_42 is used, then propose a name for it."}));
    let ask = Ask::messages(messages.into(), 1500).with_tools(prompts::agent_tools(4)).at(0.6).within(240);
    ask.and("top_p", json!(0.95))
}

/// A task with a plan in a fixed form.
fn coding(session: &mut Session<'_>) -> Ask {
    let salt = session.salt();
    let text = format!(
        "{salt} Given an array of integers, return the length of its longest contiguous part with at most two distinct \
         values. First write a plan in five lines that begin with GOAL:, STATE:, ALGO:, EDGE: and VERIFY:, then the \
         function in Python."
    );
    Ask::user(text, 4096).within(240)
}

async fn reasoning(session: &mut Session<'_>, name: &str, n_ctx: u64) -> Result<Check, ClientError> {
    const MAX_TOKENS: u32 = 8192;
    if let Some(why) = too_long(500, MAX_TOKENS, n_ctx) {
        return Ok(Check::absent(name, why));
    }
    let text = format!(
        "{} Prove by induction that the sum of the first n cubes is the square of the sum of the first n numbers. Write \
         every step, check it with n = 1 to 5, then prove it a second way.",
        session.salt()
    );
    let ask = Ask::user(text, MAX_TOKENS).with_thinking().within(600);
    let answer = session.streamed(&ask).await?;
    let Some(n) = answer.completion_tokens else {
        return Ok(Check::unknown(name, "the server does not tell the tokens of an answer"));
    };
    let text = format!("{n} tokens, finish {}", answer.finish);
    let check = if n >= MIN_REASONING_TOKENS {
        Check::pass(name, text)
    } else if answer.finish == "stop" && n > 0 {
        // The model had no more to say; the server did not cut it.
        Check::warn(name, format!("{text}: the model ended by itself before {MIN_REASONING_TOKENS}"))
    } else {
        Check::fail(name, format!("{text}; {MIN_REASONING_TOKENS} at least"))
    };
    Ok(check.with(json!({"completion_tokens": n, "finish": answer.finish})))
}
