//! The vocabulary as the file describes it, with the corrections that llama.cpp makes by token text.

use std::collections::{BTreeSet, HashMap};

use super::metadata::{Keys, error};
use super::reader::{Gguf, GgufError, Value};
use crate::units::Token;

/// How the vocabulary treats a token (`tokenizer.ggml.token_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    Normal,
    Unknown,
    /// Special, never produced from text unless special tokens are parsed (`<|im_end|>`).
    Control,
    /// Matched in any text (`<think>`).
    UserDefined,
    /// Stands for no text.
    Unused,
    Byte,
}

/// The tokenizer as the file describes it.
#[derive(Clone, Debug)]
pub struct VocabFacts {
    /// `tokenizer.ggml.model`: "gpt2" (byte-level BPE), "llama" (SentencePiece), ...
    pub model: String,
    /// `tokenizer.ggml.pre`: the pre-tokenizer, e.g. "qwen35"; empty where absent.
    pub pre: String,
    /// Token texts as stored (byte-level alphabet for gpt2).
    pub tokens: Vec<String>,
    pub kinds: Vec<TokenKind>,
    pub merges: Vec<String>,
    pub bos: Option<Token>,
    /// Unlike llama.cpp, no token stands in where a gpt2 file names none (there it is token 11, whatever that is).
    pub eos: Option<Token>,
    /// Every token that ends a generation: eos, eot, eom and the texts that llama.cpp treats so. Ascending.
    pub eog: Vec<Token>,
    pub add_bos: bool,
}

/// Texts that end a generation wherever a vocabulary has them.
const EOG_TEXTS: [&str; 22] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<\u{FF5C}end\u{2581}of\u{2581}sentence\u{FF5C}>",
    "[e~[",
];

/// Fill-in-the-middle tokens: the key that names one, the texts tried where the key is absent, and whether it ends a
/// generation.
const FIM: [(&str, &[&str], bool); 6] = [
    (
        "fim_pre",
        &[
            "<|fim_prefix|>",
            "<fim-prefix>",
            "<fim_prefix>",
            "<\u{FF5C}fim\u{2581}begin\u{FF5C}>",
            "<PRE>",
            "\u{2581}<PRE>",
            "<|code_prefix|>",
            "<|prefix|>",
        ],
        false,
    ),
    (
        "fim_suf",
        &[
            "<|fim_suffix|>",
            "<fim-suffix>",
            "<fim_suffix>",
            "<\u{FF5C}fim\u{2581}hole\u{FF5C}>",
            "<SUF>",
            "\u{2581}<SUF>",
            "<|code_suffix|>",
            "<|suffix|>",
        ],
        false,
    ),
    (
        "fim_mid",
        &[
            "<|fim_middle|>",
            "<fim-middle>",
            "<fim_middle>",
            "<\u{FF5C}fim\u{2581}end\u{FF5C}>",
            "<MID>",
            "\u{2581}<MID>",
            "<|code_middle|>",
            "<|middle|>",
        ],
        false,
    ),
    ("fim_pad", &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"], true),
    ("fim_rep", &["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"], true),
    ("fim_sep", &["<|file_sep|>"], true),
];

/// Tokens of one family's message frame that are shown as text.
const SHOWN: [&str; 4] = ["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"];

/// Pre-tokenizers whose models want a BOS unless the file says otherwise.
const PRE_WITH_BOS: [&str; 11] = [
    "llama3",
    "llama-v3",
    "llama-bpe",
    "falcon3",
    "falcon-h1",
    "pixtral",
    "midm-2.0",
    "lfm2",
    "jina-v5-nano",
    "tekken",
    "chameleon",
];

impl VocabFacts {
    /// Reads the vocabulary. A text that two tokens share is refused: llama.cpp aborts on it.
    pub fn from_gguf(gguf: &Gguf) -> Result<VocabFacts, GgufError> {
        let keys = Keys::new(gguf);
        let model = keys.text("tokenizer.ggml.model")?.to_owned();
        let pre = keys.optional_text("tokenizer.ggml.pre")?.unwrap_or_default().to_owned();
        let mut tokens = keys.optional_texts(TOKENS)?.ok_or_else(|| error(TOKENS, "is missing"))?;
        if tokens.is_empty() || tokens.len() > i32::MAX as usize {
            return Err(error(TOKENS, format!("holds {} tokens", tokens.len())));
        }
        for (id, token) in tokens.iter_mut().enumerate().filter(|(_, token)| token.is_empty()) {
            *token = format!("[EMPTY_{id}]");
        }
        let merges = keys.optional_texts("tokenizer.ggml.merges")?.unwrap_or_default();
        let by_text = index(&tokens)?;
        let kinds = kinds(&keys, tokens.len())?;
        let mut special =
            Special { keys: &keys, by_text: &by_text, n_vocab: tokens.len() as u64, kinds, eog: BTreeSet::new() };
        let (default_bos, default_eos) = if model == "llama" { (Some(1), Some(2)) } else { (None, None) };
        let bos = special.id("bos", default_bos)?;
        let eos = special.id("eos", default_eos)?;
        special.collect_fim()?;
        special.collect_eog(eos)?;
        let Special { kinds, eog, .. } = special;
        let add_bos = keys.optional_bool("tokenizer.ggml.add_bos_token")?.unwrap_or_else(|| adds_bos(&model, &pre));
        let add_bos = add_bos || model == "gemma4";
        Ok(VocabFacts { eog: eog.into_iter().collect(), model, pre, tokens, kinds, merges, bos, eos, add_bos })
    }
}

const TOKENS: &str = "tokenizer.ggml.tokens";

fn adds_bos(model: &str, pre: &str) -> bool {
    matches!(model, "llama" | "bert") || (model == "gpt2" && PRE_WITH_BOS.contains(&pre))
}

fn index(tokens: &[String]) -> Result<HashMap<&str, Token>, GgufError> {
    let mut by_text = HashMap::with_capacity(tokens.len());
    for (id, token) in tokens.iter().enumerate() {
        let twice = by_text.insert(token.as_str(), Token(id as u32));
        // Texts that were not UTF-8 may have become equal.
        if let Some(first) = twice.filter(|_| !token.contains(char::REPLACEMENT_CHARACTER)) {
            return Err(error(TOKENS, format!("has {token:?} twice, as token {} and {id}", first.0)));
        }
    }
    Ok(by_text)
}

fn kinds(keys: &Keys<'_>, n_vocab: usize) -> Result<Vec<TokenKind>, GgufError> {
    const KEY: &str = "tokenizer.ggml.token_type";
    let Some(types) = keys.optional_array(KEY)? else { return Ok(vec![TokenKind::Normal; n_vocab]) };
    if types.len() < n_vocab {
        return Err(error(KEY, format!("has {} elements for {n_vocab} tokens", types.len())));
    }
    let kinds = types[..n_vocab].iter().map(|kind| match kind {
        Value::I64(1) | Value::U64(1) => Ok(TokenKind::Normal),
        Value::I64(2) | Value::U64(2) => Ok(TokenKind::Unknown),
        Value::I64(3) | Value::U64(3) => Ok(TokenKind::Control),
        Value::I64(4) | Value::U64(4) => Ok(TokenKind::UserDefined),
        Value::I64(6) | Value::U64(6) => Ok(TokenKind::Byte),
        Value::I64(_) | Value::U64(_) => Ok(TokenKind::Unused),
        _ => Err(error(KEY, "is not an array of whole numbers")),
    });
    kinds.collect()
}

/// Works out special tokens in llama.cpp's order, since later steps undo earlier ones.
struct Special<'a> {
    keys: &'a Keys<'a>,
    by_text: &'a HashMap<&'a str, Token>,
    n_vocab: u64,
    kinds: Vec<TokenKind>,
    eog: BTreeSet<Token>,
}

