//! `plateau run`: a chat in the terminal, straight on the engine. What a conversation is lives in `chat`; this file gathers
//! the first message, starts the engine and reads lines.

mod conversation;
mod images;
mod screen;

use std::io::{IsTerminal, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::app::{self, Failure, StartOptions, Started, start, terminal};
use crate::config::env;
use crate::engine::{Image, Shutdown};

use super::flags::SettingFlags;
use conversation::{Conversation, Ended};
use screen::Screen;

/// Largest text that is taken from a file or from standard input, in bytes.
const MAX_INPUT_BYTES: u64 = 32 << 20;

#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// The message; `-` takes it from standard input. Without it, and on a terminal, a conversation begins
    #[arg(value_name = "PROMPT")]
    prompt: Option<String>,
    /// Text file to put in front of the message; may be given several times
    #[arg(long = "file", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Image to put in front of the first message (PNG, JPEG, WebP, GIF or BMP); may be given several times
    #[arg(long = "image", value_name = "FILE")]
    images: Vec<PathBuf>,
    /// System message
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    #[command(flatten)]
    settings: SettingFlags,
    #[command(flatten)]
    options: StartOptions,
}

/// Answers one message, or talks until the user leaves.
pub fn run(args: &RunArgs, env: &[env::Variable]) -> Result<(), Failure> {
    let profile = args.settings.resolve(env)?.profile;
    let message = args.message()?;
    let bar = terminal::bar("loading the model");
    let started = start(profile, &args.options, Box::new(move |done| bar.set(done)))?;
    let runtime = app::runtime()?;
    let vision = started.handle.facts().vision.clone();
    let done = match images::load(&args.images, vision.as_ref(), &started.profile.images) {
        Ok(images) => runtime.block_on(talk(started, args.system.as_deref(), First { message, images })),
        Err(failure) => {
            let Started { handle, joiner, .. } = started;
            // The thread frees the model: the process must not go before it.
            joiner.join(handle);
            Err(failure)
        }
    };
    // A read from the terminal cannot be taken back.
    runtime.shutdown_background();
    done
}

impl RunArgs {
    /// `None`: a conversation on the terminal.
    fn message(&self) -> Result<Option<String>, Failure> {
        let from_stdin = match &self.prompt {
            Some(text) => text == "-",
            None => !std::io::stdin().is_terminal(),
        };
        let mut parts = Vec::new();
        for path in &self.files {
            let text = std::fs::File::open(path).and_then(read_text);
            let text = text.map_err(|e| Failure::Unavailable(format!("cannot read {}: {e}", path.display())))?;
            parts.push(format!("{}:\n```\n{}\n```", path.display(), text.trim_end()));
        }
        if from_stdin {
            let text = read_text(std::io::stdin());
            parts.push(text.map_err(|e| Failure::Unavailable(format!("cannot read standard input: {e}")))?);
        } else if let Some(prompt) = &self.prompt {
            parts.push(prompt.clone());
        }
        if parts.iter().all(|part| part.trim().is_empty()) {
            return match from_stdin || self.prompt.is_some() {
                true => Err(Failure::Usage("the message is empty: give a prompt or text on standard input".to_owned())),
                false => Ok(None),
            };
        }
        Ok(Some(parts.join("\n\n")))
    }
}

fn read_text(reader: impl Read) -> std::io::Result<String> {
    let mut text = String::new();
    reader.take(MAX_INPUT_BYTES + 1).read_to_string(&mut text)?;
    match text.len() as u64 > MAX_INPUT_BYTES {
        true => Err(std::io::Error::other(format!("more than {MAX_INPUT_BYTES} bytes"))),
        false => Ok(text),
    }
}

/// What the conversation begins with.
struct First {
    /// `None`: what is typed.
    message: Option<String>,
    images: Vec<Arc<Image>>,
}

async fn talk(started: Started, system: Option<&str>, first: First) -> Result<(), Failure> {
    let n_ctx = started.handle.facts().n_ctx;
    let name = started.model.id;
    let joiner = started.joiner;
    let mut conversation =
        Conversation::new(started.profile, started.handle, started.template, started.grammars, system);
    conversation.show(first.images);
    let mut screen = Screen::terminal();
    let talked = async {
        match first.message {
            Some(text) => conversation.say(text, &mut screen).await.map(|_| ()),
            None => {
                screen
                    .note(&format!("{name}, {n_ctx} tokens; /reset forgets, /exit leaves, Ctrl-C stops an answer\n"))?;
                converse(&mut conversation, &mut screen).await
            }
        }
    };
    let done = tokio::select! {
        done = talked => done,
        reason = joiner.died() => Err(Failure::Internal(format!("the engine stopped: {reason}"))),
    };
    drop(conversation);
    // The thread frees the model: the process must not go before it.
    match (joiner.shutdown(Duration::ZERO).await, done) {
        (Shutdown::Stuck, Ok(())) => Err(Failure::Stuck(String::new())),
        (Shutdown::Stuck, Err(cause)) => Err(Failure::Stuck(format!(", after this: {cause}"))),
        (_, done) => done,
    }
}

async fn converse(conversation: &mut Conversation, screen: &mut Screen) -> Result<(), Failure> {
    loop {
        screen.prompt()?;
        let line = tokio::select! {
            line = read_line() => line?,
            _ = tokio::signal::ctrl_c() => None,
        };
        let Some(line) = line else { return screen.note("\n") };
        match line.trim() {
            "" => {}
            "/exit" | "/quit" => return Ok(()),
            "/reset" => {
                conversation.reset();
                screen.note("forgotten\n")?;
            }
            command if command.starts_with('/') && !command.contains(' ') => {
                screen.note(&format!("{command} is no command: /reset, /exit\n"))?;
            }
            _ => match conversation.say(line, screen).await {
                // The message was taken back: a long one can be followed by a shorter one.
                Err(Failure::Usage(reason)) => screen.note(&format!("{reason}\n"))?,
                Err(other) => return Err(other),
                Ok(Ended::Whole) => {}
                Ok(Ended::Stopped) => screen.note("stopped\n")?,
            },
        }
    }
}

/// `None` at the end of the input.
async fn read_line() -> Result<Option<String>, Failure> {
    let read = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).map(|n| (n > 0).then_some(line))
    });
    match read.await {
        Ok(Ok(line)) => Ok(line),
        Ok(Err(e)) => Err(Failure::Unavailable(format!("cannot read the terminal: {e}"))),
        Err(e) => Err(Failure::Internal(e.to_string())),
    }
}

#[cfg(test)]
mod tests;
