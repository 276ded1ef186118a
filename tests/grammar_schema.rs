//! JSON Schema: what is accepted, what is refused, what is made less strict and said so.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "grammar/walk.rs"]
mod walk;

use std::sync::LazyLock;

use plateau::grammar::{Compiled, Engine, GrammarError, Source, Vocabulary};
use plateau::units::Token;
use proptest::prelude::*;
use serde_json::{Value, json};

static BYTES: LazyLock<Engine> = LazyLock::new(|| Engine::new(Vocabulary::bytes(&[])).unwrap());

fn compile(schema: &Value) -> Result<Compiled, GrammarError> {
    BYTES.compile(&Source::JsonSchema(schema.clone()))
}

fn accepts(compiled: &Compiled, text: &str) -> bool {
    let mut matcher = compiled.matcher();
    text.bytes().all(|byte| matcher.accept(Token(byte.into())).is_ok()) && matcher.is_accepting()
}

/// (schema, texts that fit, texts that do not)
#[expect(clippy::too_many_lines, reason = "a table")]
fn fixtures() -> Vec<(Value, Vec<&'static str>, Vec<&'static str>)> {
    let tree = json!({
        "$defs": {"node": {"type": "object", "properties": {
            "v": {"type": "integer"}, "next": {"type": "array", "items": {"$ref": "#/$defs/node"}}}, "required": ["v"]}},
        "$ref": "#/$defs/node",
    });
    vec![
        (json!({}), vec!["1", "\"a\"", "{\"a\":[null]}", "true"], vec!["", "a", "{a:1}"]),
        (json!(true), vec!["null"], vec!["nul"]),
        (json!({"type": "object"}), vec!["{}", "{\"a\": 1}"], vec!["[]", "1"]),
        (
            json!({"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "integer"}}, "required": ["a"]}),
            vec!["{\"a\":1}", "{\"b\":\"x\",\"a\":1}", "{\n  \"b\": \"\",\n  \"a\": -1\n}"],
            // Order of the schema, no other properties, no endless blanks.
            vec!["{}", "{\"a\":1,\"b\":\"x\"}", "{\"a\":1,\"c\":2}", "{  \"a\":1}", "{\n\n\"a\":1}"],
        ),
        (
            json!({"type": "object", "properties": {"a": {}}, "additionalProperties": {"type": "integer"}}),
            vec!["{\"a\":\"x\",\"c\":2}", "{\"c\":2}"],
            vec!["{\"c\":\"x\"}"],
        ),
        (
            json!({"properties": {"a": {"const": 1}}, "required": ["a", "b"]}),
            vec!["{\"a\":1,\"b\":{}}"],
            vec!["1", "{\"a\":1}"],
        ),
        (json!({"type": ["string", "null"]}), vec!["\"\"", "null"], vec!["1"]),
        (json!({"type": "string", "nullable": true}), vec!["\"\"", "null"], vec!["1"]),
        (json!({"type": "string", "enum": ["a", 1, null]}), vec!["\"a\""], vec!["1", "null", "\"b\""]),
        (json!({"enum": ["a", 1, null, {"b": []}]}), vec!["\"a\"", "1", "null", "{\"b\":[]}"], vec!["2"]),
        (json!({"type": "array", "items": {"type": "integer"}, "maxItems": 0}), vec!["[]"], vec!["[1]"]),
        (json!({"type": "array", "minItems": 1, "maxItems": 2}), vec!["[1]", "[1, \"a\"]"], vec!["[]", "[1,2,3]"]),
        (
            json!({"prefixItems": [{"const": 1}, {"type": "string"}], "items": false}),
            vec!["[1,\"a\"]", "[1]"],
            vec!["[2]", "[1,\"a\",1]"],
        ),
        (
            json!({"type": "string", "minLength": 2, "maxLength": 3}),
            vec!["\"\u{E9}\u{1F600}\"", "\"a\\n\""],
            vec!["\"a\"", "\"abcd\""],
        ),
        (json!({"type": "string", "maxLength": 10_000}), vec!["\"abc\""], vec!["1"]),
        (json!({"type": "string", "pattern": "^[a-f]+$"}), vec!["\"abc\""], vec!["\"xyz\"", "\"\""]),
        (json!({"type": "string", "pattern": "b"}), vec!["\"abc\""], vec!["\"ac\""]),
        (
            json!({"type": "string", "format": "date"}),
            vec!["\"2024-02-29\"", "\"2000-02-29\""],
            vec!["\"2024-13-01\"", "\"2023-02-29\"", "\"x\""],
        ),
        (json!({"type": "string", "format": "time"}), vec!["\"23:59:59.5+01:00\""], vec!["\"24:00:00Z\""]),
        (
            json!({"type": "string", "format": "uuid"}),
            vec!["\"123e4567-e89b-12d3-a456-426614174000\""],
            vec!["\"123e\""],
        ),
        (json!({"type": "string", "format": "date-time"}), vec!["\"2024-12-31T23:59:59Z\""], vec!["\"2024-12-31\""]),
        (
            json!({"type": "integer", "minimum": 3, "maximum": 120}),
            vec!["3", "99", "120"],
            vec!["2", "121", "3.5", "03"],
        ),
        (json!({"enum": [0.1, -2.5, 1e-7]}), vec!["0.1", "-2.5"], vec!["0.2", "1"]),
        (
            json!({"type": "integer", "maximum": 9_007_199_254_740_991_u64}),
            vec!["9007199254740991"],
            vec!["9007199254740992"],
        ),
        (json!({"type": "string", "pattern": "^+[a-z]$"}), vec!["\"a\""], vec!["\"A\""]),
        (json!({"type": "integer", "format": "int64", "minimum": 0}), vec!["12345678901234567890123"], vec!["-1"]),
        (
            json!({"type": "number", "exclusiveMinimum": 0, "maximum": 1}),
            vec!["0.5", "1", "1.0"],
            vec!["0", "1.5", "-1"],
        ),
        (json!({"type": "integer", "multipleOf": 5}), vec!["10", "0"], vec!["12"]),
        (
            json!({"anyOf": [{"type": "integer"}, {"type": "object", "properties": {"a": {}}}]}),
            vec!["1", "{\"a\":2}"],
            vec!["[]", "{\"b\":2}"],
        ),
        (
            json!({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]}]}),
            vec!["{\"a\":1,\"b\":2}"],
            vec!["{\"a\":1}", "{\"b\":2}"],
        ),
        (tree, vec!["{\"v\":1}", "{\"v\":1,\"next\":[{\"v\":2,\"next\":[]}]}"], vec!["{}", "{\"v\":1,\"next\":[{}]}"]),
        (
            json!({"definitions": {"a/b%": {"type": "null"}}, "items": {"$ref": "#/definitions/a~1b%25"}, "type": "array"}),
            vec!["[null]"],
            vec!["[1]"],
        ),
        (json!({"type": "object", "properties": {"a": {"$ref": "#"}}}), vec!["{\"a\":{\"a\":{}}}"], vec!["{\"a\":1}"]),
        (
            json!({"$defs": {"x": {"$anchor": "here", "type": "null"}}, "type": "array", "items": {"$ref": "#here"}}),
            vec!["[null,null]"],
            vec!["[0]"],
        ),
    ]
}

