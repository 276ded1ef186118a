//! Python's `str()` and `repr()` for template values.

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, State, Value};

use crate::chat::markers::CONTINUE_MARK;
use crate::text::tokenizer::GUARD;

/// Containers nested deeper than this are refused: printing recurses, and a template can nest
/// without end.
pub(super) const MAX_DEPTH: usize = 256;

/// Walking a value costs much more than copying its text; minijinja charges the same for its own
/// `tojson`.
const BYTES_PER_FUEL: usize = 4;

/// Text under construction that pays fuel as it grows: values can share parts, so their text may be
/// exponentially longer than the work that made them.
pub(super) struct Meter<'a> {
    charge: &'a dyn Fn(u64) -> Result<(), Error>,
    text: String,
    unpaid: usize,
}

impl<'a> Meter<'a> {
    pub(super) fn new(charge: &'a dyn Fn(u64) -> Result<(), Error>) -> Meter<'a> {
        Meter { charge, text: String::new(), unpaid: 0 }
    }

    pub(super) fn push(&mut self, text: &str) -> Result<(), Error> {
        self.text.push_str(text);
        self.unpaid += text.len().max(1);
        if self.unpaid >= BYTES_PER_FUEL {
            (self.charge)((self.unpaid / BYTES_PER_FUEL) as u64)?;
            self.unpaid %= BYTES_PER_FUEL;
        }
        Ok(())
    }

    pub(super) fn finish(self) -> String {
        self.text
    }
}

pub(super) fn check_depth(depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(Error::new(ErrorKind::InvalidOperation, "the value is nested too deeply to be printed"));
    }
    Ok(())
}

/// `str(value)`; undefined prints as nothing.
pub(super) fn str_of(state: &State, value: &Value) -> Result<String, Error> {
    if let Some(text) = value.as_str() {
        return Ok(text.to_owned());
    }
    if value.is_undefined() {
        return Ok(String::new());
    }
    let charge = |units| state.consume_fuel(units);
    let mut meter = Meter::new(&charge);
    write_repr(&mut meter, value, 0)?;
    Ok(meter.finish())
}

/// `str(value)` as a value; strings are passed on without a copy.
pub(super) fn as_string(state: &State, value: &Value) -> Result<Value, Error> {
    if value.kind() == ValueKind::String && !value.is_safe() {
        return Ok(value.clone());
    }
    str_of(state, value).map(Value::from)
}

/// `separator.join(items)` with `str` of each item.
pub(super) fn join(state: &State, separator: &str, items: Vec<Value>) -> Result<String, Error> {
    let charge = |units| state.consume_fuel(units);
    let mut meter = Meter::new(&charge);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            meter.push(separator)?;
        }
        match item.as_str() {
            Some(text) => meter.push(text)?,
            None => meter.push(&str_of(state, item)?)?,
        }
    }
    Ok(meter.finish())
}

fn write_repr(out: &mut Meter<'_>, value: &Value, depth: usize) -> Result<(), Error> {
    check_depth(depth)?;
    match value.kind() {
        ValueKind::Undefined => out.push("Undefined"),
        ValueKind::None => out.push("None"),
        ValueKind::Bool => out.push(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => out.push(&number_text(value)),
        ValueKind::String => out.push(&string_repr(value.as_str().unwrap_or_default())),
        ValueKind::Seq | ValueKind::Iterable => write_sequence(out, value, depth),
        ValueKind::Map => write_dict(out, value, depth),
        _ => out.push(&value.to_string()),
    }
}

fn write_sequence(out: &mut Meter<'_>, value: &Value, depth: usize) -> Result<(), Error> {
    let (open, close) = if value.is_tuple() { ("(", ")") } else { ("[", "]") };
    out.push(open)?;
    let mut n_items = 0;
    for item in value.try_iter()?.checked() {
        if n_items > 0 {
            out.push(", ")?;
        }
        write_repr(out, &item?, depth + 1)?;
        n_items += 1;
    }
    if value.is_tuple() && n_items == 1 {
        out.push(",")?;
    }
    out.push(close)
}

fn write_dict(out: &mut Meter<'_>, value: &Value, depth: usize) -> Result<(), Error> {
    out.push("{")?;
    for (index, (key, item)) in pairs(value).enumerate() {
        if index > 0 {
            out.push(", ")?;
        }
        write_repr(out, &key, depth + 1)?;
        out.push(": ")?;
        write_repr(out, &item, depth + 1)?;
    }
    out.push("}")
}

/// The entries of a map in their order; nothing for other values.
pub(super) fn pairs(value: &Value) -> impl Iterator<Item = (Value, Value)> {
    value.as_object().and_then(|object| object.try_iter_pairs()).into_iter().flatten()
}

/// Integers in digits, floats as `float_repr`.
pub(super) fn number_text(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float_repr)
}

/// Python's `repr(float)`: the shortest text that reads back as the same number, `e+20` style
/// exponents from 1e16 up and below 1e-4.
pub(super) fn float_repr(number: f64) -> String {
    if number.is_nan() {
        return "nan".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf".into() } else { "-inf".into() };
    }
    // Rust's debug form changes to exponents at the same two borders, but writes them as e20 and
    // e-5.
    let text = format!("{number:?}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => match exponent.strip_prefix('-') {
            Some(digits) => format!("{mantissa}e-{digits:0>2}"),
            None => format!("{mantissa}e+{exponent:0>2}"),
        },
        None => text,
    }
}

/// Python's `repr(str)`.
pub(super) fn string_repr(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::with_capacity(text.len() + 2);
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if c == quote => {
                out.push('\\');
                out.push(c);
            }
            _ if is_printable(c) => out.push(c),
            _ if u32::from(c) < 0x100 => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            _ if u32::from(c) < 0x1_0000 => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            _ => out.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    out.push(quote);
    out
}

/// Python's `str.isprintable` for one character.
fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return (' '..='~').contains(&c);
    }
    // The marks that the server itself puts into client text must reach the tokenizer as they are.
    if c == GUARD || c == CONTINUE_MARK {
        return true;
    }
    // `escape_debug` of a string escapes what Unicode calls other or separator, as Python does;
    // combining marks only when they come first, hence the letter in front.
    let mut pair = String::from("a");
    pair.push(c);
    pair.escape_debug().nth(1) == Some(c)
}
