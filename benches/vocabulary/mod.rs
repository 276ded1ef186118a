//! The tokens that masks are worked out over.

use std::collections::HashMap;

use plateau::grammar::Vocabulary;
use plateau::units::Token;
use rand_core::{RngCore, SeedableRng};

const N_VOCAB: usize = 248_320;

/// A vocabulary, and what the bench itself needs of it.
pub struct Tokens {
    pub vocabulary: Vocabulary,
    pub end_of_call: Token,
    by_piece: HashMap<Vec<u8>, Token>,
}

impl Tokens {
    /// The tokens of `text`, each the longest that fits.
    pub fn cut(&self, text: &str) -> Vec<Token> {
        let mut rest = text.as_bytes();
        let mut tokens = Vec::new();
        while !rest.is_empty() {
            let fits = (1..=rest.len()).rev().find_map(|n| Some((n, *self.by_piece.get(&rest[..n])?)));
            let (n, token) = fits.expect("all bytes are tokens");
            tokens.push(token);
            rest = &rest[n..];
        }
        tokens
    }
}

/// The tokens of the file that `RANKS` names, or made up.
pub fn tokens() -> Tokens {
    let ranks = std::env::vars_os().find(|(name, _)| name == "RANKS");
    let mut pieces = ranks.map_or_else(made_up, |(_, file)| {
        let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        text.lines().map(|line| base64(line.split(' ').next().unwrap_or_default())).collect()
    });
    let by_piece = pieces.iter().enumerate().map(|(id, piece)| (piece.clone(), Token(id as u32))).collect();
    let n_text = pieces.len();
    pieces.push(b"</tool_call>".to_vec());
    pieces.push(b"<|im_end|>".to_vec());
    let (end_of_call, end) = (Token(n_text as u32), Token(n_text as u32 + 1));
    let special = (0..pieces.len()).map(|id| id >= n_text).collect();
    Tokens { vocabulary: Vocabulary { pieces, special, end: vec![end], tokenize: None }, end_of_call, by_piece }
}

fn base64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut n) = (Vec::new(), 0_u32, 0);
    for digit in text.bytes().filter_map(|c| DIGITS.iter().position(|digit| *digit == c)) {
        (bits, n) = (bits << 6 | digit as u32, n + 6);
        if n >= 8 {
            n -= 8;
            bytes.push((bits >> n) as u8);
        }
    }
    bytes
}

fn made_up() -> Vec<Vec<u8>> {
    let mut rng = rand_pcg::Pcg64::seed_from_u64(1);
    let mut pieces: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    let mut known: std::collections::HashSet<Vec<u8>> = pieces.iter().cloned().collect();
    let letters = b"etaoinshrdlcumwfgypbvkjxqz";
    let marks: &[&[u8]] =
        &[b"{\"", b"\":", b"\",", b"\"}", b"()", b");\n", b"\n\n", b"    ", b"\t\t", b" =", b"==", b"://"];
    pieces.extend(marks.iter().map(|mark| mark.to_vec()));
    while pieces.len() < N_VOCAB - 2 {
        let mut piece = Vec::new();
        match rng.next_u32() % 20 {
            0 => piece.extend("\u{4E00}".as_bytes()),
            1 => (0..1 + rng.next_u32() % 3).for_each(|_| piece.push(b'0' + (rng.next_u32() % 10) as u8)),
            2..=10 => piece.push(b' '),
            _ => {}
        }
        let length = 2 + rng.next_u32() % 11;
        for _ in 0..length {
            // Few letters are frequent.
            let rank = (rng.next_u32() % 26).min(rng.next_u32() % 26);
            piece.push(letters[rank as usize]);
        }
        if rng.next_u32() % 8 == 0
            && let Some(first) = piece.iter_mut().find(|byte| byte.is_ascii_lowercase())
        {
            first.make_ascii_uppercase();
        }
        if known.insert(piece.clone()) {
            pieces.push(piece);
        }
    }
    pieces
}
