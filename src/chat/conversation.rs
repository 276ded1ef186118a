//! A conversation, checked: its messages normalised, its tools and its thinking read, everything
//! that the template will print guarded.

use serde_json::{Map, Value};

use super::error::RequestError;
use super::fields::{TemplateFields, ThinkingFields, ToolFields};
use super::images::part_for;
use super::messages::{NormaliseOptions, mark_final, normalise};
use super::request::{ChatMessages, Turn};
use super::served::ServedModel;
use super::template::RESERVED_KWARGS;
use super::thinking::ThinkingSettings;
use super::tools::{ToolLimits, ToolSettings};

/// What a conversation is made of.
#[derive(Clone, Debug, Default)]
pub struct ConversationFields {
    /// Their images were taken out (`images::take_from_messages`).
    pub messages: Vec<Value>,
    pub template: TemplateFields,
    pub tools: ToolFields,
    pub thinking: ThinkingFields,
}

/// Checks every field. What the template has no use for goes to `ignored`.
///
/// # Errors
/// Names the field.
pub fn check(
    fields: ConversationFields,
    served: &ServedModel<'_>,
    ignored: &mut Vec<String>,
) -> Result<ChatMessages, RequestError> {
    let ConversationFields { messages, template, tools, thinking } = fields;
    let TemplateFields { add_generation_prompt, continue_final_message, chat_template_kwargs } = template;
    let template_kwargs = chat_template_kwargs.unwrap_or_default();
    let tools = ToolSettings::from_fields(&tools, tool_limits(served))?;
    check_kwargs(&template_kwargs, served)?;
    let thinking = ThinkingSettings::from_fields(thinking, &template_kwargs, served)?;
    ignored.extend(unused(&thinking, &template_kwargs, &tools, served));
    let mut messages = normalised(&messages, served)?;
    let turn = match (add_generation_prompt, continue_final_message.unwrap_or(false)) {
        (Some(true), true) => {
            let message = "`continue_final_message` goes on with the last message, `add_generation_prompt` opens a new \
                           one; send one of them";
            return Err(RequestError::invalid("continue_final_message", message));
        }
        (_, true) => Turn::Continued(mark_final(&mut messages)?),
        (Some(false), false) => Turn::NotOpened,
        (None | Some(true), false) => Turn::Opened,
    };
    Ok(ChatMessages { messages, tools, thinking, template_kwargs, turn })
}

fn tool_limits(served: &ServedModel<'_>) -> ToolLimits {
    let limits = &served.profile.limits;
    ToolLimits { max_tools: limits.tools as usize, max_bytes: usize::try_from(limits.body_bytes).unwrap_or(usize::MAX) }
}

fn check_kwargs(kwargs: &Map<String, Value>, served: &ServedModel<'_>) -> Result<(), RequestError> {
    for name in kwargs.keys() {
        let reserved = RESERVED_KWARGS.iter().find(|(reserved, _)| name == reserved).map(|(_, instead)| *instead);
        let taken = served.template.is_function(name);
        let taken = taken.then_some("it under another name: it is a function of templates");
        if let Some(instead) = reserved.or(taken) {
            let path = format!("chat_template_kwargs.{name}");
            let message = format!("`{path}` is not taken from a request; send {instead}");
            return Err(RequestError::unsupported(path, message));
        }
    }
    Ok(())
}

fn normalised(messages: &[Value], served: &ServedModel<'_>) -> Result<Vec<Value>, RequestError> {
    let options = NormaliseOptions {
        late_system_wrapper: &served.profile.chat.late_system_wrapper,
        guard: &|text| served.tokenizer.guard(text),
        image: &part_for(served.template),
        max_messages: served.profile.limits.messages as usize,
    };
    normalise(messages, &options)
}

/// What the request says and the template has no use for.
fn unused(
    thinking: &ThinkingSettings,
    kwargs: &Map<String, Value>,
    tools: &ToolSettings,
    served: &ServedModel<'_>,
) -> Vec<String> {
    let mut out = Vec::new();
    let template = served.template;
    // A degree of effort that the template does not know sets the bound, where there is one for it.
    let effort = template.mentions("reasoning_effort") || thinking.bounds.budget_tokens.is_some();
    let switch = template.mentions("enable_thinking");
    for field in &thinking.switched_by {
        let used = switch || (effort && field.starts_with("reasoning"));
        if !used {
            out.push((*field).to_owned());
        }
    }
    for key in kwargs.keys().filter(|key| *key != "enable_thinking" && !template.mentions(key)) {
        out.push(format!("chat_template_kwargs.{key}"));
    }
    if !tools.tools.is_empty() && !template.mentions("tools") {
        out.push("tools".to_owned());
    }
    out
}
