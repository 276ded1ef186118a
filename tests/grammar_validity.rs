//! What an answer holds validates against the schema that was sent, whenever nothing is said of parts that hold less strictly:
//! random schemas, through the rules of a request, random tokens of the masks, and the parser of the output.
//!
//! `PLATEAU_SCHEMAS=20000 cargo test --release --no-default-features --test grammar_validity -- --nocapture` is the long run.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "grammar/random.rs"]
mod random;

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use plateau::chat::constraint::{ConstraintCompiler, grammars, sources};
use plateau::chat::fields::{ConstraintFields, ToolFields};
use plateau::chat::thinking::ThinkingBounds;
use plateau::chat::{
    ChatTemplate, OutputFormat, RequestError, ServedModel, Thinking, ToolLimits, ToolSettings, collect,
};
use plateau::config::Profile;
use plateau::grammar::{Grammars, Matcher};
use plateau::text::Tokenizer;
use plateau::units::Token;
use proptest::prelude::*;
use rand_core::{RngCore, SeedableRng};
use random::Random;
use serde_json::{Value, json};

/// Schemas of the gate.
const SCHEMAS: u64 = 240;
const ANSWERS: u64 = 3;
/// Tokens of one answer; longer ones are not judged.
const LIMIT: usize = 2_500;
/// After so many tokens mostly what closes is taken.
const PATIENCE: usize = 40;
const TEMPERATURE: f32 = 1.2;

struct Rig {
    tokenizer: Tokenizer,
    grammars: Grammars,
    profile: Profile,
    xml: ChatTemplate,
    json: ChatTemplate,
}

static RIG: LazyLock<Rig> = LazyLock::new(|| {
    let tokenizer = Tokenizer::bytes_for_tests();
    let grammars = grammars(&tokenizer).unwrap();
    let template = |text: &str| ChatTemplate::new(text.to_owned(), "", "", 100_000).unwrap();
    Rig {
        grammars,
        profile: Profile::demo(),
        xml: template("{# <function= #}"),
        json: template("{# \"arguments\" #}"),
        tokenizer,
    }
});

/// Where the schema stands in the request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    ResponseFormat,
    Xml,
    Json,
}

const FORMS: [Form; 3] = [Form::ResponseFormat, Form::Xml, Form::Json];

struct Rules {
    matcher: Matcher,
    relaxed: Vec<String>,
    format: OutputFormat,
}

fn rules(form: Form, schema: &Value) -> Result<Rules, RequestError> {
    rules_as(form, schema, None)
}

fn rules_as(form: Form, schema: &Value, strict: Option<bool>) -> Result<Rules, RequestError> {
    let rig = &*RIG;
    let template = if form == Form::Json { &rig.json } else { &rig.xml };
    let (tokenizer, grammars, profile) = (&rig.tokenizer, &rig.grammars, &rig.profile);
    let compiler = ConstraintCompiler { served: ServedModel { tokenizer, template, profile, grammars } };
    let tools = json!([{"type": "function", "function": {"name": "f", "parameters": schema, "strict": strict}}]);
    let required = json!("required");
    let is_call = form != Form::ResponseFormat;
    let fields = ToolFields {
        tools: is_call.then_some(tools),
        tool_choice: is_call.then_some(required),
        parallel_tool_calls: None,
    };
    let tools = ToolSettings::from_fields(&fields, ToolLimits { max_tools: 8, max_bytes: 1 << 20 })?;
    let asked = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
    let asked = ConstraintFields { response_format: (!is_call).then_some(asked), ..ConstraintFields::default() };
    let format = OutputFormat {
        thinking: Thinking::Off,
        tools: tools.callable().to_vec(),
        parallel: true,
        calls_end_thinking: true,
    };
    let rules = compiler.chat(sources::read(asked, &mut Vec::new())?, &ThinkingBounds::default(), &tools, &format)?;
    let answer = rules.constraint.answer;
    let matcher = answer.grammar.or_else(|| answer.calls.map(|calls| calls.grammar)).unwrap();
    Ok(Rules { matcher, relaxed: rules.relaxed.iter().map(|part| part.pointer.clone()).collect(), format })
}

