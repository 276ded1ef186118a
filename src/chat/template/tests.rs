//! Compiling, rendering and refusing: what a template may do and what a request may not.

use serde_json::json;

use super::*;
use crate::chat::Thinking;
use crate::chat::messages::{cut_at_mark, mark_final};
use crate::chat::thinking::start;

const DEMO: &str = include_str!("../../../vendor/demo-model/chat_template.jinja");

fn template(source: &str) -> ChatTemplate {
    ChatTemplate::new(source.to_owned(), "<s>", "</s>", 100_000).unwrap()
}

fn user(text: &str) -> RenderInput {
    RenderInput {
        messages: vec![json!({"role": "user", "content": text})],
        add_generation_prompt: true,
        ..RenderInput::default()
    }
}

fn with_kwargs(kwargs: Value) -> RenderInput {
    RenderInput { kwargs: kwargs.as_object().unwrap().clone(), ..user("hi") }
}

#[test]
fn the_default_template_is_chatml() {
    let mut input = user("hi");
    input.messages.insert(0, json!({"role": "system", "content": "S"}));
    let text = template(default_template()).render(&input).unwrap();
    assert_eq!(text, "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
    input.add_generation_prompt = false;
    assert!(template(default_template()).render(&input).unwrap().ends_with("hi<|im_end|>\n"));
}

#[test]
fn a_model_without_a_template_says_so() {
    let told = |in_profile, in_model| TemplateOrigin::of(in_profile, in_model).describe();
    assert_eq!([told(false, false), told(false, true)], ["chatml (the model has none)", "gguf"]);
    assert_eq!([told(true, false), told(true, true)], ["file"; 2]);
}

#[test]
fn request_kwargs_reach_the_template() {
    let source = "{{ enable_thinking }} {{ effort }} {{ nothing is defined }}";
    let input = with_kwargs(json!({"enable_thinking": false, "effort": "low"}));
    assert_eq!(template(source).render(&input).unwrap(), "False low False");
}

#[test]
fn request_kwargs_never_replace_what_the_server_sets() {
    let source = "{{ messages[0].content }} {{ tools is defined }} {{ add_generation_prompt }} {{ bos_token }} {{ eos_token }} \
                  {{ strftime_now('%Y') == 'x' }} {{ chat_template is defined }}";
    let kwargs = json!({
        "messages": [{"content": "evil"}], "tools": [1], "add_generation_prompt": false, "bos_token": "B", "eos_token": "E",
        "strftime_now": "x", "chat_template": "T", "fine": 1});
    let input = with_kwargs(kwargs);
    assert_eq!(template(source).render(&input).unwrap(), "hi False True <s> </s> False False");
    for name in input.kwargs.keys() {
        let reserved = RESERVED_KWARGS.iter().any(|(reserved, _)| name == reserved);
        assert_eq!(reserved, name != "fine", "{name}");
    }
}

#[test]
fn a_refusal_by_the_template_carries_its_message() {
    let source = "{% macro check(m) %}{{ raise_exception('Unexpected message role: ' ~ m.role) }}{% endmacro %}\
                  {% for m in messages %}{{ check(m) }}{% endfor %}";
    let error = template(source).render(&user("hi")).unwrap_err();
    assert_eq!(error, TemplateError::Raised("Unexpected message role: user".into()));
}

#[test]
fn nested_loops_run_out_of_fuel_and_not_of_time() {
    let source = "{% macro m() %}{% for i in range(3000) %}{% for j in range(3000) %}x{% endfor %}{% endfor %}{% endmacro %}{{ m() }}";
    assert_eq!(template(source).render(&user("hi")).unwrap_err(), TemplateError::OutOfFuel);
    let long = "{% set ns = namespace(x='a') %}{% for i in range(40) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ [ns.x] | tojson }}";
    assert_eq!(template(long).render(&user("hi")).unwrap_err(), TemplateError::OutOfFuel);
}

#[test]
fn a_fault_of_the_template_names_its_line() {
    let Err(TemplateError::Compile(text)) = ChatTemplate::new("a\n{% if %}".into(), "", "", 1000) else {
        panic!("compiles");
    };
    assert!(text.contains("line 2"), "{text}");
    let error = template("a\n{{ messages[0].x.y }}").render(&user("hi")).unwrap_err();
    assert!(matches!(&error, TemplateError::Render(text) if text.contains("line 2")), "{error}");
}

#[test]
fn one_rendering_sees_the_time_it_is_given() {
    let now = chrono::NaiveDate::from_ymd_opt(2026, 12, 2).unwrap().and_hms_opt(9, 5, 0).unwrap();
    let source = "{{ strftime_now('%d %B %Y %H:%M%Z') }}";
    assert_eq!(template(source).render_at(&user("hi"), now).unwrap(), "02 December 2026 09:05");
    let unknown = template("{{ strftime_now('%Q') }}").render_at(&user("hi"), now).unwrap_err();
    assert!(matches!(unknown, TemplateError::Render(text) if text.contains("%Q")));
}

#[test]
fn source_is_what_was_given_and_can_be_searched() {
    let source = "{% generation %}{{ a ~ enable_thinking }}{% endgeneration %}";
    let template = template(source);
    assert_eq!(template.source(), source);
    assert!(template.mentions("enable_thinking") && !template.mentions("tools"));
}

#[test]
fn the_demo_template_opens_a_think_block_unless_told_not_to() {
    let demo = template(DEMO);
    assert_eq!(start(&demo.render(&user("hi")).unwrap(), true, None), Thinking::Open);
    let off = with_kwargs(json!({"enable_thinking": false}));
    assert_eq!(start(&demo.render(&off).unwrap(), true, None), Thinking::Off);
}

#[test]
fn a_trailing_assistant_message_is_continued_on_the_demo_template() {
    let mut input = user("hi");
    input.add_generation_prompt = false;
    input.messages.push(json!({"role": "assistant", "content": "user hi "}));
    mark_final(&mut input.messages).unwrap();
    let prompt = cut_at_mark(&template(DEMO).render(&input).unwrap()).unwrap();
    assert!(prompt.ends_with("<|im_start|>assistant\n<think>\n\n</think>\n\nuser hi "), "{prompt}");
    input.messages[1] = json!({"role": "assistant", "content": "", "reasoning_content": "hm"});
    let continued = mark_final(&mut input.messages).unwrap();
    let prompt = cut_at_mark(&template(DEMO).render(&input).unwrap()).unwrap();
    assert!(
        prompt.ends_with("<|im_start|>assistant\n<think>\nhm")
            && start(&prompt, true, Some(&continued)) == Thinking::Open,
        "{prompt}"
    );
}

#[test]
fn a_deeply_nested_value_is_refused_when_printed() {
    let source =
        "{% set ns = namespace(a=[]) %}{% for i in range(1000) %}{% set ns.a = [ns.a] %}{% endfor %}{{ ns.a }}";
    let template = ChatTemplate::new(source.to_owned(), "", "", 10_000_000).unwrap();
    let error = template.render(&user("hi")).unwrap_err();
    assert!(matches!(&error, TemplateError::Render(text) if text.contains("nested too deeply")), "{error}");
}
