//! Message shapes that clients send, one test for each reported fault.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::chat::error::RequestErrorKind;
use crate::chat::markers::CONTINUE_MARK;

/// Stands for the tokenizer's guard: what went through it is in brackets.
fn marked(text: &str) -> String {
    format!("[{text}]")
}

fn run(messages: Value, guard: &dyn Fn(&str) -> String) -> Result<Vec<Value>, RequestError> {
    let image = json!({"type": "image"});
    let options = NormaliseOptions { late_system_wrapper: "(system: {})", guard, image: &image, max_messages: 8 };
    normalise(messages.as_array().unwrap(), &options)
}

fn plain(messages: Value) -> Value {
    Value::Array(run(messages, &|text| text.to_owned()).unwrap())
}

fn refused(messages: Value) -> (String, String) {
    let error = run(messages, &|text| text.to_owned()).unwrap_err();
    (error.param.unwrap(), error.message)
}

#[test]
fn leading_system_and_developer_messages_become_one() {
    let messages = json!([
        {"role": "system", "content": "A", "name": "n"}, {"role": "developer", "content": "B"},
        {"role": "system", "content": null}, {"role": "user", "content": "hi"}]);
    let expected = json!([{"role": "system", "content": "A\n\nB", "name": "n"}, {"role": "user", "content": "hi"}]);
    assert_eq!(plain(messages), expected);
}

#[test]
fn a_later_system_message_becomes_user_text_in_the_wrapper() {
    let messages = json!([
        {"role": "user", "content": "hi"}, {"role": "system", "content": "{} S2"}, {"role": "developer", "content": ""},
        {"role": "assistant", "content": "yes"}, {"role": "developer", "content": [{"type": "text", "text": "D"}]}]);
    let expected = json!([
        {"role": "user", "content": "hi"}, {"role": "user", "content": "(system: {} S2)"},
        {"role": "assistant", "content": "yes"}, {"role": "user", "content": "(system: D)"}]);
    assert_eq!(plain(messages), expected);
}

#[test]
fn null_missing_empty_and_no_parts_are_the_same_content() {
    for content in [json!({"content": null}), json!({}), json!({"content": ""}), json!({"content": []})] {
        for role in ["system", "user", "assistant", "tool"] {
            let mut message = content.clone();
            message["role"] = role.into();
            assert_eq!(plain(json!([message])), json!([{"role": role, "content": ""}]));
        }
    }
}

