//! Byte-level BPE over the `tokenizers` crate, built from the vocabulary and merges of the GGUF.
//!
//! Deliberately absent: normalisation. The Qwen family's tokenizer.json composes characters (NFC) first; llama.cpp does
//! not, and a model that is to repeat a decomposed file name must have seen it as it is. So `decode(encode(x)) == x`.
//! Absent too: pre-tokenizers that are not in `Pre`; for those the caller uses llama.cpp's own codec.

use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};
use tokenizers::models::bpe::{BPE, Merges, Vocab};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{Model, PreTokenizerWrapper, SplitDelimiterBehavior};

use super::pieces::PieceTable;
use super::tokenizer::{Codec, CodecError};
use crate::gguf::{TokenKind, VocabFacts};
use crate::units::Token;

/// Why a vocabulary has no codec here.
#[derive(Debug, thiserror::Error)]
pub enum HfCodecError {
    /// The caller falls back to llama.cpp's codec.
    #[error("no tokenizer here for model {model:?} with pre-tokenizer {pre:?}")]
    Unsupported { model: String, pre: String },
    #[error("cannot build the tokenizer: {0}")]
    Build(String),
}

/// Families of pre-tokenizers, by how they cut text into words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pre {
    Gpt2,
    Llama3,
    Qwen2,
    Qwen35,
    Smollm,
}

impl Pre {
    fn from_name(name: &str) -> Option<Pre> {
        Some(match name {
            "gpt-2" | "phi-2" | "gigachat" | "a.x-4.0" | "mellum" | "modern-bert" | "exaone4" => Pre::Gpt2,
            "llama3" | "llama-v3" | "llama-bpe" | "falcon3" | "falcon-h1" | "pixtral" | "midm-2.0" | "lfm2" => {
                Pre::Llama3
            }
            "qwen2" | "deepseek-r1-qwen" | "kormo" | "megrez" => Pre::Qwen2,
            "qwen35" => Pre::Qwen35,
            "smollm" | "starcoder" | "refact" | "command-r" | "codeshell" => Pre::Smollm,
            _ => return None,
        })
    }

    /// The expression that matches one word; `None`: the one of GPT-2, which the crate has built in.
    fn word(self) -> Option<&'static str> {
        match self {
            Pre::Gpt2 | Pre::Smollm => None,
            Pre::Llama3 => Some(
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
            ),
            Pre::Qwen2 => Some(
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
            ),
            Pre::Qwen35 => Some(
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
            ),
        }
    }

    fn steps(self) -> Result<Vec<PreTokenizerWrapper>, HfCodecError> {
        let mut steps = Vec::new();
        if self == Pre::Smollm {
            steps.push(PreTokenizerWrapper::Digits(Digits::new(true)));
        }
        let bytes = match self.word() {
            None => ByteLevel::new(false, false, true),
            Some(word) => {
                let pattern = SplitPattern::Regex(word.to_owned());
                let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false).map_err(build_error)?;
                steps.push(PreTokenizerWrapper::Split(split));
                ByteLevel::new(false, false, false)
            }
        };
        steps.push(PreTokenizerWrapper::ByteLevel(bytes));
        Ok(steps)
    }
}

/// Runs of white space of more characters than this are cut here. The expressions try `\s+(?!\S)` by backtracking and keep
/// an entry a character for it; beyond a million the engine gives up, and the crate takes the rest of the text for one word.
const LONG_RUN: usize = 10_000;

/// The codec of a byte-level BPE vocabulary.
pub struct HfCodec {
    bpe: tokenizers::Tokenizer,
    pre: Pre,
    long_run: usize,
    /// Finds user-defined tokens, the longest at the leftmost place. `None`: the vocabulary has none.
    user_defined: Option<(AhoCorasick, Vec<Token>)>,
    pieces: PieceTable,
    name: String,
}

impl HfCodec {
    /// Builds the codec, or says `Unsupported`.
    pub fn new(vocab: &VocabFacts) -> Result<HfCodec, HfCodecError> {
        let unsupported = || HfCodecError::Unsupported { model: vocab.model.clone(), pre: vocab.pre.clone() };
        let pre = Some(&vocab.pre).filter(|_| vocab.model == "gpt2").and_then(|pre| Pre::from_name(pre));
        let pre = pre.ok_or_else(unsupported)?;
        let (words, merges) = words_and_merges(vocab);
        let model = BPE::builder().vocab_and_merges(words, merges).ignore_merges(pre == Pre::Llama3).build();
        let mut bpe = tokenizers::Tokenizer::new(model.map_err(build_error)?);
        bpe.with_pre_tokenizer(Some(Sequence::new(pre.steps()?)));
        let mut pieces = PieceTable::with_capacity(vocab.tokens.len());
        for (text, kind) in vocab.tokens.iter().zip(&vocab.kinds) {
            pieces.push(&piece(text, *kind));
        }
        let name = format!("tokenizers ({})", vocab.pre);
        Ok(HfCodec { bpe, pre, long_run: LONG_RUN, user_defined: user_defined(vocab)?, pieces, name })
    }

