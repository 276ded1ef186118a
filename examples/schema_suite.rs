//! A public suite of JSON schemas against our front end:
//! `cargo run --release --no-default-features --example schema_suite -- FOLDER`, a folder of files in the form of the
//! JSON-Schema-Test-Suite (docs/grammars.md says where one is and how it went).
//!
//! Of each schema: is it taken, refused, or taken with parts that are not enforced? Of each value: is the verdict the
//! suite's? A value is written compactly, its properties in the schema's order, which is the order that we generate.

#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};

use plateau::grammar::{Compiled, Engine, Source, Vocabulary};
use plateau::units::Token;
use serde_json::{Map, Value};

#[derive(Default)]
struct Counts {
    schemas: usize,
    whole: usize,
    widened: usize,
    refused: usize,
    right: usize,
    /// Valid, and not accepted.
    strict: usize,
    /// Invalid and accepted, where the schema is said to be less strict.
    loose: usize,
    /// Invalid and accepted, and nothing was said: a fault.
    wrong: usize,
    /// How often each keyword was left out.
    lost: BTreeMap<String, usize>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("argument: FOLDER")?;
    let engine = Engine::new(Vocabulary::bytes(&[]))?;
    let mut counts = Counts::default();
    for path in files(Path::new(&folder))? {
        let groups: Value = serde_json::from_str(&std::fs::read_to_string(&path)?)?;
        for group in groups.as_array().into_iter().flatten() {
            judge(&engine, group, &path, &mut counts);
        }
    }
    let Counts { schemas, whole, widened, refused, right, strict, loose, wrong, .. } = counts;
    println!("{schemas} schemas: {whole} as they are, {widened} less strict and said so, {refused} refused");
    println!(
        "{} values: {right} as the suite says, {strict} valid and not accepted, {loose} accepted where less strict was said, {wrong} accepted wrongly",
        right + strict + loose + wrong
    );
    for (keyword, n) in &counts.lost {
        println!("  not enforced: {keyword} ({n})");
    }
    Ok(())
}

fn files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            all.extend(files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "json") {
            all.push(path);
        }
    }
    all.sort();
    Ok(all)
}

fn judge(engine: &Engine, group: &Value, path: &Path, counts: &mut Counts) {
    counts.schemas += 1;
    let schema = &group["schema"];
    let place = format!("{}: {}", path.file_name().unwrap_or_default().display(), group["description"]);
    let compiled = match engine.compile(&Source::JsonSchema(schema.clone())) {
        Ok(compiled) => compiled,
        Err(error) => {
            counts.refused += 1;
            println!("refused: {place}: {error}");
            return;
        }
    };
    let is_whole = compiled.relaxed().is_empty();
    if is_whole {
        counts.whole += 1;
    } else {
        counts.widened += 1;
    }
    for relaxed in compiled.relaxed() {
        let keyword = relaxed.what.split([' ', ':']).next().unwrap_or_default().to_owned();
        *counts.lost.entry(keyword).or_default() += 1;
    }
    for test in group["tests"].as_array().into_iter().flatten() {
        let text = ordered(&test["data"], schema).to_string();
        match (test["valid"] == true, accepts(&compiled, &text)) {
            (true, false) => {
                counts.strict += 1;
                println!("strict: {place}: {text}");
            }
            (false, true) if is_whole => {
                counts.wrong += 1;
                println!("WRONG: {place}: {text} under {schema}");
            }
            (false, true) => counts.loose += 1,
            _ => counts.right += 1,
        }
    }
}

fn accepts(compiled: &Compiled, text: &str) -> bool {
    let mut matcher = compiled.matcher();
    text.bytes().all(|byte| matcher.accept(Token(byte.into())).is_ok()) && matcher.is_accepting()
}

/// The value with its properties in the schema's order, others after them.
fn ordered(value: &Value, schema: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let known = schema["properties"].as_object();
            let mut out = Map::new();
            for (name, inner) in known.into_iter().flatten() {
                if let Some(value) = map.get(name) {
                    out.insert(name.clone(), ordered(value, inner));
                }
            }
            for (name, value) in map {
                if !out.contains_key(name) {
                    out.insert(name.clone(), value.clone());
                }
            }
            Value::Object(out)
        }
        Value::Array(items) => items.iter().map(|item| ordered(item, &schema["items"])).collect(),
        other => other.clone(),
    }
}
