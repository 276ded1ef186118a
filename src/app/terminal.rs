//! What a command says: text on standard output, and progress on standard error, a bar where a
//! person looks, nothing where a file or a pipe does.

use std::io::Write;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::failure::Failure;

/// Steps of a bar: a share of 0..=1 in thousandths.
const STEPS: u64 = 1000;

/// A bar for a share of 0..=1. It disappears when it is full or dropped.
pub struct Bar(ProgressBar);

/// A bar with this text in front. indicatif draws only where standard error is a terminal.
pub fn bar(text: &'static str) -> Bar {
    let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{msg} [{bar:32}] {percent:>3} % {elapsed}") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(text);
    bar.enable_steady_tick(Duration::from_millis(250));
    Bar(bar)
}

impl Bar {
    pub fn set(&self, share: f32) {
        self.0.set_position((share.clamp(0.0, 1.0) * STEPS as f32) as u64);
        if share >= 1.0 {
            self.clear();
        }
    }
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Writes to standard output. A reader that has gone (`| head`) is no failure.
pub fn say(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::Internal(format!("cannot write to standard output: {e}")))
        }
        _ => Ok(()),
    }
}
