//! `plateau check quick` and `full`: nine things that a working server does, each with a small request.

mod judge;
mod text;

use std::time::Instant;

use serde_json::json;

use super::client::ClientError;
use super::facts::{self, Kind};
use super::memory;
use super::prompts;
use super::results::RunError;
use super::run::Run;
use super::session::{Ask, Session};
use super::verdict::Check;

/// The checks in the order of their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Reachable,
    Features,
    Completion,
    ToolCall,
    Stream,
    StreamedCall,
    Thinking,
    Essay,
    Drafts,
}

impl Step {
    const QUICK: [Step; 4] = [Step::Reachable, Step::Completion, Step::ToolCall, Step::Stream];
    /// The features come last: the others are what makes them run.
    const FULL: [Step; 9] = [
        Step::Reachable,
        Step::Completion,
        Step::ToolCall,
        Step::Stream,
        Step::StreamedCall,
        Step::Thinking,
        Step::Essay,
        Step::Drafts,
        Step::Features,
    ];

    fn name(self) -> &'static str {
        match self {
            Step::Reachable => "reachable",
            Step::Features => "features",
            Step::Completion => "completion",
            Step::ToolCall => "tool call",
            Step::Stream => "stream",
            Step::StreamedCall => "streamed tool call",
            Step::Thinking => "thinking",
            Step::Essay => "essay",
            Step::Drafts => "drafts",
        }
    }
}

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    Quick,
    Full,
}

/// Runs the checks one after another.
///
/// # Errors
/// Results that cannot be written. What the server does wrong is in the report.
pub async fn run(session: &mut Session<'_>, run: &mut Run, extent: Extent) -> Result<(), RunError> {
    let (steps, not_proved): (&[Step], &[&str]) = match extent {
        Extent::Quick => (&Step::QUICK, &["thinking, long answers, drafts, kernels (check full)"]),
        Extent::Full => (&Step::FULL, &[]),
    };
    let rest =
        ["long prompts and agents (check stress)", "a full context (check ceiling)", "hours of use (check soak)"];
    run.report.not_proved = not_proved.iter().chain(&rest).map(|line| (*line).to_owned()).collect();
    // The first request of a server may load or compile something; it is not judged.
    session.progress.now("warm-up");
    let _ = session.whole(&Ask::user("Hi", 1).within(180)).await;
    for (i, step) in steps.iter().enumerate() {
        session.progress.step(i, steps.len());
        session.progress.now(step.name());
        let start = Instant::now();
        let (check, error) = match one(session, *step).await {
            Ok(check) => (check, None),
            Err(error) => (judge::failed(step.name(), session, &error), Some(error)),
        };
        run.add(session, check, start)?;
        if let Some(error) = error
            && !run.goes_on(session, &error).await
        {
            break;
        }
    }
    session.progress.step(steps.len(), steps.len());
    let place = |check: &Check| {
        let numbered = [Step::Reachable, Step::Features].into_iter().chain(Step::FULL.into_iter().skip(1));
        numbered.into_iter().position(|step| step.name() == check.name)
    };
    run.report.checks.sort_by_key(place);
    run.keep()
}

async fn one(session: &mut Session<'_>, step: Step) -> Result<Check, ClientError> {
    let name = step.name();
    let (tools, thinking) = (session.facts.tools, session.facts.thinking);
    match step {
        Step::ToolCall | Step::StreamedCall if tools == Some(false) => {
            return Ok(Check::absent(name, "the chat template does not mention tools"));
        }
        Step::StreamedCall | Step::Thinking if thinking == Some(false) => {
            return Ok(Check::absent(name, "the chat template does not think"));
        }
        _ => {}
    }
    Ok(match step {
        Step::Reachable => judge::reachable(name, &session.facts),
        Step::Features => features(session, name).await?,
        Step::Completion => {
            let ask = Ask::user("What is the capital of France? One short sentence.", 30).at(0.6).within(30);
            judge::completion(name, &session.whole(&ask).await?)
        }
        Step::ToolCall => judge::call(name, &session.whole(&weather_ask(200).within(60)).await?),
        Step::Stream => {
            let ask = Ask::user("Write three sentences about finding a bug in a program.", 120).at(0.6).within(45);
            judge::stream(name, &session.streamed(&ask).await?)
        }
        Step::StreamedCall => {
            let ask = weather_ask(256).with_thinking().within(120);
            judge::streamed_call(name, &session.streamed(&ask).await?)
        }
        Step::Thinking => {
            let ask = Ask::user("What is 47 + 38?", 4000);
            let answer = session.streamed(&ask.at(0.3).with_thinking().within(240)).await?;
            judge::thinking(name, &answer, thinking.is_some())
        }
        Step::Essay => {
            let ask = Ask::user("Write an essay of 1,500 words about attention in transformer models.", 2000);
            judge::essay(name, &session.streamed(&ask.at(0.6).within(300)).await?)
        }
        Step::Drafts => drafts(session, name).await?,
    })
}

fn weather_ask(max_tokens: u32) -> Ask {
    let text = "What is the weather in San Francisco? Use the get_weather tool.";
    Ask::user(text, max_tokens).at(0.3).with_tools(prompts::weather()).and("tool_choice", json!("auto"))
}

async fn features(session: &mut Session<'_>, name: &str) -> Result<Check, ClientError> {
    if session.facts.kind != Kind::Plateau {
        return Ok(Check::absent(name, format!("{} does not tell what runs", session.facts.kind.name())));
    }
    session.facts.kernels = facts::kernels(&session.client).await?;
    Ok(judge::features(name, &session.facts))
}

async fn drafts(session: &mut Session<'_>, name: &str) -> Result<Check, ClientError> {
    let before = draft_metrics(session).await;
    let mut ask = Ask::user("Count from 1 to 80.", 500).within(120);
    if session.facts.kind == Kind::Plateau {
        // The head alone and at every step, not what pays on this machine at this moment.
        ask = ask.and("speculative", json!({"adaptive": false, "lookup": false}));
    }
    let answer = session.streamed(&ask).await?;
    let counted = match (before, draft_metrics(session).await) {
        (Some((steps, accepted)), Some((steps_after, accepted_after))) => {
            Some((steps_after - steps, accepted_after - accepted))
        }
        _ => None,
    };
    Ok(judge::drafts(name, &session.facts, &answer, counted))
}

/// Steps with a draft and accepted tokens so far, where metrics of vLLM tell them.
async fn draft_metrics(session: &Session<'_>) -> Option<(f64, f64)> {
    let text = session.client.get_text("/metrics", facts::SHORT_TIMEOUT).await.ok()?;
    let metric = |name: &str| memory::metric(&text, name);
    let steps = metric("vllm:spec_decode_num_drafts_total")?;
    Some((steps, metric("vllm:spec_decode_num_accepted_tokens_total")?))
}
