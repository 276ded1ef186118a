//! Images of a request: taken out of its messages or its prompt before these are read, and put
//! into its tokens as rows.
//!
//! An image goes where the model's template (or a marker of a raw prompt) prints the control token
//! `<|image_pad|>`, which text of clients can never become. The images of a request are in the
//! order in which it names them, and so are the places: a template that prints another number of
//! them is refused. Getting and decoding files is deliberately absent (`image`).

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::error::RequestError;
use super::json::kind_of;
use super::template::ChatTemplate;
use crate::engine::{Grid, Image, ImageKey, ImageRow, PromptItem, VisionFacts};
use crate::image::{ImageRefusal, Rgb, Rule};
use crate::text::tokenizer::Tokenizer;
use crate::units::Token;

/// The control token that templates print where an image goes.
const PLACE: &str = "<|image_pad|>";
/// What stands in a raw prompt where an image goes: llama.cpp's name for it.
pub const MARKER: &str = "<__media__>";
/// What the marker becomes: the same that templates print.
const MARKED: &str = "<|vision_start|><|image_pad|><|vision_end|>";

/// Types of content parts that hold an image.
pub(super) const PART_TYPES: [&str; 3] = ["image_url", "input_image", "image"];

/// Where an image's bytes are.
#[derive(Clone, PartialEq, Eq)]
pub enum Source {
    /// `data:`, `http:`, `https:` or `file:`.
    Url(String),
    Base64(String),
}

/// Without the data, which is long.
impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Source::Url(text) | Source::Base64(text)) = self;
        write!(f, "{:?} of {} bytes", text.chars().take(40).collect::<String>(), text.len())
    }
}

/// How closely the model looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// As many tokens as its pixels give, up to the encoder's bound.
    Full,
    /// At most `images.low_tokens`.
    Low,
}

/// An image as a request names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageSource {
    /// Path of the field with its address.
    pub param: String,
    pub source: Source,
    pub detail: Detail,
}

/// What was taken out, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    pub images: Vec<ImageSource>,
    /// Members without effect.
    pub ignored: Vec<String>,
}

/// Takes the images out of messages and leaves `{"type": "image"}` in their places. Messages that
/// are no messages are left to `normalise`.
///
/// # Errors
/// A part without an address, with an unknown `detail`, or in a message of a role that has no
/// images.
pub fn take_from_messages(messages: &mut [Value]) -> Result<Taken, RequestError> {
    let mut taken = Taken::default();
    for (i, message) in messages.iter_mut().enumerate() {
        let role = message["role"].as_str().unwrap_or_default().to_owned();
        let Some(parts) = message.get_mut("content").and_then(Value::as_array_mut) else { continue };
        for (j, part) in parts.iter_mut().enumerate() {
            let kind = part.get("type").and_then(Value::as_str);
            let Some(kind) = kind.filter(|kind| PART_TYPES.contains(kind)) else { continue };
            let kind = kind.to_owned();
            let path = format!("messages[{i}].content[{j}]");
            if !matches!(role.as_str(), "user" | "tool" | "function") {
                let message =
                    format!("a message of the role {role:?} holds no images; put the image into a user message");
                return Err(RequestError::invalid(path, message));
            }
            if let Value::Object(fields) = std::mem::replace(part, json!({ "type": "image" })) {
                taken.part(fields, &kind, &path)?;
            }
        }
    }
    Ok(taken)
}

/// Takes the images out of llama-server's prompt objects, `{"prompt_string", "multimodal_data":
/// [base64, ...]}`, and leaves their number.
///
/// # Errors
/// The list is no list of texts.
pub fn take_from_prompt(prompt: &mut Value) -> Result<Taken, RequestError> {
    let mut taken = Taken::default();
    match prompt {
        Value::Array(prompts) => {
            for (i, prompt) in prompts.iter_mut().enumerate() {
                taken.prompt(prompt, &format!("prompt[{i}]"))?;
            }
        }
        one => taken.prompt(one, "prompt")?,
    }
    Ok(taken)
}

