//! What llama.cpp and ggml print, as tracing events of target `llama`, and the reasons of failed
//! calls.
//!
//! Their INFO is a page of parameters at every start, so it arrives as DEBUG (and DEBUG as TRACE);
//! warnings and errors keep their level. A line may come in pieces (`CONT`); pieces are joined per
//! thread, so no lock is taken.

#![expect(unsafe_code, reason = "a callback from C")]

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_void};
use std::sync::Once;

use super::ffi;

/// Lines that `reasons` keeps of one call.
const MAX_REASONS: usize = 8;

#[derive(Default)]
struct Lines {
    /// Text since the last line feed, and its level.
    open: String,
    level: ffi::ggml_log_level,
    /// Errors and warnings of the call that `reasons` watches.
    watched: Option<Vec<String>>,
}

thread_local! {
    static LINES: RefCell<Lines> = RefCell::new(Lines::default());
}

/// Sends all further output of llama.cpp and ggml to tracing. Later calls change nothing.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the callback is a plain function without captured state and lives for ever;
        // llama_log_set sets ggml's logger as well.
        unsafe { ffi::llama_log_set(Some(receive), std::ptr::null_mut()) }
    });
}

/// As `install`, of mtmd, which has a logger of its own.
pub fn install_mtmd() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: as above.
        unsafe { ffi::mtmd_log_set(Some(receive), std::ptr::null_mut()) }
    });
}

/// Runs `call` and returns with its result what llama.cpp complained of on this thread meanwhile,
/// joined by "; ".
pub fn reasons<R>(call: impl FnOnce() -> R) -> (R, String) {
    LINES.with_borrow_mut(|lines| lines.watched = Some(Vec::new()));
    let result = call();
    let watched = LINES.with_borrow_mut(|lines| lines.watched.take()).unwrap_or_default();
    (result, watched.join("; "))
}

unsafe extern "C" fn receive(level: ffi::ggml_log_level, text: *const c_char, _data: *mut c_void) {
    if text.is_null() {
        return;
    }
    // SAFETY: the logger passes a NUL-terminated buffer that lives until the callback returns.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    for (level, line) in split_lines(level, &text) {
        emit(level, &line);
    }
}

/// The lines that `text` completes. Borrowed only here, so that a subscriber which logs through
/// llama.cpp cannot clash.
fn split_lines(level: ffi::ggml_log_level, text: &str) -> Vec<(ffi::ggml_log_level, String)> {
    LINES.with(|lines| {
        let Ok(mut lines) = lines.try_borrow_mut() else { return Vec::new() };
        if level != ffi::GGML_LOG_LEVEL_CONT {
            lines.level = level;
        }
        let mut done = Vec::new();
        for piece in text.split_inclusive('\n') {
            lines.open.push_str(piece);
            if piece.ends_with('\n') {
                let line = std::mem::take(&mut lines.open).trim_end().to_owned();
                if !line.is_empty() {
                    done.push((lines.level, line));
                }
            }
        }
        let complaint = matches!(lines.level, ffi::GGML_LOG_LEVEL_ERROR | ffi::GGML_LOG_LEVEL_WARN);
        if let Some(watched) = lines.watched.as_mut().filter(|_| complaint) {
            watched.extend(done.iter().map(|(_, line)| line.clone()));
            let surplus = watched.len().saturating_sub(MAX_REASONS);
            watched.drain(..surplus);
        }
        done
    })
}

fn emit(level: ffi::ggml_log_level, line: &str) {
    match level {
        ffi::GGML_LOG_LEVEL_ERROR => tracing::error!(target: "llama", "{line}"),
        // One line for each tensor of the MTP block, which is left out on purpose; `llama::load`
        // says so once.
        ffi::GGML_LOG_LEVEL_WARN if line.contains("model has unused tensor") => {
            tracing::debug!(target: "llama", "{line}")
        }
        // Positions jump after every image, and small images are the client's choice.
        ffi::GGML_LOG_LEVEL_WARN
            if ["non-consecutive token position", "image-min-tokens", "Qwen-VL models require", "issues/16842"]
                .iter()
                .any(|text| line.contains(text)) =>
        {
            tracing::debug!(target: "llama", "{line}")
        }
        ffi::GGML_LOG_LEVEL_WARN => tracing::warn!(target: "llama", "{line}"),
        ffi::GGML_LOG_LEVEL_DEBUG => tracing::trace!(target: "llama", "{line}"),
        _ => tracing::debug!(target: "llama", "{line}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_become_lines_with_the_level_of_their_first_piece() {
        assert_eq!(split_lines(ffi::GGML_LOG_LEVEL_WARN, "load: "), vec![]);
        assert_eq!(split_lines(ffi::GGML_LOG_LEVEL_CONT, ".."), vec![]);
        let done = split_lines(ffi::GGML_LOG_LEVEL_CONT, ".\n\n");
        assert_eq!(done, vec![(ffi::GGML_LOG_LEVEL_WARN, "load: ...".to_owned())]);
    }

    #[test]
    fn a_continuation_without_a_beginning_is_a_line() {
        // A bridge that expects a beginning panics inside the C callback here.
        assert_eq!(split_lines(ffi::GGML_LOG_LEVEL_CONT, "x\n").len(), 1);
    }

    #[test]
    fn reasons_are_the_complaints_of_the_call() {
        let (value, text) = reasons(|| {
            split_lines(ffi::GGML_LOG_LEVEL_INFO, "fine\n");
            split_lines(ffi::GGML_LOG_LEVEL_ERROR, "no such tensor\nstill none\n");
            7
        });
        split_lines(ffi::GGML_LOG_LEVEL_ERROR, "later\n");
        assert_eq!((value, text.as_str()), (7, "no such tensor; still none"));
    }
}
