//! A tokenizer without a model: every byte is a token. It is what FakeRunner speaks, so that the engine and the API can be
//! tested to the letter with no file at hand.

use super::tokenizer::{Codec, CodecError, Tokenizer};
use crate::gguf::{TokenKind, VocabFacts};
use crate::units::Token;

/// Tokens above the 256 bytes, in order of their ids: 256 `<|im_start|>`, 257 `<|im_end|>` (ends a generation), 258 `<think>`,
/// 259 `</think>`, 260 `<tool_call>`, 261 `</tool_call>`, 262 `<|endoftext|>` (ends a generation), 263 `<|vision_start|>`,
/// 264 `<|vision_end|>`, 265 `<|image_pad|>` (where an image goes). `n_vocab` is 266, no BOS.
const SPECIAL: [(&str, TokenKind); 10] = [
    ("<|im_start|>", TokenKind::Control),
    ("<|im_end|>", TokenKind::Control),
    ("<think>", TokenKind::UserDefined),
    ("</think>", TokenKind::UserDefined),
    ("<tool_call>", TokenKind::UserDefined),
    ("</tool_call>", TokenKind::UserDefined),
    ("<|endoftext|>", TokenKind::Control),
    ("<|vision_start|>", TokenKind::Control),
    ("<|vision_end|>", TokenKind::Control),
    ("<|image_pad|>", TokenKind::Control),
];

/// Bytes are tokens 0..=255; the user-defined texts of `SPECIAL` are one token each.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByteCodec;

impl ByteCodec {
    /// The vocabulary that goes with the codec.
    pub fn vocab() -> VocabFacts {
        let bytes = (0u32..256).map(|byte| (format!("<0x{byte:02X}>"), TokenKind::Byte));
        let special = SPECIAL.iter().map(|&(text, kind)| (text.to_owned(), kind));
        let (tokens, kinds) = bytes.chain(special).unzip();
        VocabFacts {
            model: "bytes".to_owned(),
            pre: String::new(),
            tokens,
            kinds,
            merges: Vec::new(),
            bos: None,
            eos: Some(Token(257)),
            eog: vec![Token(257), Token(262)],
            add_bos: false,
        }
    }
}

impl Codec for ByteCodec {
    fn encode(&self, text: &str) -> Result<Vec<Token>, CodecError> {
        let mut tokens = Vec::with_capacity(text.len());
        let mut rest = text.as_bytes();
        while let Some((&byte, tail)) = rest.split_first() {
            let special = SPECIAL
                .iter()
                .enumerate()
                .find(|(_, (special, kind))| *kind == TokenKind::UserDefined && rest.starts_with(special.as_bytes()));
            (rest, _) = match special {
                Some((index, (special, _))) => (&rest[special.len()..], tokens.push(Token(256 + index as u32))),
                None => (tail, tokens.push(Token(u32::from(byte)))),
            };
        }
        Ok(tokens)
    }

    fn piece(&self, token: Token) -> Vec<u8> {
        match (u8::try_from(token.0), token.index().checked_sub(256).and_then(|index| SPECIAL.get(index))) {
            (Ok(byte), _) => vec![byte],
            (_, Some((text, _))) => text.as_bytes().to_vec(),
            (_, None) => Vec::new(),
        }
    }

    fn name(&self) -> &str {
        "bytes"
    }
}

impl Tokenizer {
    /// The tokenizer of FakeRunner: `ByteCodec` with its vocabulary.
    pub fn bytes_for_tests() -> Tokenizer {
        Tokenizer::new(&ByteCodec::vocab(), Box::new(ByteCodec))
    }
}