#[test]
fn fixtures_are_accepted_and_rejected() {
    for (schema, fit, not) in fixtures() {
        let compiled = compile(&schema).unwrap_or_else(|error| panic!("{error}\n{schema}"));
        assert_eq!(compiled.relaxed(), [], "{schema}");
        for text in fit {
            assert!(accepts(&compiled, text), "{text} under {schema}");
        }
        for text in not {
            assert!(!accepts(&compiled, text), "{text} under {schema}");
        }
    }
}

#[test]
fn a_feature_out_of_reach_is_lost_for_its_field_alone_and_said() {
    let schema = json!({"type": "object", "required": ["a", "b", "c", "d", "e", "f", "g"], "properties": {
        "a": {"type": "string", "pattern": "^(?=x)y"},
        "b": {"type": "string", "pattern": "(a)\\1"},
        "c": {"type": "array", "items": {"type": "integer"}, "uniqueItems": true},
        "d": {"type": "string", "format": "iri"},
        "e": {"type": "integer", "not": {"const": 3}},
        "f": {"oneOf": [{"type": "integer"}, {"type": "number"}]},
        "g": {"type": "string", "maxLength": 99_999_999},
    }});
    let compiled = compile(&schema).unwrap();
    let pointers: Vec<&str> = compiled.relaxed().iter().map(|widened| widened.pointer.as_str()).collect();
    assert_eq!(
        pointers,
        [
            "/properties/a/pattern",
            "/properties/b/pattern",
            "/properties/c/uniqueItems",
            "/properties/d/format",
            "/properties/f/oneOf",
            "/properties/g/maxLength",
        ]
    );
    let text = |a: &str, c: &str| format!("{{\"a\":{a},\"b\":\"\",\"c\":{c},\"d\":\"\",\"e\":4,\"f\":1,\"g\":\"\"}}");
    assert!(accepts(&compiled, &text("\"anything\"", "[1,1]")));
    // The type of each holds, and the rest of the schema.
    assert!(!accepts(&compiled, &text("\"\"", "[1]").replace("\"e\":4", "\"e\":3")));
    assert!(!accepts(&compiled, &text("1", "[1]")));
    assert!(!accepts(&compiled, &text("\"\"", "[\"1\"]")));
    assert!(!accepts(&compiled, "{\"a\":\"\"}"));
}

