//! What each keyword with a simple value becomes.

use llguidance::derivre::RegexBuilder;
use llguidance::regex_to_lark;
use serde_json::{Map, Value};

use crate::grammar::error::GrammarError;

/// Members of an `enum`. Larger ones hold their types alone.
const MAX_ENUM: usize = 10_000;
/// Lengths and counts beyond this are not counted.
const MAX_COUNT: u64 = 100_000;
/// Integers beyond this are not told apart by the arithmetic below: 2 to the 53rd.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
/// Remainders that a `multipleOf` may have: the lexer has a state for each, and some microseconds of compiling.
pub(super) const MAX_STEP: u32 = 10_000;
/// Digits of a `multipleOf` after its point.
const MAX_DECIMALS: u32 = 6;
/// Bytes of a `pattern`.
const MAX_PATTERN_BYTES: usize = 8_192;

const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];

/// Formats that are enforced.
const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"];

/// Days that exist, of years with four digits.
const DATE: &str = concat!(
    "(?:[1-9][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)",
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))",
    "|(?:[1-9][0-9](?:0[48]|[2468][048]|[13579][26])|(?:[2468][048]|[13579][26])00)-02-29)",
);
/// Without leap seconds, which exist on some days alone and which most programs refuse.
const TIME: &str = concat!(
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?",
    "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])",
);
/// Formats for which the library lets pass what does not exist.
const EXACT_FORMATS: [(&str, &[&str]); 3] = [("date", &[DATE]), ("time", &[TIME]), ("date-time", &[DATE, "T", TIME])];

/// Keywords of the standard that forbid values and are not enforced.
const NOT_ENFORCED: [&str; 15] = [
    "not",
    "if",
    "dependentSchemas",
    "dependentRequired",
    "dependencies",
    "contains",
    "minContains",
    "maxContains",
    "uniqueItems",
    "propertyNames",
    "unevaluatedProperties",
    "unevaluatedItems",
    "contentSchema",
    "$dynamicRef",
    "$recursiveRef",
];

pub(super) enum Kept {
    /// An annotation, or no keyword of the standard: it forbids nothing.
    Unknown,
    As(Value),
    /// The same as this `pattern`.
    Pattern(String),
    /// Less strict: with this key and value instead, or with nothing.
    Widened {
        value: Option<(String, Value)>,
        what: String,
        to: String,
    },
}

fn dropped(what: impl Into<String>, to: &str) -> Kept {
    Kept::Widened { value: None, what: what.into(), to: to.to_owned() }
}

/// A value for a message, cut short.
pub(super) fn shown(value: &Value) -> String {
    let text = value.to_string();
    let short: String = text.chars().take(60).collect();
    if short.len() < text.len() { format!("{short}...") } else { short }
}

/// `map` is the schema that the keyword is in.
pub(super) fn keyword(key: &str, value: &Value, map: &Map<String, Value>, at: &str) -> Result<Kept, GrammarError> {
    Ok(match key {
        "type" => Kept::As(types(value, at)?),
        "enum" => members(value, map, at)?,
        "const" if is_exact(value) => Kept::As(value.clone()),
        "const" => {
            of_its_types(map, std::slice::from_ref(value), "const with a number of more than 53 bits".to_owned())
        }
        "required" => names(value, at)?,
        "minLength" | "minItems" | "minProperties" | "maxLength" | "maxItems" | "maxProperties" => {
            count(key, value, at)?
        }
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => number(key, value, at)?,
        "multipleOf" => match value.as_f64().filter(|step| *step > 0.0) {
            Some(step) if decimal(step).is_some() => Kept::As(value.clone()),
            Some(_) => {
                dropped(format!("multipleOf {} has more than {MAX_STEP} remainders", shown(value)), "any number")
            }
            None => {
                return Err(GrammarError::schema(at, format!("a number above 0 was expected, not {}", shown(value))));
            }
        },
        "pattern" => match value.as_str() {
            Some(pattern) => match pattern_problem(pattern) {
                None => Kept::As(value.clone()),
                Some(problem) => dropped(format!("pattern {}: {problem}", shown(value)), "any string"),
            },
            None => return Err(GrammarError::schema(at, "a pattern is a string")),
        },
        "format" => format(value, map),
        "uniqueItems" if *value == Value::Bool(false) => Kept::Unknown,
        _ if NOT_ENFORCED.contains(&key) => {
            dropped(format!("{key} is not enforced"), if key == "if" { "neither then nor else" } else { "without it" })
        }
        _ => Kept::Unknown,
    })
}

/// A step as an integer and the number of its decimals, or nothing where its remainders are too many.
pub(super) fn decimal(step: f64) -> Option<(u32, u32)> {
    let scaled = |decimals: u32| step * 10_f64.powi(decimals as i32);
    let is_whole = |decimals: &u32| (scaled(*decimals) - scaled(*decimals).round()).abs() < 1e-9 * scaled(*decimals);
    let decimals = (0..=MAX_DECIMALS).find(is_whole)?;
    let whole = scaled(decimals).round();
    (whole <= f64::from(MAX_STEP)).then_some((whole as u32, decimals))
}

fn types(value: &Value, at: &str) -> Result<Value, GrammarError> {
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
    match names.iter().find(|name| !name.as_str().is_some_and(|name| TYPES.contains(&name))) {
        None => Ok(value.clone()),
        Some(name) => {
            Err(GrammarError::schema(at, format!("{} is no type; known are {}", shown(name), TYPES.join(", "))))
        }
    }
}

