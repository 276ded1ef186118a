//! The chat template of the model.

use serde_json::{Map, Value};

#[derive(Debug, Clone, thiserror::Error)]
pub enum TemplateError {
    #[error("the chat template does not compile: {0}")]
    Compile(String),
    /// The template itself refused the messages through `raise_exception`.
    #[error("the chat template refused the messages: {0}")]
    Raised(String),
    #[error("the chat template failed: {0}")]
    Render(String),
    #[error("the chat template used up its budget of work")]
    OutOfFuel,
}

/// What a template sees. `messages` and `tools` are normalised and guarded already.
#[derive(Clone, Debug, Default)]
pub struct RenderInput {
    pub messages: Vec<Value>,
    /// Empty: `tools` is undefined in the template.
    pub tools: Vec<Value>,
    pub add_generation_prompt: bool,
    /// `chat_template_kwargs`, `enable_thinking` among them; they never replace the names above.
    pub kwargs: Map<String, Value>,
}

/// A compiled template; cheap to share behind an `Arc`.
pub struct ChatTemplate {
    _env: minijinja::Environment<'static>,
}

impl ChatTemplate {
    /// `bos` and `eos` are the texts behind `bos_token` and `eos_token`.
    pub fn new(source: String, bos: &str, eos: &str, fuel: u64) -> Result<ChatTemplate, TemplateError> {
        let _ = (source, bos, eos, fuel);
        unimplemented!()
    }
    pub fn source(&self) -> &str {
        unimplemented!()
    }
    pub fn render(&self, input: &RenderInput) -> Result<String, TemplateError> {
        let _ = input;
        unimplemented!()
    }
    /// Does the source use this variable or text (e.g. `enable_thinking`, `<think>`, `tools`).
    pub fn mentions(&self, text: &str) -> bool {
        self.source().contains(text)
    }
}
