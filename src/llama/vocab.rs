//! The tokenizer of the loaded model: ours, compared with llama.cpp's at load, or llama.cpp's own.
//!
//! Splitting out control tokens and guarding client text is the business of `text`; llama.cpp is
//! never asked to recognise a control token in a text.

#![expect(unsafe_code, reason = "calls the vocabulary functions")]

use std::sync::Arc;

use super::ffi;
use super::model::Model;
use crate::text::{Codec, CodecError, HfCodec, Tokenizer};
use crate::units::Token;

/// Texts on which the two tokenizers must agree: languages, code, numbers, white space of all
/// kinds, and what pre-tokenizers are known to differ in.
const SAMPLE: [&str; 24] = [
    "Hello, world! It's 9 o'clock; we'll see they've DON'T I'D.",
    "The quick brown fox jumps over the lazy dog.  Two spaces,   three, \t a tab.",
    "\n\n\n  indented\r\n\tmixed \r line ends\n \n",
    "    trailing spaces    ",
    " ",
    "\u{a0}\u{2003}\u{3000}wide\u{200b}spaces\u{85}and marks\u{feff}",
    "1 12 123 1234 12345 3.14159 1,000,000 0x1F 1e-9 ١٢٣ ⅻ ²³ ½",
    "fn main() { println!(\"{:?}\", vec![1, 2, 3]); } // done",
    "def f(x: int) -> str:\n    return f\"{x!r}\"  # äöü\n\n\nclass A(B):\n\tpass\n",
    "SELECT * FROM t WHERE a<>b AND c!='d''e'; --x",
    "<div class=\"a-b_c\">&nbsp;</div><!-- c --> https://example.org/a?b=c&d=%20#e",
    "{\"a\":[1,2.5,null,true],\"b\":{\"c\":\"\\u00e9\"}}",
    "camelCase snake_case SCREAMING_CASE kebab-case Ünïcödé naïve façade",
    "Die Straße führt über die Brücke – „schön“, nicht wahr?",
    "Le cœur déçu mais l'âme plutôt naïve, Louÿs rêva de crapaüter.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "我能吞下玻璃而不伤身体。中文、日本語のテスト、ｶﾀｶﾅ。",
    "한국어 문장입니다. 띄어쓰기도 봅시다.",
    "إنّ النصّ العربيّ يُكتب من اليمين إلى اليسار؛ ١٢٣٤.",
    "ภาษาไทยไม่มีช่องว่างระหว่างคำ हिन्दी में मात्राएँ होती हैं",
    "e\u{301}a\u{308} combining, \u{1F468}\u{200D}\u{1F469}\u{200D}\u{1F467} family, \u{1F44D}\u{1F3FD}, \u{1F1E9}\u{1F1EA}",
    "!!! ... --- === *** ### @@@ $$$ ~~~ ``` ((())) [[[]]] «»‹› ''\"\" …—–",
    "A\u{0}B\u{1}C\u{7f}D control characters",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
];

/// The tokenizer of `model`: ours where it knows the pre-tokenizer and agrees with llama.cpp's,
/// else llama.cpp's, with a warning.
pub fn tokenizer(model: &Arc<Model>) -> Tokenizer {
    let vocab = model.vocab();
    let theirs = LlamaCodec::new(Arc::clone(model));
    let reason = match HfCodec::new(vocab) {
        Ok(ours) => match check_codec(&ours, &theirs, vocab.tokens.len()) {
            Ok(()) => return Tokenizer::new(vocab, Box::new(ours)),
            Err(difference) => difference.to_string(),
        },
        Err(unsupported) => unsupported.to_string(),
    };
    tracing::warn!(target: "llama", "using llama.cpp's tokenizer: {reason}");
    Tokenizer::new(vocab, Box::new(theirs))
}

/// llama.cpp's own tokenizer. Slower than ours, but it knows every pre-tokenizer.
pub struct LlamaCodec {
    model: Arc<Model>,
}

impl LlamaCodec {
    pub fn new(model: Arc<Model>) -> LlamaCodec {
        LlamaCodec { model }
    }
}

