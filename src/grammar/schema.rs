//! JSON Schema: from what a client sends to what `llguidance` compiles, less strict where that is out of reach.
//!
//! `read` makes nodes of the subschemas, resolves references and checks keywords. `expand` takes conjunctions of nodes apart:
//! for each kind of value the alternatives, with `allOf`, `anyOf`, `oneOf`, `not`, `if` and references followed. What a
//! property or an item has to satisfy is a conjunction again, taken apart once (`states`). `write` prints the result as a
//! schema of simple keywords. `weaken` compiles that and, if it fails, finds the smallest part that fails and makes it less
//! strict. Each loss is listed with its JSON pointer. What cannot be repaired (a malformed schema, a remote reference, a
//! schema without any value) is an error: never an unconstrained whole.
//!
//! Two things are stricter than the standard: an object that lists its properties and says nothing of others has no others,
//! and a schema that names no type has the type that its keywords speak of. Whitespace is a space, or a line break with
//! indentation, between tokens.

mod arguments;
mod clean;
mod draft;
mod expand;
mod finish;
mod formats;
mod judge;
mod keywords;
mod node;
mod object;
mod patterns;
mod read;
mod refs;
mod refute;
mod shape;
mod states;
mod weaken;
mod write;

pub(super) use arguments::{Arguments, Content, Extent, Form, Others};
use node::Kind;
pub(super) use patterns::has_text;
use serde_json::Value;
pub(super) use shape::StateId;
use states::States;
use write::{Reached, Wanted};

use super::error::GrammarError;
use super::relaxed::Relaxed;

/// Bytes of a schema as compact JSON.
const MAX_BYTES: usize = 2 * 1024 * 1024;

/// The schema for `llguidance`, and what it does not enforce.
pub(super) fn lower(schema: &Value) -> Result<(Value, Vec<Relaxed>), GrammarError> {
    let (mut states, root) = read(schema)?;
    let reached = Reached::of(&mut states, root)?;
    finished(&mut states, &reached, root, &|_| true)
}

/// As `lower`, of the values that are objects.
pub(super) fn lower_object(schema: &Value) -> Result<(Value, Vec<Relaxed>), GrammarError> {
    let (mut states, root) = read(schema)?;
    let reached = Reached::of(&mut states, root)?;
    finished(&mut states, &reached, root, &|kind| kind == Kind::Object)
}

fn read(schema: &Value) -> Result<(States, StateId), GrammarError> {
    let bytes = serde_json::to_string(schema).map_or(0, |text| text.len());
    GrammarError::within("bytes of the schema", bytes, MAX_BYTES)?;
    let mut states = States::new(read::read(schema)?);
    let root = states.root();
    Ok((states, root))
}

fn finished(
    states: &mut States,
    reached: &Reached,
    root: StateId,
    wanted: Wanted,
) -> Result<(Value, Vec<Relaxed>), GrammarError> {
    let mut clean = write::document(states, reached, root, wanted);
    weaken::weaken(&mut clean)?;
    Ok((clean.document(), clean.relaxed))
}
