//! How a check shows what it does: a bar of its checks with rates and memory on a terminal, plain lines elsewhere.

use std::io::Write as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::check::session::Progress;

pub struct Live(ProgressBar);

impl Live {
    pub fn new() -> Live {
        let bar = ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("[{bar:16}] {pos}/{len} {elapsed} {wide_msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.enable_steady_tick(Duration::from_millis(250));
        Live(bar)
    }
}

impl Progress for Live {
    fn line(&self, text: &str) {
        if self.0.is_hidden() {
            // Without a reader nobody misses it.
            let _ = writeln!(std::io::stderr(), "{text}");
        } else {
            self.0.println(text);
        }
    }

    fn now(&self, text: &str) {
        self.0.set_message(text.to_owned());
    }

    fn step(&self, done: usize, all: usize) {
        self.0.set_length(all as u64);
        self.0.set_position(done as u64);
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
