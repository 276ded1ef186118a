//! Pieces of output in the words of an API: chat or completions, chunk or whole answer.

mod chat;
mod completion;
mod format;

pub use chat::ChatRender;
pub use completion::{CompletionRender, Echo};
pub use format::{Render, ResponseHead};