#[test]
fn what_only_compiling_finds_is_repaired_at_its_smallest_part() {
    let schema = json!({"type": "object", "required": ["x", "y"], "properties": {
        "x": {"type": "string", "pattern": "^[a-z]+@[a-z]+$", "minLength": 30_000},
        "y": {"type": "boolean"},
    }});
    let compiled = compile(&schema).unwrap();
    assert_eq!(compiled.relaxed().len(), 1, "{:?}", compiled.relaxed());
    assert_eq!(compiled.relaxed()[0].pointer, "/properties/x");
    let text = |x: &str, y: &str| format!("{{\"x\":\"{x}\",\"y\":{y}}}");
    assert!(accepts(&compiled, &text(&"z".repeat(30_000), "true")));
    assert!(!accepts(&compiled, &text(&"z".repeat(30_000), "1")) && !accepts(&compiled, "{\"x\":1,\"y\":true}"));
}

/// The arithmetic of the library overflows there.
#[test]
fn bounds_as_wide_as_an_integer_type_are_not_enforced_and_do_no_harm() {
    let schema = json!({"type": "object", "required": ["a", "b"], "properties": {
        "a": {"type": "integer", "minimum": i64::MIN, "maximum": i64::MAX}, "b": {"enum": ["x", u64::MAX]}}});
    let compiled = compile(&schema).unwrap();
    let pointers: Vec<&str> = compiled.relaxed().iter().map(|widened| widened.pointer.as_str()).collect();
    assert_eq!(pointers, ["/properties/a/minimum", "/properties/a/maximum", "/properties/b/enum"]);
    assert!(accepts(&compiled, "{\"a\":-9223372036854775808,\"b\":18446744073709551615}"));
    assert!(!accepts(&compiled, "{\"a\":1.5,\"b\":\"x\"}") && !accepts(&compiled, "{\"a\":1,\"b\":null}"));
}

/// A state for each remainder: half a million took minutes to compile, and least common multiples overflowed.
#[test]
fn steps_of_many_remainders_are_not_enforced_and_cost_nothing() {
    for (schema, lost) in [
        (json!({"multipleOf": 540_001}), "/multipleOf"),
        (json!({"multipleOf": 4_000_000_000_u64}), "/multipleOf"),
        (json!({"multipleOf": 0.123_456_789}), "/multipleOf"),
        (json!({"multipleOf": 1e-9}), "/multipleOf"),
        (json!({"allOf": [{"multipleOf": 9_973}, {"multipleOf": 9_967}]}), "/allOf/1/multipleOf"),
        (json!({"multipleOf": 9_973, "anyOf": [{"multipleOf": 0.01}, {"type": "null"}]}), "/anyOf/0/multipleOf"),
    ] {
        let compiled = compile(&schema).unwrap_or_else(|error| panic!("{error}: {schema}"));
        assert_eq!(compiled.relaxed()[0].pointer, lost, "{schema}");
        assert!(accepts(&compiled, "9973"), "{schema}");
    }
    let both = compile(&json!({"allOf": [{"multipleOf": 4}, {"multipleOf": 6}], "type": "integer"})).unwrap();
    assert!(accepts(&both, "24") && !accepts(&both, "18") && both.relaxed().is_empty());
    let cents = compile(&json!({"multipleOf": 0.01})).unwrap();
    assert!(accepts(&cents, "1.25") && !accepts(&cents, "1.255") && cents.relaxed().is_empty());
}

