//! Values of settings between text and profile: what a setting accepts, and how its value is read from TOML, an environment
//! variable or a flag and written back. Knows no setting by name.

use std::fmt;
use std::path::PathBuf;

use toml::de::DeValue;

use super::profile::{CacheType, FlashAttention, Projector, VisionDevice};

/// A value on its way into the profile. `Absent` is the word that stands for "no value" (`Setting::absent`).
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Absent,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<String>),
}

/// What a setting accepts; ranges are inclusive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Bool,
    Int { min: i64, max: i64 },
    Float { min: f64, max: f64 },
    Text,
    Path,
    List,
    Choice(&'static [&'static str]),
}

impl Kind {
    /// Reads text as a flag or an environment variable gives it. Lists are separated by commas.
    pub fn parse(&self, text: &str) -> Result<Value, String> {
        let value = match self {
            Kind::Bool => match text {
                "true" | "on" | "1" => Value::Bool(true),
                "false" | "off" | "0" => Value::Bool(false),
                _ => return Err(format!("`{text}` is not true or false")),
            },
            Kind::Int { .. } => Value::Int(text.parse().map_err(|_| format!("`{text}` is not a whole number"))?),
            Kind::Float { .. } => Value::Float(text.parse().map_err(|_| format!("`{text}` is not a number"))?),
            Kind::Text | Kind::Path | Kind::Choice(_) => Value::Text(text.to_owned()),
            Kind::List => {
                Value::List(text.split(',').map(str::trim).filter(|s| !s.is_empty()).map(str::to_owned).collect())
            }
        };
        self.check(&value)?;
        Ok(value)
    }

    /// Reads a TOML value.
    pub fn read_toml(&self, value: &DeValue<'_>) -> Result<Value, String> {
        let read = match (self, value) {
            (Kind::Bool, DeValue::Boolean(b)) => Value::Bool(*b),
            (Kind::Int { .. }, DeValue::Integer(i)) => Value::Int(whole(i)?),
            (Kind::Float { .. }, DeValue::Integer(i)) => Value::Float(whole(i)? as f64),
            (Kind::Float { .. }, DeValue::Float(f)) => {
                Value::Float(f.as_str().parse().map_err(|_| format!("`{f}` is not a number"))?)
            }
            (Kind::Text | Kind::Path | Kind::Choice(_), DeValue::String(s)) => Value::Text(s.to_string()),
            (Kind::List, DeValue::Array(items)) => Value::List(
                items
                    .iter()
                    .map(|item| match item.get_ref() {
                        DeValue::String(s) => Ok(s.to_string()),
                        other => Err(format!("an element is {}, not a string", type_name(other))),
                    })
                    .collect::<Result<_, _>>()?,
            ),
            (_, other) => return Err(format!("{} where {} is expected", type_name(other), self)),
        };
        self.check(&read)?;
        Ok(read)
    }

    /// Is the value inside the range.
    fn check(&self, value: &Value) -> Result<(), String> {
        match (self, value) {
            (Kind::Int { min, max }, Value::Int(i)) if i < min || i > max => Err(format!("{i} is out of range")),
            (Kind::Float { min, max }, Value::Float(f)) if !(min..=max).contains(&f) => {
                Err(format!("{f} is out of range"))
            }
            (Kind::Choice(words), Value::Text(s)) if !words.contains(&s.as_str()) => {
                Err(format!("`{s}` is not one of the choices"))
            }
            (Kind::Text | Kind::Path, Value::Text(s)) if s.is_empty() => Err("the text is empty".to_owned()),
            _ => Ok(()),
        }
    }

    /// Placeholder in help texts.
    pub fn placeholder(&self) -> &'static str {
        match self {
            Kind::Bool => "BOOL",
            Kind::Int { .. } => "N",
            Kind::Float { .. } => "X",
            Kind::Text => "TEXT",
            Kind::Path => "PATH",
            Kind::List => "LIST",
            Kind::Choice(_) => "WORD",
        }
    }
}

/// What is accepted, as a phrase: "a whole number, 1..=8".
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Bool => f.write_str("true or false"),
            Kind::Int { min, max } => write!(f, "a whole number, {min}..={max}"),
            Kind::Float { min, max } => write!(f, "a number, {min}..={max}"),
            Kind::Text => f.write_str("a text"),
            Kind::Path => f.write_str("a path"),
            Kind::List => f.write_str("a list of texts"),
            Kind::Choice(words) => write!(f, "one of {}", words.join(", ")),
        }
    }
}

/// As a TOML profile would write it.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Absent => f.write_str("-"),
            Value::Bool(b) => write!(f, "{b}"),
            Value::Int(i) => write!(f, "{i}"),
            Value::Float(x) => write!(f, "{x}"),
            Value::Text(s) => write!(f, "{s:?}"),
            Value::List(items) => write!(f, "{items:?}"),
        }
    }
}

