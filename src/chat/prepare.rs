//! From a request to what the engine runs: validate, render, tokenise, compile constraints. Pure: the seed, the id and the time come from outside.
//!
//! Every field of the request is consumed here, completed with a documented default, or refused by name; what a model's
//! template cannot use is reported in `ignored`. May take long (a template and a tokeniser over megabytes): call it off the
//! async threads.

use std::time::Instant;

use serde_json::{Map, Value};

use super::constraint::sources;
use super::constraint::{Rulebook, Rules, shown};
use super::generation::{self, Generation};
use super::marks::marks;
use super::messages::{Continued, NormaliseOptions, cut_at_mark, guard_value, mark_final, normalise};
use super::pictures::{Prompt, part_for, place};
use super::request::{ChatRequest, CompletionRequest};
use super::sampling::SamplingContext;
use super::template::{ChatTemplate, RESERVED_KWARGS, RenderInput, TemplateError};
use super::thinking::{self, Bounds, ThinkingChoice};
use super::tools::{ToolFields, ToolLimits, ToolSettings};
use super::{OutputFormat, RequestError, Thinking};
use crate::config::Profile;
use crate::engine::{CacheUse, Constraint, GenerationRequest};
use crate::grammar::Grammars;
use crate::text::tokenizer::{CodecError, GUARD, Specials, Tokenizer};

/// What requests are prepared with.
pub struct Prepare<'a> {
    pub tokenizer: &'a Tokenizer,
    pub template: &'a ChatTemplate,
    pub profile: &'a Profile,
    pub grammars: &'a Grammars,
    pub id: &'a str,
    /// Where the request has none; choice `i` gets seed + i.
    pub seed: u64,
    pub arrived: Instant,
}

/// Ready for the engine.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// One a choice, in the order of their index: all choices of the first prompt first.
    pub requests: Vec<GenerationRequest>,
    /// Choices of each prompt.
    pub n_per_prompt: usize,
    /// How to read the output; `None`: it is text as it comes.
    pub format: Option<OutputFormat>,
    /// Text in front of each prompt's answers (`echo`); empty otherwise.
    pub echo: Vec<String>,
    /// Fields that the model's template cannot use, and bounds on thinking where there is none.
    pub ignored: Vec<String>,
    /// Parts of schemas that hold less strictly than asked for, one line each.
    pub widened: Vec<String>,
}

/// A rendered conversation.
#[derive(Clone, Debug)]
pub struct Rendered {
    /// With guards in it: for `Tokenizer::encode` alone.
    pub prompt: String,
    pub format: OutputFormat,
    pub ignored: Vec<String>,
    bounds: Bounds,
    tools: ToolSettings,
}

impl Rendered {
    /// For people.
    pub fn shown(&self) -> String {
        self.prompt.replace(GUARD, "")
    }
}

