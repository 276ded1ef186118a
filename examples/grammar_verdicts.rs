//! Texts at and around the edge of a GBNF grammar, each with our verdict, for `scripts/grammar-peer.sh`, which asks
//! llama.cpp for its own: `cargo run --no-default-features --example grammar_verdicts -- FILE COUNT`.
//!
//! A line has a letter (`W` whole, `B` the beginning of a whole text, `I` neither) and the text's bytes in hexadecimal digits.
//! Texts are random walks over what the grammar allows, cut at a random place and changed at a few.

#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::collections::HashSet;
use std::error::Error;

use plateau::grammar::{Compiled, Engine, Source, Vocabulary};
use plateau::units::Token;
use rand_core::{RngCore, SeedableRng};

/// Bytes after which a walk prefers what closes.
const PATIENCE: usize = 60;
const LONGEST: usize = 400;
const CLOSING: &[u8] = b"\"}])=;.\n";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, file, count] = &arguments[..] else { return Err("arguments: FILE COUNT".into()) };
    let engine = Engine::new(Vocabulary::bytes(&[]))?;
    let compiled = engine.compile(&Source::Gbnf(std::fs::read_to_string(file)?))?;
    let mut rng = rand_pcg::Pcg64::seed_from_u64(1);
    let (mut seen, mut tries) = (HashSet::new(), 0);
    let count: usize = count.parse()?;
    while seen.len() < count && tries < 100 * count {
        tries += 1;
        let text = changed(&walk(&compiled, &mut rng)?, &mut rng);
        // llama.cpp reads U+0000 as the end of a token's text.
        if !text.contains('\0') && seen.insert(text.clone()) {
            let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
            println!("{} {hex}", verdict(&compiled, &text));
        }
    }
    Ok(())
}

fn walk(compiled: &Compiled, rng: &mut rand_pcg::Pcg64) -> Result<String, Box<dyn Error>> {
    let mut matcher = compiled.matcher();
    let mut bytes: Vec<u8> = Vec::new();
    while bytes.len() < LONGEST || std::str::from_utf8(&bytes).is_err() {
        if matcher.is_finished() || (matcher.is_accepting() && rng.next_u32().is_multiple_of(12)) {
            break;
        }
        let mask = matcher.mask()?;
        let allowed: Vec<u8> = (0..=255).filter(|&b| mask[usize::from(b) / 32] >> (b % 32) & 1 == 1).collect();
        let closing: Vec<u8> = allowed.iter().copied().filter(|byte| CLOSING.contains(byte)).collect();
        let ascii: Vec<u8> = allowed.iter().copied().filter(u8::is_ascii).collect();
        // Half of what most grammars allow are the beginnings of long characters.
        let from = match rng.next_u32() % 4 {
            1..=3 if bytes.len() > PATIENCE && !closing.is_empty() => &closing,
            1 | 2 if !ascii.is_empty() => &ascii,
            _ => &allowed,
        };
        let byte = from[rng.next_u32() as usize % from.len()];
        matcher.accept(Token(byte.into()))?;
        bytes.push(byte);
    }
    Ok(String::from_utf8(bytes)?)
}

fn changed(text: &str, rng: &mut rand_pcg::Pcg64) -> String {
    let mut text: Vec<char> = text.chars().collect();
    let mut below = |n: usize| rng.next_u32() as usize % n.max(1);
    if below(3) == 0 {
        text.truncate(below(text.len() + 1));
    }
    for _ in 0..[0, 0, 1, 1, 2, 4][below(6)] {
        let other = [' ', '\n', '"', '(', ')', '0', 'a', 'Z', ',', '\\', '\u{E9}', '\u{3042}', '\u{1F600}'][below(13)];
        let at = below(text.len());
        match below(4) {
            0 => text.insert(at, other),
            1 if at < text.len() => text[at] = other,
            2 if at < text.len() => _ = text.remove(at),
            _ if text.len() > 1 => {
                let from = below(text.len());
                text.swap(at, from);
            }
            _ => text.push(other),
        }
    }
    text.into_iter().collect()
}

fn verdict(compiled: &Compiled, text: &str) -> char {
    let mut matcher = compiled.matcher();
    match text.bytes().all(|byte| matcher.accept(Token(byte.into())).is_ok()) {
        false => 'I',
        true if matcher.is_accepting() => 'W',
        true => 'B',
    }
}
