//! What can go wrong below HTTP. No status codes here.

/// A call into the model failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{call} failed ({kind}{})", code.map_or(String::new(), |c| format!(", code {c}")))]
pub struct RunnerError {
    /// The call, e.g. "llama_process".
    pub call: &'static str,
    pub kind: RunnerErrorKind,
    pub code: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunnerErrorKind {
    /// No free KV cells for the batch; state unchanged.
    #[error("no room in the KV cache")]
    NoRoom,
    /// The batch was refused; state unchanged.
    #[error("invalid batch")]
    InvalidBatch,
    #[error("aborted")]
    Aborted,
    /// Host or device memory ran out: this request fails, the engine goes on.
    #[error("out of memory")]
    OutOfMemory,
    /// The device is lost: the engine stops and the process exits with 70.
    #[error("device error")]
    Fatal,
}

/// Why the engine did not start.
#[derive(Debug, thiserror::Error)]
pub enum EngineStartError {
    #[error("cannot load the model: {0}")]
    Load(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("loading the model failed with a {0}")]
    Panicked(String),
    /// The loaded context cannot serve what was asked of it.
    #[error("the context is unusable: {0}")]
    Facts(String),
    #[error("cannot start the engine thread: {0}")]
    Thread(#[source] std::io::Error),
}

/// The terminal error of an accepted request.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EngineError {
    #[error("the model failed at this request: {0}")]
    Runner(RunnerError),
    /// An image could not be encoded.
    #[error("an image of this request could not be encoded: {0}")]
    Encode(RunnerError),
    #[error("sampling failed: {0}")]
    Sample(crate::sampling::SampleError),
    /// The generation could not go on under its constraint.
    #[error("{0}")]
    Constraint(crate::grammar::MatchError),
    #[error("the engine is shutting down")]
    Stopping,
    #[error("the engine stopped after an internal error")]
    Dead,
}

/// Why a request was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// Prompt and images do not belong together: a fault of whoever made the request.
    #[error("the request's images are wrong: {0}")]
    Images(&'static str),
    /// The queue is full.
    #[error("the queue is full")]
    Busy,
    #[error("the engine is shutting down")]
    Stopping,
    #[error("the engine stopped after an internal error")]
    Dead,
    /// The prompt leaves no room for one generated token.
    #[error("request ({n_prompt} tokens) exceeds the available context size ({n_ctx} tokens), try increasing it")]
    TooLong { n_prompt: usize, n_ctx: usize },
}