#[test]
fn a_oneof_of_exclusive_options_loses_nothing() {
    let option = |kind: &str| json!({"type": "object", "properties": {"kind": {"const": kind}}, "required": ["kind"]});
    for schema in [
        json!({"oneOf": [option("a"), option("b")]}),
        json!({"oneOf": [{"type": "string"}, {"type": ["integer", "null"]}]}),
        json!({"oneOf": [{"const": 1}, {"enum": [2, 3]}]}),
    ] {
        assert_eq!(compile(&schema).unwrap().relaxed(), [], "{schema}");
    }
}

/// The value fits no schema that a name with two digits stands for, and was taken for one of the others.
#[test]
fn a_name_of_an_impossible_pattern_is_no_other_name() {
    for impossible in [json!(false), json!({"type": "string", "anyOf": [{"type": "object"}]})] {
        let compiled = compile(&json!({"type": "object", "patternProperties": {"\\d{2}": impossible}})).unwrap();
        assert_eq!(compiled.relaxed(), []);
        assert!(accepts(&compiled, "{\"a1\":1}") && !accepts(&compiled, "{\"a12\":\"x\"}"));
    }
}

/// The library's `\s` has U+0085 and lacks U+FEFF.
#[test]
fn blanks_of_a_pattern_are_those_of_ecma() {
    let compiled = compile(&json!({"type": "string", "pattern": "^\\s\\S.$"})).unwrap();
    assert!(accepts(&compiled, "\" ab\"") && accepts(&compiled, "\"\u{feff}ab\""));
    for text in ["\"\u{85}ab\"", "\" \u{feff}b\"", "\" a\u{2028}\""] {
        assert!(!accepts(&compiled, text), "{text:?}");
    }
}

/// An option of a `oneOf` is narrower than it says only where nothing around it says more.
#[test]
fn options_overlap_where_what_is_around_them_opens_them() {
    let compiled =
        compile(&json!({"type": ["integer", "string"], "oneOf": [{"type": "string", "minLength": 3}, {"minimum": 7}]}))
            .unwrap();
    assert_eq!(compiled.relaxed(), []);
    assert!(accepts(&compiled, "\"ab\"") && accepts(&compiled, "8"));
    assert!(!accepts(&compiled, "\"abc\"") && !accepts(&compiled, "6"));
    let opened = json!({"type": "object", "additionalProperties": {"type": "integer"}, "oneOf": [
        {"properties": {"a": {"type": "integer"}}, "required": ["a"]},
        {"properties": {"b": {"type": "integer"}}, "required": ["b"]},
    ]});
    let compiled = compile(&opened).unwrap();
    assert_eq!(compiled.relaxed(), []);
    assert!(
        accepts(&compiled, "{\"a\":1}") && accepts(&compiled, "{\"b\":1}") && !accepts(&compiled, "{\"a\":1,\"b\":2}")
    );
}

#[test]
fn what_must_not_fit_and_cannot_be_told_is_said() {
    let text = json!({"type": "object", "properties": {"x": {"type": "string", "pattern": "^a"}}});
    for schema in [
        json!({"oneOf": [text, {"type": "object", "properties": {}}]}),
        json!({"type": "object", "properties": {"x": {"type": "string"}}, "not": text}),
    ] {
        assert!(!compile(&schema).unwrap().relaxed().is_empty(), "{schema}");
    }
}

