//! Any bytes are refused or decoded to as many pixels as their size says, within the limits, and any text that stands for bytes
//! is refused or read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plateau::image::{Limits, Probe, Rule, data_uri};

const LIMITS: Limits = Limits { bytes: 1 << 20, side: 4096, pixels: 1 << 20 };
const RULE: Rule = Rule { token_px: 32, min_tokens: 8, max_tokens: 256 };

fuzz_target!(|bytes: &[u8]| {
    if let Ok(image) = Probe::read(bytes, &LIMITS).and_then(Probe::decode) {
        assert_eq!(image.data.len() as u64, u64::from(image.width) * u64::from(image.height) * 3);
        assert!(image.data.len() as u64 <= LIMITS.pixels * 3);
        let fit = RULE.fit(image.width, image.height, RULE.max_tokens);
        assert!(fit.tokens.n() <= RULE.max_tokens);
        let fitted = image.resized(fit.width, fit.height).expect("a size that is not 0");
        assert_eq!(RULE.tokens(fitted.width, fitted.height), fit.tokens);
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        for read in [data_uri::read(text, 1000), data_uri::read_base64(text, 1000)].into_iter().flatten() {
            assert!((1..=1000).contains(&read.len()));
        }
    }
});