/// What comes of an answer.
#[derive(Debug)]
enum Outcome {
    Text(String),
    /// It went on for too long.
    Endless,
    Failed(String),
}

/// A generation at some temperature over random logits, which lean to what closes.
fn generate(mut matcher: Matcher, seed: u64) -> Outcome {
    let mut rng = rand_pcg::Pcg64::seed_from_u64(seed);
    let ends: Vec<Vec<Token>> = ["\n</parameter>\n", "</function>\n", "</parameter>\n"]
        .iter()
        .map(|text| text.bytes().map(|byte| Token(byte.into())).collect())
        .collect();
    let mut bytes: Vec<u8> = Vec::new();
    let (mut digits, mut most) = (0, 6);
    for step in 0..LIMIT {
        if matcher.is_finished() {
            return Outcome::Text(String::from_utf8(bytes).unwrap());
        }
        let mask = match matcher.mask() {
            Ok(mask) => mask.to_vec(),
            Err(error) => return Outcome::Failed(format!("{error} after {:?}", String::from_utf8_lossy(&bytes))),
        };
        let hurry = if step > PATIENCE { 6.0 } else { 1.5 };
        if rng.next_u32() % 12 < if step > PATIENCE { 6 } else { 1 }
            && let Some(end) = ends.iter().find(|end| matcher.validate(end).is_ok_and(|n| n == end.len()))
        {
            for token in end {
                matcher.accept(*token).unwrap();
                bytes.push(token.0 as u8);
            }
            continue;
        }
        let mut best: Option<(f32, u32)> = None;
        for id in (0..mask.len() as u32 * 32).filter(|id| mask[*id as usize / 32] >> (id % 32) & 1 == 1) {
            let logit = (rng.next_u32() >> 8) as f32 / (1_u32 << 24) as f32 * 8.0 - 4.0;
            let lean = match u8::try_from(id) {
                Err(_) => hurry,
                Ok(b'"' | b'}' | b']') => hurry,
                Ok(byte) if byte.is_ascii_digit() && digits >= most => -20.0,
                Ok(byte) if byte >= 0x80 => -3.0,
                Ok(b' ' | b'\n' | b'\t' | b'\\') => -2.0,
                Ok(byte) if step > PATIENCE && (b'[' == byte || b'{' == byte || b',' == byte) => -6.0,
                Ok(_) => 0.0,
            };
            // The largest of these is a draw from the softmax at that temperature.
            let uniform = ((rng.next_u32() >> 8) as f32 + 0.5) / (1_u32 << 24) as f32;
            let score = (logit + lean) / TEMPERATURE - (-uniform.ln()).ln();
            if best.is_none_or(|(most, _)| score > most) {
                best = Some((score, id));
            }
        }
        let token = Token(best.unwrap().1);
        matcher.accept(token).unwrap();
        // JSON has no largest number, and readers have: no long exponents, and no more digits than all readers hold.
        match u8::try_from(token.0) {
            Ok(byte) if byte.is_ascii_digit() => digits += 1,
            Ok(b'e' | b'E') => (digits, most) = (0, 2),
            Ok(b'+' | b'-') => digits = 0,
            _ => (digits, most) = (0, 6),
        }
        bytes.extend_from_slice(match u8::try_from(token.0) {
            Ok(_) => RIG.tokenizer.piece(token),
            Err(_) if RIG.tokenizer.is_eog(token) => b"",
            Err(_) => RIG.tokenizer.piece(token),
        });
    }
    Outcome::Endless
}