#[test]
fn an_assistant_message_with_only_tool_calls_keeps_them() {
    let call = json!({"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"b": 1, "a": [null]}}});
    let messages =
        json!([{"role": "assistant", "content": null, "tool_calls": [call], "refusal": null, "audio": null}]);
    assert_eq!(plain(messages), json!([{"role": "assistant", "content": "", "tool_calls": [call]}]));
}

#[test]
fn text_parts_are_joined() {
    let parts = json!([
        {"type": "text", "text": "a "}, {"type": "input_text", "text": "b\n"}, {"type": "output_text", "text": "c"},
        {"type": "refusal", "refusal": "d"}]);
    assert_eq!(plain(json!([{"role": "user", "content": parts}]))[0]["content"], "a b\ncd");
    assert_eq!(plain(json!([{"role": "tool", "tool_call_id": "x", "content": parts}]))[0]["content"], "a b\ncd");
}

#[test]
fn an_image_that_was_not_taken_out_is_refused_by_its_index() {
    for kind in ["image_url", "input_image", "image"] {
        let parts = json!([{"type": "text", "text": "look"}, {"type": kind, "image_url": {"url": "data:"}}]);
        let messages = json!([{"role": "user", "content": "a"}, {"role": "user", "content": parts}]);
        let error = run(messages, &marked).unwrap_err();
        assert_eq!(error.kind, RequestErrorKind::NoVision);
        assert_eq!(error.param.as_deref(), Some("messages[1].content[1]"));
        assert!(error.message.contains("is an image"));
    }
}

#[test]
fn content_with_images_stays_a_list_of_guarded_texts_and_images() {
    let (image, text) = (json!({"type": "image"}), |text: &str| json!({"type": "text", "text": text}));
    let messages = json!([
        {"role": "user", "content": [text("a"), text("b"), image, image, text("c")]},
        {"role": "tool", "content": [image]}]);
    let read = run(messages, &marked).unwrap();
    let guarded = |plain: &str| text(&marked(plain));
    assert_eq!(read[0]["content"], json!([guarded("ab"), image, image, guarded("c")]));
    assert_eq!(read[1]["content"], json!([image]));
}

#[test]
fn an_unknown_part_is_refused_by_its_index() {
    for kind in ["input_audio", "tool_reference"] {
        let parts = json!([{"type": "text", "text": ""}, {"type": kind}]);
        let (param, message) = refused(json!([{"role": "tool", "content": parts}]));
        assert_eq!(param, "messages[0].content[1].type");
        assert!(message.contains(kind) && message.contains("input_text"), "{message}");
    }
}

#[test]
fn string_arguments_of_a_call_are_parsed() {
    for (given, expected) in [
        (json!("{\"city\": \"Paris\", \"a\": 1.0}"), json!({"city": "Paris", "a": 1.0})),
        (json!({"city": "Paris"}), json!({"city": "Paris"})),
        (json!(""), json!({})),
        (json!(" \n"), json!({})),
        (Value::Null, json!({})),
        (json!("not json"), json!({"arguments": "not json"})),
        (json!("[1, 2]"), json!({"arguments": "[1, 2]"})),
        (json!([1, 2]), json!({"arguments": [1, 2]})),
        (json!(7), json!({"arguments": 7})),
    ] {
        let calls = json!([{"function": {"name": "f", "arguments": given}}]);
        let out = plain(json!([{"role": "assistant", "tool_calls": calls}]));
        assert_eq!(out[0]["tool_calls"][0]["function"]["arguments"], expected);
        let out = plain(json!([{"role": "assistant", "function_call": {"name": "f", "arguments": given}}]));
        assert_eq!(out[0]["tool_calls"][0]["function"], json!({"name": "f", "arguments": expected}));
    }
    let out = plain(json!([{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}]));
    assert_eq!(out[0]["tool_calls"][0]["function"]["arguments"], json!({}));
}

#[test]
fn the_order_of_parsed_arguments_is_the_order_sent() {
    let calls = json!([{"function": {"name": "f", "arguments": "{\"z\": 1, \"a\": 2, \"m\": 3}"}}]);
    let out = plain(json!([{"role": "assistant", "tool_calls": calls}]));
    let keys: Vec<&String> = out[0]["tool_calls"][0]["function"]["arguments"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["z", "a", "m"]);
}

#[test]
fn reasoning_alone_is_a_message_and_has_one_name() {
    for message in [
        json!({"role": "assistant", "reasoning_content": "x"}),
        json!({"role": "assistant", "reasoning": "x"}),
        json!({"role": "assistant", "reasoning": "y", "reasoning_content": "x"}),
        json!({"role": "assistant", "reasoning_content": "x", "reasoning": "y"}),
        json!({"role": "assistant", "reasoning_content": null, "reasoning": "x", "content": []}),
    ] {
        let expected = json!([{"role": "assistant", "content": "", "reasoning_content": "x"}]);
        assert_eq!(plain(json!([message])), expected);
    }
    assert_eq!(plain(json!([{"role": "user", "reasoning": ""}])), json!([{"role": "user", "content": ""}]));
}

#[test]
fn the_function_role_is_a_tool_result() {
    let out = plain(json!([{"role": "function", "name": "f", "content": "r"}]));
    assert_eq!(out, json!([{"role": "tool", "content": "r", "name": "f"}]));
}

#[test]
fn a_refusal_is_content() {
    let out = plain(json!([{"role": "assistant", "content": null, "refusal": "no"}]));
    assert_eq!(out, json!([{"role": "assistant", "content": "no"}]));
}

#[test]
fn every_string_of_the_client_is_guarded_once() {
    let messages = json!([
        {"role": "system", "content": "s", "name": "n"}, {"role": "system", "content": "t"},
        {"role": "assistant", "content": "c", "reasoning": "r", "custom": {"k": ["v", 1]}, "tool_calls": [
            {"id": "i", "type": "function", "function": {"name": "f", "arguments": "{\"k\": [\"v\", {\"l\": 1}]}"}}]},
        {"role": "tool", "tool_call_id": "i", "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]},
        {"role": "system", "content": "late"}]);
    let expected = json!([
        {"role": "system", "content": "[s]\n\n[t]", "name": "[n]"},
        {"role": "assistant", "content": "[c]", "reasoning_content": "[r]", "[custom]": {"[k]": ["[v]", 1]}, "tool_calls": [
            {"id": "[i]", "[type]": "[function]", "function": {"name": "[f]", "arguments": {"[k]": ["[v]", {"[l]": 1}]}}}]},
        {"role": "tool", "tool_call_id": "[i]", "content": "[xy]"},
        {"role": "user", "content": "(system: [late])"}]);
    assert_eq!(Value::Array(run(messages, &marked).unwrap()), expected);
}

#[test]
fn guard_value_reaches_keys_and_leaves() {
    let tool = json!({"name": "f", "parameters": {"enum": ["a", 1, null, true]}});
    let expected = json!({"[name]": "[f]", "[parameters]": {"[enum]": ["[a]", 1, null, true]}});
    assert_eq!(guard_value(&tool, &marked), expected);
}

#[test]
fn wrong_messages_are_refused_with_the_path_of_the_field() {
    for (message, param) in [
        (json!("text"), "messages[1]"),
        (json!({"content": "x"}), "messages[1].role"),
        (json!({"role": "robot"}), "messages[1].role"),
        (json!({"role": 1}), "messages[1].role"),
        (json!({"role": "user", "content": 1}), "messages[1].content"),
        (json!({"role": "user", "content": {"type": "text"}}), "messages[1].content"),
        (json!({"role": "user", "content": ["x"]}), "messages[1].content[0]"),
        (json!({"role": "user", "content": [{"text": "x"}]}), "messages[1].content[0].type"),
        (json!({"role": "user", "content": [{"type": "text"}]}), "messages[1].content[0].text"),
        (json!({"role": "user", "content": [{"type": "text", "text": 1}]}), "messages[1].content[0].text"),
        (json!({"role": "user", "name": 1}), "messages[1].name"),
        (json!({"role": "tool", "tool_call_id": 1}), "messages[1].tool_call_id"),
        (json!({"role": "user", "tool_calls": []}), "messages[1].tool_calls"),
        (json!({"role": "user", "reasoning": "x"}), "messages[1].reasoning"),
        (json!({"role": "assistant", "reasoning_content": 1}), "messages[1].reasoning_content"),
        (json!({"role": "assistant", "audio": {"id": "a"}}), "messages[1].audio"),
        (json!({"role": "assistant", "content": "a", "refusal": "b"}), "messages[1].refusal"),
        (json!({"role": "assistant", "tool_calls": {}}), "messages[1].tool_calls"),
        (json!({"role": "assistant", "tool_calls": [1]}), "messages[1].tool_calls[0]"),
        (json!({"role": "assistant", "tool_calls": [{}]}), "messages[1].tool_calls[0].function"),
        (json!({"role": "assistant", "tool_calls": [{"function": {}}]}), "messages[1].tool_calls[0].function.name"),
        (
            json!({"role": "assistant", "tool_calls": [{"function": {"name": ""}}]}),
            "messages[1].tool_calls[0].function.name",
        ),
        (
            json!({"role": "assistant", "tool_calls": [{"id": 1, "function": {"name": "f"}}]}),
            "messages[1].tool_calls[0].id",
        ),
        (json!({"role": "assistant", "tool_calls": [{"type": "custom"}]}), "messages[1].tool_calls[0].type"),
        (json!({"role": "assistant", "function_call": "f"}), "messages[1].function_call"),
    ] {
        let (found, text) = refused(json!([{"role": "user", "content": "a"}, message]));
        assert_eq!(found, param, "{text}");
        assert!(text.len() > 20, "{text}");
    }
}

#[test]
fn no_messages_and_too_many_are_refused() {
    assert_eq!(refused(json!([])).0, "messages");
    let many = Value::Array(vec![json!({"role": "user", "content": "x"}); 9]);
    let error = run(many, &marked).unwrap_err();
    assert_eq!(error.kind, RequestErrorKind::TooLarge);
    assert!(error.message.contains('9') && error.message.contains('8'));
}

#[test]
fn a_final_message_is_continued_exactly_where_it_ends() {
    let mut messages =
        run(json!([{"role": "user", "content": "x"}, {"role": "assistant", "content": "a a "}]), &marked).unwrap();
    mark_final(&mut messages).unwrap();
    let text = messages[1]["content"].as_str().unwrap();
    let rendered = format!("<user>[x]<end><assistant><think></think>{text}<end>\n<assistant>");
    assert_eq!(cut_at_mark(&rendered).unwrap(), "<user>[x]<end><assistant><think></think>[a a ]");
}

#[test]
fn an_unfinished_thought_can_be_continued() {
    let mut messages = run(json!([{"role": "assistant", "reasoning": "so"}]), &|text| text.to_owned()).unwrap();
    mark_final(&mut messages).unwrap();
    let text = messages[0]["reasoning_content"].as_str().unwrap();
    assert_eq!(cut_at_mark(&format!("<think>\n{text}\n</think>\n\n<end>")).unwrap(), "<think>\nso");
}

#[test]
fn only_assistant_text_can_be_continued() {
    for last in [
        json!({"role": "user", "content": "x"}),
        json!({"role": "assistant", "content": "x", "tool_calls": [{"function": {"name": "f"}}]}),
    ] {
        let mut messages = run(json!([last]), &marked).unwrap();
        assert_eq!(mark_final(&mut messages).unwrap_err().param.as_deref(), Some("continue_final_message"));
    }
    assert_eq!(cut_at_mark("nothing").unwrap_err().kind, RequestErrorKind::Unsupported);
}

#[test]
fn an_empty_last_message_is_begun_where_its_text_would_stand() {
    let mut messages = run(json!([{"role": "assistant", "content": null}]), &|text| text.to_owned()).unwrap();
    let continued = mark_final(&mut messages).unwrap();
    assert_eq!(continued, Continued { text: String::new(), in_reasoning: false });
    let rendered = format!("<assistant>{}<end>", messages[0]["content"].as_str().unwrap());
    assert_eq!(cut_at_mark(&rendered).unwrap(), "<assistant>");
}

#[test]
fn a_mark_that_the_client_wrote_does_not_end_the_prompt() {
    let text = format!("a{CONTINUE_MARK}b");
    let mut messages = vec![json!({"role": "assistant", "content": text})];
    mark_final(&mut messages).unwrap();
    assert_eq!(cut_at_mark(messages[0]["content"].as_str().unwrap()).unwrap(), "ab");
}

proptest! {
    #[test]
    fn whatever_follows_the_final_text_is_cut(text in "[^\u{fdd1}]{1,20}", before in any::<String>(), after in "[^\u{fdd1}]{0,20}") {
        let mut messages = vec![json!({"role": "assistant", "content": text})];
        mark_final(&mut messages).unwrap();
        let before = before.replace(CONTINUE_MARK, "");
        let cut = cut_at_mark(&format!("{before}{}{after}", messages[0]["content"].as_str().unwrap())).unwrap();
        prop_assert_eq!(cut, format!("{before}{text}"));
    }
}

/// A client's accounting block with a number that changes made every prompt new from its first
/// line.
#[test]
fn a_rotating_billing_block_does_not_reach_the_prompt() {
    let billing = |n: u32| format!("x-anthropic-billing-header: cc_version=2.1; cch={n};");
    let system =
        |content: Value| plain(json!([{"role": "system", "content": content}, {"role": "user", "content": "hi"}]));
    let expected = plain(json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]));
    let part = |text: &str| json!({"type": "text", "text": text});
    for n in [1, 2] {
        assert_eq!(system(json!([part(&billing(n)), part("Be brief.")])), expected);
        assert_eq!(system(json!(format!("{}\nBe brief.", billing(n)))), expected);
    }
    let user = json!([{"role": "user", "content": billing(1)}]);
    assert_eq!(plain(user.clone()), user, "what users say is left alone");
    let later = json!([part("Be brief."), part("see x-anthropic-billing-header: a")]);
    assert_eq!(system(later)[0]["content"], "Be brief.see x-anthropic-billing-header: a");
}
