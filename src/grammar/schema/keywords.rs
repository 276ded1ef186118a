//! The values of keywords, checked: what is malformed is an error, what is out of reach is said.

use serde_json::Value;

use super::node::{Bound, Kind, KindSet, Types};
use crate::grammar::error::GrammarError;

/// Members of an `enum`. Larger ones hold their types alone.
const MAX_ENUM: usize = 10_000;
/// Lengths and counts beyond this are not counted.
const MAX_COUNT: u64 = 100_000;
/// Integers beyond this are not told apart by the arithmetic of the library: 2 to the 53rd.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
/// Remainders that a `multipleOf` may have: the lexer has a state for each, and some microseconds of compiling.
pub(super) const MAX_STEP: u32 = 10_000;
/// Digits of a `multipleOf` after its point.
const MAX_DECIMALS: u32 = 6;

/// A value that holds, or what is not enforced and what holds instead.
pub(super) enum Read<T> {
    As(T),
    /// Less strict: with this, or with nothing.
    Less(Option<T>, String, String),
}

/// A value for a message, cut short.
pub(super) fn shown(value: &Value) -> String {
    let text = value.to_string();
    let short: String = text.chars().take(60).collect();
    if short.len() < text.len() { format!("{short}...") } else { short }
}

pub(super) fn types(value: &Value, at: &str) -> Result<Types, GrammarError> {
    let names = match value {
        Value::String(_) => std::slice::from_ref(value),
        Value::Array(names) if !names.is_empty() => names,
        _ => {
            return Err(GrammarError::schema(
                at,
                format!("a type or a list of types was expected, not {}", shown(value)),
            ));
        }
    };
    let (mut kinds, mut integer, mut number) = (KindSet::default(), false, false);
    for name in names {
        kinds.insert(match name.as_str() {
            Some("null") => Kind::Null,
            Some("boolean") => Kind::Boolean,
            Some("integer") => {
                integer = true;
                Kind::Number
            }
            Some("number") => {
                number = true;
                Kind::Number
            }
            Some("string") => Kind::Text,
            Some("array") => Kind::Array,
            Some("object") => Kind::Object,
            _ => {
                let known = "null, boolean, integer, number, string, array, object";
                return Err(GrammarError::schema(at, format!("{} is no type; known are {known}", shown(name))));
            }
        });
    }
    Ok(Types { kinds, integer: integer && !number })
}

/// Values, or their types where these hold instead, with what is not enforced and what holds.
pub(super) type Members = Result<Vec<Value>, (Types, String, String)>;

/// The members of an `enum`, or the types of those that are too many or too large.
pub(super) fn members(value: &Value, at: &str) -> Result<Members, GrammarError> {
    let Some(members) = value.as_array().filter(|members| !members.is_empty()) else {
        return Err(GrammarError::schema(at, "a list with one value or more was expected"));
    };
    Ok(if members.len() > MAX_ENUM {
        Err(of_their_types(members, format!("enum of {} values, more than {MAX_ENUM}", members.len())))
    } else if members.iter().all(is_exact) {
        Ok(members.clone())
    } else {
        Err(of_their_types(members, "enum with a number of more than 53 bits".to_owned()))
    })
}

/// As `members`, of one value.
pub(super) fn constant(value: &Value) -> Members {
    let one = std::slice::from_ref(value);
    if is_exact(value) {
        Ok(one.to_vec())
    } else {
        Err(of_their_types(one, "const with a number of more than 53 bits".to_owned()))
    }
}

fn of_their_types(members: &[Value], what: String) -> (Types, String, String) {
    let mut kinds = KindSet::default();
    let mut names: Vec<String> = Vec::new();
    for member in members {
        let kind = Kind::of(member);
        kinds.insert(kind);
        names.push(format!("{kind:?}").to_lowercase());
    }
    names.sort_unstable();
    names.dedup();
    (Types { kinds, integer: false }, what, format!("any {}", names.join(" or ")))
}

pub(super) fn is_exact(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_f64().is_some_and(|n| n.abs() < MAX_EXACT),
        Value::Array(items) => items.iter().all(is_exact),
        Value::Object(map) => map.values().all(is_exact),
        _ => true,
    }
}