impl Taken {
    /// `{"type": "image_url", "image_url": {"url", "detail"}}`, with the address itself instead of
    /// the object, or under the name `image`.
    fn part(&mut self, mut fields: Map<String, Value>, kind: &str, path: &str) -> Result<(), RequestError> {
        fields.remove("type");
        let mut outer = fields.remove("detail").filter(|value| !value.is_null());
        let (field, address) = ["image_url", "image"]
            .into_iter()
            .find_map(|field| fields.remove(field).filter(|value| !value.is_null()).map(|value| (field, value)))
            .ok_or_else(|| {
                let message = format!("{path} is of the type {kind:?} and has no `image_url`");
                RequestError::invalid(format!("{path}.image_url"), message)
            })?;
        let path = format!("{path}.{field}");
        let (url, param) = match address {
            Value::Object(mut object) => {
                outer = object.remove("detail").filter(|value| !value.is_null()).or(outer);
                let url = object.remove("url").unwrap_or_default();
                self.ignored.extend(object.keys().map(|key| format!("{path}.{key}")));
                (url, format!("{path}.url"))
            }
            other => (other, path.clone()),
        };
        let Value::String(url) = url else {
            let message = format!("`{param}` is {}; it must be a URL, e.g. data:image/png;base64,...", kind_of(&url));
            return Err(RequestError::invalid(param, message));
        };
        let part = path.rsplit_once('.').map_or("", |(part, _)| part);
        self.ignored.extend(fields.keys().map(|key| format!("{part}.{key}")));
        let detail = detail(outer.as_ref(), &path)?;
        self.images.push(ImageSource { param, source: Source::Url(url), detail });
        Ok(())
    }

    fn prompt(&mut self, prompt: &mut Value, path: &str) -> Result<(), RequestError> {
        let Value::Object(fields) = prompt else { return Ok(()) };
        let path = format!("{path}.multimodal_data");
        let data = match fields.remove("multimodal_data") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(data)) => data,
            Some(other) => {
                let message = format!("`{path}` is {}; it must be a list of images in base64", kind_of(&other));
                return Err(RequestError::invalid(path, message));
            }
        };
        fields.insert("multimodal_data".to_owned(), data.len().into());
        for (i, value) in data.into_iter().enumerate() {
            let param = format!("{path}[{i}]");
            let Value::String(data) = value else {
                let message = format!("`{param}` is {}; it must be an image in base64", kind_of(&value));
                return Err(RequestError::invalid(param, message));
            };
            self.images.push(ImageSource { param, source: Source::Base64(data), detail: Detail::Full });
        }
        Ok(())
    }
}

fn detail(value: Option<&Value>, path: &str) -> Result<Detail, RequestError> {
    match value.map(|value| value.as_str()) {
        None | Some(Some("auto" | "high" | "original")) => Ok(Detail::Full),
        Some(Some("low")) => Ok(Detail::Low),
        Some(_) => {
            let param = format!("{path}.detail");
            let message =
                format!("`{param}` is {}; known are auto, low, high and original", value.unwrap_or(&Value::Null));
            Err(RequestError::invalid(param, message))
        }
    }
}

/// The content part that stands for an image in what `template` is given: in the form of
/// transformers, or in OpenAI's where it knows that one alone.
pub(super) fn part_for(template: &ChatTemplate) -> Value {
    let says = |name: &str| template.mentions(&format!("'{name}'")) || template.mentions(&format!("\"{name}\""));
    match says("image_url") && !says("image") {
        true => json!({ "type": "image_url", "image_url": { "url": "" } }),
        false => json!({ "type": "image" }),
    }
}

