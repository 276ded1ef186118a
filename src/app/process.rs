//! The process itself: its version, its async runtime, and the way out that waits for nothing.

use super::failure::Failure;

/// "0.1.0 (llama.cpp 0.6.0)".
#[cfg(feature = "native")]
pub fn version() -> String {
    format!("{} (llama.cpp {})", env!("CARGO_PKG_VERSION"), crate::llama::backend::version())
}

/// "0.1.0 (without model runtime)".
#[cfg(not(feature = "native"))]
pub fn version() -> String {
    format!("{} (without model runtime)", env!("CARGO_PKG_VERSION"))
}

/// Ends the process while the engine's thread still runs.
#[cfg(feature = "native")]
pub fn leave(code: u8) -> ! {
    crate::llama::backend::exit_now(code)
}

/// Without native code there is nothing that an ordinary exit could break.
#[cfg(not(feature = "native"))]
pub fn leave(code: u8) -> ! {
    std::process::exit(code.into())
}

/// Two workers: requests are prepared and streamed here, the model has its own thread.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|e| Failure::Internal(format!("the async runtime does not start: {e}")))
}
