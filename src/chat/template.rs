//! The chat template of the model: compiled once, rendered for each request.

use std::error::Error as StdError;
use std::fmt::Write as _;

use chrono::NaiveDateTime;
use minijinja::{Environment, Error, ErrorKind, Value as Jinja};
use serde_json::{Map, Value};

use super::jinja;

/// Used when a GGUF brings no template: ChatML, the form most models without one were trained on.
/// The caller logs it.
const CHATML: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n\
                      {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

const TEMPLATE_NAME: &str = "chat_template";

/// Names that `chat_template_kwargs` may not carry, with what to send instead: the server sets
/// them, or they are the template itself.
pub const RESERVED_KWARGS: [(&str, &str); 9] = [
    ("messages", "the field `messages`"),
    ("tools", "the field `tools`"),
    ("add_generation_prompt", "the field `add_generation_prompt`"),
    ("continue_final_message", "the field `continue_final_message`"),
    ("bos_token", "nothing: the model says what it is"),
    ("eos_token", "nothing: the model says what it is"),
    ("chat_template", "nothing: templates come from the model or the profile, never from a request"),
    ("raise_exception", "nothing: it is a function of templates"),
    ("strftime_now", "nothing: it is a function of templates"),
];

/// Where a template comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateOrigin {
    /// The model file.
    Gguf,
    /// The file that the profile names.
    File,
    /// `default_template`: the model has none.
    ChatMl,
}

impl TemplateOrigin {
    /// `in_profile`: the profile names a file; `in_model`: the model brings a template.
    pub fn of(in_profile: bool, in_model: bool) -> TemplateOrigin {
        match (in_profile, in_model) {
            (true, _) => TemplateOrigin::File,
            (false, true) => TemplateOrigin::Gguf,
            (false, false) => TemplateOrigin::ChatMl,
        }
    }

    /// For `/props`.
    pub fn describe(self) -> &'static str {
        match self {
            TemplateOrigin::Gguf => "gguf",
            TemplateOrigin::File => "file",
            TemplateOrigin::ChatMl => "chatml (the model has none)",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
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

/// What a template sees. `messages`, `tools` and `kwargs` are normalised and guarded already.
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
    env: Environment<'static>,
    source: String,
    bos: String,
    eos: String,
}

impl ChatTemplate {
    /// `bos` and `eos` are the texts behind `bos_token` and `eos_token`.
    pub fn new(source: String, bos: &str, eos: &str, fuel: u64) -> Result<ChatTemplate, TemplateError> {
        let mut env = jinja::environment(fuel);
        env.add_template_owned(TEMPLATE_NAME, jinja::rewrite(&source))
            .map_err(|error| TemplateError::Compile(describe(&error)))?;
        Ok(ChatTemplate { env, source, bos: bos.to_owned(), eos: eos.to_owned() })
    }

    /// The source as it was given.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders at the present local time.
    pub fn render(&self, input: &RenderInput) -> Result<String, TemplateError> {
        self.render_at(input, chrono::Local::now().naive_local())
    }

    /// Renders as if it were `now`, which is what `strftime_now` prints.
    pub fn render_at(&self, input: &RenderInput, now: NaiveDateTime) -> Result<String, TemplateError> {
        let template = self.env.get_template(TEMPLATE_NAME).map_err(|error| classify(&error))?;
        template.render(self.context(input, now)).map_err(|error| classify(&error))
    }

    /// Does the source use this variable or text (e.g. `enable_thinking`, `<think>`, `tools`).
    pub fn mentions(&self, text: &str) -> bool {
        self.source().contains(text)
    }

    /// Is it the name of a function that every template can call (`range`, `namespace`).
    pub fn is_function(&self, name: &str) -> bool {
        self.env.globals().any(|(global, _)| global == name)
    }

    fn context(&self, input: &RenderInput, now: NaiveDateTime) -> Jinja {
        let mut entries: Vec<(&str, Jinja)> = input
            .kwargs
            .iter()
            .filter(|(name, _)| RESERVED_KWARGS.iter().all(|(reserved, _)| name != reserved))
            .map(|(name, value)| (name.as_str(), jinja::from_json(value)))
            .collect();
        entries.push(("messages", input.messages.iter().map(jinja::from_json).collect()));
        if !input.tools.is_empty() {
            entries.push(("tools", input.tools.iter().map(jinja::from_json).collect()));
        }
        entries.push(("add_generation_prompt", Jinja::from(input.add_generation_prompt)));
        entries.push(("bos_token", Jinja::from(self.bos.as_str())));
        entries.push(("eos_token", Jinja::from(self.eos.as_str())));
        entries.push(("strftime_now", Jinja::from_function(move |format: &str| strftime(now, format))));
        Jinja::from_pairs(entries)
    }
}

/// The template for models whose GGUF has none (ChatML). It knows no tools.
pub fn default_template() -> &'static str {
    CHATML
}

/// Python's `datetime.strftime` for a time without a zone: `%Z` and `%z` print nothing.
fn strftime(now: NaiveDateTime, format: &str) -> Result<String, Error> {
    let format = format.replace("%Z", "").replace("%z", "");
    let mut text = String::new();
    write!(text, "{}", now.format(&format)).map_err(|_| {
        Error::new(ErrorKind::InvalidOperation, format!("strftime_now does not know the format {format:?}"))
    })?;
    Ok(text)
}

fn classify(error: &Error) -> TemplateError {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(raised) = current.downcast_ref::<jinja::Raised>() {
            return TemplateError::Raised(raised.0.clone());
        }
        if current.downcast_ref::<Error>().is_some_and(|inner| inner.kind() == ErrorKind::OutOfFuel) {
            return TemplateError::OutOfFuel;
        }
        cause = current.source();
    }
    TemplateError::Render(describe(error))
}

/// One line: what failed and where.
fn describe(error: &Error) -> String {
    let what = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    match error.line() {
        Some(line) => format!("{what} (line {line} of the template)"),
        None => what,
    }
}

#[cfg(test)]
mod tests;