impl Prepare<'_> {
    /// Prepares a conversation.
    pub fn chat(&self, mut request: ChatRequest) -> Result<Prepared, RequestError> {
        let mut fields = std::mem::take(&mut request.generation);
        let constraint = std::mem::take(&mut fields.constraint);
        let generation = generation::check(fields, self.profile, &self.sampling_context())?;
        self.check_places("n", generation.n)?;
        let pictures = std::mem::take(&mut request.pictures);
        let rendered = self.render(request)?;
        let tokens =
            self.tokenizer.encode(&rendered.prompt, Specials::Parse).map_err(|e| not_encoded("messages", &e))?;
        if tokens.is_empty() {
            return Err(RequestError::invalid("messages", "the conversation is empty: send at least one message"));
        }
        let prompt = place(&tokens, &pictures, self.tokenizer, "messages")?;
        let Rendered { format, mut ignored, bounds, tools, .. } = rendered;
        let wanted = sources::read(constraint)?;
        let Rules { constraint, widened, ignored: unused } = self.rulebook().chat(wanted, &bounds, &tools, &format)?;
        ignored.extend(unused);
        Ok(Prepared {
            n_per_prompt: generation.n,
            requests: self.requests(&[prompt], &generation, false, &constraint),
            format: Some(format),
            echo: Vec::new(),
            ignored,
            widened: widened.iter().map(shown).collect(),
        })
    }

    /// Prepares raw prompts. Control tokens in their text are control tokens: there is no client text apart from it.
    pub fn completion(&self, request: CompletionRequest) -> Result<Prepared, RequestError> {
        let CompletionRequest { prompt, pictures, echo, show_control, mut generation } = request;
        let constraint = std::mem::take(&mut generation.constraint);
        let generation = generation::check(generation, self.profile, &self.sampling_context())?;
        if echo && generation.logprobs.is_some() {
            let message = "`echo` together with `logprobs` is not served: prompts have no log-probabilities here";
            return Err(RequestError::unsupported("echo", message));
        }
        let prompts = self.prompts(&prompt, &pictures)?;
        self.check_places(if prompts.len() > 1 { "prompt" } else { "n" }, prompts.len().saturating_mul(generation.n))?;
        let (prompts, texts): (Vec<_>, Vec<_>) = prompts.into_iter().unzip();
        let wanted = sources::read(constraint)?;
        let Rules { constraint, widened, ignored } = self.rulebook().completion(wanted)?;
        Ok(Prepared {
            requests: self.requests(&prompts, &generation, show_control, &constraint),
            n_per_prompt: generation.n,
            format: None,
            echo: if echo { texts } else { Vec::new() },
            ignored,
            widened: widened.iter().map(shown).collect(),
        })
    }

    /// Renders a conversation; the fields of its generation are not looked at.
    pub fn render(&self, request: ChatRequest) -> Result<Rendered, RequestError> {
        let ChatRequest {
            messages,
            pictures: _placed_by_the_caller,
            tools,
            tool_choice,
            parallel_tool_calls,
            add_generation_prompt,
            continue_final_message,
            template_kwargs,
            thinking,
            generation: _checked_by_the_caller,
        } = request;
        let tools = ToolFields {
            tools: tools.as_ref(),
            tool_choice: tool_choice.as_ref(),
            parallel_tool_calls: parallel_tool_calls.as_ref(),
        };
        let tools = ToolSettings::from_fields(tools, self.tool_limits())?;
        check_kwargs(&template_kwargs, self.template)?;
        let choice = thinking::choose(thinking, &template_kwargs, self.profile.chat.thinking)?;
        let bounds = Bounds::new(&choice, &self.profile.thinking, self.template.mentions("reasoning_effort"))?;
        let ignored = self.unused(&choice, &template_kwargs, &tools, &bounds);
        let mut messages = self.normalised(&messages)?;
        let add_generation_prompt = match (add_generation_prompt, continue_final_message) {
            (Some(true), true) => {
                let message = "`continue_final_message` goes on with the last message, `add_generation_prompt` opens a new \
                               one; send one of them";
                return Err(RequestError::invalid("continue_final_message", message));
            }
            (asked, continues) => asked.unwrap_or(!continues),
        };
        let continued = if continue_final_message { Some(mark_final(&mut messages)?) } else { None };
        let input = RenderInput {
            messages,
            tools: tools.tools.iter().map(|tool| self.guarded(&tool.raw)).collect(),
            add_generation_prompt,
            kwargs: self.kwargs(template_kwargs, choice),
        };
        let mut prompt = self.template.render(&input).map_err(not_rendered)?;
        if continued.is_some() {
            prompt = cut_at_mark(&prompt)?;
        }
        let thinking = self.start(&prompt, continued.as_ref());
        let format = OutputFormat {
            thinking,
            tools: tools.callable().to_vec(),
            parallel: tools.parallel,
            calls_end_thinking: self.profile.chat.calls_end_thinking,
        };
        Ok(Rendered { prompt, format, ignored, bounds, tools })
    }

    /// More choices than the engine has places for could never be taken, however long the client waits.
    fn check_places(&self, param: &str, n_choices: usize) -> Result<(), RequestError> {
        let most = (self.profile.engine.parallel + self.profile.engine.queue_capacity) as usize;
        if n_choices <= most {
            return Ok(());
        }
        let message = format!("{n_choices} choices were asked for, at most {most} can be queued; ask for fewer");
        Err(RequestError::too_large(param, message))
    }

    fn start(&self, prompt: &str, continued: Option<&Continued>) -> Thinking {
        let may_think = self.template.mentions("<think>") || self.tokenizer.special("<think>").is_some();
        thinking::start(prompt, may_think, continued)
    }

    fn sampling_context(&self) -> SamplingContext<'_> {
        SamplingContext { tokenizer: self.tokenizer, defaults: &self.profile.sampling, random_seed: self.seed }
    }

    fn tool_limits(&self) -> ToolLimits {
        let limits = &self.profile.limits;
        ToolLimits {
            max_tools: limits.tools as usize,
            max_bytes: usize::try_from(limits.body_bytes).unwrap_or(usize::MAX),
        }
    }

    fn normalised(&self, messages: &[Value]) -> Result<Vec<Value>, RequestError> {
        normalise(
            messages,
            &NormaliseOptions {
                late_system_wrapper: &self.profile.chat.late_system_wrapper,
                guard: &|text| self.tokenizer.guard(text),
                picture: &part_for(self.template),
                max_messages: self.profile.limits.messages as usize,
            },
        )
    }

    /// What the request says and the template has no use for.
    fn unused(
        &self,
        choice: &ThinkingChoice,
        kwargs: &Map<String, Value>,
        tools: &ToolSettings,
        bounds: &Bounds,
    ) -> Vec<String> {
        let mut out = Vec::new();
        // A degree of effort that the template does not know sets the bound, where there is one for it.
        let effort = self.template.mentions("reasoning_effort") || bounds.budget_tokens.is_some();
        let switch = self.template.mentions("enable_thinking");
        for field in &choice.spoken {
            let used = switch || (effort && field.starts_with("reasoning"));
            if !used {
                out.push((*field).to_owned());
            }
        }
        for key in kwargs.keys().filter(|key| *key != "enable_thinking" && !self.template.mentions(key)) {
            out.push(format!("chat_template_kwargs.{key}"));
        }
        if !tools.tools.is_empty() && !self.template.mentions("tools") {
            out.push("tools".to_owned());
        }
        out
    }

    fn guarded(&self, value: &Value) -> Value {
        guard_value(value, &|text| self.tokenizer.guard(text))
    }

    fn kwargs(&self, mut kwargs: Map<String, Value>, choice: ThinkingChoice) -> Map<String, Value> {
        // A template would take null for a choice.
        kwargs.retain(|name, value| name != "enable_thinking" || !value.is_null());
        kwargs.iter_mut().for_each(|(_, value)| *value = self.guarded(value));
        if let Some(on) = choice.enabled {
            kwargs.insert("enable_thinking".to_owned(), Value::Bool(on));
        }
        if let Some(effort) = choice.effort {
            kwargs.entry("reasoning_effort").or_insert(Value::String(effort));
        }
        kwargs
    }

    fn rulebook(&self) -> Rulebook<'_> {
        Rulebook {
            tokenizer: self.tokenizer,
            template: self.template,
            grammars: self.grammars,
            calls_end_thinking: self.profile.chat.calls_end_thinking,
        }
    }

    fn requests(
        &self,
        prompts: &[Prompt],
        generation: &Generation,
        show_control: bool,
        constraint: &Constraint,
    ) -> Vec<GenerationRequest> {
        let Generation {
            n,
            max_tokens,
            sampling,
            stop,
            ignore_eos,
            logprobs,
            cache_prompt,
            cache_store,
            progress,
            speculative,
        } = generation;
        let marks: Vec<_> = prompts.iter().map(|prompt| marks(&prompt.items, self.tokenizer, !show_control)).collect();
        let n_choices = prompts.len() * n;
        let choice = |index: usize| {
            let mut sampling = sampling.clone();
            sampling.seed = sampling.seed.wrapping_add((index % n) as u64);
            GenerationRequest {
                id: if n_choices == 1 { self.id.to_owned() } else { format!("{}-{index}", self.id) },
                prompt: prompts[index / n].items.clone(),
                pictures: prompts[index / n].pictures.clone(),
                sampling,
                stop: stop.clone(),
                max_tokens: *max_tokens,
                ignore_eos: *ignore_eos,
                logprobs: *logprobs,
                cache_prompt: *cache_prompt,
                cache: CacheUse { store: *cache_store, breakpoints: marks[index / n].clone() },
                progress: *progress,
                show_control,
                speculative: *speculative,
                constraint: constraint.clone(),
                arrived: self.arrived,
            }
        };
        (0..n_choices).map(choice).collect()
    }
}

