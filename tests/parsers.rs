//! Reasoning and tool calls in generated text: the same output for every way of cutting the text.

#[path = "parsers/recorded.rs"]
mod recorded;

use plateau::chat::{Collected, CollectedCall, OutputDelta, OutputFormat, OutputParser, collect};
use proptest::prelude::*;
use recorded::{Case, Read, format};
use serde_json::{Map, Value};

/// Longest text whose cuts at every pair of places are all tried; in longer ones the second cut is near the first or at a tag.
const ALL_PAIRS_BYTES: usize = 80;

fn parser(format: OutputFormat) -> OutputParser {
    let mut n = 0;
    let ids = move || {
        n += 1;
        format!("id{n}")
    };
    OutputParser::with_ids(format, Box::new(ids))
}

/// The deltas of a text cut at `cuts` (byte offsets on character borders, rising), neighbours of one kind joined.
fn parse(format: &OutputFormat, text: &str, cuts: &[usize]) -> Vec<OutputDelta> {
    let mut parser = parser(format.clone());
    let mut joined = Vec::new();
    let mut from = 0;
    for to in cuts.iter().copied().chain([text.len()]) {
        let mut deltas = Vec::new();
        parser.push(&text[from..to], &mut deltas);
        deltas.into_iter().for_each(|delta| join(&mut joined, delta));
        from = to;
    }
    let mut deltas = Vec::new();
    parser.finish(&mut deltas);
    deltas.into_iter().for_each(|delta| join(&mut joined, delta));
    assert_eq!(parser.n_calls(), joined.iter().filter(|d| matches!(d, OutputDelta::ToolCall { .. })).count());
    joined
}

fn join(joined: &mut Vec<OutputDelta>, delta: OutputDelta) {
    use OutputDelta::{Arguments, Content, Reasoning};
    match (joined.last_mut(), delta) {
        (Some(Reasoning(last)), Reasoning(text)) | (Some(Content(last)), Content(text)) => last.push_str(&text),
        (Some(Arguments { index, json }), Arguments { index: same, json: more }) if *index == same => {
            json.push_str(&more)
        }
        (_, delta) => joined.push(delta),
    }
}

fn gather(deltas: Vec<OutputDelta>) -> Collected {
    let mut collected = Collected::default();
    deltas.into_iter().for_each(|delta| collected.add(delta));
    collected
}

fn read(read: Read, text: &str) -> Collected {
    gather(parse(&format(read), text, &[]))
}

fn arguments(call: &CollectedCall) -> Map<String, Value> {
    serde_json::from_str(&call.arguments).unwrap_or_else(|e| panic!("{e}: {:?}", call.arguments))
}

fn borders(text: &str) -> Vec<usize> {
    text.char_indices().map(|(i, _)| i).skip(1).collect()
}

/// Indices rise from 0, every call starts once and before its arguments, ids differ.
fn assert_well_formed(deltas: &[OutputDelta]) {
    let mut ids: Vec<&str> = Vec::new();
    for delta in deltas {
        match delta {
            OutputDelta::Reasoning(text) | OutputDelta::Content(text) => assert!(!text.is_empty()),
            OutputDelta::ToolCall { index, id, .. } => {
                assert_eq!(*index, ids.len());
                assert!(!id.is_empty() && !ids.contains(&id.as_str()));
                ids.push(id);
            }
            OutputDelta::Arguments { index, json } => assert!(*index + 1 == ids.len() && !json.is_empty()),
        }
    }
    let collected = gather(deltas.to_vec());
    for call in &collected.calls {
        arguments(call);
    }
}

fn assert_case(case: &Case) {
    let got = read(case.read, case.text);
    let calls: Vec<_> = got.calls.iter().map(|call| (call.name.as_str(), call.arguments.as_str())).collect();
    assert_eq!(got.reasoning, case.reasoning, "reasoning of: {}", case.name);
    assert_eq!(got.content, case.content, "content of: {}", case.name);
    assert_eq!(calls, case.calls, "calls of: {}", case.name);
}

fn case(name: &str) -> &'static Case {
    recorded::all().find(|case| case.name == name).unwrap_or_else(|| panic!("no case {name}"))
}

fn assert_cases(names: &[&str]) {
    names.iter().for_each(|name| assert_case(case(name)));
}

