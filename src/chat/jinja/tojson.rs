//! The `tojson` filter of transformers: the text of Python's `json.dumps`, with `ensure_ascii` off
//! by default and nothing escaped for HTML.

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

use super::filters;
use super::python::{self, Meter};
use crate::chat::markers::CONTINUE_MARK;
use crate::text::tokenizer::GUARD;

/// `tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)`, by position or
/// name.
pub(super) fn filter(state: &State, value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<String, Error> {
    let style = Style::from_args(&args, &kwargs)?;
    let charge = |units| state.consume_fuel(units);
    let mut writer = Writer { style: &style, out: Meter::new(&charge) };
    writer.value(value, 0)?;
    Ok(writer.out.finish())
}

struct Style {
    ensure_ascii: bool,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

impl Style {
    fn from_args(args: &[Value], kwargs: &Kwargs) -> Result<Style, Error> {
        let mut given = [const { None }; 4];
        for (index, name) in ["ensure_ascii", "indent", "separators", "sort_keys"].into_iter().enumerate() {
            given[index] = kwargs.get::<Option<Value>>(name)?.or_else(|| args.get(index).cloned());
        }
        kwargs.assert_all_used()?;
        if args.len() > given.len() {
            return Err(Error::new(ErrorKind::TooManyArguments, "tojson takes at most four arguments"));
        }
        let [ensure_ascii, indent, separators, sort_keys] = given;
        let indent = indent.filter(|i| !i.is_none()).map(|i| filters::margin(&i)).transpose()?;
        let (item_separator, key_separator) = match separators.filter(|s| !s.is_none()) {
            Some(pair) => separator_pair(&pair)?,
            None if indent.is_some() => (",".into(), ": ".into()),
            None => (", ".into(), ": ".into()),
        };
        Ok(Style {
            ensure_ascii: ensure_ascii.is_some_and(|v| v.is_true()),
            indent,
            item_separator,
            key_separator,
            sort_keys: sort_keys.is_some_and(|v| v.is_true()),
        })
    }
}

fn separator_pair(pair: &Value) -> Result<(String, String), Error> {
    let texts: Vec<Value> = pair.try_iter()?.collect();
    match texts.as_slice() {
        [item, key] => match (item.as_str(), key.as_str()) {
            (Some(item), Some(key)) => Ok((item.to_owned(), key.to_owned())),
            _ => Err(invalid("tojson: separators must be strings".into())),
        },
        _ => Err(invalid("tojson: separators is a pair (item, key)".into())),
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

struct Writer<'a> {
    style: &'a Style,
    out: Meter<'a>,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        python::check_depth(depth)?;
        match value.kind() {
            ValueKind::None => self.out.push("null"),
            ValueKind::Bool => self.out.push(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push(&json_number(value)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => self.array(value, depth),
            ValueKind::Map => self.object(value, depth),
            other => Err(invalid(format!("{other} is not JSON serializable"))),
        }
    }

    fn array(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.out.push("[")?;
        let mut empty = true;
        for item in value.try_iter()?.checked() {
            self.before_item(empty, depth + 1)?;
            empty = false;
            self.value(&item?, depth + 1)?;
        }
        self.close("]", empty, depth)
    }

    fn object(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut entries: Vec<(Value, Value)> = python::pairs(value).collect();
        if self.style.sort_keys {
            entries.sort_by(|(left, _), (right, _)| match (left.as_str(), right.as_str()) {
                (Some(left), Some(right)) => left.cmp(right),
                _ => left.cmp(right),
            });
        }
        self.out.push("{")?;
        for (index, (key, item)) in entries.iter().enumerate() {
            self.before_item(index == 0, depth + 1)?;
            self.string(&key_text(key)?)?;
            self.out.push(&self.style.key_separator)?;
            self.value(item, depth + 1)?;
        }
        self.close("}", entries.is_empty(), depth)
    }

    fn before_item(&mut self, first: bool, depth: usize) -> Result<(), Error> {
        if !first {
            self.out.push(&self.style.item_separator)?;
        }
        self.new_line(depth)
    }

    fn close(&mut self, bracket: &str, empty: bool, depth: usize) -> Result<(), Error> {
        if !empty {
            self.new_line(depth)?;
        }
        self.out.push(bracket)
    }

    fn new_line(&mut self, depth: usize) -> Result<(), Error> {
        if let Some(indent) = &self.style.indent {
            self.out.push("\n")?;
            for _ in 0..depth {
                self.out.push(indent)?;
            }
        }
        Ok(())
    }

    fn string(&mut self, text: &str) -> Result<(), Error> {
        let mut quoted = String::with_capacity(text.len() + 2);
        quoted.push('"');
        for c in text.chars() {
            push_escaped(&mut quoted, c, self.style.ensure_ascii);
        }
        quoted.push('"');
        self.out.push(&quoted)
    }
}

fn push_escaped(out: &mut String, c: char, ensure_ascii: bool) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        '\0'..='\u{1f}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
        // The server's own marks must reach the tokenizer as they are.
        GUARD | CONTINUE_MARK => out.push(c),
        _ if ensure_ascii && !(' '..='~').contains(&c) => {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        }
        _ => out.push(c),
    }
}

fn json_number(value: &Value) -> String {
    match python::number_text(value).as_str() {
        "nan" => "NaN".into(),
        "inf" => "Infinity".into(),
        "-inf" => "-Infinity".into(),
        text => text.to_owned(),
    }
}

/// Keys become strings as `json.dumps` makes them.
fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_owned()),
        ValueKind::None => Ok("null".into()),
        ValueKind::Bool => Ok(if key.is_true() { "true".into() } else { "false".into() }),
        ValueKind::Number => Ok(json_number(key)),
        other => Err(invalid(format!("keys must be str, int, float, bool or None, not {other}"))),
    }
}
