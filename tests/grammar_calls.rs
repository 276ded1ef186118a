//! Calls of tools as a grammar: what it takes and what not, in both ways of writing.
#![expect(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use plateau::grammar::{CallBody, CallShape, Calls, Compiled, Engine, Source, Vocabulary};
use plateau::units::Token;
use serde_json::{Value, json};

const END: Token = Token(256);

fn compile(shapes: Vec<CallShape>) -> Compiled {
    let engine = Engine::new(Vocabulary::bytes(&["</tool_call>".to_owned()])).unwrap();
    engine.compile(&Source::Calls(Calls { shapes, end: END })).unwrap()
}

fn xml(name: &str, schema: Value) -> CallShape {
    CallShape { name: name.to_owned(), schema, body: CallBody::Xml { free: false }, path: format!("{name}.parameters") }
}

fn json_call(name: &str, schema: Value) -> CallShape {
    CallShape { body: CallBody::Json, ..xml(name, schema) }
}

fn closed() -> Value {
    json!({"type": "object", "properties": {}})
}

/// Is this text, followed by the token that ends a call, a call and nothing but one?
fn takes(compiled: &Compiled, text: &str) -> bool {
    let mut matcher = compiled.matcher();
    let tokens = text.bytes().map(|byte| Token(byte.into())).chain([END]);
    for token in tokens {
        if matcher.is_finished() || matcher.accept(token).is_err() {
            return false;
        }
    }
    matcher.is_finished()
}

fn given(name: &str, value: &str) -> String {
    format!("<parameter={name}>\n{value}\n</parameter>\n")
}

fn call(name: &str, parameters: &[(&str, &str)]) -> String {
    let body: String = parameters.iter().map(|(name, value)| given(name, value)).collect();
    format!("\n<function={name}>\n{body}</function>\n")
}

fn weather() -> Compiled {
    let schema = json!({
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer", "minimum": 1},
            "unit": {"enum": ["c", "fahrenheit"]},
        },
        "required": ["city"],
    });
    compile(vec![xml("weather", schema), xml("ping", closed())])
}

#[test]
fn parameters_come_in_any_order_once_each_and_the_required_ones_always() {
    let weather = weather();
    for parameters in [
        &[("city", "Berlin")][..],
        &[("days", "3"), ("city", "New\nYork")],
        &[("unit", "c"), ("city", ""), ("days", "12")],
    ] {
        assert!(takes(&weather, &call("weather", parameters)), "{parameters:?}");
    }
    for parameters in [
        &[][..],
        &[("days", "3")],
        &[("city", "a"), ("city", "b")],
        &[("city", "a"), ("town", "b")],
        &[("city", "a"), ("days", "0")],
        &[("city", "a"), ("days", "x")],
        &[("city", "a"), ("unit", "k")],
    ] {
        assert!(!takes(&weather, &call("weather", parameters)), "{parameters:?}");
    }
    assert!(takes(&weather, &call("ping", &[])));
    assert!(!takes(&weather, &call("pong", &[])));
}

#[test]
fn text_is_anything_up_to_its_closing_tag() {
    let weather = weather();
    for text in
        ["a \"quote\" \\ and <tags> </param>", "</function>", "{\"a\": [1, 2]}", "\u{20ac}\n\n\n", "\n</paramete>"]
    {
        assert!(takes(&weather, &call("weather", &[("city", text)])), "{text:?}");
    }
}

#[test]
fn many_parameters_keep_their_order() {
    let properties: serde_json::Map<String, Value> =
        (0..12).map(|i| (format!("p{i}"), json!({"type": "string"}))).collect();
    let required: Vec<String> = (0..12).step_by(2).map(|i| format!("p{i}")).collect();
    let tool = compile(vec![xml("many", json!({"type": "object", "properties": properties, "required": required}))]);
    let all: Vec<(String, &str)> = (0..12).map(|i| (format!("p{i}"), "x")).collect();
    let some = |keep: &dyn Fn(usize) -> bool| -> Vec<(&str, &str)> {
        all.iter().enumerate().filter(|(i, _)| keep(*i)).map(|(_, (name, value))| (name.as_str(), *value)).collect()
    };
    assert!(takes(&tool, &call("many", &some(&|_| true))));
    assert!(takes(&tool, &call("many", &some(&|i| i % 2 == 0))));
    assert!(!takes(&tool, &call("many", &some(&|i| i != 4))));
}

#[test]
fn undeclared_parameters_are_taken_where_none_are_declared() {
    let tool = compile(vec![xml("open", json!({"type": "object"}))]);
    assert!(takes(&tool, &call("open", &[("any.thing_1", "x"), ("more", "y")])));
    assert!(!takes(&tool, &call("open", &[("no>tag", "x")])));
}

