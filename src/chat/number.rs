//! Integers as clients write them.

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use serde_json::Value;

/// An integer; `32000.0` is one too, since some clients keep all numbers as floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Int(pub i64);

/// Beyond this a float no longer says which integer it means.
const EXACT: f64 = 9_007_199_254_740_992.0;

struct IntVisitor;

impl Visitor<'_> for IntVisitor {
    type Value = Int;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an integer")
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Int, E> {
        Ok(Int(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Int, E> {
        i64::try_from(value)
            .map(Int)
            .map_err(|_| E::invalid_value(Unexpected::Unsigned(value), &"an integer below 2^63"))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Int, E> {
        if value.fract() == 0.0 && value.abs() <= EXACT {
            return Ok(Int(value as i64));
        }
        Err(E::invalid_value(Unexpected::Float(value), &self))
    }
}

impl<'de> Deserialize<'de> for Int {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Int, D::Error> {
        deserializer.deserialize_i64(IntVisitor)
    }
}

/// A token id or a count inside of a value without a type of its own.
pub(super) fn unsigned(value: &Value) -> Option<u64> {
    Int::deserialize(value).ok().and_then(|Int(value)| u64::try_from(value).ok())
}
