//! Compiles a clean schema and makes the smallest parts that fail less strict, until the whole compiles.

use std::panic::AssertUnwindSafe;

use llguidance::api::{GrammarInit, ParserLimits, TopLevelGrammar, ValidationResult};
use llguidance::panic_utils::catch_unwind;
use serde_json::{Value, json};

use super::clean::{Clean, join};
use crate::grammar::error::{GrammarError, first_lines};

/// Bytes of schemas that are compiled to find what fails.
const MAX_TRIAL_BYTES: usize = 8 * 1024 * 1024;

/// Keywords to leave out, alone or together, the most likely causes first.
const SUSPECTS: [&[&str]; 20] = [
    &["pattern"],
    &["format"],
    &["pattern", "format"],
    &["multipleOf"],
    &["minProperties"],
    &["maxProperties"],
    &["minProperties", "maxProperties"],
    &["patternProperties"],
    &["minLength"],
    &["maxLength"],
    &["minLength", "maxLength"],
    &["minItems", "maxItems"],
    &["enum"],
    &["const"],
    &["allOf"],
    &["oneOf"],
    &["anyOf"],
    &["minimum", "exclusiveMinimum"],
    &["maximum", "exclusiveMaximum"],
    &["prefixItems"],
];

pub(super) fn weaken(clean: &mut Clean) -> Result<(), GrammarError> {
    let root = Path { def: None, pointer: String::new() };
    let mut trials = Trials { left: MAX_TRIAL_BYTES };
    let Some(reason) = trials.failure(clean, &clean.root)? else { return Ok(()) };
    let defs = (0..clean.defs.len()).map(|index| Path { def: Some(index), pointer: String::new() });
    for def in defs {
        repair_inside(clean, &def, &reason, &mut trials)?;
    }
    repair_inside(clean, &root, &reason, &mut trials)
}

/// Repairs the parts inside, then what is around them if that still fails. `reason` is the complaint about the whole.
fn repair_inside(clean: &mut Clean, path: &Path, reason: &str, trials: &mut Trials) -> Result<(), GrammarError> {
    let fails = |clean: &Clean, trials: &mut Trials| {
        let failure = trials.failure(clean, path.get(clean))?;
        // A part without values may be left out by what is around it; it is the cause only of the same complaint.
        Ok::<_, GrammarError>(failure.filter(|failure| is_unsatisfiable(reason) || !is_unsatisfiable(failure)))
    };
    if fails(clean, trials)?.is_none() {
        return Ok(());
    }
    for part in parts(path.get(clean), path) {
        repair_inside(clean, &part, reason, trials)?;
    }
    let Some(failure) = fails(clean, trials)? else { return Ok(()) };
    let origin = path.origin(clean);
    if is_unsatisfiable(&failure) {
        return Err(GrammarError::schema(&origin, failure));
    }
    let part = path.get(clean).clone();
    let (weaker, what, to) = weaker(clean, &part, trials)?;
    let is_anything = weaker == json!(true) || weaker == json!({});
    if is_anything && path.def.is_none() && path.pointer.is_empty() {
        return Err(GrammarError::schema("", format!("the schema cannot be compiled: {failure}")));
    }
    clean.note(&origin, format!("{what}: {failure}"), to);
    *path.get_mut(clean) = weaker;
    Ok(())
}

/// Where a part is: in the root, or in the target of a reference.
struct Path {
    def: Option<usize>,
    pointer: String,
}

impl Path {
    fn get<'a>(&self, clean: &'a Clean) -> &'a Value {
        let base = self.def.map_or(&clean.root, |index| &clean.defs[index].1);
        base.pointer(&self.pointer).unwrap_or(&Value::Null)
    }

    fn get_mut<'a>(&self, clean: &'a mut Clean) -> &'a mut Value {
        let base = match self.def {
            None => &mut clean.root,
            Some(index) => &mut clean.defs[index].1,
        };
        if base.pointer(&self.pointer).is_none() {
            return base;
        }
        base.pointer_mut(&self.pointer).expect("the pointer was followed a line above")
    }

    /// The pointer in the schema as sent.
    fn origin(&self, clean: &Clean) -> String {
        let mut known = self.pointer.as_str();
        loop {
            if let Some(origin) = clean.origins.get(&(self.def, known.to_owned())) {
                return format!("{origin}{}", &self.pointer[known.len()..]);
            }
            match known.rfind('/') {
                Some(end) => known = &known[..end],
                None => return self.pointer.clone(),
            }
        }
    }
}

