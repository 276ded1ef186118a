//! Text and tokens: encoding, incremental decoding, stop strings.
//!
//! Deliberately absent: templates (they see text only, see `chat`) and sampling (it sees token ids only).

pub mod bpe;
pub mod byte_codec;
pub mod control;
pub mod detokenizer;
pub mod pieces;
pub mod stop;
pub mod tokenizer;
pub mod utf8_tail;

pub use bpe::{HfCodec, HfCodecError};
pub use byte_codec::ByteCodec;
pub use control::GUARD;
pub use detokenizer::Detokenizer;
pub use stop::StopMatcher;
pub use tokenizer::{Codec, CodecError, Specials, Tokenizer};
pub use utf8_tail::Utf8Tail;
