//! The requests of a soak.

use serde_json::{Value, json};

use super::settings::{Mode, Soak};
use crate::check::answer::{Answer, Call};
use crate::check::client::ClientError;
use crate::check::prompts;
use crate::check::session::{Ask, Session};

/// Characters of the results that come at the second turn and later.
const RESULTS: [usize; 4] = [20_000, 24_000, 24_000, 32_000];
/// Tokens of the answers.
const MAX_TOKENS: [u32; 5] = [350, 350, 400, 500, 1500];
/// What a conversation has beside the results, about.
const FIXED_TOKENS: u64 = 1200;
/// Characters of the probe that tells the tokens of a text.
const PROBE_CHARS: usize = 4000;
const PASTE_CHARS: usize = 12_000;

fn result_chars(turn: usize) -> usize {
    RESULTS[(turn.saturating_sub(2)) % RESULTS.len()]
}

/// What the results are multiplied by to reach the depth that is asked for, or why no conversation can be had.
pub(super) async fn scale(session: &mut Session<'_>, soak: &Soak) -> Result<Result<f64, String>, ClientError> {
    if soak.mode == Mode::Fresh {
        return Ok(Ok(1.0));
    }
    if session.facts.tools == Some(false) {
        return Ok(Err("the chat template does not mention tools; --mode fresh does without".to_owned()));
    }
    let text = prompts::filler_chars(session, PROBE_CHARS);
    let answer = session.whole(&Ask::user(text, 1)).await?;
    let Some(n) = answer.prompt_tokens else {
        return Ok(Err("the server does not tell the tokens of a prompt".to_owned()));
    };
    let chars: usize = (2..=soak.turns).map(result_chars).sum();
    let expected = chars as f64 * n as f64 / PROBE_CHARS as f64;
    let scale =
        soak.depth_tokens.map_or(1.0, |depth| depth.saturating_sub(FIXED_TOKENS / 2) as f64 / expected.max(1.0));
    let end = (expected * scale) as u64 + FIXED_TOKENS + u64::from(MAX_TOKENS[4]);
    Ok(match session.facts.n_ctx {
        Some(n_ctx) if end > n_ctx => {
            let why =
                format!("a conversation of about {end} tokens does not fit {n_ctx}; name a depth with --depth-tokens");
            Err(why)
        }
        _ => Ok(scale),
    })
}

/// A conversation that grows by a result of a tool a turn.
pub(super) struct Conversation {
    messages: Vec<Value>,
    /// The answer to the last turn: its text and its call.
    said: String,
    call: Option<Call>,
    synthesised: bool,
}

impl Conversation {
    pub(super) fn begin(session: &mut Session<'_>) -> Conversation {
        let system = format!(
            "{} You are an agent in a repository. Use the tools to read what you need, one call at a time.",
            session.salt()
        );
        let task = "Find out why the import of large files is slow. Begin with src/import.py.";
        let messages = vec![json!({"role": "system", "content": system}), json!({"role": "user", "content": task})];
        Conversation { messages, said: String::new(), call: None, synthesised: false }
    }

    /// The next request: the last answer's call with a result, and the tools again.
    pub(super) fn next(&mut self, session: &mut Session<'_>, turn: usize, n_turns: usize, scale: f64) -> Ask {
        if turn > 1 {
            self.add_result(session, turn, scale);
        }
        if turn == n_turns && n_turns > 1 {
            let text = "That is enough. Explain the cause in a few paragraphs, and propose a fix.";
            self.messages.push(json!({"role": "user", "content": text}));
        }
        let max_tokens = MAX_TOKENS[turn.min(MAX_TOKENS.len()) - 1];
        let tokens = self.messages.iter().map(|message| message.to_string().len() as u64 / 3).sum();
        let ask = Ask::messages(self.messages.clone().into(), max_tokens).at(0.6).of_tokens(tokens);
        ask.with_tools(prompts::agent_tools(3)).within(600)
    }

    fn add_result(&mut self, session: &mut Session<'_>, turn: usize, scale: f64) {
        const NAMES: [(&str, &str); 3] = [
            ("read_file", "{\"path\": \"src/import.py\"}"),
            ("grep", "{\"pattern\": \"open\", \"path\": \"src\"}"),
            ("run_command", "{\"command\": \"python -m cProfile src/import.py\"}"),
        ];
        let (name, arguments) = NAMES[turn % NAMES.len()];
        self.synthesised = self.call.is_none();
        let call = self.call.take().unwrap_or_else(|| Call {
            id: String::new(),
            name: name.to_owned(),
            arguments: arguments.to_owned(),
        });
        let id = format!("call_{turn}");
        let arguments: Value = serde_json::from_str(&call.arguments).ok().filter(Value::is_object).unwrap_or(json!({}));
        let n_chars = (result_chars(turn) as f64 * scale) as usize;
        let result = prompts::filler_chars(session, n_chars);
        let [mut said, result] = prompts::call_and_result(&id, &call.name, &arguments, &result);
        said["content"] = json!(std::mem::take(&mut self.said));
        self.messages.extend([said, result]);
    }

    pub(super) fn take(&mut self, answer: &Answer) {
        self.said = answer.content.trim().to_owned();
        self.call = answer.calls.iter().find(|call| !call.name.is_empty()).cloned();
    }

    /// Was the last result put behind a call that the model did not make?
    pub(super) fn take_synthesised(&mut self) -> bool {
        std::mem::take(&mut self.synthesised)
    }
}

/// A request of its own.
pub(super) fn fresh(session: &mut Session<'_>, turn: usize) -> Ask {
    let salt = session.salt();
    let user = |text: &str, max_tokens: u32| Ask::user(format!("{salt} {text}"), max_tokens).at(0.6);
    match (turn - 1) % 5 {
        0 => user("Write a checklist of eight points for a release of a program.", 220),
        1 if session.facts.tools != Some(false) => {
            let ask = user("Read the file README.md and tell me what the project is.", 320);
            ask.with_tools(prompts::agent_tools(3))
        }
        1 => user("Say what a good README has, in five sentences.", 320),
        2 => {
            let paste = prompts::filler_chars(session, PASTE_CHARS);
            user(&format!("This is a log:\n{paste}\nSay what happened, in five sentences."), 700)
        }
        3 => {
            let text = "Write a Python function parse_size that turns \"10K\", \"3.5 MiB\" and \"2GB\" into bytes, with tests.";
            user(text, 900)
        }
        _ => user("How many whole numbers below 1000 are divisible by 3 or 5, and not by 15?", 2000).with_thinking(),
    }
}
