//! The bytes of saved states, field by field, for each cache type: llama.cpp's layout as
//! `guard.cpp` knows it. Another core that writes something else fails here, and not when a state
//! is put back.
#![cfg(feature = "native")]
#![allow(clippy::unwrap_used, reason = "a failure in a helper of a test is a failed test")]

mod native;

use native::{engine_config, feed, model_with_head, tokens};
use plateau::config::{CacheType, EngineConfig};
use plateau::engine::ModelRunner;
use plateau::gguf::ModelFacts;
use plateau::llama::{ContextOptions, LlamaRunner, MtpCache};
use plateau::units::{Pos, SeqId, Token};

/// Each cache type with ggml's number of it, the elements of a block and the bytes of one.
const TYPES: [(CacheType, i32, u64, u64); 8] = [
    (CacheType::F32, 0, 1, 4),
    (CacheType::F16, 1, 1, 2),
    (CacheType::Bf16, 30, 1, 2),
    (CacheType::Q8_0, 8, 32, 34),
    (CacheType::Q5_1, 7, 32, 24),
    (CacheType::Q5_0, 6, 32, 22),
    (CacheType::Q4_1, 3, 32, 20),
    (CacheType::Q4_0, 2, 32, 18),
];

const F32: i32 = 0;

/// What is left to be compared.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, n: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at_checked(n).expect("the state ends too early");
        self.0 = rest;
        head
    }

    fn skip(&mut self, n: u64) {
        self.take(usize::try_from(n).unwrap());
    }

    #[track_caller]
    fn i32s(&mut self, expected: &[i32]) {
        let found: Vec<i32> =
            self.take(4 * expected.len()).chunks_exact(4).map(|b| i32::from_le_bytes(b.try_into().unwrap())).collect();
        assert_eq!(found, expected);
    }

    #[track_caller]
    fn u64(&mut self, expected: u64) {
        assert_eq!(u64::from_le_bytes(self.take(8).try_into().unwrap()), expected);
    }

    /// A string of `Joined`: its length, and it.
    fn part(&mut self) -> Bytes<'a> {
        let n = u64::from_le_bytes(self.take(8).try_into().unwrap());
        Bytes(self.take(usize::try_from(n).unwrap()))
    }

    #[track_caller]
    fn end(&self) {
        assert_eq!(self.0.len(), 0, "bytes are left over");
    }
}

struct Cache {
    n_layer: i32,
    row_elements: u64,
    type_number: i32,
    row_bytes: u64,
    /// Widths over which keys and values are rotated.
    rotations: [i32; 2],
}

impl Cache {
    fn new(n_layer: u32, facts: &ModelFacts, (_, type_number, block, bytes): (CacheType, i32, u64, u64)) -> Cache {
        let row_elements = u64::from(facts.n_head_kv) * u64::from(facts.head_dim_k);
        // Of a quantized cache: the largest power of two in a head, and 64.
        assert_eq!((facts.head_dim_k, facts.head_dim_v), (256, 256));
        let rotations = if block > 1 { [256, 64] } else { [0, 0] };
        let row_bytes = row_elements / block * bytes;
        Cache { n_layer: n_layer.cast_signed(), row_elements, type_number, row_bytes, rotations }
    }

    /// Rows of `text` at `start`, its tokens included.
    fn check(&self, mut bytes: Bytes<'_>, start: i32, text: &[Token]) {
        assert!(self.row_elements > 0);
        let n = i32::try_from(text.len()).unwrap();
        bytes.i32s(&[1, n]);
        for (pos, token) in (start..).zip(text) {
            // Position, one id, column and row of the 2D position, token, the id.
            bytes.i32s(&[pos, 1, pos, pos, token.0.cast_signed(), 0]);
        }
        // Values are not transposed.
        bytes.i32s(&[0, self.n_layer, self.rotations[0], self.rotations[1]]);
        for _ in 0..2 * self.n_layer {
            bytes.i32s(&[self.type_number]);
            bytes.u64(self.row_bytes);
            bytes.skip(self.row_bytes * text.len() as u64);
        }
        bytes.end();
    }
}

fn check_recurrent(mut bytes: Bytes<'_>, last: i32, facts: &ModelFacts) {
    let recurrent = facts.recurrent.unwrap();
    let n_recurrent = facts.n_layer - facts.n_layer_attention;
    // One cell: position, no ids. Not transposed; layers, those of the MTP head included.
    bytes.i32s(&[1, last, 0, 0, facts.n_layer.cast_signed()]);
    for total in [recurrent.conv_bytes.0, recurrent.state_bytes.0] {
        for _ in 0..n_recurrent {
            bytes.i32s(&[F32]);
            let row = total / u64::from(n_recurrent);
            bytes.u64(row);
            bytes.skip(row);
        }
    }
    bytes.end();
}

#[test]
fn saved_rows_and_points_have_the_known_layout_in_every_cache_type() {
    let model = model_with_head();
    let facts = model.facts();
    for kind in TYPES {
        let config = EngineConfig { cache_type_k: kind.0, cache_type_v: kind.0, ..engine_config(512, 1) };
        let mtp = Some(MtpCache { k: kind.0, v: kind.0 });
        let options = ContextOptions { outputs_per_sequence: 4, rollback_tokens: 3, mtp };
        let mut runner = LlamaRunner::new(model.clone(), &config, options).unwrap();
        let text = tokens(24, 3);
        feed(&mut runner, 0, 0, &text);
        let saved = runner.save(SeqId(0), Pos(5)).unwrap();

        let mut rows = Bytes(&saved.rows);
        Cache::new(facts.n_layer_attention, facts, kind).check(rows.part(), 5, &text[5..]);
        Cache::new(facts.n_layer_mtp, facts, kind).check(rows.part(), 5, &text[5..]);
        rows.end();

        let mut point = Bytes(&saved.point);
        let mut places = point.part();
        // The end; first and last position of the rows and last of the recurrent state; the head's,
        // which has none.
        places.i32s(&[24, 0, 23, 23, 0, 23, -1]);
        places.end();
        check_recurrent(point.part(), 23, facts);
        let mut hidden = point.part();
        hidden.skip(4 * u64::from(facts.n_embd));
        hidden.end();
        point.end();
    }
}
