//! The tokenizer of the loaded model: splits out special tokens itself and hands the text between them to a `Codec`.

use std::sync::Arc;

use crate::gguf::VocabFacts;
use crate::units::Token;

/// Marks a spot where a special token's text must be read as plain text. `guard` puts it into client text, `encode` takes
/// it out again. A noncharacter of Unicode, removed from client text first, so that nobody can forge it.
pub const GUARD: char = '\u{FDD0}';

/// Turns plain text (no special tokens in it) into tokens and tokens into bytes. Implemented over the `tokenizers` crate
/// here, and over llama.cpp's vocabulary in `llama` as the fall-back for pre-tokenizers that are not known here.
pub trait Codec: Send + Sync {
    /// Encodes text in which no control token is to be recognised. No BOS is added.
    fn encode(&self, text: &str) -> Result<Vec<Token>, CodecError>;
    /// The bytes that a token stands for. Control tokens give their text.
    fn piece(&self, token: Token) -> Vec<u8>;
    /// For logs and `/props`: "tokenizers (qwen35)" or "llama.cpp".
    fn name(&self) -> &str;
}

#[derive(Debug, thiserror::Error)]
#[error("tokenizer: {0}")]
pub struct CodecError(pub String);

/// What the texts of control tokens mean in the text to encode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Specials {
    /// A rendered prompt: control tokens are recognised, except where `GUARD` stands.
    Parse,
    /// Client text: every control token's text stays text.
    AsText,
}

/// Cheap to clone; shared by HTTP side and engine.
#[derive(Clone)]
pub struct Tokenizer {
    inner: Arc<Inner>,
}

struct Inner {
    #[expect(dead_code)]
    codec: Box<dyn Codec>,
}

impl Tokenizer {
    /// Builds the table of pieces and the matcher of control tokens.
    pub fn new(vocab: &VocabFacts, codec: Box<dyn Codec>) -> Tokenizer {
        let _ = vocab;
        Tokenizer { inner: Arc::new(Inner { codec }) }
    }
    /// Encodes; `Specials::Parse` also puts the model's BOS in front when the vocabulary asks for it and it is not there.
    pub fn encode(&self, text: &str, specials: Specials) -> Result<Vec<Token>, CodecError> {
        let _ = (text, specials, &self.inner);
        unimplemented!()
    }
    /// The bytes of a token; empty for an id outside the vocabulary.
    pub fn piece(&self, token: Token) -> &[u8] {
        let _ = token;
        unimplemented!()
    }
    /// Control tokens are left out of generated text.
    pub fn is_control(&self, token: Token) -> bool {
        let _ = token;
        unimplemented!()
    }
    /// Ends a generation.
    pub fn is_eog(&self, token: Token) -> bool {
        let _ = token;
        unimplemented!()
    }
    pub fn n_vocab(&self) -> usize {
        unimplemented!()
    }
    pub fn bos(&self) -> Option<Token> {
        unimplemented!()
    }
    pub fn eos(&self) -> Option<Token> {
        unimplemented!()
    }
    /// The id of a control or user-defined token by its exact text.
    pub fn special(&self, text: &str) -> Option<Token> {
        let _ = text;
        unimplemented!()
    }
    /// The text of a token, lossy, for display and templates (`bos_token`).
    pub fn text(&self, token: Token) -> String {
        String::from_utf8_lossy(self.piece(token)).into_owned()
    }
    /// Client text made safe for a template: control-token texts in it will be read as text. Strips `GUARD` first.
    pub fn guard(&self, text: &str) -> String {
        text.to_owned()
    }
    pub fn codec_name(&self) -> &str {
        unimplemented!()
    }
    /// Decodes a whole list (lossy UTF-8); control tokens included as text when `with_control`.
    pub fn decode(&self, tokens: &[Token], with_control: bool) -> String {
        let _ = (tokens, with_control);
        unimplemented!()
    }
}
