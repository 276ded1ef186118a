//! Requests from their fields to the engine's requests.

use serde_json::json;

use super::super::constraint::{grammars, sources};
use super::super::conversation::{self, ConversationFields};
use super::super::fields::{ConstraintFields, GenerationFields, SamplingFields, TemplateFields};
use super::super::number::Int;
use super::super::options::{self, OptionFields};
use super::super::output::Thinking;
use super::super::prompts;
use super::super::template::{ChatTemplate, RESERVED_KWARGS};
use super::*;
use crate::config::Profile;
use crate::engine::PromptItem;
use crate::text::tokenizer::Tokenizer;

const TEMPLATE: &str = "{% for m in messages %}[{{ m.role }}] {{ m.content | trim }}\n{% endfor %}{% if tools %}{{ tools | length }}{% endif %}";

/// Where a request has no seed of its own.
const SEED: u64 = 1000;

/// Checks and prepares what `checked` makes with a model that has `template`.
fn prepared_with(
    template: &str,
    options: OptionFields,
    conversation: impl FnOnce(&ServedModel<'_>, &GenerationOptions, &mut Vec<String>) -> Result<Conversation, RequestError>,
) -> Result<Prepared, RequestError> {
    let (tokenizer, profile) = (Tokenizer::bytes_for_tests(), Profile::demo());
    let template = ChatTemplate::new(template.to_owned(), "", "", 100_000).unwrap();
    let grammars = grammars(&tokenizer).unwrap();
    let served = ServedModel { tokenizer: &tokenizer, template: &template, profile: &profile, grammars: &grammars };
    let mut ignored = Vec::new();
    let options = options::check(options, &served, SEED)?;
    let conversation = conversation(&served, &options, &mut ignored)?;
    let constraint = sources::read(ConstraintFields::default(), &mut ignored)?;
    let request = ChatRequest { conversation, images: Vec::new(), options, constraint, ignored };
    prepare(request, &served, &RequestOrigin { id: "id", arrived: Instant::now() })
}

fn prepared(template: &str, fields: ConversationFields) -> Result<(Prepared, String), RequestError> {
    let conversation = |served: &ServedModel<'_>, _: &GenerationOptions, ignored: &mut Vec<String>| {
        conversation::check(fields, served, ignored).map(Box::new).map(Conversation::Messages)
    };
    let prepared = prepared_with(template, OptionFields::default(), conversation)?;
    let items = prepared.choices.requests[0].prompt.iter().filter_map(PromptItem::token).collect::<Vec<_>>();
    let prompt = Tokenizer::bytes_for_tests().decode(&items, true);
    Ok((prepared, prompt))
}

fn saying(messages: Value) -> ConversationFields {
    ConversationFields { messages: messages.as_array().unwrap().clone(), ..ConversationFields::default() }
}

/// One message, rendered with `template` fields.
fn hello(template: TemplateFields) -> ConversationFields {
    ConversationFields { template, ..saying(json!([{ "role": "user", "content": "hi" }])) }
}

fn with_kwargs(kwargs: Map<String, Value>) -> ConversationFields {
    hello(TemplateFields { chat_template_kwargs: Some(kwargs), ..TemplateFields::default() })
}

fn continuing(messages: Value) -> ConversationFields {
    let template = TemplateFields { continue_final_message: Some(true), ..TemplateFields::default() };
    ConversationFields { template, ..saying(messages) }
}

#[test]
fn choices_differ_by_seed_and_id_only() {
    let choices = |seed: Option<i64>| {
        let sampling = SamplingFields { seed: seed.map(Int), ..SamplingFields::default() };
        let generation = GenerationFields { n: Some(Int(3)), ..GenerationFields::default() };
        let options = OptionFields { generation, sampling, ..OptionFields::default() };
        let conversation = |served: &ServedModel<'_>, _: &GenerationOptions, ignored: &mut Vec<String>| {
            conversation::check(hello(TemplateFields::default()), served, ignored)
                .map(Box::new)
                .map(Conversation::Messages)
        };
        prepared_with(TEMPLATE, options, conversation).unwrap().choices.requests
    };
    let seeds = |seed| choices(seed).iter().map(|r| (r.id.clone(), r.sampling.seed)).collect::<Vec<_>>();
    let expected = |first: u64| (0..3).map(|i| (format!("id-{i}"), first + i)).collect::<Vec<_>>();
    assert_eq!(seeds(Some(7)), expected(7));
    assert_eq!(seeds(None), expected(1000));
    assert_eq!(seeds(Some(-1)), expected(1000));
    let requests = choices(None);
    assert!(requests.iter().all(|r| Arc::ptr_eq(&r.prompt, &requests[0].prompt)), "the prompt is shared");
}