#[test]
fn recorded_outputs_are_read_as_expected() {
    assert!(recorded::all().count() > 40);
    recorded::all().for_each(assert_case);
}

#[test]
fn x15_every_single_and_double_cut_gives_the_same() {
    for case in recorded::all() {
        let format = format(case.read);
        let whole = parse(&format, case.text, &[]);
        assert_well_formed(&whole);
        let borders = borders(case.text);
        for (i, &first) in borders.iter().enumerate() {
            assert_eq!(parse(&format, case.text, &[first]), whole, "{} cut at {first}", case.name);
            for (j, &second) in borders.iter().enumerate().skip(i + 1) {
                let tag = case.text[second..].starts_with('<');
                if case.text.len() <= ALL_PAIRS_BYTES || j < i + 4 || tag {
                    assert_eq!(parse(&format, case.text, &[first, second]), whole, "{}: {first} {second}", case.name);
                }
            }
        }
        assert_eq!(parse(&format, case.text, &borders), whole, "{} in single characters", case.name);
    }
}

#[test]
fn x8_an_output_cut_off_anywhere_has_valid_arguments_and_is_the_same_in_pieces() {
    for case in recorded::all() {
        let format = format(case.read);
        for end in borders(case.text) {
            let text = &case.text[..end];
            let whole = parse(&format, text, &[]);
            assert_well_formed(&whole);
            assert_eq!(parse(&format, text, &borders(text)), whole, "{} up to {end}", case.name);
        }
    }
}

#[test]
fn without_calls_no_byte_of_content_is_lost() {
    for case in recorded::all() {
        for read_as in [Read::Plain, Read::Tools] {
            for end in borders(case.text).into_iter().chain([case.text.len()]) {
                let got = read(read_as, &case.text[..end]);
                if got.calls.is_empty() {
                    assert_eq!(got.content, &case.text[..end], "{}", case.name);
                }
            }
        }
    }
}

#[test]
fn the_answer_that_is_not_streamed_is_the_same() {
    for case in recorded::all() {
        let streamed = read(case.read, case.text);
        let mut whole = collect(format(case.read), case.text);
        for (call, other) in whole.calls.iter_mut().zip(&streamed.calls) {
            assert!(call.id.len() == "call_".len() + 24 && call.id.starts_with("call_"));
            call.id.clone_from(&other.id);
        }
        assert_eq!(whole, streamed, "{}", case.name);
    }
}

#[test]
fn x1_parameters_in_any_order_and_given_twice() {
    assert_cases(&["any order", "parameter given twice"]);
}

#[test]
fn x2_prose_before_a_call_stays_content() {
    assert_cases(&["prose before a call", "prose after a call"]);
}

#[test]
fn x3_a_call_in_unclosed_thinking_is_a_call() {
    assert_cases(&["call in unclosed thinking", "JSON call in unclosed thinking", "undeclared call in thinking"]);
    assert_cases(&["call in unclosed thinking, closed late", "calls do not end thinking"]);
}

#[test]
fn x3_thinking_is_held_only_until_the_tool_is_known_not_to_be_declared() {
    let mut parser = parser(format(Read::Open));
    let mut deltas = Vec::new();
    parser.push("x <tool_call>\n<function=e", &mut deltas);
    assert_eq!(gather(std::mem::take(&mut deltas)).reasoning, "x ");
    parser.push("x", &mut deltas);
    assert_eq!(gather(deltas).reasoning, "<tool_call>\n<function=ex");
}

#[test]
fn x4_values_lose_one_newline_at_each_end_and_nothing_else() {
    assert_cases(&["indent and last newline", "newlines only", "empty string"]);
}

#[test]
fn x5_objects_are_not_encoded_twice_and_strings_stay_strings() {
    assert_cases(&["object or string: object", "object or string: string", "no type: text", "number for a string"]);
    assert_cases(&[
        "object",
        "object in a string",
        "array",
        "boolean as Python prints it",
        "parameter that is not declared",
    ]);
}

#[test]
fn x8_quotes_newlines_and_backslashes_are_escaped() {
    assert_cases(&["quotes and backslashes"]);
}

#[test]
fn x9_two_calls_have_two_indices_and_ids() {
    assert_cases(&["two calls", "several JSON calls", "only one call wanted"]);
    let deltas = parse(&format(Read::Tools), case("two calls").text, &[]);
    assert_well_formed(&deltas);
    let ids: Vec<_> = gather(deltas).calls.into_iter().map(|call| call.id).collect();
    assert_eq!(ids, ["id1", "id2"]);
}