impl Special<'_> {
    /// The token that `tokenizer.ggml.NAME_token_id` names; one outside the vocabulary counts as absent.
    fn id(&self, name: &str, default: Option<u32>) -> Result<Option<Token>, GgufError> {
        let id = self.keys.optional_integer(&format!("tokenizer.ggml.{name}_token_id"), 0..=u64::from(u32::MAX))?;
        let inside = |id: &u64| *id < self.n_vocab;
        let id = id.filter(inside).or(default.map(u64::from).filter(inside));
        Ok(id.map(|id| Token(id as u32)))
    }

    fn find(&self, text: &str) -> Option<Token> {
        self.by_text.get(text).copied()
    }

    fn set(&mut self, token: Token, kind: TokenKind) {
        self.kinds[token.index()] = kind;
    }

    fn collect_fim(&mut self) -> Result<(), GgufError> {
        for (name, texts, ends) in FIM {
            let named = self.id(name, None)?;
            let found = texts.iter().filter_map(|text| self.find(text)).min();
            if let (None, Some(token)) = (named, found) {
                self.set(token, TokenKind::Control);
            }
            if let Some(token) = named.or(found).filter(|_| ends) {
                self.eog.insert(token);
            }
        }
        Ok(())
    }

    fn collect_eog(&mut self, eos: Option<Token>) -> Result<(), GgufError> {
        for token in EOG_TEXTS.iter().filter_map(|text| self.find(text)).collect::<Vec<Token>>() {
            self.eog.insert(token);
            self.set(token, TokenKind::Control);
        }
        for token in SHOWN.iter().filter_map(|text| self.find(text)).collect::<Vec<Token>>() {
            self.set(token, TokenKind::UserDefined);
        }
        let (eot, eom) = (self.id("eot", None)?, self.id("eom", None)?);
        self.eog.extend([eos, eot, eom].into_iter().flatten());
        self.undo("<|end|>", TokenKind::UserDefined, |ends| {
            let call = ends("<|call|>") || ends("<|calls|>");
            call && (ends("<|return|>") || ends("<|flush|>"))
        });
        self.undo("</s>", TokenKind::Normal, |ends| ends("<|tool_response>") || ends("<|plamo:eos|>"));
        Ok(())
    }

    /// Some families have a text of the list as an ordinary one; `other` tells them by what else ends a generation.
    fn undo(&mut self, text: &str, kind: TokenKind, other: impl Fn(&dyn Fn(&str) -> bool) -> bool) {
        let ends = |text: &str| self.find(text).is_some_and(|token| self.eog.contains(&token));
        if let Some(token) = self.find(text).filter(|token| self.eog.contains(token) && other(&ends)) {
            self.eog.remove(&token);
            self.set(token, kind);
        }
    }
}
