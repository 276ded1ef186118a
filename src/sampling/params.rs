//! What a request may say about sampling. Values are checked by whoever builds them (`chat`),
//! clamped nowhere.

use std::sync::Arc;

/// DRY: a penalty that grows with the length of a repeated run: `multiplier * base^(length -
/// allowed_length)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Dry {
    /// 0 switches it off.
    pub multiplier: f32,
    /// Below 1 it is off too.
    pub base: f32,
    /// Runs shorter than this many tokens cost nothing.
    pub allowed_length: u32,
    /// How many of the last tokens are looked at; `None` is all.
    pub last_n: Option<u32>,
    /// Runs never reach over these tokens, and they are never penalised. Shared, since they can be
    /// thousands.
    pub breakers: Arc<[u32]>,
}

impl Dry {
    /// Can these parameters charge any token?
    pub fn is_on(&self) -> bool {
        self.multiplier != 0.0 && self.base >= 1.0 && self.last_n != Some(0)
    }
}

/// XTC: drops all but the least probable of the tokens above a threshold, with a probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Xtc {
    /// 0 switches it off.
    pub probability: f32,
    /// Over 0.5 it is off: two tokens cannot both be that probable.
    pub threshold: f32,
}

/// Every knob; `temperature == 0` is exact greedy (after bias and penalties).
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    pub temperature: f32,
    /// 0, or the size of the vocabulary and more: off.
    pub top_k: u32,
    /// 1: off.
    pub top_p: f32,
    /// 0: off.
    pub min_p: f32,
    /// 1: off.
    pub typical_p: f32,
    pub xtc: Xtc,
    pub dry: Dry,
    /// 1: off.
    pub repeat_penalty: f32,
    pub presence_penalty: f32,
    pub frequency_penalty: f32,
    /// How many of the last tokens the three penalties look at; `None` is all of prompt and answer,
    /// 0 switches them off.
    pub penalty_last_n: Option<u32>,
    /// Added to the logits; `f32::NEG_INFINITY` bans a token. Ids past the row's end have no
    /// effect.
    pub logit_bias: Vec<(u32, f32)>,
    pub seed: u64,
}

impl SamplingParams {
    pub fn greedy() -> SamplingParams {
        SamplingParams {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            typical_p: 1.0,
            xtc: Xtc { probability: 0.0, threshold: 0.1 },
            dry: Dry { multiplier: 0.0, base: 1.75, allowed_length: 2, last_n: None, breakers: Arc::default() },
            repeat_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            penalty_last_n: Some(64),
            logit_bias: Vec::new(),
            seed: 0,
        }
    }
}