#[test]
fn calls_as_json_have_the_name_of_a_tool_and_its_arguments() {
    let schema = json!({
        "type": "object",
        "properties": { "path": { "$ref": "#/$defs/path" } },
        "required": ["path"],
        "$defs": { "path": { "type": "string", "maxLength": 4 } },
    });
    let tools = compile(vec![json_call("read", schema), json_call("list", json!({}))]);
    assert!(takes(&tools, "\n{\"name\": \"read\", \"arguments\": {\"path\": \"a/b\"}}\n"));
    assert!(takes(&tools, "\n{\"name\": \"list\", \"arguments\": {}}\n"));
    for wrong in [
        "\n{\"name\": \"read\", \"arguments\": {}}\n",
        "\n{\"name\": \"read\", \"arguments\": {\"path\": \"a/b/c\"}}\n",
        "\n{\"name\": \"write\", \"arguments\": {}}\n",
        "\n{\"arguments\": {}, \"name\": \"list\"}\n",
    ] {
        assert!(!takes(&tools, wrong), "{wrong}");
    }
}

#[test]
fn one_bad_schema_is_relaxed_and_the_others_hold() {
    let bad = json!({
        "type": "object",
        "properties": {"x": {"$ref": "https://elsewhere/x.json"}, "a>b": {"type": "string"}, "n": {"type": "integer"}},
        "required": ["x"],
    });
    let good = json!({"type": "object", "properties": {"y": {"type": "boolean"}}, "required": ["y"]});
    let tools = compile(vec![xml("bad", bad), xml("good", good)]);
    assert!(takes(&tools, &call("bad", &[("x", "{\"any\": 1}")])));
    assert!(!takes(&tools, &call("bad", &[("x", "1"), ("n", "z")])));
    assert!(!takes(&tools, &call("good", &[("y", "1")])));
    let pointers: Vec<&str> = tools.relaxed().iter().map(|w| w.pointer.as_str()).collect();
    assert!(pointers.contains(&"bad.parameters/properties/x"), "{pointers:?}");
    assert!(pointers.contains(&"bad.parameters/properties/a>b"), "{pointers:?}");
}

/// Both forms take the good calls and no bad one; each is given as parameters, whose values are JSON but for strings.
fn both(schema: &Value, good: &[&[(&str, &str)]], bad: &[&[(&str, &str)]]) {
    let tools = [compile(vec![xml("f", schema.clone())]), compile(vec![json_call("f", schema.clone())])];
    for tool in &tools {
        assert_eq!(tool.relaxed(), [], "{schema}");
    }
    let object = |parameters: &[(&str, &str)]| {
        let member = |(name, value): &(&str, &str)| {
            let is_json = serde_json::from_str::<Value>(value).is_ok();
            let value = if is_json { (*value).to_owned() } else { Value::from(*value).to_string() };
            format!("{}: {value}", Value::from(*name))
        };
        let members: Vec<String> = parameters.iter().map(member).collect();
        format!("\n{{\"name\": \"f\", \"arguments\": {{{}}}}}\n", members.join(", "))
    };
    for (calls, expected) in [(good, true), (bad, false)] {
        for parameters in calls {
            assert_eq!(takes(&tools[0], &call("f", parameters)), expected, "{parameters:?} as XML under {schema}");
            assert_eq!(takes(&tools[1], &object(parameters)), expected, "{parameters:?} as JSON under {schema}");
        }
    }
}

