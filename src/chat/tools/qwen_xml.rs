//! The tags of Qwen's XML tool calls, recognised in text that may still go on:
//!
//! ```text
//! <tool_call>
//! <function=NAME>
//! <parameter=KEY>
//! VALUE
//! </parameter>
//! </function>
//! </tool_call>
//! ```
//!
//! Every function here judges the text from one place on. An answer other than `More` holds
//! whatever follows, and with `end` (no more text will come) the answer is never `More`; so the way
//! in which text is cut cannot change the outcome.

use super::tool::Tool;

pub const CALL: &str = "<tool_call>";
pub const CALL_END: &str = "</tool_call>";
const FUNCTION: &str = "<function=";
const FUNCTION_END: &str = "</function>";
const PARAMETER: &str = "<parameter=";
const PARAMETER_END: &str = "</parameter>";

/// Most blanks between two tags of a call. Also bounds how often a held blank is looked at again.
const MAX_BLANKS: usize = 64;
/// Longest parameter name, in bytes.
const MAX_KEY_BYTES: usize = 128;

/// How a text relates to a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The text starts with it; its length in bytes.
    Whole(usize),
    /// The text is a beginning of it.
    Part,
    No,
}

/// Compares the start of `text` with `tag`.
pub fn seen(text: &str, tag: &str) -> Seen {
    if text.starts_with(tag) {
        Seen::Whole(tag.len())
    } else if tag.starts_with(text) {
        Seen::Part
    } else {
        Seen::No
    }
}

/// Whole if any is, else part if any is.
fn seen_any(text: &str, tags: &[&str]) -> Seen {
    let all = || tags.iter().map(|tag| seen(text, tag));
    all().find(|s| matches!(s, Seen::Whole(_))).or_else(|| all().find(|s| *s == Seen::Part)).unwrap_or(Seen::No)
}

pub fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Length of the blanks at the start; `None` when they are more than may stand between two tags.
pub fn blanks(text: &str) -> Option<usize> {
    let n = text.bytes().take(MAX_BLANKS + 1).take_while(|b| is_blank(*b)).count();
    (n <= MAX_BLANKS).then_some(n)
}

/// What starts at a `<` in plain text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opener {
    More,
    No,
    /// A call of `tools[tool]`; its opening tags are `len` bytes.
    Function {
        tool: usize,
        len: usize,
    },
    /// `<tool_call>` and, `len` bytes on, an opening brace.
    Json {
        len: usize,
    },
}

/// A call of a declared tool at the start of `text`: wrapped into `<tool_call>`, or without the
/// wrapper where `bare`. The name must be followed by a parameter or the closing tag; a wrapped
/// call may also be cut off there.
pub fn opener(text: &str, tools: &[Tool], bare: bool, end: bool) -> Opener {
    let or_no = |answer| if end { Opener::No } else { answer };
    match seen(text, CALL) {
        Seen::Part => or_no(Opener::More),
        Seen::Whole(tag) => {
            let Some(n) = blanks(&text[tag..]) else { return Opener::No };
            let start = tag + n;
            match text.as_bytes().get(start) {
                None => or_no(Opener::More),
                Some(b'{') => Opener::Json { len: start },
                Some(_) => function(text, start, tools, end.then_some(true)),
            }
        }
        Seen::No if bare => function(text, 0, tools, end.then_some(false)),
        Seen::No => Opener::No,
    }
}

/// `end`: no more text will come, and whether a call that is cut off right after its name counts.
fn function(text: &str, start: usize, tools: &[Tool], end: Option<bool>) -> Opener {
    let or_no = if end.is_some() { Opener::No } else { Opener::More };
    let name_at = match seen(&text[start..], FUNCTION) {
        Seen::Whole(len) => start + len,
        Seen::Part => return or_no,
        Seen::No => return Opener::No,
    };
    let rest = &text[name_at..];
    let longest = tools.iter().map(|tool| tool.name.len()).max().unwrap_or(0);
    let len = match rest.bytes().take(longest + 1).position(|b| b == b'>') {
        Some(n) => name_at + n + 1,
        None if tools.iter().any(|tool| tool.name.starts_with(rest)) => return or_no,
        None => return Opener::No,
    };
    let name = &text[name_at..len - 1];
    let Some(tool) = tools.iter().position(|tool| tool.name == name) else { return Opener::No };
    let Some(n) = blanks(&text[len..]) else { return Opener::No };
    match (seen_any(&text[len + n..], &[PARAMETER, FUNCTION_END]), end) {
        (Seen::Whole(_), _) | (Seen::Part, Some(true)) => Opener::Function { tool, len },
        (Seen::Part, None) => Opener::More,
        (Seen::Part, Some(false)) | (Seen::No, _) => Opener::No,
    }
}

