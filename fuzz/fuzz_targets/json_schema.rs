//! Any JSON is refused or compiled without a panic, and what is then accepted as a whole is JSON.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use plateau::grammar::{Engine, Source, Vocabulary};
use plateau::units::Token;

static ENGINE: LazyLock<Engine> =
    LazyLock::new(|| Engine::new(Vocabulary::bytes(&[])).expect("a vocabulary of bytes is well formed"));

fuzz_target!(|input: (String, String)| {
    let (schema, text) = input;
    let Ok(schema) = serde_json::from_str(&schema) else { return };
    let Ok(compiled) = ENGINE.compile(&Source::JsonSchema(schema)) else { return };
    let mut matcher = compiled.matcher();
    let whole = text.bytes().all(|byte| matcher.accept(Token(u32::from(byte))).is_ok()) && matcher.is_accepting();
    if whole {
        // Numbers that no f64 holds are JSON all the same.
        let is_json = serde_json::from_str::<serde_json::Value>(&text);
        assert!(is_json.is_ok() || is_json.is_err_and(|error| error.to_string().contains("out of range")), "{text}");
    }
});
