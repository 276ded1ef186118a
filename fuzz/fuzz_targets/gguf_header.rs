//! Any bytes as a GGUF file: an error, or facts of a table that lies inside the file. Never a panic, never much memory.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plateau::gguf::{Gguf, ModelFacts, VocabFacts};

fuzz_target!(|bytes: &[u8]| {
    let Ok(gguf) = Gguf::parse(bytes, bytes.len() as u64) else { return };
    for tensor in &gguf.tensors {
        assert!(gguf.data_offset + tensor.offset + tensor.bytes <= bytes.len() as u64);
    }
    let _ = ModelFacts::from_gguf(&gguf);
    let _ = VocabFacts::from_gguf(&gguf);
});
