//! Filters and tests where minijinja's own differ from jinja2's.

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

use super::{methods, python};

/// jinja2's `indent(width=4, first=False, blank=False)`: a line end at the end stays.
pub(super) fn indent(state: &State, value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<String, Error> {
    let mut given = [const { None }; 3];
    for (index, name) in ["width", "first", "blank"].into_iter().enumerate() {
        given[index] = kwargs.get::<Option<Value>>(name)?.or_else(|| args.get(index).cloned());
    }
    kwargs.assert_all_used()?;
    let [width, first, blank] = given;
    let margin = margin(&width.unwrap_or_else(|| Value::from(4)))?;
    let blank = blank.is_some_and(|v| v.is_true());
    let text = python::str_of(state, value)?;
    let mut out = String::with_capacity(text.len());
    if first.is_some_and(|v| v.is_true()) {
        out.push_str(&margin);
    }
    for (index, line) in methods::split_lines(&format!("{text}\n"), false).into_iter().enumerate() {
        state.consume_fuel(1 + margin.len() as u64 / 64)?;
        if index > 0 {
            out.push('\n');
            if blank || !line.is_empty() {
                out.push_str(&margin);
            }
        }
        out.push_str(line);
    }
    Ok(out)
}

/// A number of spaces, or a text as it is.
pub(super) fn margin(width: &Value) -> Result<String, Error> {
    if let Some(text) = width.as_str() {
        return Ok(text.to_owned());
    }
    let columns = i64::try_from(width.clone())?;
    match usize::try_from(columns.max(0)) {
        Ok(columns) if columns <= 256 => Ok(" ".repeat(columns)),
        _ => Err(Error::new(ErrorKind::InvalidOperation, format!("an indent of {columns} is more than 256"))),
    }
}

/// jinja2's `join(value, d='', attribute=None)` with Python text for what is not a string.
pub(super) fn join(state: &State, value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let separator: Option<Value> = kwargs.get("d")?;
    let attribute: Option<Value> = kwargs.get("attribute")?;
    kwargs.assert_all_used()?;
    let separator = args.first().cloned().or(separator).unwrap_or_else(|| Value::from(""));
    let attribute = args.get(1).cloned().or(attribute).filter(|a| !a.is_none());
    let mut items = Vec::new();
    for item in value.try_iter()?.checked() {
        state.consume_fuel(1)?;
        items.push(match &attribute {
            Some(path) => attribute_of(item?, path)?,
            None => item?,
        });
    }
    python::join(state, &python::str_of(state, &separator)?, items).map(Value::from)
}

/// Follows `a.b.0` as jinja2's attribute arguments do.
fn attribute_of(item: Value, path: &Value) -> Result<Value, Error> {
    let Some(path) = path.as_str() else { return item.get_item(path) };
    path.split('.').try_fold(item, |value, part| match part.parse::<usize>() {
        Ok(index) => value.get_item_by_index(index),
        Err(_) => value.get_attr(part),
    })
}

/// jinja2 calls everything with a length and items a sequence, strings and dicts too.
pub(super) fn is_sequence(value: &Value) -> bool {
    value.is_undefined() || matches!(value.kind(), ValueKind::Seq | ValueKind::String | ValueKind::Map)
}

pub(super) fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}