    /// Encodes text without user-defined tokens.
    fn encode_plain(&self, text: &str, tokens: &mut Vec<Token>) -> Result<(), CodecError> {
        let mut rest = text;
        while let Some(blank) = self.long_blank(rest) {
            self.encode_words(&rest[..blank.start], tokens)?;
            self.encode_word(&rest[blank.clone()], tokens)?;
            rest = &rest[blank.end..];
        }
        self.encode_words(rest, tokens)
    }

    fn encode_words(&self, text: &str, tokens: &mut Vec<Token>) -> Result<(), CodecError> {
        if text.is_empty() {
            return Ok(());
        }
        let encoding = self.bpe.encode_fast(text, false).map_err(|error| CodecError(error.to_string()))?;
        tokens.extend(encoding.get_ids().iter().map(|&id| Token(id)));
        Ok(())
    }

    /// Encodes text that is one word, whatever is in it.
    fn encode_word(&self, word: &str, tokens: &mut Vec<Token>) -> Result<(), CodecError> {
        let word: String = word.bytes().map(character_of).collect();
        let found = self.bpe.get_model().tokenize(&word).map_err(|error| CodecError(error.to_string()))?;
        tokens.extend(found.iter().map(|token| Token(token.id)));
        Ok(())
    }

    /// The first word that consists of a long run of white space alone, as the expressions would cut it: all of the run
    /// behind its last line end (GPT-2's knows no line ends), but for the last character where a word follows, which may
    /// begin with it. Nothing else in the expressions reaches over a border of it: they look forward only, no word has white
    /// space inside, and those that end in line ends end before it.
    fn long_blank(&self, text: &str) -> Option<Range<usize>> {
        let ends_lines = |c: char| self.pre.word().is_some() && matches!(c, '\r' | '\n');
        let (mut start, mut last, mut n) = (0, 0, 0);
        for (at, c) in text.char_indices() {
            if c.is_whitespace() && !ends_lines(c) {
                (start, last, n) = if n == 0 { (at, at, 1) } else { (start, at, n + 1) };
                continue;
            }
            // A run before a line end belongs to one word with it, without backtracking.
            if n > self.long_run && !ends_lines(c) {
                // Digits are cut off first: they do not follow.
                let end = if self.pre == Pre::Smollm && c.is_numeric() { at } else { last };
                return Some(start..end);
            }
            n = 0;
        }
        (n > self.long_run).then_some(start..text.len())
    }
}

impl Codec for HfCodec {
    fn encode(&self, text: &str) -> Result<Vec<Token>, CodecError> {
        let mut tokens = Vec::with_capacity(text.len() / 3 + 1);
        let mut done = 0;
        if let Some((finder, ids)) = &self.user_defined {
            for found in finder.find_iter(text) {
                self.encode_plain(&text[done..found.start()], &mut tokens)?;
                tokens.push(ids[found.pattern().as_usize()]);
                done = found.end();
            }
        }
        self.encode_plain(&text[done..], &mut tokens)?;
        Ok(tokens)
    }

    fn piece(&self, token: Token) -> Vec<u8> {
        self.pieces.get(token).to_vec()
    }

    fn name(&self) -> &str {
        &self.name
    }
}

fn build_error(error: impl std::fmt::Display) -> HfCodecError {
    HfCodecError::Build(error.to_string())
}