/// What stands at a place between the parameters of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyTag {
    More,
    /// The key is `text[key_at..len - 1]`.
    Parameter {
        key_at: usize,
        len: usize,
    },
    FunctionEnd(usize),
    CallEnd(usize),
    /// The text ends inside a tag.
    Cut,
    Other,
}

/// Judges a place inside a call where no parameter is open; blanks are skipped already.
pub fn body_tag(text: &str, end: bool) -> BodyTag {
    match parameter(text) {
        BodyTag::Other => {}
        BodyTag::More if end => return BodyTag::Cut,
        tag => return tag,
    }
    match (seen(text, FUNCTION_END), seen(text, CALL_END)) {
        (Seen::Whole(len), _) => BodyTag::FunctionEnd(len),
        (_, Seen::Whole(len)) => BodyTag::CallEnd(len),
        (Seen::No, Seen::No) => BodyTag::Other,
        _ if end => BodyTag::Cut,
        _ => BodyTag::More,
    }
}

fn parameter(text: &str) -> BodyTag {
    let key_at = match seen(text, PARAMETER) {
        Seen::Whole(len) => len,
        Seen::Part => return BodyTag::More,
        Seen::No => return BodyTag::Other,
    };
    let key = text.as_bytes()[key_at..].iter().take(MAX_KEY_BYTES + 1);
    match key.clone().position(|b| matches!(b, b'>' | b'<' | b'\n')) {
        Some(n) if n > 0 && text.as_bytes()[key_at + n] == b'>' => BodyTag::Parameter { key_at, len: key_at + n + 1 },
        Some(_) => BodyTag::Other,
        None if key.len() > MAX_KEY_BYTES => BodyTag::Other,
        None => BodyTag::More,
    }
}

/// Does the value end here?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueEnd {
    More,
    No,
    /// Yes, with a closing tag of so many bytes.
    Here(usize),
}

/// Judges a `<` inside a value. A value ends at a `</parameter>` that is followed, blanks aside, by
/// `<parameter=`, `</function>`, `</tool_call>`, `<tool_call>` or the end of the text; any other
/// stays in the value. Where the closing tag was forgotten, the value also ends at a `</function>`
/// on a new line, if that and `</tool_call>` end the text or a next `<tool_call>` follows. What the
/// text ends in and may be the beginning of such an end is taken for one.
pub fn value_end(text: &str, new_line: bool, end: bool) -> ValueEnd {
    let or_here = if end { ValueEnd::Here(0) } else { ValueEnd::More };
    match seen(text, PARAMETER_END) {
        Seen::Part => return if end { ValueEnd::Here(text.len()) } else { ValueEnd::More },
        Seen::Whole(len) => {
            return match followed_by(&text[len..], &[PARAMETER, FUNCTION_END, CALL_END, CALL]) {
                Seen::Whole(_) => ValueEnd::Here(len),
                Seen::Part if end => ValueEnd::Here(len),
                Seen::Part => ValueEnd::More,
                Seen::No => ValueEnd::No,
            };
        }
        Seen::No if !new_line => return ValueEnd::No,
        Seen::No => {}
    }
    let mut at = 0;
    for tag in [FUNCTION_END, CALL_END] {
        match followed_by(&text[at..], &[tag]) {
            Seen::Whole(len) => at += len,
            Seen::Part => return or_here,
            Seen::No => return ValueEnd::No,
        }
    }
    match followed_by(&text[at..], &[CALL]) {
        Seen::Whole(_) => ValueEnd::Here(0),
        Seen::Part => or_here,
        Seen::No => ValueEnd::No,
    }
}

/// Blanks and then one of the tags; the length counts both.
fn followed_by(text: &str, tags: &[&str]) -> Seen {
    let Some(n) = blanks(text) else { return Seen::No };
    match seen_any(&text[n..], tags) {
        Seen::Whole(len) => Seen::Whole(n + len),
        other => other,
    }
}
