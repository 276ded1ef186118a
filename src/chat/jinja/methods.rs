//! Methods of Python's `str`, `dict` and `list` that templates call: those which minijinja-contrib
//! has, and the rest here.

use minijinja::value::{Kwargs, Rest, Tuple, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};

use super::{format, python};

/// Called by minijinja for each method that a value does not have by itself.
pub(super) fn call(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    charge(state, value, method, args)?;
    let known = match value.kind() {
        ValueKind::String => string_method(state, value, method, args)?,
        ValueKind::Seq | ValueKind::Iterable => list_method(value, method, args)?,
        ValueKind::Map => dict_method(value, method)?,
        _ => None,
    };
    match known {
        Some(result) => Ok(result),
        None => minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args),
    }
}

/// Reading is paid for here, as minijinja charges for what is made: a unit for 64 bytes of text or
/// one item, before a method looks at them, and one for each part that text falls into.
fn charge(state: &State, value: &Value, method: &str, args: &[Value]) -> Result<(), Error> {
    let bytes = |value: &Value| value.as_str().map_or(0, str::len);
    let Some(text) = value.as_str() else {
        let looks_up = matches!(method, "get" | "copy");
        return state.consume_fuel(if looks_up { 0 } else { value.len().unwrap_or(0) as u64 });
    };
    let mut n_bytes = args.iter().map(bytes).fold(text.len(), usize::saturating_add);
    let mut n_items = 0;
    match (method, args.first()) {
        // Every character is looked for among those to be stripped.
        ("strip" | "lstrip" | "rstrip", Some(set)) => {
            n_bytes =
                n_bytes.saturating_add(text.len().saturating_mul(set.as_str().map_or(0, |set| set.chars().count())));
        }
        ("startswith" | "endswith", Some(list)) if list.as_str().is_none() => {
            for prefix in list.try_iter()?.checked() {
                n_bytes = n_bytes.saturating_add(bytes(&prefix?));
                n_items += 1;
            }
        }
        ("splitlines", _) => n_items = text.chars().filter(|&c| is_line_end(c)).count(),
        _ => {}
    }
    state.consume_fuel((n_bytes / 64 + n_items) as u64)
}

fn string_method(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let Some(text) = value.as_str() else { return Ok(None) };
    let result = match method {
        "format" => return format::str_format(state, value, args).map(Some),
        "join" => {
            let (items,): (&Value,) = from_args(args)?;
            let items = items.try_iter()?.checked().collect::<Result<Vec<Value>, Error>>()?;
            python::join(state, text, items).map(Value::from)?
        }
        "split" => split(state, text, args, false)?,
        "rsplit" => split(state, text, args, true)?,
        "splitlines" => {
            let (keep_ends,): (Option<bool>,) = from_args(args)?;
            split_lines(text, keep_ends.unwrap_or(false)).into_iter().map(Value::from).collect()
        }
        "partition" => partition(text, args, false)?,
        "rpartition" => partition(text, args, true)?,
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "ljust" | "rjust" | "zfill" | "center" => pad(text, method, args)?,
        "title" => Value::from(title(text)),
        "casefold" => Value::from(text.to_lowercase()),
        "swapcase" => text.chars().map(swap_case).collect::<String>().into(),
        "index" | "rindex" => index_of(text, args, method == "rindex")?,
        "isdecimal" => Value::from(!text.is_empty() && text.chars().all(|c| c.is_ascii_digit())),
        _ => return Ok(None),
    };
    Ok(Some(result))
}

/// Every letter after something that is no letter is a capital, all others are small.
fn title(text: &str) -> String {
    let mut after_letter = false;
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if after_letter {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
        after_letter = c.is_alphabetic();
    }
    out
}

fn swap_case(c: char) -> String {
    if c.is_uppercase() { c.to_lowercase().collect() } else { c.to_uppercase().collect() }
}

fn split(state: &State, text: &str, args: &[Value], from_right: bool) -> Result<Value, Error> {
    let (args, kwargs): (Rest<Value>, Kwargs) = from_args(args)?;
    let separator = kwargs.get::<Option<Value>>("sep")?.or_else(|| args.first().cloned());
    let limit = kwargs.get::<Option<Value>>("maxsplit")?.or_else(|| args.get(1).cloned());
    kwargs.assert_all_used()?;
    let limit = limit.map(i64::try_from).transpose()?.and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
    let separator = separator.filter(|s| !s.is_none());
    let n_cuts = match separator.as_ref().and_then(Value::as_str) {
        Some("") | None => text.split_whitespace().count(),
        Some(separator) => text.matches(separator).count(),
    };
    state.consume_fuel(n_cuts.min(limit) as u64)?;
    let parts = match &separator {
        None => split_space(text, limit, from_right),
        Some(separator) => match separator.as_str() {
            Some("") => return Err(Error::new(ErrorKind::InvalidOperation, "empty separator")),
            Some(separator) if from_right => {
                let mut parts: Vec<&str> = text.rsplitn(limit.saturating_add(1), separator).collect();
                parts.reverse();
                parts
            }
            Some(separator) => text.splitn(limit.saturating_add(1), separator).collect(),
            None => return Err(Error::new(ErrorKind::InvalidOperation, "the separator of split must be a string")),
        },
    };
    Ok(parts.into_iter().map(Value::from).collect())
}

