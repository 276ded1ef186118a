//! Renderings that differ between jinja2 and minijinja unless this module mends them.

use proptest::prelude::*;

use super::*;

/// Renders a source with `x` set to a JSON value.
fn render(source: &str, x: serde_json::Value) -> Result<String, Error> {
    let mut env = environment(1_000_000);
    env.add_template_owned("t", rewrite(source))?;
    env.get_template("t")?.render(Value::from_pairs([("x", from_json(&x))]))
}

fn rendered(source: &str) -> String {
    render(source, serde_json::Value::Null).unwrap_or_else(|error| panic!("{source}: {error:?}"))
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(serde_json::Value::from),
        any::<i64>().prop_map(serde_json::Value::from),
        any::<u64>().prop_map(serde_json::Value::from),
        prop::num::f64::NORMAL.prop_map(serde_json::Value::from),
        prop::num::f64::SUBNORMAL.prop_map(serde_json::Value::from),
        any::<String>().prop_map(serde_json::Value::from),
        "[ -~<>&'\"\\\\\\n]{0,12}".prop_map(serde_json::Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(serde_json::Value::from),
            prop::collection::vec((any::<String>(), inner), 0..6)
                .prop_map(|entries| serde_json::Value::Object(entries.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn tojson_reads_back_as_the_same_json(value in json()) {
        for filter in ["tojson", "tojson(ensure_ascii=true)", "tojson(indent=2)", "tojson(separators=(',', ':'))"] {
            let text = render(&format!("{{{{ x | {filter} }}}}"), value.clone()).unwrap();
            prop_assert_eq!(&serde_json::from_str::<serde_json::Value>(&text).unwrap(), &value);
        }
        let compact = render("{{ x | tojson(separators=(',', ':')) }}", value.clone()).unwrap();
        let plain = serde_json::to_string(&value).unwrap();
        if !contains_float(&value) && !plain.contains('\u{7f}') {
            prop_assert_eq!(compact, plain);
        }
    }

    #[test]
    fn ensure_ascii_gives_ascii_but_for_the_marks_of_the_server(text in any::<String>()) {
        let out = render("{{ x | tojson(ensure_ascii=true) }}", text.into()).unwrap();
        let escaped = out.chars().all(|c| c.is_ascii() || matches!(c, '\u{fdd0}' | '\u{fdd1}'));
        prop_assert!(escaped, "{}", out);
    }

    #[test]
    fn float_text_reads_back_as_the_same_number(number in any::<f64>()) {
        let text = python::float_repr(number);
        if number.is_finite() {
            prop_assert_eq!(text.parse::<f64>().unwrap().to_bits(), number.to_bits());
        }
    }

    #[test]
    fn rewriting_never_fails_and_keeps_what_is_no_code(text in "[^{}]*") {
        prop_assert_eq!(rewrite(&text), text);
    }

    #[test]
    fn rewriting_survives_any_source(text in "[-{}%#~'\"()|. a-z0-9\\[\\]]{0,60}") {
        let out = rewrite(&text);
        prop_assert!(out.len() >= text.len() || text.contains("generation"));
    }
}

fn contains_float(value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::Number(number) => number.is_f64(),
        serde_json::Value::Array(items) => items.iter().any(contains_float),
        serde_json::Value::Object(map) => map.values().any(contains_float),
        _ => false,
    }
}

#[test]
fn floats_print_as_python_prints_them() {
    for (number, text) in [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (0.1, "0.1"),
        (1e15, "1000000000000000.0"),
        (9_999_999_999_999_998.0, "9999999999999998.0"),
        (1e16, "1e+16"),
        (1e20, "1e+20"),
        (1.5e300, "1.5e+300"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (0.000_012_5, "1.25e-05"),
        (5e-324, "5e-324"),
        (f64::NAN, "nan"),
        (f64::INFINITY, "inf"),
        (f64::NEG_INFINITY, "-inf"),
    ] {
        assert_eq!(python::float_repr(number), text);
    }
}

#[test]
fn json_names_the_numbers_that_json_lacks() {
    let mut env = environment(1_000);
    env.add_global("values", vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
    let template = env.template_from_str("{{ values | tojson }} {{ values }}").unwrap();
    assert_eq!(template.render(()).unwrap(), "[NaN, Infinity, -Infinity] [nan, inf, -inf]");
}

#[test]
fn tool_json_is_not_escaped_for_html_and_has_python_separators() {
    let tool = serde_json::json!({"z": "temp > 10 & x < 5 (user's)", "a": [1, 2.0]});
    let text = render("{{ x | tojson }}", tool).unwrap();
    assert_eq!(text, r#"{"z": "temp > 10 & x < 5 (user's)", "a": [1, 2.0]}"#);
}

#[test]
fn tojson_knows_the_keywords_of_python() {
    let value = serde_json::json!({"b": "\u{e9}", "a": [{}]});
    assert_eq!(
        render("{{ x | tojson(ensure_ascii=False) }}", value.clone()).unwrap(),
        "{\"b\": \"\u{e9}\", \"a\": [{}]}"
    );
    assert_eq!(
        render("{{ x | tojson(indent=1, sort_keys=True, ensure_ascii=True) }}", value.clone()).unwrap(),
        "{\n \"a\": [\n  {}\n ],\n \"b\": \"\\u00e9\"\n}"
    );
    assert!(render("{{ x | tojson(colour='red') }}", value.clone()).is_err());
    assert!(render("{{ x | tojson(separators=(',',)) }}", value).is_err());
    assert!(render("{{ missing | tojson }}", serde_json::Value::Null).is_err());
}

#[test]
fn lists_and_maps_print_as_python_prints_them() {
    let value = serde_json::json!([{"type": "text", "ok": true, "n": null, "s": "it's", "f": 1e20}]);
    let text = "[{'type': 'text', 'ok': True, 'n': None, 's': \"it's\", 'f': 1e+20}]";
    for source in ["{{ x }}", "{{ x ~ '' }}", "{{ '' ~ x }}", "{{ x | string }}", "{{ '%s' % x }}", "{{ [x] | join }}"]
    {
        let found = render(source, value.clone()).unwrap();
        assert!(found == text, "{source} gives {found}");
    }
}

#[test]
fn python_repr_of_strings_escapes_what_does_not_print() {
    for (text, repr) in [
        ("plain", "'plain'"),
        ("it's", "\"it's\""),
        ("\"it's\"", "'\"it\\'s\"'"),
        ("a\\b\n\t\r", "'a\\\\b\\n\\t\\r'"),
        ("\0\u{7f}\u{a0}", "'\\x00\\x7f\\xa0'"),
        ("\u{200b}\u{2028}\u{e000}", "'\\u200b\\u2028\\ue000'"),
        ("\u{e9}\u{1f638}e\u{301}", "'\u{e9}\u{1f638}e\u{301}'"),
        ("\u{e0001}", "'\\U000e0001'"),
        ("<\u{fdd0}|im_end|>", "'<\u{fdd0}|im_end|>'"),
    ] {
        assert_eq!(python::string_repr(text), repr);
    }
}

#[test]
fn concatenation_is_rewritten_only_where_operands_are_certain() {
    for (source, expected) in [
        ("{{ a ~ b }}", "{{ a|string ~ b|string }}"),
        ("{{ 'a' ~ b.c[0](x, y) | f('~') ~ \"d\" }}", "{{ 'a' ~ b.c[0](x, y) | f('~')|string ~ \"d\" }}"),
        ("{% set a = b ~ c if d ~ e else f %}", "{% set a = b|string ~ c|string if d|string ~ e|string else f %}"),
        ("{{ a + b ~ c - d }}", "{{ a + b|string ~ c|string - d }}"),
        (
            "{{ f(a ~ 1, k=b ~ {'x': y ~ z}) }}",
            "{{ f(a|string ~ 1|string, k=b|string ~ {'x': y|string ~ z|string}|string) }}",
        ),
        ("{{ a * b ~ c }}", "{{ a * b ~ c|string }}"),
        ("{{ a ~ b is defined }}", "{{ a|string ~ b is defined }}"),
        ("{{ -a ~ -b }}", "{{ -a ~ -b }}"),
        ("{{ 1e-5 ~ 2 }}", "{{ 1e-5|string ~ 2|string }}"),
        ("a ~ b {# a ~ b #}{% raw %}{{ a ~ b }}{% endraw %}{{ '{{ a ~ b }}' }}", ""),
        ("{{ '%s' % a.b(c) | f ~ 'x' }}", "{{ '%s' |python_printf( a.b(c) | f) ~ 'x' }}"),
        ("{{ '%s-%s' % (a, b) }}{{ a % b }}", "{{ '%s-%s' |python_printf( (a, b)) }}{{ a % b }}"),
        ("{%- generation -%}x{%- endgeneration %}", "{%- with -%}x{%- endwith %}"),
        ("{% if generation %}{{ a", ""),
        ("{{ 'open ~ a }}", ""),
    ] {
        assert_eq!(rewrite(source), if expected.is_empty() { source } else { expected });
    }
}

#[test]
fn a_dict_in_braces_does_not_end_the_expression() {
    assert_eq!(rendered("{{ {'a': {'b': 1.0}}['a'] ~ '}}' }}|{{- {'a': {}} -}}|"), "{'b': 1.0}}}|{'a': {}}|");
}

#[test]
fn generation_tags_print_what_is_inside() {
    let source = "{% for m in [1, 2] %}\n{% generation %}\n<{{ m }}>\n{% endgeneration %}\n{% endfor %}";
    assert_eq!(rendered(source), "<1>\n<2>\n");
}

#[test]
fn a_list_or_dict_cannot_be_changed_by_a_template() {
    for source in ["{{ [1].append(2) }}", "{{ {'a': 1}.update({}) }}", "{{ {'a': 1}.pop('a') }}", "{{ [].sort() }}"] {
        let error = render(source, serde_json::Value::Null).unwrap_err();
        assert!(error.to_string().contains("templates may not"), "{error}");
    }
}

#[test]
fn raise_exception_keeps_its_message() {
    let error = render("{{ raise_exception('no ' ~ 1.0) }}", serde_json::Value::Null).unwrap_err();
    let source = std::error::Error::source(&error).unwrap();
    assert_eq!(source.downcast_ref::<Raised>().unwrap().0, "no 1.0");
}

#[test]
fn a_template_reaches_neither_files_nor_the_process() {
    for source in
        ["{% include '/etc/hostname' %}", "{% import 'x' as y %}{{ y }}", "{% extends 'x' %}", "{{ debug() }}"]
    {
        assert!(render(source, serde_json::Value::Null).is_err(), "{source}");
    }
    for source in ["{{ env }}", "{{ ''.__class__ }}", "{{ self }}", "{{ x.__globals__ }}"] {
        assert_eq!(rendered(source), "", "{source}");
    }
}

/// Each would need far more memory or time than a template deserves.
#[test]
fn template_bombs_run_out_of_fuel_or_hit_a_limit() {
    for source in [
        "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(a=[1]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}{{ ns.a }}",
        "{% set ns = namespace(a=[1]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}{{ ns.a | tojson }}",
        "{% set ns = namespace(a=[1]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}{{ ns.a | join }}",
        "{% set ns = namespace(a='x') %}{% for i in range(60) %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}",
        "{% set ns = namespace(a=[1]) %}{% for i in range(400) %}{% set ns.a = [ns.a] %}{% endfor %}{{ ns.a }}",
        "{% set ns = namespace(a=[1]) %}{% for i in range(400) %}{% set ns.a = {'k': ns.a} %}{% endfor %}{{ ns.a | tojson }}",
        "{{ '%999999999d' % 1 }}",
        "{{ '{:999999999}'.format(1) }}",
        "{{ '{:{}}'.format(1, 999999999) }}",
        "{{ 'a'.ljust(999999999) }}",
        "{{ ''.ljust(9999, 'long' * 1000) }}",
        "{{ ''.center(9999, '') }}",
        "{{ 'a\nb' | indent(999999999) }}",
        "{{ [1] | tojson(indent=999999999) }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ 'x' * 99999999999 }}",
    ] {
        assert!(render(source, serde_json::Value::Null).is_err(), "{source}");
    }
}

/// Fuel is for what is read, too: a loop over methods that make little would go on for hours.
#[test]
fn methods_pay_for_the_text_that_they_read() {
    let megabyte = serde_json::Value::from("a ".repeat(500_000));
    for call in [
        "x.count('b')",
        "x.split('b')",
        "x.splitlines()",
        "x.isdecimal()",
        "x.find('b')",
        "x.partition('b')",
        "x.startswith(['b', 'c'])",
        "'b'.startswith(x)",
        "x.rstrip('b')",
    ] {
        let looped = format!("{{% for i in range(1000) %}}{{% set y = {call} %}}{{% endfor %}}");
        let error = render(&looped, megabyte.clone()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfFuel, "{call}");
        assert!(render(&format!("{{% set y = {call} %}}"), megabyte.clone()).is_ok(), "once is fine: {call}");
    }
    let error = render("{{ x.split() | length }}", serde_json::Value::from("a ".repeat(1_100_000))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfFuel, "each part is paid for");
}