#[test]
fn keywords_that_join_schemas_are_enforced() {
    let dependent = json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "dependentRequired": {"a": ["b"]}});
    let condition = json!({"type": "object", "properties": {"k": {"enum": ["x", "y"]}, "n": {"type": "integer"}}, "required": ["k"],
        "if": {"properties": {"k": {"const": "x"}}}, "then": {"required": ["n"]}, "else": {"properties": {"n": false}}});
    let names =
        json!({"type": "object", "propertyNames": {"enum": ["a", "b"]}, "additionalProperties": {"type": "integer"}});
    let unevaluated = json!({"type": "object", "allOf": [{"properties": {"a": {"type": "integer"}}}],
        "properties": {"b": {"type": "integer"}}, "unevaluatedProperties": false});
    let either = json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}]});
    let counted = json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "c": {"type": "integer"}},
        "minProperties": 2, "maxProperties": 2});
    for (schema, fit, not) in [
        (&dependent, vec!["{}", "{\"b\":1}", "{\"a\":1,\"b\":1}"], vec!["{\"a\":1}"]),
        (&condition, vec!["{\"k\":\"x\",\"n\":1}", "{\"k\":\"y\"}"], vec!["{\"k\":\"x\"}", "{\"k\":\"y\",\"n\":1}"]),
        (&names, vec!["{}", "{\"b\":1}"], vec!["{\"c\":1}", "{\"a\":null}"]),
        (&unevaluated, vec!["{\"b\":1,\"a\":1}"], vec!["{\"c\":1}"]),
        (&either, vec!["{\"a\":1}", "{\"b\":1}"], vec!["{}", "{\"a\":1,\"b\":1}"]),
        (&counted, vec!["{\"a\":1,\"c\":1}"], vec!["{\"a\":1}", "{\"a\":1,\"b\":1,\"c\":1}"]),
    ] {
        let compiled = compile(schema).unwrap();
        assert_eq!(compiled.relaxed(), [], "{schema}");
        for text in fit {
            assert!(accepts(&compiled, text), "{text} under {schema}");
        }
        for text in not {
            assert!(!accepts(&compiled, text), "{text} under {schema}");
        }
    }
}

/// Each name is one property, however often it comes.
#[test]
fn free_names_that_must_be_several_are_said_not_to_be_sure() {
    let schema =
        json!({"type": "object", "additionalProperties": {"const": 1}, "minProperties": 2, "maxProperties": 3});
    assert_eq!(compile(&schema).unwrap().relaxed()[0].pointer, "/minProperties");
}

#[test]
fn errors_name_the_pointer() {
    for (schema, expected) in [
        (json!(false), "schema: `false` accepts no value"),
        (json!("string"), "schema: a schema is an object, true or false, not \"string\""),
        (json!({"properties": {"a/b": 5}}), "schema at /properties/a~1b: a schema is an object, true or false, not 5"),
        (
            json!({"type": "strin"}),
            "schema at /type: \"strin\" is no type; known are null, boolean, integer, number, string, array, object",
        ),
        (
            json!({"type": "string", "minLength": 5, "maxLength": 2}),
            "schema: minLength 5 is more than maxLength 2; no value fits",
        ),
        (
            json!({"items": {"minItems": -1}}),
            "schema at /items/minItems: a whole number of 0 or more was expected, not -1",
        ),
        (
            json!({"$ref": "https://example.com/x.json"}),
            "schema at /$ref: the reference \"https://example.com/x.json\" leads out of the schema, and nothing is fetched; copy it in",
        ),
        (json!({"items": {"$ref": "#/nope"}}), "schema at /items/$ref: the reference \"#/nope\" leads nowhere"),
        (json!({"$ref": "#"}), "schema: no finite value fits: the schema requires itself; make the reference optional"),
        (
            json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
            "schema at /$defs/a: no finite value fits: the schema requires itself; make the reference optional",
        ),
        (
            json!({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}),
            "schema: no finite value fits: the schema requires itself; make the reference optional",
        ),
        (json!({"anyOf": []}), "schema at /anyOf: the list is empty"),
        (json!({"enum": []}), "schema at /enum: a list with one value or more was expected"),
    ] {
        let error = compile(&schema).err().unwrap_or_else(|| panic!("{schema} compiles"));
        assert_eq!(error.to_string(), expected);
    }
    let impossible = json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "string", "const": 1}}});
    let error = compile(&impossible).err().unwrap().to_string();
    assert!(error.starts_with("schema at /properties/a: ") && error.contains("nsatisfiable"), "{error}");
}