#[test]
fn x10_a_call_starts_with_index_id_and_name_and_then_only_arguments_follow() {
    let deltas = parse(&format(Read::Tools), case("any order").text, &[]);
    let start = OutputDelta::ToolCall { index: 0, id: "id1".into(), name: "edit".into() };
    assert_eq!(deltas[0], start);
    assert!(deltas[1..].iter().all(|delta| matches!(delta, OutputDelta::Arguments { index: 0, .. })));
}

#[test]
fn x11_string_arguments_are_sent_as_they_come() {
    let mut parser = parser(format(Read::Tools));
    let mut deltas = Vec::new();
    parser.push("<tool_call>\n<function=edit>\n<parameter=new>\n", &mut deltas);
    deltas.clear();
    for (i, piece) in ["fn main", "() {", " print(\"", "é😸", " < 3", " </p>"].into_iter().enumerate() {
        parser.push(piece, &mut deltas);
        let sent = gather_arguments(&mut deltas);
        let quote = if i == 0 { "\"" } else { "" };
        assert_eq!(sent, format!("{quote}{}", piece.replace('"', "\\\"")));
    }
}

#[test]
fn x11_nothing_but_a_possible_tag_is_held_back() {
    let mut parser = parser(format(Read::Tools));
    let mut deltas = Vec::new();
    for (piece, sent) in
        [("Hello", "Hello"), (" ", ""), ("x", " x"), ("<t", ""), ("d>", "<td>"), ("\n", ""), ("a", "\na")]
    {
        parser.push(piece, &mut deltas);
        assert_eq!(gather(std::mem::take(&mut deltas)).content, sent, "after {piece:?}");
    }
}

fn gather_arguments(deltas: &mut Vec<OutputDelta>) -> String {
    let text = |delta| match delta {
        OutputDelta::Arguments { json, .. } => json,
        other => panic!("{other:?}"),
    };
    deltas.drain(..).map(text).collect()
}

#[test]
fn x11_a_megabyte_in_single_bytes_is_parsed_in_linear_time() {
    // Quadratic work would be 10^12 steps here: the test would not end.
    let line = "    let x = \"a\" < b; // </param> </parameter> \n\n";
    let value = line.repeat(1_000_000 / line.len());
    for (open, close, read) in [
        ("<tool_call>\n<function=edit>\n<parameter=new>\n", "\n</parameter>\n</function>\n</tool_call>", Read::Tools),
        ("<tool_call>\n<function=edit>\n<parameter=opts>\n{\"new\": \"", "\"}\n</parameter>\n</function>", Read::Tools),
        ("<tool_call>{\"name\": \"edit\", \"arguments\": {\"new\": \"", "\"}}</tool_call>", Read::Open),
        ("thoughts", "", Read::Open),
        ("text", "", Read::Tools),
    ] {
        let escaped = if open.contains('{') { value.replace('"', "'").replace('\n', "\\n") } else { value.clone() };
        let text = format!("{open}{escaped}{close}");
        let mut parser = parser(format(read));
        let mut deltas = Vec::new();
        for i in 0..text.len() {
            parser.push(&text[i..=i], &mut deltas);
        }
        parser.finish(&mut deltas);
        let got = gather(deltas);
        let size = got.reasoning.len() + got.content.len() + got.calls.iter().map(|c| c.arguments.len()).sum::<usize>();
        assert!(size >= escaped.len());
    }
}

#[test]
fn hostile_repeats_in_one_piece_are_parsed_in_linear_time() {
    for unit in
        ["\n<function=", "<tool_call>", "<tool_call>{\"", "<tool_call>{\"name\":\"now\",", "</parameter>", "<", "\n"]
    {
        for start in
            ["", "<tool_call><function=edit><parameter=new>", "<tool_call><function=edit><parameter=new>x</parameter>"]
        {
            let text = format!("{start}{}", unit.repeat(400_000 / unit.len()));
            for read in [Read::Tools, Read::Open] {
                assert_well_formed(&parse(&format(read), &text, &[]));
            }
        }
    }
}

#[test]
fn x14_ids_are_never_empty_and_never_the_same() {
    let text = case("several JSON calls").text;
    let (a, b) = (collect(format(Read::Tools), text), collect(format(Read::Tools), text));
    let mut ids: Vec<_> = a.calls.iter().chain(&b.calls).map(|call| call.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 4);
    assert!(ids.iter().all(|id| !id.is_empty()));
}