/// The value that a client gets.
fn value(form: Form, format: &OutputFormat, text: &str) -> Result<String, String> {
    if form == Form::ResponseFormat {
        return Ok(collect(format.clone(), text).content);
    }
    let collected = collect(format.clone(), &format!("<tool_call>{text}"));
    match collected.calls.as_slice() {
        [call] if collected.content.trim().is_empty() && call.name == "f" => Ok(call.arguments.clone()),
        _ => Err(format!("no call of its own: {collected:?}")),
    }
}

fn has_long_number(text: &str) -> bool {
    text.split(|c: char| !c.is_ascii_digit()).any(|digits| digits.len() > 15)
}

/// With 0 for -0, which the validator takes for no integer.
fn with_one_zero(value: Value) -> Value {
    match value {
        Value::Number(number) if number.as_f64() == Some(0.0) => json!(0),
        Value::Array(items) => items.into_iter().map(with_one_zero).collect(),
        Value::Object(map) => map.into_iter().map(|(key, value)| (key, with_one_zero(value))).collect(),
        other => other,
    }
}

#[derive(Default)]
struct Counts {
    whole: AtomicUsize,
    relaxed: AtomicUsize,
    refused: AtomicUsize,
    answers: AtomicUsize,
    unjudged: AtomicUsize,
}

/// Why a value does not validate, of one schema in one form; nothing where all is well or something was said.
fn fault(form: Form, schema: &Value, seeds: &[u64], counts: &Counts) -> Option<String> {
    let Ok(validator) = jsonschema::options().should_validate_formats(true).build(schema) else { return None };
    let rules = match rules(form, schema) {
        Ok(rules) => rules,
        Err(error) => {
            counts.refused.fetch_add(1, Ordering::Relaxed);
            return error.message.contains("failed").then(|| format!("{form:?} {schema}: {error}"));
        }
    };
    if !rules.relaxed.is_empty() {
        counts.relaxed.fetch_add(1, Ordering::Relaxed);
        return None;
    }
    counts.whole.fetch_add(1, Ordering::Relaxed);
    for seed in seeds {
        counts.answers.fetch_add(1, Ordering::Relaxed);
        let wrong = |why: String| Some(format!("{form:?} seed {seed} schema {schema}\n  {why}"));
        let text = match generate(rules.matcher.clone(), *seed) {
            Outcome::Text(text) => text,
            Outcome::Endless => {
                counts.unjudged.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            Outcome::Failed(why) => return wrong(why),
        };
        let read = match value(form, &rules.format, &text) {
            Ok(read) => read,
            Err(why) => return wrong(format!("{why} from {text:?}")),
        };
        match serde_json::from_str::<Value>(&read) {
            Ok(value) if validator.is_valid(&with_one_zero(value.clone())) => {}
            // The validator has no exact arithmetic on numbers of more than 53 bits.
            Ok(_) if has_long_number(&text) => _ = counts.unjudged.fetch_add(1, Ordering::Relaxed),
            Ok(value) => {
                let why = validator.iter_errors(&value).next().map(|error| error.to_string());
                return wrong(format!("{read} from {text:?}: {why:?}"));
            }
            Err(error) if error.to_string().contains("out of range") => {
                counts.unjudged.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => return wrong(format!("{error}: {read}")),
        }
    }
    None
}

fn random(i: u64) -> (Form, Value) {
    let form = FORMS[(i % 3) as usize];
    (form, Random::new(i).whole(form != Form::ResponseFormat))
}

/// How often each keyword is there, and in how many of these schemas something is not enforced or refused.
fn keywords(schema: &Value, into: &mut BTreeMap<String, usize>) {
    if let Value::Object(map) = schema {
        for (key, value) in map {
            *into.entry(key.clone()).or_insert(0) += 1;
            match (key.as_str(), value) {
                (
                    "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas",
                    Value::Object(map),
                ) => {
                    map.values().for_each(|value| keywords(value, into));
                }
                ("const" | "enum", _) => {}
                (_, Value::Array(list)) => list.iter().for_each(|value| keywords(value, into)),
                (_, value) => keywords(value, into),
            }
        }
    }
}

#[test]
fn what_is_answered_under_random_schemas_validates_or_the_header_says_otherwise() {
    // The environment is read by tests of this file alone.
    #[expect(clippy::disallowed_methods, reason = "a test's size is given from outside")]
    let n = std::env::var("PLATEAU_SCHEMAS").ok().and_then(|n| n.parse().ok()).unwrap_or(SCHEMAS);
    let counts = Counts::default();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut faults = Vec::new();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed) as u64;
            if i >= n {
                return faults;
            }
            let (form, schema) = random(i);
            let seeds: Vec<u64> = (0..ANSWERS).map(|k| i * ANSWERS + k).collect();
            let fault = fault(form, &schema, &seeds, &counts);
            if let Some(fault) = &fault {
                println!("{i}: {fault}");
            }
            faults.extend(fault);
        }
    };
    let faults: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let Counts { whole, relaxed, refused, answers, unjudged } = &counts;
    println!("{n} schemas: {whole:?} enforced, {relaxed:?} less strict and said so, {refused:?} refused");
    println!("{answers:?} answers, {unjudged:?} not judged, {} faults", faults.len());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(whole.load(Ordering::Relaxed) as u64 > n / 2, "most schemas are enforced");
}