#[test]
fn bombs_are_refused_or_made_less_strict() {
    let names: Vec<String> = (0..100_000).map(|i| format!("name {i}")).collect();
    let compiled = compile(&json!({"type": "object", "properties": {"a": {"enum": names}}})).unwrap();
    assert_eq!(compiled.relaxed()[0].pointer, "/properties/a/enum");
    assert!(accepts(&compiled, "{\"a\":\"other\"}") && !accepts(&compiled, "{\"a\":1}"));
    let deep = |n: usize| (0..n).fold(json!({}), |inner, _| json!({"type": "array", "items": inner}));
    assert!(matches!(compile(&deep(200)), Err(GrammarError::Limit { .. })));
    assert!(compile(&deep(60)).is_ok());
    let large = json!({"description": "x".repeat(10_000_000)});
    assert!(matches!(compile(&large), Err(GrammarError::Limit { .. })));
    // References that fan out: resolved once each, and joined without end only by the library, which has limits of its own.
    let fan: serde_json::Map<String, Value> = (0..60)
        .map(|i| {
            (
                format!("d{i}"),
                json!({"anyOf": [{"$ref": format!("#/$defs/d{}", i + 1)}, {"$ref": format!("#/$defs/d{}", i + 1)}]}),
            )
        })
        .chain([("d60".to_owned(), json!({"type": "null"}))])
        .collect();
    let compiled = compile(&json!({"$defs": fan, "$ref": "#/$defs/d0"})).unwrap();
    assert!(accepts(&compiled, "null"));
    // Many parts of which properties are counted.
    let bad = json!({"type": "object", "properties": {"a": {"type": "null"}, "b": {}}, "minProperties": 1, "maxProperties": 1,
        "additionalProperties": true});
    let many: serde_json::Map<String, Value> = (0..300).map(|i| (format!("p{i}"), bad.clone())).collect();
    let compiled = compile(&json!({"type": "object", "properties": many})).unwrap();
    assert_eq!(compiled.relaxed(), []);
    assert!(accepts(&compiled, "{\"p299\":{\"a\":null}}") && !accepts(&compiled, "{\"p299\":{\"a\":1}}"));
    assert!(!accepts(&compiled, "{\"p299\":{}}") && !accepts(&compiled, "{\"p299\":{\"a\":null,\"c\":1}}"));
    // A product that is too large keeps the members that fit, and is never left without any.
    let options =
        |j: usize| (0..10).map(|i| json!({"type": "object", "properties": {format!("p{j}"): {"const": i}}})).collect();
    let product: Vec<Value> = (0..12).map(|j| json!({"anyOf": Value::Array(options(j))})).collect();
    let compiled = compile(&json!({"allOf": product})).unwrap();
    assert!(compiled.relaxed()[0].pointer.starts_with("/allOf/"), "{:?}", compiled.relaxed());
    assert!(accepts(&compiled, "{\"p0\":9}") && !accepts(&compiled, "{\"p0\":10}") && !accepts(&compiled, "1"));
    let wide: serde_json::Map<String, Value> =
        (0..2_000).map(|i| (format!("p{i}"), json!({"type": "integer"}))).collect();
    assert!(compile(&json!({"type": "object", "properties": wide})).is_ok());
}

#[test]
fn whatever_is_generated_is_valid() {
    for (schema, _, _) in fixtures() {
        let compiled = compile(&schema).unwrap();
        let validator = jsonschema::options().should_validate_formats(true).build(&schema).unwrap();
        for seed in 0..12 {
            let text = walk::generate(&mut compiled.matcher(), seed);
            let value: Value =
                serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?} under {schema}"));
            // The validator has `nullable` not, and no exact arithmetic on integers of more than 53 bits.
            let is_inexact = text.trim_start_matches('-').len() > 15 && value.is_number();
            let is_judged = !is_inexact && schema.get("nullable").is_none();
            assert!(!is_judged || validator.is_valid(&value), "{text} under {schema}");
        }
    }
}