#[test]
fn x16_without_the_tool_the_text_stays_content_and_no_call_is_counted() {
    assert_cases(&["no tools declared", "unknown function", "JSON of an unknown tool"]);
}

#[test]
fn g4_a_second_closing_tag_after_a_forced_end_is_swallowed() {
    assert_cases(&["closed twice", "closed three times", "closing tag later in the content", "opened again"]);
}

#[test]
fn s1_characters_of_several_bytes_stay_whole_in_every_kind_of_text() {
    assert_cases(&["emoji everywhere", "emoji in a value"]);
}

/// Pieces that tags are made of, so that random joins come close to calls.
fn soup() -> impl Strategy<Value = String> {
    const PIECES: &[&str] = &[
        "<tool_call>",
        "</tool_call>",
        "<function=",
        "<function=edit>",
        "<function=now>",
        "</function>",
        "<parameter=",
        "<parameter=path>",
        "<parameter=line>",
        "<parameter=untyped>",
        "<parameter=maybe>",
        "</parameter>",
        "<think>",
        "</think>",
        "\n",
        "\n",
        " ",
        "<",
        ">",
        "{\"name\": \"now\", \"arguments\": {}}",
        "{\"name\"",
        "\"",
        "{",
        "}",
        ":",
        "null",
        "12",
        "text",
        "é😸",
        "edit",
        "\\",
    ];
    prop::collection::vec(prop::sample::select(PIECES), 0..40).prop_map(|pieces| pieces.concat())
}

fn any_read() -> impl Strategy<Value = Read> {
    use Read::{Chat, Open, Plain, Possible, Single, Thinker, Tools};
    prop::sample::select(vec![Tools, Open, Possible, Chat, Plain, Thinker, Single])
}

fn random_cuts(text: &str, seeds: &[prop::sample::Index]) -> Vec<usize> {
    let borders = borders(text);
    let mut cuts: Vec<_> = seeds.iter().filter(|_| !borders.is_empty()).map(|seed| *seed.get(&borders)).collect();
    cuts.sort_unstable();
    cuts
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn x15_any_text_in_any_pieces_gives_the_same(
        text in soup(), read in any_read(), seeds in prop::collection::vec(any::<prop::sample::Index>(), 0..30),
    ) {
        let format = format(read);
        let whole = parse(&format, &text, &[]);
        assert_well_formed(&whole);
        prop_assert_eq!(&parse(&format, &text, &random_cuts(&text, &seeds)), &whole);
        prop_assert_eq!(&parse(&format, &text, &borders(&text)), &whole);
    }

    #[test]
    fn x15_recorded_outputs_in_random_pieces_give_the_same(
        which in any::<prop::sample::Index>(), seeds in prop::collection::vec(any::<prop::sample::Index>(), 3..30),
    ) {
        let case = *which.get(&recorded::all().collect::<Vec<_>>());
        let format = format(case.read);
        prop_assert_eq!(parse(&format, case.text, &random_cuts(case.text, &seeds)), parse(&format, case.text, &[]));
    }

    #[test]
    fn x4_x8_any_string_value_arrives_byte_for_byte(value in "[a-z <>/\\\\\"'\n\t\r{}é😸\u{0}-\u{1f}\u{7f}\u{2028}]{0,60}") {
        let text = format!("<tool_call>\n<function=edit>\n<parameter=new>\n{value}\n</parameter>\n</function>\n</tool_call>");
        let got = read(Read::Tools, &text);
        prop_assert_eq!(got.calls.len(), 1);
        prop_assert_eq!(&arguments(&got.calls[0])["new"], &Value::String(value));
    }

    #[test]
    fn x5_json_of_any_kind_keeps_its_value_where_no_type_is_told(number in any::<i64>(), float in -1e9f64..1e9, text in "[a-z]{1,8}") {
        for value in [Value::from(number), Value::from(float), serde_json::json!({"a": [number, text, null, {"b": float}]})] {
            let call = format!("<function=edit>\n<parameter=untyped>\n{value}\n</parameter>\n</function>");
            prop_assert_eq!(&arguments(&read(Read::Tools, &call).calls[0])["untyped"], &value);
        }
    }
}