/// Of each keyword: the schemas that have it, and those of them for which it is said not to hold.
#[test]
fn most_of_each_keyword_is_enforced() {
    let mut table: BTreeMap<String, [usize; 3]> = BTreeMap::new();
    for i in 0..SCHEMAS / 2 {
        let (form, schema) = random(i + 1_000_000);
        let mut there = BTreeMap::new();
        keywords(&schema, &mut there);
        let rules = rules(form, &schema);
        for key in there.keys() {
            let row = table.entry(key.clone()).or_default();
            row[0] += 1;
            match &rules {
                Ok(rules) => {
                    let named = |pointer: &String| pointer.rsplit('/').next() == Some(key.as_str());
                    row[1] += usize::from(rules.relaxed.iter().any(named));
                }
                Err(_) => row[2] += 1,
            }
        }
    }
    for (key, [there, relaxed, refused]) in &table {
        println!("{key}: in {there} schemas, relaxed in {relaxed}, schema refused in {refused}");
    }
    for key in ["properties", "required", "type", "enum", "minLength", "minimum", "allOf", "anyOf", "items"] {
        let [there, relaxed, _] = table.get(key).copied().unwrap_or_default();
        assert!(relaxed * 10 <= there, "{key}: {relaxed} of {there} are not enforced");
    }
}

#[test]
fn a_strict_tool_that_cannot_be_enforced_is_refused_by_name() {
    let unique = json!({"type": "object", "properties": {"tags": {"type": "array", "uniqueItems": true}}});
    let plain = json!({"type": "object", "properties": {"tags": {"type": "array"}}});
    for form in [Form::Xml, Form::Json] {
        let error = rules_as(form, &unique, Some(true)).err().unwrap();
        assert_eq!(error.param.as_deref(), Some("tools[0].function.strict"));
        assert!(error.message.contains("`f`") && error.message.contains("uniqueItems"), "{error}");
        for (schema, strict, expected) in [(&unique, None, 1), (&unique, Some(false), 0), (&plain, Some(true), 0)] {
            assert_eq!(rules_as(form, schema, strict).unwrap().relaxed.len(), expected, "{schema} {strict:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn any_random_schema_in_any_form_is_kept(seed in any::<u64>(), form in 0_usize..3) {
        let form = FORMS[form];
        let schema = Random::new(seed).whole(form != Form::ResponseFormat);
        let fault = fault(form, &schema, &[seed, seed ^ 1, seed ^ 2], &Counts::default());
        prop_assert!(fault.is_none(), "{}", fault.unwrap());
    }
}
