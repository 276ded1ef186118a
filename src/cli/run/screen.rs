//! Where an answer is shown: its text on standard output, everything else dim on standard error, so that a pipe gets the
//! answer alone.

use std::io::{IsTerminal, Write};

use crate::app::Failure;
use crate::config::env;

const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

pub struct Screen {
    out: Box<dyn Write + Send>,
    err: Box<dyn Write + Send>,
    /// Standard error understands colours.
    dim: bool,
    /// Standard output is a terminal: control characters of the model must not steer it.
    guard: bool,
    /// The last thing shown was not at the end of a line.
    open_line: bool,
    in_reasoning: bool,
}

impl Screen {
    pub fn terminal() -> Screen {
        let dim = std::io::stderr().is_terminal() && !env::no_color();
        let guard = std::io::stdout().is_terminal();
        Screen::new(Box::new(std::io::stdout()), Box::new(std::io::stderr()), dim, guard)
    }

    pub fn new(out: Box<dyn Write + Send>, err: Box<dyn Write + Send>, dim: bool, guard: bool) -> Screen {
        Screen { out, err, dim, guard, open_line: false, in_reasoning: false }
    }

    /// A piece of the answer.
    pub fn content(&mut self, text: &str) -> Result<(), Failure> {
        self.end_reasoning()?;
        let shown = if self.guard { harmless(text) } else { text.to_owned() };
        self.open_line = shown.chars().next_back().map_or(self.open_line, |c| c != '\n');
        written(self.out.write_all(shown.as_bytes()).and_then(|()| self.out.flush()))
    }

    /// A piece of the thinking.
    pub fn reasoning(&mut self, text: &str) -> Result<(), Failure> {
        let start = if self.dim && !self.in_reasoning { DIM } else { "" };
        self.in_reasoning = true;
        written(write!(self.err, "{start}{}", harmless(text)).and_then(|()| self.err.flush()))
    }

    fn end_reasoning(&mut self) -> Result<(), Failure> {
        if !std::mem::take(&mut self.in_reasoning) {
            return Ok(());
        }
        let end = if self.dim { PLAIN } else { "" };
        written(write!(self.err, "{end}\n\n").and_then(|()| self.err.flush()))
    }

    /// The answer is at its end: closes thinking and the line.
    pub fn end_answer(&mut self) -> Result<(), Failure> {
        self.end_reasoning()?;
        match std::mem::take(&mut self.open_line) {
            true => self.content("\n"),
            false => Ok(()),
        }
    }

    /// Something about the chat, not of it.
    pub fn note(&mut self, text: &str) -> Result<(), Failure> {
        let (start, end) = if self.dim { (DIM, PLAIN) } else { ("", "") };
        written(write!(self.err, "{start}{text}{end}").and_then(|()| self.err.flush()))
    }

    /// Invites a line.
    pub fn prompt(&mut self) -> Result<(), Failure> {
        written(write!(self.err, "> ").and_then(|()| self.err.flush()))
    }
}

/// A reader that has gone ends the chat quietly enough: with an error that says so.
fn written(result: std::io::Result<()>) -> Result<(), Failure> {
    result.map_err(|e| Failure::Unavailable(format!("cannot write the answer: {e}")))
}

/// Control characters but line feeds and tabs, made visible.
fn harmless(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() && c != '\n' && c != '\t' { char::REPLACEMENT_CHARACTER } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_cannot_steer_the_terminal() {
        assert_eq!(harmless("a\x1b[2Jb\tc\nd\u{9b}"), "a\u{fffd}[2Jb\tc\nd\u{fffd}");
    }
}