/// Splits at runs of white space; the piece beyond the limit keeps the white space inside and on
/// its far side.
fn split_space(text: &str, limit: usize, from_right: bool) -> Vec<&str> {
    let mut parts = Vec::new();
    let near_trimmed = |text| if from_right { str::trim_end(text) } else { str::trim_start(text) };
    let mut rest = near_trimmed(text);
    while !rest.is_empty() {
        let cut = if from_right { rest.rfind(char::is_whitespace) } else { rest.find(char::is_whitespace) };
        match cut {
            Some(at) if parts.len() < limit => {
                let (left, right) = rest.split_at(at);
                parts.push(if from_right { right.trim_start() } else { left });
                rest = near_trimmed(if from_right { left } else { right });
            }
            _ => {
                parts.push(rest);
                break;
            }
        }
    }
    if from_right {
        parts.reverse();
    }
    parts
}

/// Python's line ends: besides \n, \r and \r\n also the separators of ASCII and Unicode.
fn is_line_end(c: char) -> bool {
    matches!(c, '\n'..='\r' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

pub(super) fn split_lines(text: &str, keep_ends: bool) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some((at, end)) = rest.char_indices().find(|&(_, c)| is_line_end(c)) {
        let len = if rest[at..].starts_with("\r\n") { 2 } else { end.len_utf8() };
        lines.push(if keep_ends { &rest[..at + len] } else { &rest[..at] });
        rest = &rest[at + len..];
    }
    if !rest.is_empty() {
        lines.push(rest);
    }
    lines
}

fn partition(text: &str, args: &[Value], from_right: bool) -> Result<Value, Error> {
    let (separator,): (&str,) = from_args(args)?;
    if separator.is_empty() {
        return Err(Error::new(ErrorKind::InvalidOperation, "empty separator"));
    }
    let cut = if from_right { text.rsplit_once(separator) } else { text.split_once(separator) };
    let parts = match cut {
        Some((before, after)) => [before, separator, after],
        None if from_right => ["", "", text],
        None => [text, "", ""],
    };
    Ok(Value::from(Tuple::from(parts.map(Value::from))))
}

fn pad(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (width, fill): (usize, Option<&str>) = from_args(args)?;
    if width > 9999 {
        return Err(Error::new(ErrorKind::InvalidOperation, format!("the width {width} is too large")));
    }
    let fill = fill.unwrap_or(" ");
    if fill.chars().count() != 1 {
        return Err(Error::new(ErrorKind::InvalidOperation, "the fill character must be exactly one character long"));
    }
    let missing = width.saturating_sub(text.chars().count());
    let padded = match method {
        "ljust" => format!("{text}{}", fill.repeat(missing)),
        "rjust" => format!("{}{text}", fill.repeat(missing)),
        "zfill" => {
            let (sign, digits) = if text.starts_with(['+', '-']) { text.split_at(1) } else { ("", text) };
            format!("{sign}{}{digits}", "0".repeat(missing))
        }
        _ => {
            // CPython gives the odd place to the left when the width is odd.
            let left = missing / 2 + (missing & width & 1);
            format!("{}{text}{}", fill.repeat(left), fill.repeat(missing - left))
        }
    };
    Ok(Value::from(padded))
}

fn index_of(text: &str, args: &[Value], from_right: bool) -> Result<Value, Error> {
    let (needle,): (&str,) = from_args(args)?;
    let at = if from_right { text.rfind(needle) } else { text.find(needle) };
    match at {
        Some(at) => Ok(Value::from(text[..at].chars().count())),
        None => Err(Error::new(ErrorKind::InvalidOperation, "substring not found")),
    }
}

fn list_method(value: &Value, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    match method {
        "copy" => Ok(Some(value.clone())),
        "index" => {
            let (wanted,): (&Value,) = from_args(args)?;
            for (index, item) in value.try_iter()?.checked().enumerate() {
                if item? == *wanted {
                    return Ok(Some(Value::from(index)));
                }
            }
            Err(Error::new(ErrorKind::InvalidOperation, "the value is not in the list"))
        }
        "append" | "clear" | "extend" | "insert" | "pop" | "remove" | "reverse" | "sort" => Err(changes(method)),
        _ => Ok(None),
    }
}

fn dict_method(value: &Value, method: &str) -> Result<Option<Value>, Error> {
    match method {
        "copy" => Ok(Some(value.clone())),
        "clear" | "pop" | "popitem" | "setdefault" | "update" => Err(changes(method)),
        _ => Ok(None),
    }
}

/// The sandbox of transformers refuses these as well.
fn changes(method: &str) -> Error {
    Error::new(
        ErrorKind::InvalidOperation,
        format!("the method {method} would change a value, which templates may not"),
    )
}