fn whole(integer: &toml::de::DeInteger<'_>) -> Result<i64, String> {
    i64::from_str_radix(integer.as_str(), integer.radix()).map_err(|_| format!("{integer} is too large"))
}

fn type_name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// A field of the profile that a setting reads and writes.
pub trait Field {
    fn read(&self) -> Value;
    /// `false`: the value is not of the field's type; nothing was written.
    fn write(&mut self, value: &Value) -> bool;
}

macro_rules! integer_field {
    ($($int:ty),+) => { $(
        impl Field for $int {
            fn read(&self) -> Value {
                Value::Int(i64::try_from(*self).unwrap_or(i64::MAX))
            }
            fn write(&mut self, value: &Value) -> bool {
                let Value::Int(i) = value else { return false };
                <$int>::try_from(*i).map(|i| *self = i).is_ok()
            }
        }
    )+ };
}
integer_field!(u16, u32, u64, i32);

macro_rules! word_field {
    ($type:ty) => {
        impl Field for $type {
            fn read(&self) -> Value {
                Value::Text(self.word().to_owned())
            }
            fn write(&mut self, value: &Value) -> bool {
                let Value::Text(word) = value else { return false };
                <$type>::from_word(word).map(|v| *self = v).is_some()
            }
        }
    };
}
word_field!(CacheType);
word_field!(FlashAttention);
word_field!(VisionDevice);

impl Field for Projector {
    fn read(&self) -> Value {
        match self {
            Projector::Auto => Value::Absent,
            Projector::Off => Value::Text(Projector::OFF.to_owned()),
            Projector::Embedded => Value::Text(Projector::EMBEDDED.to_owned()),
            Projector::File(path) => path.read(),
        }
    }
    fn write(&mut self, value: &Value) -> bool {
        *self = match value {
            Value::Absent => Projector::Auto,
            Value::Text(word) if word == Projector::OFF => Projector::Off,
            Value::Text(word) if word == Projector::EMBEDDED => Projector::Embedded,
            Value::Text(path) => Projector::File(PathBuf::from(path)),
            _ => return false,
        };
        true
    }
}

impl Field for f32 {
    /// Through the shortest text of the `f32`, so that 0.95 reads back as 0.95 and not as its nearest neighbour in `f64`.
    fn read(&self) -> Value {
        Value::Float(self.to_string().parse().unwrap_or(f64::from(*self)))
    }
    fn write(&mut self, value: &Value) -> bool {
        let Value::Float(x) = value else { return false };
        *self = *x as f32;
        true
    }
}

impl Field for bool {
    fn read(&self) -> Value {
        Value::Bool(*self)
    }
    fn write(&mut self, value: &Value) -> bool {
        let Value::Bool(b) = value else { return false };
        *self = *b;
        true
    }
}

impl Field for String {
    fn read(&self) -> Value {
        Value::Text(self.clone())
    }
    fn write(&mut self, value: &Value) -> bool {
        let Value::Text(s) = value else { return false };
        self.clone_from(s);
        true
    }
}

impl Field for PathBuf {
    fn read(&self) -> Value {
        Value::Text(self.display().to_string())
    }
    fn write(&mut self, value: &Value) -> bool {
        let Value::Text(s) = value else { return false };
        *self = PathBuf::from(s);
        true
    }
}

impl Field for Vec<String> {
    fn read(&self) -> Value {
        Value::List(self.clone())
    }
    fn write(&mut self, value: &Value) -> bool {
        let Value::List(items) = value else { return false };
        self.clone_from(items);
        true
    }
}

impl<T: Field + Default> Field for Option<T> {
    fn read(&self) -> Value {
        self.as_ref().map_or(Value::Absent, Field::read)
    }
    fn write(&mut self, value: &Value) -> bool {
        if *value == Value::Absent {
            *self = None;
            return true;
        }
        let mut inner = T::default();
        inner.write(value) && {
            *self = Some(inner);
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_float_setting_reads_back_as_it_was_written() {
        let mut field = 0.0f32;
        assert!(field.write(&Value::Float(0.95)));
        assert_eq!(field.read(), Value::Float(0.95));
    }

    #[test]
    fn a_value_of_another_type_leaves_the_field_alone() {
        let mut field = Some(7u32);
        assert!(!field.write(&Value::Text("seven".into())));
        assert_eq!(field, Some(7));
        assert!(!field.write(&Value::Int(-1)));
        assert_eq!(field, Some(7));
    }

    #[test]
    fn nan_is_never_in_range() {
        assert!(Kind::Float { min: 0.0, max: 1.0 }.parse("NaN").is_err());
    }

    #[test]
    fn lists_are_cut_at_commas_and_may_be_empty() {
        assert_eq!(Kind::List.parse("a, b,,c"), Ok(Value::List(vec!["a".into(), "b".into(), "c".into()])));
        assert_eq!(Kind::List.parse(""), Ok(Value::List(vec![])));
    }
}
