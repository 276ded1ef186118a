//! Templates against jinja2: the golden files of `tests/templates/golden` for our own templates, and renderings made while
//! the test runs for templates of other projects, which are not part of this repository.
//!
//! `PLATEAU_TEMPLATES` names a folder with the latter (`*.jinja` and `tokenizer_config.json`, searched through); they need
//! `python3` with jinja2. Without it that test says that it was skipped.

#![expect(clippy::unwrap_used, reason = "a failure here is the test's failure")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use chrono::{NaiveDate, NaiveDateTime};
use plateau::chat::messages::{self, NormaliseOptions};
use plateau::chat::{ChatTemplate, RenderInput, TemplateError};
use serde_json::{Map, Value, json};

/// The `template_fuel` of the shipped profiles.
const FUEL: u64 = 10_000_000;

/// Templates of other projects that differ from jinja2 in the named shapes, with the reason. Everything else is equal.
const KNOWN_DIFFERENCES: [(&str, &[&str], &str); 5] = [
    ("Cohere2MoE.jinja", &["sys_null"], NONE_IS_EMPTY),
    ("LFM2.5-8B-A1B.jinja", &["content_null_tool"], NONE_IS_EMPTY),
    ("mistralai-Ministral-3-14B-Reasoning-2512.jinja", &["sys_null"], NONE_IS_EMPTY),
    (
        "llama-cpp-deepseek-r1.jinja",
        &["tools_html", "agent_turns", "tools_call_values"],
        "jinja2 fails at `tools | map(...) | tojson`, where we print the list that was meant",
    ),
    (
        "meetkai-functionary-medium-v3.1.jinja",
        &["tools_html", "agent_turns", "tools_call_values"],
        "`'text'|safe + x` escapes x for HTML in jinja2, which no prompt wants",
    ),
];

const NONE_IS_EMPTY: &str =
    "`in` and `for` over None fail in jinja2 and find nothing here; normalised content is never None";

/// These must be among the templates that `PLATEAU_TEMPLATES` brings.
const REQUIRED: [&str; 4] =
    ["Qwen3.5-4B.jinja", "Qwen3-Coder.jinja", "Qwen-Qwen2.5-7B-Instruct.jinja", "tokenizer_config.json"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/templates")
}

fn read_json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn shapes() -> Map<String, Value> {
    match read_json(&folder().join("shapes.json")) {
        Value::Object(shapes) => shapes,
        other => panic!("shapes.json is not an object: {other}"),
    }
}

/// The time of `tests/templates/reference.py`.
fn now() -> NaiveDateTime {
    NaiveDate::from_ymd_opt(2026, 1, 2).unwrap().and_hms_opt(3, 4, 5).unwrap()
}

fn input(shape: &Value) -> RenderInput {
    let mut kwargs = shape.as_object().unwrap().clone();
    let list = |value: Option<Value>| value.map_or_else(Vec::new, |v| v.as_array().unwrap().clone());
    RenderInput {
        messages: list(kwargs.remove("messages")),
        tools: list(kwargs.remove("tools")),
        add_generation_prompt: kwargs.remove("add_generation_prompt").is_none_or(|v| v == true),
        kwargs,
    }
}

/// Where our rendering differs from jinja2's; both failing counts as equal, but a refusal by the template must be one here
/// too, with the same message.
fn difference(template: &ChatTemplate, shape: &Value, expected: &Value) -> Option<String> {
    let ours = template.render_at(&input(shape), now());
    match (&ours, expected.get("text"), expected.get("raised")) {
        (Ok(ours), Some(text), _) if text == ours => None,
        (Err(TemplateError::Raised(ours)), None, Some(message)) if message == ours => None,
        (Err(TemplateError::Render(_)), None, None) => None,
        _ => Some(describe(&ours, expected)),
    }
}

fn describe(ours: &Result<String, TemplateError>, expected: &Value) -> String {
    let (Ok(ours), Some(text)) = (ours, expected["text"].as_str()) else {
        return format!("ours {ours:?}, jinja2 {expected}");
    };
    let same = ours.char_indices().zip(text.chars()).find(|((_, a), b)| a != b).map_or(ours.len(), |((at, _), _)| at);
    let from = ours[..same].char_indices().rev().nth(30).map_or(0, |(at, _)| at);
    let cut = |text: &str| text.get(from..).unwrap_or("").chars().take(100).collect::<String>();
    format!("from byte {same}:\n    ours   {:?}\n    jinja2 {:?}", cut(ours), cut(text))
}

/// All differences of one template, by shape.
fn compare(source: &str, renderings: &Value, shapes: &Map<String, Value>) -> Vec<(String, String)> {
    let template = match ChatTemplate::new(source.to_owned(), "<s>", "</s>", FUEL) {
        Ok(template) => template,
        Err(error) => return vec![("all".into(), error.to_string())],
    };
    shapes
        .iter()
        .filter_map(|(name, shape)| {
            let expected = renderings.get(name).unwrap_or_else(|| panic!("there is no rendering of {name}"));
            difference(&template, shape, expected).map(|text| (name.clone(), text))
        })
        .collect()
}

