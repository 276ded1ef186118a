//! A checked request: what every API's body becomes, and what the engine's requests are made of.
//!
//! Nothing in it is filled in later. Deliberately absent: tokens (`prepare`) and the names of HTTP.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::constraint::sources::AnswerConstraint;
use super::messages::Continued;
use super::options::GenerationOptions;
use super::thinking::ThinkingSettings;
use super::tools::ToolSettings;
use crate::engine::Image;
use crate::units::Token;

/// One request. `P` says what its images are: named by the client, or decoded.
#[derive(Clone, Debug)]
pub struct ChatRequest<P = Arc<Image>> {
    pub conversation: Conversation,
    /// In the order in which the conversation names them.
    pub images: Vec<P>,
    /// How to generate.
    pub options: GenerationOptions,
    /// What the answer must look like.
    pub constraint: AnswerConstraint,
    /// Fields without effect, by path.
    pub ignored: Vec<String>,
}

/// What is to be continued.
#[derive(Clone, Debug)]
pub enum Conversation {
    /// Rendered by the model's template; its output is split into reasoning, content and calls.
    Messages(Box<ChatMessages>),
    /// Continued as they are; their output is text.
    Prompts(RawPrompts),
}

/// Messages as the template gets them, with everything else that it prints.
#[derive(Clone, Debug)]
pub struct ChatMessages {
    /// Normalised and guarded; a part without content stands where an image goes.
    pub messages: Vec<Value>,
    pub tools: ToolSettings,
    pub thinking: ThinkingSettings,
    pub template_kwargs: Map<String, Value>,
    pub turn: Turn,
}

/// Where the prompt ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// A turn of the assistant is opened.
    Opened,
    /// After the last message.
    NotOpened,
    /// Inside the last message, which is marked there.
    Continued(Continued),
}

/// Prompts that no template renders.
#[derive(Clone, Debug)]
pub struct RawPrompts {
    /// At least one.
    pub prompts: Vec<RawPrompt>,
    /// Put each prompt's text in front of its answers.
    pub echo: bool,
}

/// One prompt.
#[derive(Clone, Debug)]
pub struct RawPrompt {
    /// Path of its field.
    pub param: String,
    pub content: PromptContent,
    /// How many of the request's images are its own.
    pub n_images: usize,
}

/// Text or tokens.
#[derive(Clone, Debug)]
pub enum PromptContent {
    /// With the path of its field. Texts of control tokens are those tokens.
    Text {
        param: String,
        text: String,
    },
    Tokens(Vec<Token>),
}