impl Codec for LlamaCodec {
    fn encode(&self, text: &str) -> Result<Vec<Token>, CodecError> {
        let n_text = i32::try_from(text.len()).map_err(|_| CodecError("text of more than 2 GiB".to_owned()))?;
        // A token stands for at least a byte, except the space that some vocabularies put in front.
        let mut tokens = vec![0; text.len() + 2];
        let n_tokens = i32::try_from(tokens.len()).unwrap_or(i32::MAX);
        let mut n = 0;
        // SAFETY: text and buffer are passed with their lengths, and the vocabulary lives as long
        // as the model.
        let code = unsafe {
            let (vocab, text) = (self.model.raw_vocab(), text.as_ptr().cast());
            ffi::plateau_tokenize(vocab, text, n_text, tokens.as_mut_ptr(), n_tokens, &raw mut n)
        };
        if code != 0 {
            return Err(CodecError(format!("llama.cpp failed: {}", ffi::guard_reason(code))));
        }
        let n = usize::try_from(n).map_err(|_| CodecError(format!("llama.cpp wants room for {n} tokens")))?;
        Ok(tokens[..n].iter().map(|id| Token(id.unsigned_abs())).collect())
    }

    fn piece(&self, token: Token) -> Vec<u8> {
        let Ok(id) = i32::try_from(token.0) else { return Vec::new() };
        if token.index() >= self.model.vocab().tokens.len() {
            return Vec::new();
        }
        let mut buffer = vec![0u8; 64];
        loop {
            let n_buffer = i32::try_from(buffer.len()).unwrap_or(i32::MAX);
            let mut n = 0;
            // SAFETY: the id is in the vocabulary, and the buffer is passed with its length.
            let code = unsafe {
                let (vocab, out) = (self.model.raw_vocab(), buffer.as_mut_ptr().cast());
                ffi::plateau_token_to_piece(vocab, id, out, n_buffer, &raw mut n)
            };
            match usize::try_from(n) {
                _ if code != 0 => return Vec::new(),
                Ok(n) => {
                    buffer.truncate(n);
                    return buffer;
                }
                // -n: the room that it takes.
                Err(_) if buffer.len() < n.unsigned_abs() as usize => buffer.resize(n.unsigned_abs() as usize, 0),
                Err(_) => return Vec::new(),
            }
        }
    }

    fn name(&self) -> &str {
        "llama.cpp"
    }
}

/// The first difference between two codecs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecDifference {
    #[error("{text:?} becomes {ours:?}, llama.cpp says {theirs:?}")]
    Tokens { text: String, ours: Vec<Token>, theirs: Vec<Token> },
    #[error("token {} stands for {ours:?}, llama.cpp says {theirs:?}", token.0)]
    Piece { token: Token, ours: Vec<u8>, theirs: Vec<u8> },
    #[error("{text:?} cannot be encoded: {reason}")]
    Failed { text: String, reason: String },
}

/// Compares two codecs on the built-in sample and on the bytes of the first `n_vocab` tokens.
pub fn check_codec(ours: &dyn Codec, theirs: &dyn Codec, n_vocab: usize) -> Result<(), CodecDifference> {
    for text in SAMPLE {
        compare_text(ours, theirs, text)?;
    }
    for id in 0..n_vocab {
        let token = Token(u32::try_from(id).unwrap_or(u32::MAX));
        let (ours, theirs) = (ours.piece(token), theirs.piece(token));
        if ours != theirs {
            return Err(CodecDifference::Piece { token, ours, theirs });
        }
    }
    Ok(())
}

/// Compares two codecs on one text.
pub fn compare_text(ours: &dyn Codec, theirs: &dyn Codec, text: &str) -> Result<(), CodecDifference> {
    let failed = |error: CodecError| CodecDifference::Failed { text: text.to_owned(), reason: error.to_string() };
    let (ours, theirs) = (ours.encode(text).map_err(failed)?, theirs.encode(text).map_err(failed)?);
    if ours == theirs { Ok(()) } else { Err(CodecDifference::Tokens { text: text.to_owned(), ours, theirs }) }
}