#[test]
fn own_templates_render_as_jinja2_renders_them() {
    let shapes = shapes();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut differences = Vec::new();
    let mut n_templates = 0;
    for entry in std::fs::read_dir(folder().join("golden")).unwrap() {
        let golden = read_json(&entry.unwrap().path());
        let name = golden["template"].as_str().unwrap();
        let source = std::fs::read_to_string(root.join(name)).unwrap();
        let found = compare(&source, &golden["renderings"], &shapes);
        differences.extend(found.into_iter().map(|(shape, text)| format!("{name} / {shape}: {text}")));
        n_templates += 1;
    }
    assert_eq!(n_templates, 5, "a golden file is missing: run tests/templates/make_golden.py");
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Every template below `PLATEAU_TEMPLATES` with its renderings by jinja2; `None` without that folder.
fn fetched() -> Option<&'static [Value]> {
    static FETCHED: OnceLock<Option<Vec<Value>>> = OnceLock::new();
    let fetched = FETCHED.get_or_init(|| {
        let templates = std::env::var_os("PLATEAU_TEMPLATES")?;
        let out = tempfile::NamedTempFile::new().unwrap();
        let mut script = Command::new("python3");
        script.arg("-B").arg(folder().join("compare.py")).arg(templates).arg(out.path());
        let status = script.status().expect("python3 starts");
        assert!(status.success(), "compare.py failed; it needs python3 with jinja2");
        Some(read_json(out.path()).as_array().unwrap().clone())
    });
    if fetched.is_none() {
        eprintln!("skipped: PLATEAU_TEMPLATES is not set, so no templates of other projects are compared");
    }
    fetched.as_deref()
}

#[test]
fn fetched_templates_render_as_jinja2_renders_them() {
    let Some(fetched) = fetched() else { return };
    let shapes = shapes();
    let mut differences = Vec::new();
    let mut names = Vec::new();
    let mut n_known = 0;
    for result in fetched {
        let name = result["template"].as_str().unwrap().to_owned();
        let known = KNOWN_DIFFERENCES.iter().find(|(known, ..)| name.ends_with(known));
        for (shape, text) in compare(result["source"].as_str().unwrap(), &result["renderings"], &shapes) {
            match known {
                Some((_, known, reason)) if known.contains(&shape.as_str()) => {
                    eprintln!("{name} / {shape} differs: {reason}");
                    n_known += 1;
                }
                _ => differences.push(format!("{name} / {shape}: {text}")),
            }
        }
        names.push(name);
    }
    for required in REQUIRED {
        assert!(names.iter().any(|name| name.ends_with(required)), "{required} is not below PLATEAU_TEMPLATES");
    }
    eprintln!("{} templates with {} shapes each, {n_known} known differences", names.len(), shapes.len());
    assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.join("\n"));
}

fn normalised(shape: &Value) -> Option<RenderInput> {
    let image = json!({ "type": "image" });
    let options = NormaliseOptions {
        late_system_wrapper: "[system]\n{}",
        guard: &|text| text.to_owned(),
        image: &image,
        max_messages: 100,
    };
    let mut input = input(shape);
    input.messages = messages::normalise(&input.messages, &options).ok()?;
    Some(input)
}

/// The shapes that must be refused; all others must render on every template that speaks of tools and reasoning.
const REFUSED: [&str; 5] = ["empty", "parts", "sys_image", "tool_parts", "unknown_part"];

/// As many messages as the default limits allow, a third of them tool calls: far from the default budget of work.
fn assert_long_conversation_renders(name: &str, template: &ChatTemplate) {
    let call =
        json!([{"function": {"name": "read", "arguments": {"path": "a/b", "lines": [1, 2], "text": "x".repeat(300)}}}]);
    let mut input = RenderInput { add_generation_prompt: true, ..RenderInput::default() };
    for _ in 0..1365 {
        input.messages.push(json!({"role": "user", "content": "y".repeat(300)}));
        input.messages.push(json!({"role": "assistant", "content": "", "tool_calls": call}));
        input.messages.push(json!({"role": "tool", "content": "z".repeat(300)}));
    }
    let text = template.render(&input).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(text.len() > 1365 * 900);
}

fn assert_all_shapes_render(name: &str, source: &str) {
    let template = ChatTemplate::new(source.to_owned(), "<s>", "</s>", FUEL).unwrap();
    assert_long_conversation_renders(name, &template);
    for (shape_name, shape) in shapes() {
        let input = normalised(&shape);
        assert_eq!(input.is_none(), REFUSED.contains(&shape_name.as_str()), "{shape_name}");
        let Some(input) = input else { continue };
        // Qwen's newer templates refuse a conversation in which no user asks; that refusal is the template's to make.
        let asks = |text: &Value| !text.as_str().unwrap().starts_with("<tool_response>");
        let has_user = input.messages.iter().any(|message| message["role"] == "user" && asks(&message["content"]));
        match template.render(&input) {
            Ok(text) => assert!(text.contains("<|im_start|>assistant"), "{name} / {shape_name}: {text}"),
            Err(TemplateError::Raised(_)) if !has_user => {}
            Err(error) => panic!("{name} / {shape_name}: {error}"),
        }
    }
}

#[test]
fn every_normalised_shape_renders_on_the_demo_template() {
    let source = include_str!("../vendor/demo-model/chat_template.jinja");
    assert_all_shapes_render("demo", source);
}

#[test]
fn every_normalised_shape_renders_on_qwen_templates() {
    let Some(fetched) = fetched() else { return };
    let mut n_templates = 0;
    for result in fetched {
        let name = result["template"].as_str().unwrap();
        if name.rsplit("/").next().unwrap().starts_with("Qwen") {
            assert_all_shapes_render(name, result["source"].as_str().unwrap());
            n_templates += 1;
        }
    }
    assert!(n_templates >= REQUIRED.len(), "only {n_templates} Qwen templates");
}