fn is_unsatisfiable(failure: &str) -> bool {
    failure.contains("nsatisfiable")
}

/// What may still be compiled in search of faults.
struct Trials {
    left: usize,
}

impl Trials {
    /// Why the part does not compile.
    fn failure(&mut self, clean: &Clean, part: &Value) -> Result<Option<String>, GrammarError> {
        let schema = clean.with_defs(part);
        let bytes = serde_json::to_string(&schema).map_or(0, |text| text.len());
        self.left = self.left.checked_sub(bytes).ok_or_else(|| {
            GrammarError::schema("", "the schema cannot be compiled, and what is wrong with it is not found in time")
        })?;
        let grammar = GrammarInit::Serialized(TopLevelGrammar::from_json_schema(schema));
        let result = catch_unwind(AssertUnwindSafe(|| Ok(grammar.validate(None, ParserLimits::default()))));
        Ok(match result {
            Ok(ValidationResult::Valid | ValidationResult::Warnings(_)) => None,
            Ok(ValidationResult::Error(message)) => Some(first_lines(&message)),
            Err(error) => Some(first_lines(&error)),
        })
    }
}

/// The schemas directly inside.
fn parts(schema: &Value, path: &Path) -> Vec<Path> {
    let Value::Object(map) = schema else { return Vec::new() };
    let mut parts = Vec::new();
    let mut push = |pointer: String| parts.push(Path { def: path.def, pointer });
    for (key, value) in map {
        let inside = join(&path.pointer, key);
        match (key.as_str(), value) {
            ("properties" | "patternProperties", Value::Object(named)) => {
                named.keys().for_each(|name| push(join(&inside, name)));
            }
            ("anyOf" | "oneOf" | "allOf" | "prefixItems" | "items", Value::Array(list)) => {
                (0..list.len()).for_each(|i| push(join(&inside, &i.to_string())));
            }
            ("items" | "additionalItems" | "additionalProperties", Value::Object(_)) => push(inside),
            _ => {}
        }
    }
    parts
}

/// The part without a keyword, or with its type alone, or anything; what was lost, and what holds instead.
fn weaker(clean: &Clean, part: &Value, trials: &mut Trials) -> Result<(Value, String, String), GrammarError> {
    let Value::Object(map) = part else { return Ok((json!(true), "schema".to_owned(), "any value".to_owned())) };
    if let Some(Value::Array(all)) = map.get("allOf") {
        let mut kept = all.len() - 1;
        while kept > 0 {
            let mut fewer = map.clone();
            fewer.insert("allOf".to_owned(), all[..kept].to_vec().into());
            let fewer = Value::Object(fewer);
            if trials.failure(clean, &fewer)?.is_none() {
                return Ok((fewer, "allOf".to_owned(), format!("the first {kept} of its {} schemas", all.len())));
            }
            kept /= 2;
        }
    }
    for keys in SUSPECTS {
        let mut fewer = map.clone();
        let present: Vec<&str> = keys.iter().filter(|key| fewer.shift_remove(**key).is_some()).copied().collect();
        // A pair of which one is there was tried as that one.
        if present.is_empty() || (present.len() < keys.len() && SUSPECTS.contains(&&present[..])) {
            continue;
        }
        let fewer = Value::Object(fewer);
        if trials.failure(clean, &fewer)?.is_none() {
            let names = present.join(" and ");
            return Ok((fewer, names.clone(), format!("without {names}")));
        }
    }
    let reference = map.get("$ref").filter(|_| map.len() > 1).map(|target| json!({"$ref": target}));
    if let Some(alone) = reference
        && trials.failure(clean, &alone)?.is_none()
    {
        return Ok((alone, "keywords beside a reference".to_owned(), "the reference alone".to_owned()));
    }
    Ok(match map.get("type") {
        Some(kind) => (json!({"type": kind}), "keywords".to_owned(), format!("the type alone: {kind}")),
        None => (json!(true), "schema".to_owned(), "any value".to_owned()),
    })
}
