//! Calls of tools as a grammar: what it takes and what not, in both ways of writing.
#![expect(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use plateau::grammar::{CallBody, CallShape, Calls, Compiled, Engine, Parameter, ParameterValue, Source, Vocabulary};
use plateau::units::Token;
use serde_json::{Value, json};

const END: Token = Token(256);

fn compile(shapes: Vec<CallShape>) -> Compiled {
    let engine = Engine::new(Vocabulary::bytes(&["</tool_call>".to_owned()])).unwrap();
    engine.compile(&Source::Calls(Calls { shapes, end: END })).unwrap()
}

fn parameter(name: &str, required: bool, value: ParameterValue) -> Parameter {
    Parameter { name: name.to_owned(), required, value }
}

fn xml(name: &str, parameters: Vec<Parameter>, open: bool) -> CallShape {
    CallShape { name: name.to_owned(), body: CallBody::Xml { parameters, open }, path: format!("{name}.parameters") }
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
    let number = ParameterValue::Json(json!({"type": "integer", "minimum": 1}));
    let unit = ParameterValue::OneOf(vec!["c".into(), "fahrenheit".into()]);
    let parameters = vec![
        parameter("city", true, ParameterValue::Text),
        parameter("days", false, number),
        parameter("unit", false, unit),
    ];
    compile(vec![xml("weather", parameters, false), xml("ping", vec![], false)])
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
    let one = |i: usize| parameter(&format!("p{i}"), i.is_multiple_of(2), ParameterValue::Text);
    let tool = compile(vec![xml("many", (0..12).map(one).collect(), false)]);
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
    let tool = compile(vec![xml("open", vec![], true)]);
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
    let shape = |name: &str, schema: Value| CallShape {
        name: name.to_owned(),
        body: CallBody::Json(schema),
        path: "tools[0].function.parameters".to_owned(),
    };
    let tools = compile(vec![shape("read", schema), shape("list", json!({}))]);
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
fn one_bad_schema_is_widened_and_the_others_hold() {
    let bad = ParameterValue::Json(json!({"$ref": "https://elsewhere/x.json"}));
    let good = ParameterValue::Json(json!({"type": "boolean"}));
    let tools = compile(vec![
        xml("bad", vec![parameter("x", true, bad), parameter("a>b", true, ParameterValue::Text)], false),
        xml("good", vec![parameter("y", true, good)], false),
    ]);
    assert!(takes(&tools, &call("bad", &[("x", "{\"any\": 1}")])));
    assert!(!takes(&tools, &call("good", &[("y", "1")])));
    let pointers: Vec<&str> = tools.widened().iter().map(|w| w.pointer.as_str()).collect();
    assert!(pointers.contains(&"bad.parameters/properties/x"), "{pointers:?}");
    assert!(pointers.contains(&"bad.parameters/properties/a>b"), "{pointers:?}");
}
