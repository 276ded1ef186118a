//! Typed access to metadata: a value that is missing, of another type or out of range is named by its key.

use std::ops::RangeInclusive;

use super::reader::{Gguf, GgufError, Value};

/// The metadata of a file, and the prefix of its architecture's keys.
pub(super) struct Keys<'a> {
    gguf: &'a Gguf,
}

impl<'a> Keys<'a> {
    pub(super) fn new(gguf: &'a Gguf) -> Keys<'a> {
        Keys { gguf }
    }

    pub(super) fn optional(&self, key: &str) -> Option<&'a Value> {
        self.gguf.metadata.get(key)
    }

    pub(super) fn integer(&self, key: &str, range: RangeInclusive<u64>) -> Result<u64, GgufError> {
        self.optional_integer(key, range)?.ok_or_else(|| error(key, "is missing"))
    }

    pub(super) fn optional_integer(&self, key: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, GgufError> {
        self.optional(key).map(|value| checked(key, value, &range)).transpose()
    }

    pub(super) fn text(&self, key: &str) -> Result<&'a str, GgufError> {
        self.optional_text(key)?.ok_or_else(|| error(key, "is missing"))
    }

    pub(super) fn optional_text(&self, key: &str) -> Result<Option<&'a str>, GgufError> {
        match self.optional(key) {
            None => Ok(None),
            Some(Value::Str(text)) => Ok(Some(text)),
            Some(_) => Err(error(key, "is not a string")),
        }
    }

    /// A finite number within `range`, where the key is there.
    pub(super) fn check_number(&self, key: &str, range: RangeInclusive<f64>) -> Result<(), GgufError> {
        let number = match self.optional(key) {
            None => return Ok(()),
            Some(Value::F64(number)) => *number,
            Some(Value::U64(number)) => *number as f64,
            Some(Value::I64(number)) => *number as f64,
            Some(_) => return Err(error(key, "is not a number")),
        };
        // NaN is in no range.
        if range.contains(&number) {
            return Ok(());
        }
        Err(error(key, format!("is {number}, not within {:e}..={:e}", range.start(), range.end())))
    }

    pub(super) fn optional_bool(&self, key: &str) -> Result<Option<bool>, GgufError> {
        match self.optional(key) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(_) => Err(error(key, "is not a bool")),
        }
    }

    pub(super) fn optional_array(&self, key: &str) -> Result<Option<&'a [Value]>, GgufError> {
        match self.optional(key) {
            None => Ok(None),
            Some(Value::Array(values)) => Ok(Some(values)),
            Some(_) => Err(error(key, "is not an array")),
        }
    }

    /// An array of strings.
    pub(super) fn optional_texts(&self, key: &str) -> Result<Option<Vec<String>>, GgufError> {
        let Some(values) = self.optional_array(key)? else { return Ok(None) };
        let texts = values.iter().map(|value| match value {
            Value::Str(text) => Ok(text.clone()),
            _ => Err(error(key, "is not an array of strings")),
        });
        texts.collect::<Result<Vec<String>, GgufError>>().map(Some)
    }

    /// One value a layer: a number stands for all layers, an array has one element for each. Bools are 0 and 1.
    pub(super) fn per_layer(
        &self,
        key: &str,
        n: usize,
        range: RangeInclusive<u64>,
    ) -> Result<Option<Vec<u64>>, GgufError> {
        match self.optional(key) {
            None => Ok(None),
            Some(Value::Array(values)) if values.len() == n => values
                .iter()
                .map(|value| checked(key, value, &range))
                .collect::<Result<Vec<u64>, GgufError>>()
                .map(Some),
            Some(Value::Array(values)) => {
                Err(error(key, format!("has {} elements, not one for each of {n} layers", values.len())))
            }
            Some(value) => Ok(Some(vec![checked(key, value, &range)?; n])),
        }
    }
}

pub(super) fn error(key: &str, what: impl Into<String>) -> GgufError {
    GgufError::Metadata { key: key.to_owned(), what: what.into() }
}

fn checked(key: &str, value: &Value, range: &RangeInclusive<u64>) -> Result<u64, GgufError> {
    let number = match value {
        Value::U64(number) => *number,
        Value::I64(number) => u64::try_from(*number).map_err(|_| error(key, format!("is negative: {number}")))?,
        Value::Bool(value) => u64::from(*value),
        _ => return Err(error(key, "is not a whole number")),
    };
    match range.contains(&number) {
        true => Ok(number),
        false => Err(error(key, format!("is {number}, not between {} and {}", range.start(), range.end()))),
    }
}