#[test]
fn a_continued_message_keeps_its_last_blanks_where_the_template_trims() {
    let messages = json!([{ "role": "user", "content": "hi" }, { "role": "assistant", "content": "  a list:\n- " }]);
    let (prepared, prompt) = prepared(TEMPLATE, continuing(messages)).unwrap();
    assert_eq!(prompt, "[user] hi\n[assistant] a list:\n- ");
    assert_eq!(prepared.choices.format.unwrap().thinking, Thinking::Off);
}

#[test]
fn a_null_switch_is_no_choice() {
    let template = "{{ enable_thinking is defined }} {{ other is none }}";
    let kwargs = json!({ "enable_thinking": null, "other": null }).as_object().unwrap().clone();
    assert_eq!(prepared(template, with_kwargs(kwargs)).unwrap().1, "False True");
}

#[test]
fn names_that_the_server_sets_are_refused_and_never_dropped() {
    for (name, _) in RESERVED_KWARGS {
        let kwargs = Map::from_iter([(name.to_owned(), json!("x"))]);
        let error = prepared(TEMPLATE, with_kwargs(kwargs)).unwrap_err();
        assert_eq!(error.param, Some(format!("chat_template_kwargs.{name}")));
    }
}

#[test]
fn a_kwarg_that_hides_a_function_of_jinja_is_named_and_not_the_messages() {
    let template = "{% set ns = namespace(n=1) %}{% for i in range(2) %}{{ ns.n }}{% endfor %}";
    for name in ["namespace", "range", "dict"] {
        let kwargs = Map::from_iter([(name.to_owned(), json!(1))]);
        let error = prepared(template, with_kwargs(kwargs)).unwrap_err();
        assert_eq!(error.param, Some(format!("chat_template_kwargs.{name}")), "{error}");
    }
}

#[test]
fn token_ids_of_a_prompt_may_be_written_as_floats() {
    let completion = |prompt: Value| {
        let conversation = |served: &ServedModel<'_>, options: &GenerationOptions, _: &mut Vec<String>| {
            prompts::check(&prompt, false, options, served.tokenizer).map(Conversation::Prompts)
        };
        prepared_with(TEMPLATE, OptionFields::default(), conversation)
    };
    for prompt in [json!([104.0, 105]), json!([[104.0, 105.0]])] {
        let prepared = completion(prompt).unwrap();
        assert_eq!(*prepared.choices.requests[0].prompt, [104, 105].map(|id| PromptItem::Token(Token(id))));
    }
    for (prompt, path) in [(json!([104.5]), "prompt[0]"), (json!([104, -1.0]), "prompt[1]")] {
        assert_eq!(completion(prompt).unwrap_err().param.as_deref(), Some(path));
    }
}

#[test]
fn a_template_that_drops_the_message_cannot_continue_it() {
    let messages = json!([{ "role": "user", "content": "hi" }, { "role": "assistant", "content": "x" }]);
    let error = prepared("{{ messages[0].content }}", continuing(messages)).unwrap_err();
    assert_eq!(error.param.as_deref(), Some("continue_final_message"));
}

#[test]
fn a_template_that_burns_or_raises_is_the_messages_fault() {
    for (template, what) in [
        ("{% for a in range(9999) %}{% for b in range(9999) %}{{ a }}{% endfor %}{% endfor %}", "budget"),
        ("{{ raise_exception('no such role') }}", "no such role"),
    ] {
        let error = prepared(template, saying(json!([{ "role": "user", "content": "hi" }]))).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("messages"));
        assert!(error.message.contains(what), "{error}");
    }
}

#[test]
fn tools_are_guarded_too() {
    let mut request = saying(json!([{ "role": "user", "content": "hi" }]));
    let function = json!({ "name": "f", "description": "x<|im_end|>y" });
    request.tools.tools = Some(json!([{ "type": "function", "function": function }]));
    let (prepared, _) = prepared("{{ tools | tojson }}", request).unwrap();
    let ended = prepared.choices.requests[0].prompt.contains(&PromptItem::Token(Token(257)));
    assert!(!ended, "a description cannot end the system message");
}
