//! A generation without a model: random tokens of the mask, in a hurry to end.

use plateau::grammar::Matcher;
use plateau::units::Token;
use rand_core::{RngCore, SeedableRng};

/// After so many tokens mostly what closes is taken, where there is such.
const PATIENCE: usize = 60;
const LIMIT: usize = 20_000;

/// Text from a vocabulary of bytes, whose last token ends it.
pub fn generate(matcher: &mut Matcher, seed: u64) -> String {
    let mut rng = rand_pcg::Pcg64::seed_from_u64(seed);
    let mut bytes = Vec::new();
    for step in 0..LIMIT {
        let mask = matcher.mask().unwrap_or_else(|error| panic!("{error} after {:?}", String::from_utf8_lossy(&bytes)));
        let allowed: Vec<u32> =
            (0..mask.len() as u32 * 32).filter(|id| mask[*id as usize / 32] >> (id % 32) & 1 == 1).collect();
        let hurry = (step > PATIENCE && rng.next_u32() % 4 != 0) || rng.next_u32() % 3 == 0;
        let closing = allowed.iter().copied().find(|&id| id >= 256 || (hurry && b"\"}]".contains(&(id as u8))));
        let closing = closing.filter(|&id| id < 256 || hurry);
        let token = closing.unwrap_or_else(|| allowed[rng.next_u32() as usize % allowed.len()]);
        matcher.accept(Token(token)).unwrap();
        match u8::try_from(token) {
            Ok(byte) => bytes.push(byte),
            Err(_) => return String::from_utf8(bytes).unwrap(),
        }
    }
    panic!("no end after {LIMIT} tokens: {:?}", String::from_utf8_lossy(&bytes[..200]))
}