fn check_kwargs(kwargs: &Map<String, Value>, template: &ChatTemplate) -> Result<(), RequestError> {
    for name in kwargs.keys() {
        let reserved = RESERVED_KWARGS.iter().find(|(reserved, _)| name == reserved).map(|(_, instead)| *instead);
        let taken = template.is_function(name).then_some("it under another name: it is a function of templates");
        if let Some(instead) = reserved.or(taken) {
            let path = format!("chat_template_kwargs.{name}");
            let message = format!("`{path}` is not taken from a request; send {instead}");
            return Err(RequestError::unsupported(path, message));
        }
    }
    Ok(())
}

pub(super) fn not_encoded(param: &str, error: &CodecError) -> RequestError {
    RequestError::invalid(param, format!("the text cannot be tokenised: {error}"))
}

fn not_rendered(error: TemplateError) -> RequestError {
    match error {
        TemplateError::OutOfFuel => RequestError::too_large("messages", error.to_string()),
        TemplateError::Compile(_) | TemplateError::Raised(_) | TemplateError::Render(_) => {
            RequestError::invalid("messages", error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::constraint::grammars;
    use super::super::request::{GenerationFields, SamplingFields};
    use super::*;
    use crate::engine::PromptItem;
    use crate::units::Token;

    const TEMPLATE: &str = "{% for m in messages %}[{{ m.role }}] {{ m.content | trim }}\n{% endfor %}{% if tools %}{{ tools | length }}{% endif %}";

    fn prepared(template: &str, request: ChatRequest) -> Result<(Prepared, String), RequestError> {
        let (tokenizer, profile) = (Tokenizer::bytes_for_tests(), Profile::demo());
        let template = ChatTemplate::new(template.to_owned(), "", "", 100_000).unwrap();
        let prepare = Prepare {
            tokenizer: &tokenizer,
            template: &template,
            profile: &profile,
            grammars: &grammars(&tokenizer).unwrap(),
            id: "id",
            seed: 1000,
            arrived: Instant::now(),
        };
        let prepared = prepare.chat(request)?;
        let items = prepared.requests[0].prompt.iter().filter_map(PromptItem::token).collect::<Vec<_>>();
        let prompt = tokenizer.decode(&items, true);
        Ok((prepared, prompt))
    }

    fn saying(messages: Value) -> ChatRequest {
        ChatRequest { messages: messages.as_array().unwrap().clone(), ..ChatRequest::default() }
    }

    #[test]
    fn choices_differ_by_seed_and_id_only() {
        let seeds = |seed| {
            let sampling = SamplingFields { seed, ..SamplingFields::default() };
            let generation = GenerationFields { n: Some(3), sampling, ..GenerationFields::default() };
            let request = ChatRequest { generation, ..saying(json!([{ "role": "user", "content": "hi" }])) };
            prepared(TEMPLATE, request)
                .unwrap()
                .0
                .requests
                .iter()
                .map(|r| (r.id.clone(), r.sampling.seed))
                .collect::<Vec<_>>()
        };
        let expected = |first: u64| (0..3).map(|i| (format!("id-{i}"), first + i)).collect::<Vec<_>>();
        assert_eq!(seeds(Some(7)), expected(7));
        assert_eq!(seeds(None), expected(1000));
        assert_eq!(seeds(Some(-1)), expected(1000));
    }

    #[test]
    fn a_continued_message_keeps_its_last_blanks_where_the_template_trims() {
        let messages =
            json!([{ "role": "user", "content": "hi" }, { "role": "assistant", "content": "  a list:\n- " }]);
        let request = ChatRequest { continue_final_message: true, ..saying(messages) };
        let (prepared, prompt) = prepared(TEMPLATE, request).unwrap();
        assert_eq!(prompt, "[user] hi\n[assistant] a list:\n- ");
        assert_eq!(prepared.format.unwrap().thinking, Thinking::Off);
    }

    #[test]
    fn a_null_switch_is_no_choice() {
        let template = "{{ enable_thinking is defined }} {{ other is none }}";
        let template_kwargs = json!({ "enable_thinking": null, "other": null }).as_object().unwrap().clone();
        let request = ChatRequest { template_kwargs, ..saying(json!([{ "role": "user", "content": "hi" }])) };
        assert_eq!(prepared(template, request).unwrap().1, "False True");
    }

    #[test]
    fn names_that_the_server_sets_are_refused_and_never_dropped() {
        for (name, _) in RESERVED_KWARGS {
            let template_kwargs = Map::from_iter([(name.to_owned(), json!("x"))]);
            let request = ChatRequest { template_kwargs, ..saying(json!([{ "role": "user", "content": "hi" }])) };
            let error = prepared(TEMPLATE, request).unwrap_err();
            assert_eq!(error.param, Some(format!("chat_template_kwargs.{name}")));
        }
    }

    #[test]
    fn a_kwarg_that_hides_a_function_of_jinja_is_named_and_not_the_messages() {
        let template = "{% set ns = namespace(n=1) %}{% for i in range(2) %}{{ ns.n }}{% endfor %}";
        for name in ["namespace", "range", "dict"] {
            let template_kwargs = Map::from_iter([(name.to_owned(), json!(1))]);
            let request = ChatRequest { template_kwargs, ..saying(json!([{ "role": "user", "content": "hi" }])) };
            let error = prepared(template, request).unwrap_err();
            assert_eq!(error.param, Some(format!("chat_template_kwargs.{name}")), "{error}");
        }
    }

    #[test]
    fn token_ids_of_a_prompt_may_be_written_as_floats() {
        let (tokenizer, profile) = (Tokenizer::bytes_for_tests(), Profile::demo());
        let template = ChatTemplate::new(TEMPLATE.to_owned(), "", "", 1000).unwrap();
        let prepare = Prepare {
            tokenizer: &tokenizer,
            template: &template,
            profile: &profile,
            grammars: &grammars(&tokenizer).unwrap(),
            id: "id",
            seed: 1,
            arrived: Instant::now(),
        };
        let completion = |prompt| prepare.completion(CompletionRequest { prompt, ..CompletionRequest::default() });
        for prompt in [json!([104.0, 105]), json!([[104.0, 105.0]])] {
            let prepared = completion(prompt).unwrap();
            assert_eq!(prepared.requests[0].prompt, [104, 105].map(|id| PromptItem::Token(Token(id))));
        }
        for (prompt, path) in [(json!([104.5]), "prompt[0]"), (json!([104, -1.0]), "prompt[1]")] {
            assert_eq!(completion(prompt).unwrap_err().param.as_deref(), Some(path));
        }
    }

    #[test]
    fn a_template_that_drops_the_message_cannot_continue_it() {
        let messages = json!([{ "role": "user", "content": "hi" }, { "role": "assistant", "content": "x" }]);
        let request = ChatRequest { continue_final_message: true, ..saying(messages) };
        let error = prepared("{{ messages[0].content }}", request).unwrap_err();
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
        request.tools = Some(json!([{ "type": "function", "function": function }]));
        let (prepared, _) = prepared("{{ tools | tojson }}", request).unwrap();
        let ended = prepared.requests[0].prompt.contains(&PromptItem::Token(Token(257)));
        assert!(!ended, "a description cannot end the system message");
    }
}