#[test]
fn schemas_for_the_whole_of_the_arguments_are_enforced() {
    let p = json!({"type": "object", "properties": {"n": {"const": 3}, "ok": {"type": "boolean"}}, "required": ["n", "ok"]});
    let good: [&[(&str, &str)]; 1] = [&[("n", "3"), ("ok", "true")]];
    let bad: [&[(&str, &str)]; 5] =
        [&[("a", "8"), ("b", "n")], &[("n", "3")], &[("n", "4"), ("ok", "true")], &[("n", "3"), ("ok", "1")], &[]];
    for schema in [
        json!({"$ref": "#/definitions/P", "definitions": {"P": p}}),
        json!({"type": "object", "$ref": "#/$defs/P", "$defs": {"P": p}}),
        json!({"allOf": [{"$ref": "#/$defs/P"}], "$defs": {"P": p}}),
        json!({"allOf": [{"properties": {"n": {"const": 3}}, "required": ["n"]},
            {"properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}]}),
        json!({"type": "object", "anyOf": [p]}),
        json!({"oneOf": [p, {"type": "string"}]}),
        json!({"type": "object", "properties": {"n": {}, "ok": {}}, "if": {}, "then": p}),
    ] {
        both(&schema, &good, &bad);
    }
    let either = json!({"oneOf": [
        {"type": "object", "properties": {"kind": {"const": "file"}, "path": {"type": "string"}}, "required": ["kind", "path"]},
        {"type": "object", "properties": {"kind": {"const": "url"}, "port": {"type": "integer"}}, "required": ["kind", "port"]},
    ]});
    both(
        &either,
        &[&[("kind", "file"), ("path", "x")], &[("kind", "url"), ("port", "80")]],
        &[&[("kind", "file"), ("port", "80")], &[("kind", "url")], &[("kind", "x"), ("path", "x")]],
    );
}

#[test]
fn a_required_name_that_is_not_listed_always_comes() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a", "b"]});
    both(&schema, &[&[("a", "1"), ("b", "2")]], &[&[("a", "1")], &[("b", "2")]]);
    both(&json!({"required": ["b"]}), &[&[("b", "x")]], &[&[], &[("c", "x")]]);
}

#[test]
fn names_that_are_not_listed_are_counted_and_their_values_hold() {
    let one = json!({"type": "object", "additionalProperties": {"const": 1}, "minProperties": 1});
    both(&one, &[&[("shape", "1")]], &[&[], &[("shape", "2")]]);
    let patterned = json!({"type": "object", "patternProperties": {"^x_": {"type": "boolean"}},
        "additionalProperties": false, "minProperties": 1, "maxProperties": 1});
    both(
        &patterned,
        &[&[("x_a", "true")]],
        &[&[], &[("a", "true")], &[("x_a", "1")], &[("x_a", "true"), ("x_b", "true")]],
    );
}

/// `{"shape": 1, "shape": 1, "shape": 1}` is one property after parsing.
#[test]
fn a_count_that_repeated_names_could_fill_is_said_not_to_hold() {
    let schema =
        json!({"type": "object", "additionalProperties": {"const": 1}, "minProperties": 2, "maxProperties": 3});
    for shape in [xml("f", schema.clone()), json_call("f", schema.clone())] {
        let tool = compile(vec![shape]);
        let pointers: Vec<&str> = tool.relaxed().iter().map(|w| w.pointer.as_str()).collect();
        assert_eq!(pointers, ["f.parameters/minProperties"]);
    }
    // An upper bound alone holds: a repeated name is one less.
    let most = json!({"type": "object", "additionalProperties": {"const": 1}, "maxProperties": 1});
    both(&most, &[&[], &[("a", "1")]], &[&[("a", "1"), ("b", "1")]]);
}

#[test]
fn rules_for_strings_hold_in_text_too() {
    let of = |schema: Value| json!({"type": "object", "properties": {"s": schema}, "required": ["s"]});
    both(&of(json!({"type": "string", "pattern": "^[a-c]+$"})), &[&[("s", "abc")]], &[&[("s", "abx")], &[("s", "")]]);
    both(
        &of(json!({"type": "string", "minLength": 2, "maxLength": 3})),
        &[&[("s", "x\u{e9}")]],
        &[&[("s", "x")], &[("s", "xxxx")]],
    );
    both(&of(json!({"type": "string", "format": "date"})), &[&[("s", "2024-02-29")]], &[&[("s", "2023-02-29")]]);
    both(&of(json!({"type": "string", "not": {"const": "no"}})), &[&[("s", "non")]], &[&[("s", "no")]]);
    both(
        &of(json!({"anyOf": [{"type": "string", "maxLength": 2}, {"type": "null"}, {"type": "array", "maxItems": 1}]})),
        &[&[("s", "x")], &[("s", "null")], &[("s", "[1]")]],
        &[&[("s", "xxx")], &[("s", "[1, 2]")]],
    );
}

#[test]
fn a_name_is_not_spelled_in_another_way() {
    let schema =
        json!({"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "string"}});
    let tool = compile(vec![json_call("f", schema)]);
    let call = |member: &str| format!("\n{{\"name\": \"f\", \"arguments\": {{{member}}}}}\n");
    assert!(takes(&tool, &call("\"a\": 1, \"b\": \"x\"")));
    assert!(!takes(&tool, &call("\"\\u0061\": \"x\"")));
    assert!(!takes(&tool, &call("\"b\": 1")));
}

/// A number that must not be a multiple was read from text, and nothing said so.
#[test]
fn what_does_not_hold_of_a_number_is_said_where_it_is_text() {
    let number = json!({"allOf": [{"minimum": -6, "maximum": 4, "multipleOf": 0.5}]});
    let tool = compile(vec![xml(
        "f",
        json!({"oneOf": [{"type": "object", "properties": {}}, {"type": "object", "properties": {"a": number}}]}),
    )]);
    assert!(!tool.relaxed().is_empty());
}
