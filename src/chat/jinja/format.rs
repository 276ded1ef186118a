//! `'%s' % x` and `'{}'.format(x)` with Python text for containers.

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, State, Value};

use super::python;

/// `text % arguments`: a tuple gives one argument to each field, a dict serves `%(name)s`, anything
/// else is one argument.
pub(super) fn printf(state: &mut State, text: &Value, argument: &Value) -> Result<Value, Error> {
    let Some(pattern) = text.as_str() else {
        return Err(Error::new(ErrorKind::InvalidOperation, "the left side of % must be a string"));
    };
    let mut args = vec![text.clone()];
    if argument.is_tuple() {
        for item in argument.try_iter()?.checked() {
            args.push(printable(state, &item?)?);
        }
    } else if argument.kind() == ValueKind::Map && pattern.contains("%(") {
        args.push(argument.clone());
    } else {
        args.push(printable(state, argument)?);
    }
    // minijinja's own filter checks widths against the fuel before it pads.
    state.apply_filter("format", &args)
}

/// `text.format(arguments)`.
pub(super) fn str_format(state: &mut State, text: &Value, args: &[Value]) -> Result<Value, Error> {
    let pattern = text.as_str().unwrap_or_default();
    check_widths(pattern)?;
    let args = args
        .iter()
        .map(|arg| if arg.is_kwargs() { Ok(arg.clone()) } else { printable(state, arg) })
        .collect::<Result<Vec<Value>, Error>>()?;
    minijinja_contrib::pycompat::unknown_method_callback(state, text, "format", &args)
}

/// Containers become their text, since minijinja would print them its own way; scalars stay, they
/// have formats.
fn printable(state: &State, value: &Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable | ValueKind::Map => python::str_of(state, value).map(Value::from),
        _ => Ok(value.clone()),
    }
}

/// `str.format` pads without asking the fuel, so a width that no prompt needs is refused, as is one
/// that is computed.
fn check_widths(pattern: &str) -> Result<(), Error> {
    let longest = pattern.split(|c: char| !c.is_ascii_digit()).map(str::len).max().unwrap_or(0);
    let nested = pattern.split('{').any(|piece| piece.ends_with(':'));
    if longest > 4 || nested {
        return Err(Error::new(ErrorKind::InvalidOperation, "this width in str.format is not supported"));
    }
    Ok(())
}