/// The tokens that plain text may become, and the merges among them. Without control tokens no text can become one, not
/// even where a whole word is looked up first.
fn words_and_merges(vocab: &VocabFacts) -> (Vocab, Merges) {
    let plain = |kind: &TokenKind| !matches!(kind, TokenKind::Control | TokenKind::Unknown);
    let tokens = vocab.tokens.iter().zip(&vocab.kinds).enumerate();
    let words: Vocab =
        tokens.filter(|(_, (_, kind))| plain(kind)).map(|(id, (text, _))| (text.clone(), id as u32)).collect();
    let mut merges = Merges::with_capacity(vocab.merges.len());
    for merge in &vocab.merges {
        // The separator is the first space that is not the first character.
        let split = merge.char_indices().skip(1).find(|&(_, character)| character == ' ');
        let Some((at, _)) = split else { continue };
        let (left, right) = (&merge[..at], &merge[at + 1..]);
        // The crate refuses (or worse) a merge of or into something that is no token.
        if words.contains_key(left) && words.contains_key(right) && words.contains_key(&format!("{left}{right}")) {
            merges.push((left.to_owned(), right.to_owned()));
        }
    }
    (words, merges)
}

fn user_defined(vocab: &VocabFacts) -> Result<Option<(AhoCorasick, Vec<Token>)>, HfCodecError> {
    let tokens = vocab.tokens.iter().zip(&vocab.kinds).enumerate();
    let (texts, ids): (Vec<&str>, Vec<Token>) = tokens
        .filter(|(_, (text, kind))| **kind == TokenKind::UserDefined && !text.is_empty())
        .map(|(id, (text, _))| (text.as_str(), Token(id as u32)))
        .unzip();
    if texts.is_empty() {
        return Ok(None);
    }
    let finder = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(texts).map_err(build_error)?;
    Ok(Some((finder, ids)))
}

/// The bytes behind a token's stored text.
fn piece(text: &str, kind: TokenKind) -> Vec<u8> {
    match kind {
        TokenKind::Control | TokenKind::Unknown | TokenKind::UserDefined => text.as_bytes().to_vec(),
        TokenKind::Unused => Vec::new(),
        TokenKind::Byte => {
            let hex = text.strip_prefix("<0x").and_then(|text| text.strip_suffix('>'));
            hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()).into_iter().collect()
        }
        TokenKind::Normal => {
            let mut bytes = Vec::with_capacity(text.len());
            for character in text.chars() {
                match byte_of(character) {
                    Some(byte) => bytes.push(byte),
                    None => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
                }
            }
            bytes
        }
    }
}

/// The byte-level alphabet: printable Latin-1 stands for itself, the 68 other bytes are U+0100 and up in their order.
fn byte_of(character: char) -> Option<u8> {
    let code = u32::from(character);
    match code {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => Some(code as u8),
        0x100..=0x120 => Some((code - 0x100) as u8),
        0x121..=0x142 => Some((code - 0x121 + 0x7F) as u8),
        0x143 => Some(0xAD),
        _ => None,
    }
}