/// A list of names; nothing where a flag stands, as draft 3 wrote `required` at the property.
pub(super) fn names(value: &Value, at: &str) -> Result<Vec<String>, GrammarError> {
    match value {
        Value::Array(names) if names.iter().all(Value::is_string) => {
            Ok(names.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        }
        Value::Bool(_) => Ok(Vec::new()),
        _ => Err(GrammarError::schema(at, format!("a list of names was expected, not {}", shown(value)))),
    }
}

pub(super) fn count(key: &str, value: &Value, at: &str) -> Result<Read<u64>, GrammarError> {
    // 5.0 is an integer to the standard.
    let whole = value.as_f64().filter(|n| *n >= 0.0 && n.fract() == 0.0);
    let Some(n) = value.as_u64().or(whole.map(|n| n as u64)) else {
        return Err(GrammarError::schema(
            at,
            format!("a whole number of 0 or more was expected, not {}", shown(value)),
        ));
    };
    Ok(if n <= MAX_COUNT {
        Read::As(n)
    } else if key.starts_with("min") {
        Read::Less(Some(MAX_COUNT), format!("{key} {n} is more than {MAX_COUNT}"), format!("{key} {MAX_COUNT}"))
    } else {
        Read::Less(None, format!("{key} {n} is more than {MAX_COUNT}"), "no bound".to_owned())
    })
}

pub(super) fn number(key: &str, value: &Value, at: &str) -> Result<Read<f64>, GrammarError> {
    match value.as_f64() {
        Some(n) if is_exact(value) => Ok(Read::As(n)),
        Some(_) => Ok(Read::Less(None, format!("{key} {} has more than 53 bits", shown(value)), "no bound".to_owned())),
        None => Err(GrammarError::schema(at, format!("a number was expected, not {}", shown(value)))),
    }
}

pub(super) fn step(value: &Value, at: &str) -> Result<Read<f64>, GrammarError> {
    match value.as_f64().filter(|step| *step > 0.0) {
        Some(step) if decimal(step).is_some() => Ok(Read::As(step)),
        Some(_) => {
            let what = format!("multipleOf {} has more than {MAX_STEP} remainders", shown(value));
            Ok(Read::Less(None, what, "any number".to_owned()))
        }
        None => Err(GrammarError::schema(at, format!("a number above 0 was expected, not {}", shown(value)))),
    }
}

/// A step as an integer and the number of its decimals, or nothing where its remainders are too many.
fn decimal(step: f64) -> Option<(u32, u32)> {
    let scaled = |decimals: u32| step * 10_f64.powi(decimals as i32);
    let is_whole = |decimals: &u32| (scaled(*decimals) - scaled(*decimals).round()).abs() < 1e-9 * scaled(*decimals);
    let decimals = (0..=MAX_DECIMALS).find(is_whole)?;
    let whole = scaled(decimals).round();
    (whole <= f64::from(MAX_STEP)).then_some((whole as u32, decimals))
}

/// The step of which all multiples are multiples of both, or nothing where its remainders are too many.
pub(super) fn common_step(a: f64, b: f64) -> Option<f64> {
    let ((a, a_decimals), (b, b_decimals)) = (decimal(a)?, decimal(b)?);
    let decimals = a_decimals.max(b_decimals);
    let scaled = |n: u32, own: u32| u64::from(n) * 10_u64.pow(decimals - own);
    let (a, b) = (scaled(a, a_decimals), scaled(b, b_decimals));
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    let both = a / x * b;
    (both <= u64::from(MAX_STEP)).then(|| both as f64 / 10_f64.powi(decimals as i32))
}

/// Is the number a multiple? Nothing where rounding may have decided.
pub(super) fn is_multiple(n: f64, step: f64) -> Option<bool> {
    let quotient = n / step;
    let off = (quotient - quotient.round()).abs();
    if off < 1e-9 {
        Some(true)
    } else if off > 1e-6 {
        Some(false)
    } else {
        None
    }
}

pub(super) fn is_inside(n: f64, low: Option<Bound>, high: Option<Bound>) -> bool {
    low.is_none_or(|low| if low.open { n > low.at } else { n >= low.at })
        && high.is_none_or(|high| if high.open { n < high.at } else { n <= high.at })
}
