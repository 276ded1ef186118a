//! Where ggml cannot go on (an assertion, an error of the device), it aborts the process. Here is
//! what happens first: who waits for answers is told, and the process ends with an exit code
//! instead of a signal.
//!
//! ggml calls back on the thread that met the error, an engine's, a worker's or another; that
//! thread may hold any lock of ggml's, so it does nothing but hand over the message and wait for
//! the end. What ends in another way is not caught: a C++ exception that nobody expects, a fault of
//! memory.

#![expect(unsafe_code, reason = "a callback from C, and an exit without destructors")]

use std::ffi::{CStr, c_char};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use super::{backend, ffi};

/// How long the process may take to end by itself after everybody was told.
const LAST_WORDS: Duration = Duration::from_secs(8);

/// To the watching thread. One message: the first one ends the process.
static FIRST: OnceLock<SyncSender<String>> = OnceLock::new();

/// From here on an abort of ggml's first calls `tell` with the reason, on a thread of its own,
/// which should have the process end; if it has not in `LAST_WORDS`, it ends with `code`. A second
/// call changes nothing.
pub fn contain(code: u8, tell: impl FnOnce(&str) + Send + 'static) -> std::io::Result<()> {
    let (sender, receiver) = sync_channel(1);
    if FIRST.set(sender).is_err() {
        return Ok(());
    }
    std::thread::Builder::new().name("abort-watch".to_owned()).spawn(move || watch(&receiver, code, tell))?;
    // SAFETY: the callback is a plain function; ggml keeps it in a variable that nothing else of
    // this crate touches.
    unsafe { ffi::ggml_set_abort_callback(Some(on_abort)) };
    Ok(())
}

fn watch(aborts: &Receiver<String>, code: u8, tell: impl FnOnce(&str)) {
    // The sender is never dropped.
    let Ok(reason) = aborts.recv() else { return };
    tracing::error!(target: "llama", "llama.cpp gave up: {reason}");
    tell(&reason);
    // Other threads may give up for the same reason, so messages are no news.
    let deadline = Instant::now() + LAST_WORDS;
    while let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        std::thread::park_timeout(left);
    }
    backend::exit_now(code)
}

unsafe extern "C" fn on_abort(message: *const c_char) {
    let text = match message.is_null() {
        true => "no reason".to_owned(),
        // SAFETY: ggml passes a NUL-terminated text that lives until the callback returns, which it
        // never does.
        false => unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned(),
    };
    if let Some(first) = FIRST.get() {
        // Full: another thread was first.
        let _ = first.try_send(text);
    }
    // Returning would abort the process at once, and going on is not possible.
    loop {
        std::thread::park();
    }
}
