//! A model's vocabulary as plain data, and the token trie made of it.

use std::collections::HashMap;
use std::sync::Arc;

use llguidance::toktrie::{INVALID_TOKEN, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use super::error::GrammarError;
use crate::units::Token;

/// How text becomes tokens; used for forced text alone.
pub type Tokenize = Arc<dyn Fn(&[u8]) -> Vec<Token> + Send + Sync>;

/// Every token of a model. Special (control) tokens are no text: a grammar reaches them by name or by id alone.
#[derive(Clone, Default)]
pub struct Vocabulary {
    /// The bytes of every token; for a special token its name. Empty: the token is never generated under a constraint.
    pub pieces: Vec<Vec<u8>>,
    /// As long as `pieces`.
    pub special: Vec<bool>,
    /// The tokens that end a generation. They are special whatever `special` says.
    pub end: Vec<Token>,
    /// The model's own tokeniser, if forced text should be cut as the model would. Else the longest token wins.
    pub tokenize: Option<Tokenize>,
}

impl Vocabulary {
    /// A token for each byte, the named special tokens from 256 on, and last the end of text.
    pub fn bytes(names: &[String]) -> Vocabulary {
        let mut pieces: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
        pieces.extend(names.iter().map(|name| name.clone().into_bytes()));
        pieces.push(b"<end of text>".to_vec());
        let end = Token(pieces.len() as u32 - 1);
        let special = (0..pieces.len()).map(|id| id >= 256).collect();
        Vocabulary { pieces, special, end: vec![end], tokenize: None }
    }
}

/// The trie with what `toktrie` does not keep. Shared by all matchers of a model.
pub(super) struct Lexicon {
    trie: TokTrie,
    tokenize: Option<Tokenize>,
    by_name: HashMap<Vec<u8>, Token>,
    /// Tokens whose bytes another token has too, with that other: a trie holds one of them.
    twins: Vec<(Token, Token)>,
    /// Tokens that no constraint allows: without bytes, or with bytes that are in no UTF-8 text.
    unusable: Vec<Token>,
    end: Vec<Token>,
}

impl Lexicon {
    pub(super) fn new(vocabulary: Vocabulary) -> Result<Lexicon, GrammarError> {
        let Vocabulary { pieces, special, end, tokenize } = vocabulary;
        let n = pieces.len();
        if n == 0 || special.len() != n || end.iter().any(|token| token.index() >= n) {
            return Err(GrammarError::Refused(format!(
                "the vocabulary is malformed: {n} pieces, {} special flags, end tokens {end:?}",
                special.len()
            )));
        }
        let (mut by_name, mut first) = (HashMap::new(), HashMap::new());
        let (mut twins, mut unusable) = (Vec::new(), Vec::new());
        let mut words = Vec::with_capacity(n);
        for (id, piece) in pieces.into_iter().enumerate() {
            let token = Token(id as u32);
            let is_special = special[id] || end.contains(&token);
            // 0xFF marks special tokens inside the trie and is in no UTF-8 text.
            if piece.is_empty() || piece.len() > usize::from(u16::MAX) || piece.contains(&TokTrie::SPECIAL_TOKEN_MARKER)
            {
                unusable.push(token);
                words.push(Vec::new());
                continue;
            }
            if piece.starts_with(b"<") && piece.ends_with(b">") {
                let known: &mut Token = by_name.entry(piece.clone()).or_insert(token);
                if is_special && !special[known.index()] {
                    *known = token;
                }
            }
            let mut word = piece;
            if is_special {
                word.insert(0, TokTrie::SPECIAL_TOKEN_MARKER);
            }
            match first.get(&word) {
                Some(&twin) if !is_special => twins.push((token, twin)),
                Some(_) => word.clear(),
                None => {
                    first.insert(word.clone(), token);
                }
            }
            words.push(word);
        }
        // Of equal words the trie keeps the last one inserted, which is not said to be stable: keep the first by force.
        for &(token, _) in &twins {
            words[token.index()] = Vec::new();
        }
        let ends: Vec<TokenId> = end.iter().map(|token| token.0).collect();
        let info = TokRxInfo::new(n as u32, ends.first().copied().unwrap_or(INVALID_TOKEN));
        let mut trie = TokTrie::from(&info, &words);
        if !ends.is_empty() {
            trie = trie.with_eos_tokens(&ends);
        }
        Ok(Lexicon { trie, tokenize, by_name, twins, unusable, end })
    }

    pub(super) fn n_vocab(&self) -> usize {
        self.trie.vocab_size()
    }

    pub(super) fn is_end(&self, token: Token) -> bool {
        self.end.contains(&token)
    }

    /// The token that stands for this one in the trie.
    pub(super) fn canonical(&self, token: Token) -> Token {
        match self.twins.binary_search_by_key(&token, |&(twin, _)| twin) {
            Ok(at) => self.twins[at].1,
            Err(_) => token,
        }
    }

    /// Gives every twin the bit of the token that stands for it.
    pub(super) fn share_bits(&self, words: &mut [u32]) {
        for (twin, kept) in &self.twins {
            if words[kept.index() / 32] >> (kept.0 % 32) & 1 == 1 {
                words[twin.index() / 32] |= 1 << (twin.0 % 32);
            }
        }
    }

    pub(super) fn by_name(&self, name: &str) -> Option<Token> {
        self.by_name.get(name.as_bytes()).copied()
    }

    /// Every token but the given one, those that end a generation, and those that are never generated.
    pub(super) fn all_but(&self, token: Token) -> Vec<(u32, u32)> {
        let mut out: Vec<u32> = vec![token.0];
        out.extend(self.end.iter().chain(&self.unusable).map(|token| token.0));
        out.sort_unstable();
        out.dedup();
        let (mut ranges, mut next) = (Vec::new(), 0);
        for id in out.into_iter().chain([self.n_vocab() as u32]) {
            if id > next {
                ranges.push((next, id - 1));
            }
            next = id + 1;
        }
        ranges
    }
}

impl TokenizerEnv for Lexicon {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        match &self.tokenize {
            Some(tokenize) => tokenize(bytes).into_iter().map(|token| token.0).collect(),
            None => self.trie.greedy_tokenize(bytes),
        }
    }

    /// Masks never force a tokenisation: what the model would write decides. Forced text is offered as a draft instead.
    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}
