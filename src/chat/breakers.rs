//! DRY's sequence breakers: texts -> every token that holds one of them, as llama.cpp has it. A run
//! then ends at "\n\n" too where the breaker is "\n".
//!
//! Deliberately absent: breakers that only several tokens together spell. A text that is in no
//! token is refused.

use std::sync::Arc;

use aho_corasick::AhoCorasick;

use super::error::RequestError;
use crate::text::tokenizer::Tokenizer;
use crate::units::Token;

/// Texts over which repeated runs do not reach when the request names none.
const DEFAULTS: [&str; 4] = ["\n", ":", "\"", "*"];
/// Enough for any list that a client makes on purpose.
const MAX_BREAKERS: usize = 64;
/// No useful piece of text in a vocabulary is longer.
const MAX_BYTES: usize = 128;

const FIELD: &str = "dry_sequence_breakers";

/// The breaking tokens, ascending. One pass over the vocabulary: only where `used` says that DRY is
/// on; else the texts are checked and that is all.
pub(super) fn tokens(texts: Option<&[String]>, used: bool, tokenizer: &Tokenizer) -> Result<Arc<[u32]>, RequestError> {
    let (texts, named) = match texts {
        None => (DEFAULTS.to_vec(), false),
        Some(texts) => (checked(texts)?, true),
    };
    if !used {
        return Ok(Arc::default());
    }
    let pieces = (0..tokenizer.n_vocab() as u32).map(|id| (id, tokenizer.piece(Token(id))));
    let (tokens, unseen) = holding(&texts, pieces);
    match unseen {
        // A vocabulary without one of the defaults has nothing to break there.
        Some(index) if named => {
            let message = format!("no token of this model holds the breaker {:?}; leave it out", texts[index]);
            Err(RequestError::invalid(format!("{FIELD}[{index}]"), message))
        }
        _ => Ok(tokens.into()),
    }
}

fn checked(texts: &[String]) -> Result<Vec<&str>, RequestError> {
    if texts.len() > MAX_BREAKERS {
        let message = format!("{} sequence breakers were sent, at most {MAX_BREAKERS} are served", texts.len());
        return Err(RequestError::too_large(FIELD, message));
    }
    for (i, text) in texts.iter().enumerate() {
        let path = format!("{FIELD}[{i}]");
        if text.is_empty() {
            return Err(RequestError::invalid(path, "an empty breaker would stand everywhere; leave it out"));
        }
        if text.len() > MAX_BYTES {
            let message = format!("`{path}` has {} bytes, at most {MAX_BYTES} are served", text.len());
            return Err(RequestError::too_large(path, message));
        }
    }
    Ok(texts.iter().map(String::as_str).collect())
}

/// The tokens whose bytes hold one of `texts`, and the first text that none holds.
fn holding<'a>(texts: &[&str], pieces: impl Iterator<Item = (u32, &'a [u8])>) -> (Vec<u32>, Option<usize>) {
    let finder = AhoCorasick::new(texts).expect("64 texts of 128 bytes are far below the limits of the tables");
    let mut seen = vec![false; texts.len()];
    let mut tokens = Vec::new();
    for (id, piece) in pieces {
        let mut holds = false;
        for found in finder.find_overlapping_iter(piece) {
            seen[found.pattern().as_usize()] = true;
            holds = true;
        }
        if holds {
            tokens.push(id);
        }
    }
    (tokens, seen.iter().position(|seen| !seen))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_also_ends_at_tokens_that_hold_more_than_the_breaker() {
        let pieces: [&[u8]; 8] = [b"a", b"\n", b"\n\n", b":\n", b" \"", b"**", b"<|im_end|>", b"\xE2\x80"];
        let pieces = (0..).zip(pieces);
        assert_eq!(holding(&DEFAULTS, pieces.clone()), (vec![1, 2, 3, 4, 5], None));
        assert_eq!(holding(&["im", "two", "*"], pieces.clone()), (vec![5, 6], Some(1)));
        assert_eq!(holding(&["\n", "\n\n"], pieces), (vec![1, 2, 3], None), "a text inside another one counts too");
    }

    #[test]
    fn a_breaker_that_cannot_break_is_refused_by_its_index() {
        let tokenizer = Tokenizer::bytes_for_tests();
        let asked = |text: &str, used| tokens(Some(&["x".to_owned(), text.to_owned()]), used, &tokenizer);
        for text in ["two", "", &"y".repeat(129)] {
            assert_eq!(asked(text, true).unwrap_err().param.as_deref(), Some("dry_sequence_breakers[1]"), "{text:.9}");
        }
        // The x of <|endoftext|> counts too.
        assert_eq!(*asked("y", true).unwrap(), [120, 121, 262]);
        assert!(asked("two", false).unwrap().is_empty(), "the vocabulary is not searched where DRY is off");
        assert_eq!(*tokens(None, true, &tokenizer).unwrap(), [10, 34, 42, 58]);
        let many = vec!["x".to_owned(); 65];
        assert_eq!(tokens(Some(&many), false, &tokenizer).unwrap_err().param.as_deref(), Some("dry_sequence_breakers"));
    }
}
