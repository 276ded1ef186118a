//! Text and tokens: encoding, incremental decoding, stop strings.

pub mod detokenizer;
pub mod stop;
pub mod tokenizer;

pub use detokenizer::Detokenizer;
pub use stop::StopMatcher;
pub use tokenizer::{Codec, CodecError, Specials, Tokenizer};