/// The character that stands for a byte.
fn character_of(byte: u8) -> char {
    let code = u32::from(byte);
    let code = match byte {
        0x00..=0x20 => 0x100 + code,
        0x7F..=0xA0 => 0x121 - 0x7F + code,
        0xAD => 0x143,
        _ => code,
    };
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The words of the crate's expressions and those cut here are the same.
        #[test]
        fn a_long_run_of_white_space_is_cut_as_a_short_one(
            text in "[ \\n\\r\\t\u{a0}\u{3000}a1.'\u{e9}\u{663}-]{0,24}",
            pre in prop::sample::select(vec!["gpt-2", "llama-bpe", "qwen2", "qwen35", "smollm"]),
        ) {
            // Merges over the borders of words: a border in another place shows.
            let merges = ["\u{120} \u{120}", "\u{10A} \u{120}", "\u{120} a", "a \u{120}", "\u{120} 1", "1 \u{120}", "\u{120} ."];
            let merged: Vec<String> = merges.iter().map(|merge| merge.replacen(' ', "", 1)).collect();
            let extra: Vec<(&str, TokenKind)> = merged.iter().map(|text| (text.as_str(), TokenKind::Normal)).collect();
            let mut codec = HfCodec::new(&vocab(pre, &extra, &merges)).expect("a small codec");
            let whole = codec.encode(&text);
            for long_run in 1..4 {
                codec.long_run = long_run;
                prop_assert_eq!(codec.encode(&text).ok(), whole.as_ref().ok().cloned(), "runs longer than {}", long_run);
            }
        }
    }

    /// The expression engine gave up on such a run, and what followed was taken for one word.
    #[test]
    fn words_after_a_million_spaces_are_still_words() {
        let vocab = vocab("qwen35", &[("y\u{120}", TokenKind::Normal)], &["y \u{120}"]);
        let codec = HfCodec::new(&vocab).expect("a small codec");
        let text = format!("x{}y z", " ".repeat(1_000_100));
        let tokens = codec.encode(&text).expect("bytes always encode");
        assert_eq!(tokens.len(), text.len(), "no merge over the border of a word");
    }

    #[test]
    fn every_byte_has_its_character() {
        for byte in 0..=u8::MAX {
            assert_eq!(byte_of(character_of(byte)), Some(byte));
        }
    }

    #[test]
    fn the_alphabet_names_every_byte_once() {
        let mut bytes: Vec<u8> = ('\0'..'\u{200}').filter_map(byte_of).collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
        assert_eq!(byte_of('\u{120}'), Some(b' '));
        assert_eq!(byte_of('\u{10A}'), Some(b'\n'));
    }

    fn vocab(pre: &str, extra: &[(&str, TokenKind)], merges: &[&str]) -> VocabFacts {
        let alphabet = ('\0'..'\u{200}').filter(|&c| byte_of(c).is_some()).map(|c| (c.to_string(), TokenKind::Normal));
        let extra = extra.iter().map(|&(text, kind)| (text.to_owned(), kind));
        let (tokens, kinds) = alphabet.chain(extra).unzip();
        let merges = merges.iter().map(|merge| (*merge).to_owned()).collect();
        let (model, pre) = ("gpt2".to_owned(), pre.to_owned());
        VocabFacts { model, pre, tokens, kinds, merges, bos: None, eos: None, eog: Vec::new(), add_bos: false }
    }

    fn texts(vocab: &VocabFacts, text: &str) -> Vec<String> {
        let tokens = HfCodec::new(vocab).and_then(|codec| codec.encode(text).map_err(build_error));
        tokens.expect("a small codec").into_iter().map(|token| vocab.tokens[token.index()].clone()).collect()
    }

    #[test]
    fn text_never_becomes_a_control_token_even_where_whole_words_are_looked_up() {
        let vocab = vocab("llama-bpe", &[("EOS", TokenKind::Control), ("abc", TokenKind::Normal)], &["E O", "EO S"]);
        assert_eq!(texts(&vocab, "EOS"), ["E", "O", "S"]);
        assert_eq!(texts(&vocab, "abc"), ["abc"], "a whole word needs no merges here");
    }

    #[test]
    fn user_defined_tokens_are_found_in_any_text_the_longest_first() {
        let vocab = vocab("qwen35", &[("<t>", TokenKind::UserDefined), ("<t>!", TokenKind::UserDefined)], &[]);
        assert_eq!(texts(&vocab, "a<t>!b<t>"), ["a", "<t>!", "b", "<t>"]);
    }

    #[test]
    fn merges_among_missing_tokens_are_passed_over() {
        let vocab = vocab("gpt-2", &[("ab", TokenKind::Normal)], &["a b", "ab cdefghijklmnop", "x", "a x", ""]);
        assert_eq!(texts(&vocab, "abx"), ["ab", "x"]);
    }

    #[test]
    fn digits_are_cut_as_the_family_cuts_them() {
        let digits = [("12", TokenKind::Normal), ("123", TokenKind::Normal)];
        let cut = |pre| texts(&vocab(pre, &digits, &["1 2", "12 3"]), "1234");
        assert_eq!(cut("gpt-2"), ["123", "4"]);
        assert_eq!(cut("llama-bpe"), ["123", "4"]);
        assert_eq!(cut("qwen2"), ["1", "2", "3", "4"]);
        assert_eq!(cut("qwen35"), ["1", "2", "3", "4"]);
        assert_eq!(cut("smollm"), ["1", "2", "3", "4"]);
    }

    #[test]
    fn unknown_pre_tokenizers_and_other_models_are_unsupported() {
        let mut other = vocab("viking", &[], &[]);
        assert!(matches!(HfCodec::new(&other), Err(HfCodecError::Unsupported { .. })));
        (other.model, other.pre) = ("llama".to_owned(), "qwen35".to_owned());
        assert!(matches!(HfCodec::new(&other), Err(HfCodecError::Unsupported { .. })));
    }

    #[test]
    fn pieces_follow_the_kind_of_token() {
        assert_eq!(piece("\u{120}a", TokenKind::Normal), b" a");
        assert_eq!(piece("\u{120}", TokenKind::UserDefined), "\u{120}".as_bytes());
        assert_eq!(piece("<0x0A>", TokenKind::Byte), b"\n");
        assert_eq!(piece("[PAD1]", TokenKind::Unused), b"");
    }
}