fn members(value: &Value, map: &Map<String, Value>, at: &str) -> Result<Kept, GrammarError> {
    let Some(members) = value.as_array().filter(|members| !members.is_empty()) else {
        return Err(GrammarError::schema(at, "a list with one value or more was expected"));
    };
    Ok(if members.len() > MAX_ENUM {
        of_its_types(map, members, format!("enum of {} values, more than {MAX_ENUM}", members.len()))
    } else if !members.iter().all(is_exact) {
        of_its_types(map, members, "enum with a number of more than 53 bits".to_owned())
    } else {
        Kept::As(value.clone())
    })
}

/// The types of these values instead of the values.
fn of_its_types(map: &Map<String, Value>, members: &[Value], what: String) -> Kept {
    let mut kinds: Vec<&str> = members.iter().map(kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let to = format!("any {}", kinds.join(" or "));
    let value = (!map.contains_key("type")).then(|| ("type".to_owned(), Value::from(kinds)));
    Kept::Widened { value, what, to }
}

fn is_exact(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_f64().is_some_and(|n| n.abs() < MAX_EXACT),
        Value::Array(items) => items.iter().all(is_exact),
        Value::Object(map) => map.values().all(is_exact),
        _ => true,
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn names(value: &Value, at: &str) -> Result<Kept, GrammarError> {
    match value {
        Value::Array(names) if names.iter().all(Value::is_string) => Ok(Kept::As(value.clone())),
        // Draft 3 wrote `required: true` at the property; it forbids nothing in what came after.
        Value::Bool(_) => Ok(Kept::Unknown),
        _ => Err(GrammarError::schema(at, format!("a list of names was expected, not {}", shown(value)))),
    }
}

fn count(key: &str, value: &Value, at: &str) -> Result<Kept, GrammarError> {
    // 5.0 is an integer to the standard.
    let whole = value.as_f64().filter(|n| *n >= 0.0 && n.fract() == 0.0);
    let Some(n) = value.as_u64().or(whole.map(|n| n as u64)) else {
        return Err(GrammarError::schema(
            at,
            format!("a whole number of 0 or more was expected, not {}", shown(value)),
        ));
    };
    Ok(if n <= MAX_COUNT {
        Kept::As(n.into())
    } else if key.starts_with("min") {
        let value = Some((key.to_owned(), MAX_COUNT.into()));
        Kept::Widened { value, what: format!("{key} {n} is more than {MAX_COUNT}"), to: format!("{key} {MAX_COUNT}") }
    } else {
        dropped(format!("{key} {n} is more than {MAX_COUNT}"), "no bound")
    })
}

fn number(key: &str, value: &Value, at: &str) -> Result<Kept, GrammarError> {
    // Draft 4 had booleans here, which speak of `minimum` and `maximum`.
    let is_old = key.starts_with("exclusive") && value.is_boolean();
    if is_old {
        return Ok(Kept::As(value.clone()));
    }
    if value.is_number() {
        let what = || format!("{key} {} has more than 53 bits", shown(value));
        return Ok(if is_exact(value) { Kept::As(value.clone()) } else { dropped(what(), "no bound") });
    }
    Err(GrammarError::schema(at, format!("a number was expected, not {}", shown(value))))
}

fn format(value: &Value, map: &Map<String, Value>) -> Kept {
    let name = value.as_str().unwrap_or_default();
    let is_numeric = map.get("type").is_some_and(|kind| kind == "integer" || kind == "number");
    let exact = EXACT_FORMATS.iter().find(|(known, _)| *known == name && !map.contains_key("pattern"));
    if let Some((_, parts)) = exact {
        return Kept::Pattern(format!("^(?:{})$", parts.concat()));
    }
    if FORMATS.contains(&name) {
        Kept::As(value.clone())
    } else if is_numeric {
        // `int32`, `double` and the like are annotations.
        Kept::Unknown
    } else {
        dropped(format!("format {} is not known", shown(value)), "any string")
    }
}

/// Why a regular expression cannot be enforced.
pub(super) fn pattern_problem(pattern: &str) -> Option<String> {
    if pattern.len() > MAX_PATTERN_BYTES {
        return Some(format!("longer than {MAX_PATTERN_BYTES} bytes"));
    }
    let made = RegexBuilder::new().mk_regex_for_serach(&regex_to_lark(pattern, "dw"));
    let error = made.err()?.to_string();
    // The last line of the parser's message says what is wrong.
    let last = error.lines().rfind(|line| !line.trim().is_empty()).unwrap_or(&error);
    Some(last.trim().trim_start_matches("error: ").chars().take(160).collect())
}

/// A lower bound above its upper bound: no value fits, and saying so is better than a search for what fails.
pub(super) fn check_bounds(out: &Map<String, Value>, at: &str) -> Result<(), GrammarError> {
    let pairs = [
        ("minLength", "maxLength"),
        ("minItems", "maxItems"),
        ("minProperties", "maxProperties"),
        ("minimum", "maximum"),
    ];
    for (low, high) in pairs {
        let bound = |key: &str| out.get(key).and_then(Value::as_f64);
        if let (Some(a), Some(b)) = (bound(low), bound(high))
            && a > b
        {
            let message = format!("{low} {} is more than {high} {}; no value fits", out[low], out[high]);
            return Err(GrammarError::schema(at, message));
        }
    }
    Ok(())
}
