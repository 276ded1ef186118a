//! minijinja made to print what jinja2 (with the settings of transformers) prints: `tojson`, Python
//! repr and float text, string methods, `raise_exception`, `strftime_now`, fuel.
//!
//! Deliberately not done: loaders, includes of other templates and access to the process (a
//! template comes out of a model file and is not trusted); methods that change a list or dict (the
//! sandbox of transformers refuses them too); the HTML escaping that jinja2's `Markup` does when it
//! is added to a plain string (`|safe` gives a plain string here); an error where a template
//! iterates over None (minijinja finds nothing in it); integers beyond 64 bits in client JSON (they
//! arrive as floats).
//!
//! Known limit: fuel bounds time and memory (methods pay for what they read, what they make is
//! charged by minijinja), but a template written to nest lists tens of thousands deep still
//! overflows the stack when minijinja drops them. A request cannot do that, only a template.

mod filters;
mod format;
mod methods;
mod python;
mod rewrite;
mod tojson;
mod values;

use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, Value, syntax::SyntaxConfig};

pub use rewrite::rewrite;
pub use values::from_json;

/// What `raise_exception` was called with; the source of the minijinja error, so that the text can
/// be told from a fault.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Raised(pub String);

/// An environment with everything of this module registered; templates get at most `fuel` units of
/// work (one an instruction, one for each 64 bytes copied or 4 bytes written by `tojson` or `str`).
/// Sources go through [`rewrite`] first.
pub fn environment(fuel: u64) -> Environment<'static> {
    let mut env = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    env.set_syntax(syntax.expect("the default delimiters are distinct"));
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_fuel(Some(fuel));
    env.set_formatter(print);
    env.set_unknown_method_callback(methods::call);
    env.remove_global("debug");
    env.add_function("raise_exception", raise_exception);
    env.add_filter("tojson", tojson::filter);
    env.add_filter("string", string);
    env.add_filter("safe", string);
    env.add_filter("join", filters::join);
    env.add_filter("indent", filters::indent);
    env.add_filter(rewrite::PRINTF_FILTER, format::printf);
    env.add_test("sequence", filters::is_sequence);
    env.add_test("iterable", filters::is_iterable);
    env
}

/// `{{ value }}`: strings as they are, everything else as Python's `str` has it.
fn print(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    match value.as_str() {
        Some(text) => out.write_str(text)?,
        None => out.write_str(&python::str_of(state, value)?)?,
    }
    Ok(())
}

fn raise_exception(message: &Value) -> Result<Value, Error> {
    let text = message.to_string();
    Err(Error::new(ErrorKind::InvalidOperation, text.clone()).with_source(Raised(text)))
}

fn string(state: &State, value: &Value) -> Result<Value, Error> {
    python::as_string(state, value)
}

#[cfg(test)]
mod tests;