fn schemas() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({"type": "integer"})),
        Just(json!({"type": "integer", "minimum": -3, "exclusiveMaximum": 40})),
        Just(json!({"type": "number", "minimum": 0.5})),
        Just(json!({"type": "boolean"})),
        Just(json!({"type": "null"})),
        Just(json!({"type": "string", "maxLength": 4})),
        Just(json!({"type": "string", "pattern": "^[a-c]{1,3}$"})),
        Just(json!({"type": "string", "format": "ipv4"})),
        Just(json!({"enum": ["x", 7, null, [1]]})),
        Just(json!({"const": {"k": "v"}})),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let properties = prop::collection::vec((inner.clone(), any::<bool>()), 1..4);
        prop_oneof![
            (properties, prop::option::of(any::<bool>())).prop_map(|(properties, open)| {
                let named = properties.iter().enumerate().map(|(i, (schema, _))| (format!("p{i}"), schema.clone()));
                let required: Vec<String> = properties
                    .iter()
                    .enumerate()
                    .filter(|(_, (_, required))| *required)
                    .map(|(i, _)| format!("p{i}"))
                    .collect();
                let mut schema = json!({"type": "object", "properties": named.collect::<serde_json::Map<_, _>>(),
                    "required": required});
                if let Some(open) = open {
                    schema["additionalProperties"] = open.into();
                }
                schema
            }),
            (inner.clone(), 0..3_u32)
                .prop_map(|(items, n)| json!({"type": "array", "items": items, "minItems": n, "maxItems": n + 2})),
            prop::collection::vec(inner.clone(), 1..4).prop_map(|options| json!({"anyOf": options})),
            (inner.clone(), inner)
                .prop_map(|(a, b)| json!({"type": "array", "prefixItems": [a, b], "items": false, "minItems": 2})),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_generated_under_a_random_schema_is_valid(schema in schemas(), seed in any::<u64>()) {
        let compiled = compile(&schema).unwrap_or_else(|error| panic!("{error}\n{schema}"));
        prop_assert_eq!(compiled.relaxed(), []);
        let validator = jsonschema::options().should_validate_formats(true).build(&schema).unwrap();
        for seed in [seed, seed ^ 1, seed ^ 2] {
            let text = walk::generate(&mut compiled.matcher(), seed);
            let value: Value = match serde_json::from_str(&text) {
                Ok(value) => value,
                // JSON has no largest number, readers have.
                Err(error) if error.to_string().contains("number out of range") => continue,
                Err(error) => panic!("{error}: {text}"),
            };
            prop_assert!(validator.is_valid(&value), "{} under {}", text, schema);
        }
    }
}

/// JSON that uses the words of schemas without their grammar.
fn nonsense() -> impl Strategy<Value = Value> {
    let leaf = prop::sample::select(vec![
        json!(true),
        json!(false),
        json!(null),
        json!(0),
        json!(1),
        json!(3),
        json!(-1),
        json!(1.5),
        json!(1e300),
        json!(""),
        json!("string"),
        json!("object"),
        json!("array"),
        json!("integer"),
        json!("#"),
        json!("#/$defs/a"),
        json!("#/properties/a"),
        json!("^a+$"),
        json!("(a"),
        json!("date"),
        json!("a"),
        json!([]),
        json!({}),
    ]);
    let keys = vec![
        "type",
        "properties",
        "a",
        "b",
        "items",
        "prefixItems",
        "required",
        "anyOf",
        "oneOf",
        "allOf",
        "$ref",
        "$defs",
        "enum",
        "const",
        "pattern",
        "format",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "multipleOf",
        "additionalProperties",
        "patternProperties",
        "minProperties",
        "maxProperties",
        "not",
        "nullable",
        "unevaluatedProperties",
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            3 => prop::collection::vec((prop::sample::select(keys.clone()), inner.clone()), 0..5)
                .prop_map(|pairs| pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<serde_json::Map<_, _>>().into()),
            1 => prop::collection::vec(inner, 0..4).prop_map(Value::from),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn any_json_is_compiled_or_refused_with_a_reason(schema in nonsense()) {
        match compile(&schema) {
            Ok(compiled) => prop_assert!(compiled.matcher().mask().is_ok()),
            Err(error) => {
                let text = error.to_string();
                prop_assert!(!text.contains("panic") && !text.starts_with("compiling the"), "{} from {}", text, schema);
            }
        }
    }
}
