//! What a start is told beside the profile.

/// How to start, beside the profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct StartOptions {
    /// Start although the memory plan says that the model does not fit with a full context
    #[arg(long)]
    pub allow_overcommit: bool,
}
