//! What requests are checked and prepared with.

use super::template::ChatTemplate;
use crate::config::Profile;
use crate::grammar::Grammars;
use crate::text::tokenizer::Tokenizer;

/// The served model as the chat layer sees it.
#[derive(Clone, Copy)]
pub struct ServedModel<'a> {
    pub tokenizer: &'a Tokenizer,
    pub template: &'a ChatTemplate,
    pub profile: &'a Profile,
    pub grammars: &'a Grammars,
}

impl ServedModel<'_> {
    /// Most choices of one request: more than the engine has places for could never be queued.
    pub(super) fn max_choices(&self) -> usize {
        (self.profile.engine.parallel + self.profile.engine.queue_capacity) as usize
    }
}
