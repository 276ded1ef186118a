//! Any text is refused or lowered without a panic, and the errors name a place inside the text.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use plateau::grammar::{Engine, GrammarError, Source, Vocabulary, gbnf, thinking};
use plateau::units::Token;

static ENGINE: LazyLock<Engine> = LazyLock::new(|| {
    Engine::new(Vocabulary::bytes(&["<think>".to_owned()])).expect("a vocabulary of bytes is well formed")
});

fuzz_target!(|input: (String, Vec<u8>)| {
    let (text, bytes) = input;
    let grammar = match gbnf::parse(&text) {
        Ok(grammar) => grammar,
        Err(GrammarError::Text { at, .. }) => {
            assert!(at.line <= text.matches('\n').count() + 1 && at.column >= 1);
            return;
        }
        Err(_) => return,
    };
    let longest = thinking::longest(&grammar);
    // A grammar may name tokens that this vocabulary lacks, or be too large for the lexer.
    let Ok(compiled) = ENGINE.compile(&Source::Gbnf(text)) else { return };
    let mut matcher = compiled.matcher();
    let accepted = bytes.iter().take_while(|byte| matcher.accept(Token(u32::from(**byte))).is_ok()).count();
    let characters = bytes[..accepted].iter().filter(|byte| **byte & 0xC0 != 0x80).count() as u64;
    assert!(longest.is_none_or(|longest| characters <= longest));
    matcher.rollback(accepted).expect("as many tokens as were accepted");
});