/// Decoded pixels as the model will get them: shrunk where they are more than it takes or than was
/// asked for.
///
/// # Errors
/// They cannot be resized.
pub fn finish(pixels: Rgb, vision: &VisionFacts, detail: Detail, low_tokens: u32) -> Result<Image, ImageRefusal> {
    let VisionFacts { token_px, min_tokens, max_tokens } = *vision;
    let budget = if detail == Detail::Low { low_tokens.min(max_tokens) } else { max_tokens };
    let fit = Rule { token_px, min_tokens, max_tokens }.fit(pixels.width, pixels.height, budget);
    let (Ok(nx), Ok(ny)) = (u16::try_from(fit.tokens.nx), u16::try_from(fit.tokens.ny)) else {
        return Err(ImageRefusal::too_large("the image has more tokens than a side can have"));
    };
    let pixels = pixels.resized(fit.width, fit.height)?;
    Ok(Image {
        key: ImageKey::new(pixels.hash()),
        grid: Grid { nx, ny },
        width_px: pixels.width,
        height_px: pixels.height,
        rgb: pixels.data,
    })
}

/// A prompt with its images.
#[derive(Clone, Debug)]
pub struct Prompt {
    pub items: Arc<[PromptItem]>,
    /// Each once.
    pub images: Vec<Arc<Image>>,
}

/// Puts `images` into the places of `tokens`, in order.
///
/// # Errors
/// There are more places than images or fewer, or nothing stands behind the last one.
pub fn place(
    tokens: &[Token],
    images: &[Arc<Image>],
    tokenizer: &Tokenizer,
    param: &str,
) -> Result<Prompt, RequestError> {
    if images.is_empty() {
        let items = tokens.iter().copied().map(PromptItem::Token).collect();
        return Ok(Prompt { items, images: Vec::new() });
    }
    let Some(pad) = tokenizer.special(PLACE).filter(|token| tokenizer.is_control(*token)) else {
        let message = format!("the model's vocabulary has no control token {PLACE} for images to stand at");
        return Err(RequestError::no_vision(param, message));
    };
    let n_places = tokens.iter().filter(|token| **token == pad).count();
    if n_places != images.len() {
        return Err(miscounted(n_places, images.len(), param));
    }
    let n_rows: usize = images.iter().map(|image| image.grid.n_tokens()).sum();
    let mut items = Vec::with_capacity(tokens.len() + n_rows);
    let mut waiting = images.iter();
    for token in tokens {
        if *token != pad {
            items.push(PromptItem::Token(*token));
        } else if let Some(image) = waiting.next() {
            items.extend(ImageRow::all(image.key, image.grid).map(PromptItem::Image));
        }
    }
    if items.last().is_none_or(|item| item.image().is_some()) {
        let message = "the prompt ends in an image; something must stand behind it for the model to go on from";
        return Err(RequestError::invalid(param, message));
    }
    let mut once: Vec<Arc<Image>> = Vec::new();
    for image in images {
        if once.iter().all(|other| other.key != image.key) {
            once.push(Arc::clone(image));
        }
    }
    Ok(Prompt { items: items.into(), images: once })
}

fn miscounted(n_places: usize, n_images: usize, param: &str) -> RequestError {
    if param == "messages" {
        let message = format!(
            "the model's chat template prints {n_places} places for images ({PLACE}) where the messages hold {n_images}: it \
             leaves image parts out or repeats them; set chat.template to one that prints each once"
        );
        return RequestError::no_vision(param, message);
    }
    let message = format!(
        "`{param}` has {n_places} places for images where there are {n_images}; write {MARKER} once for each, and no {PLACE}"
    );
    RequestError::invalid(param, message)
}

/// A raw prompt with its markers turned into places.
///
/// # Errors
/// It has another number of markers than images.
pub(super) fn marked(text: &str, n_images: usize, param: &str) -> Result<String, RequestError> {
    let n_markers = text.matches(MARKER).count();
    if n_images == 0 {
        return Ok(text.to_owned());
    }
    if n_markers != n_images {
        return Err(miscounted(n_markers, n_images, param));
    }
    Ok(text.replace(MARKER, MARKED))
}

#[cfg(test)]
mod tests;
