//! Any cutting of any bytes decodes to what the whole decodes to. The first byte of the input sets the size of the pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plateau::text::Detokenizer;

fuzz_target!(|input: &[u8]| {
    let Some((&size, bytes)) = input.split_first() else { return };
    let (mut detokenizer, mut out) = (Detokenizer::default(), String::new());
    for piece in bytes.chunks(usize::from(size % 8) + 1) {
        detokenizer.push(piece, &mut out);
        assert!(detokenizer.pending().len() <= 3);
    }
    detokenizer.finish(&mut out);
    assert_eq!(out, String::from_utf8_lossy(bytes));
});
