//! From what a request asks of its answer to rules that the engine follows: bounds on thinking, a
//! shape for the answer, calls of tools. Compiling may take a second: call it off the async
//! threads.
//!
//! What cannot be compiled is refused, with the reason; the generation never goes on without it. A
//! part of a schema that is out of reach holds less strictly and is reported.

pub mod sources;

use super::error::RequestError;
use super::fields::FieldValue;
use super::output::{OutputFormat, Thinking};
use super::served::ServedModel;
use super::thinking::ThinkingBounds;
use super::tools::{CallForm, ToolChoice, ToolSettings, call_shapes, schema_path};
use crate::engine::{AnswerRule, CallRule, Constraint, ThinkingRule};
use crate::grammar::{Calls, Compiled, Engine, GrammarError, Relaxed, Source, Vocabulary, catalogue, gbnf};
use crate::text::{Specials, Tokenizer};
use crate::units::Token;
use sources::{AnswerConstraint, Scope};

pub use crate::grammar::Grammars;

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";
const CALL: &str = "<tool_call>";
const CALL_END: &str = "</tool_call>";

/// What the template writes after a think block.
const AFTER_THINKING: &str = "\n\n";
/// What it writes between two calls.
const BETWEEN_CALLS: &str = "\n";
/// The template's own newline of an empty think block.
const EMPTY_THOUGHT: &str = "\n";

/// Makes the rules of requests.
#[derive(Clone, Copy)]
pub struct ConstraintCompiler<'a> {
    pub served: ServedModel<'a>,
}

/// The rules of a request.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    pub constraint: Constraint,
    /// Parts of schemas that hold less strictly than asked for.
    pub relaxed: Vec<Relaxed>,
    /// Fields that had nothing to act on.
    pub ignored: Vec<String>,
}

/// The constraint engine for the vocabulary of `tokenizer`: some 0.1 to 2 s for 250,000 tokens.
///
/// # Errors
/// A malformed vocabulary.
pub fn grammars(tokenizer: &Tokenizer) -> Result<Grammars, GrammarError> {
    let ids = || (0..tokenizer.n_vocab() as u32).map(Token);
    let cut = tokenizer.clone();
    let tokenize = move |bytes: &[u8]| {
        let text = std::str::from_utf8(bytes).unwrap_or_default();
        cut.encode(text, Specials::AsText).unwrap_or_default()
    };
    let vocabulary = Vocabulary {
        pieces: ids().map(|token| tokenizer.piece(token).to_vec()).collect(),
        special: ids().map(|token| is_special(tokenizer, token)).collect(),
        end: ids().filter(|token| tokenizer.is_eog(*token)).collect(),
        tokenize: Some(std::sync::Arc::new(tokenize)),
    };
    Engine::new(vocabulary).map(Grammars::new)
}

/// Tags that models were taught as tokens (`<tool_call>`) are marks too, although they are shown:
/// text never holds them.
fn is_special(tokenizer: &Tokenizer, token: Token) -> bool {
    let piece = tokenizer.piece(token);
    let is_tag = piece.starts_with(b"<") && piece.ends_with(b">");
    tokenizer.is_control(token)
        || (is_tag && std::str::from_utf8(piece).is_ok_and(|text| tokenizer.special(text) == Some(token)))
}

impl ConstraintCompiler<'_> {
    /// The rules of a raw completion.
    pub fn completion(&self, asked: AnswerConstraint) -> Result<Rules, RequestError> {
        // All of a raw completion is its answer.
        let AnswerConstraint { source, scope: _ } = asked;
        let mut rules = Rules::default();
        if let Some(asked) = source {
            rules.constraint.answer.grammar =
                Some(self.compile(asked.param, &asked.value, &mut rules.relaxed)?.matcher());
        }
        Ok(rules)
    }

    /// The rules of a chat. `format` says where its generation starts.
    pub fn chat(
        &self,
        asked: AnswerConstraint,
        bounds: &ThinkingBounds,
        tools: &ToolSettings,
        format: &OutputFormat,
    ) -> Result<Rules, RequestError> {
        let AnswerConstraint { source, scope } = asked;
        let mut rules = Rules::default();
        // An answer of calls alone has no text that could have a shape.
        let only_calls = tools.choice == ToolChoice::Required;
        rules.ignored.extend(source.iter().filter(|_| only_calls).map(|source| source.param.to_owned()));
        let source = source.filter(|_| !only_calls);
        rules.constraint.answer = self.answer(source, tools, &mut rules.relaxed)?;
        match (scope, format.thinking) {
            (Scope::Whole, _) => rules.ignored.extend(bounds.fields()),
            (Scope::Answer, Thinking::Off) => rules.ignored.extend(bounds.fields()),
            (Scope::Answer, thinking) => {
                rules.constraint.thinking = self.thinking(bounds, thinking == Thinking::Open, &rules.constraint)?;
            }
        }
        Ok(rules)
    }

    fn compile(&self, param: &str, source: &Source, relaxed: &mut Vec<Relaxed>) -> Result<Compiled, RequestError> {
        let compiled = self.served.grammars.compile(source).map_err(|error| refused(param, &error))?;
        let at = |w: &Relaxed| match source {
            // Calls have whole paths already.
            Source::Calls(_) => w.clone(),
            _ => Relaxed { pointer: format!("{param}{}", w.pointer), ..w.clone() },
        };
        if !compiled.relaxed().is_empty() {
            let parts: Vec<String> = compiled.relaxed().iter().map(|part| shown(&at(part))).collect();
            tracing::info!(field = param, ?parts, "parts of a schema hold less strictly than asked for");
        }
        relaxed.extend(compiled.relaxed().iter().map(at));
        Ok(compiled)
    }

    fn answer(
        &self,
        asked: Option<FieldValue<Source>>,
        tools: &ToolSettings,
        relaxed: &mut Vec<Relaxed>,
    ) -> Result<AnswerRule, RequestError> {
        let calls = self.calls(tools, relaxed)?;
        let grammar = match asked {
            Some(asked) => Some(self.compile(asked.param, &asked.value, relaxed)?.matcher()),
            None => None,
        };
        let banned = match tools.choice {
            ToolChoice::None if !tools.tools.is_empty() => self.served.tokenizer.special(CALL).into_iter().collect(),
            _ => Vec::new(),
        };
        Ok(AnswerRule { grammar, calls, banned })
    }

    fn calls(&self, tools: &ToolSettings, relaxed: &mut Vec<Relaxed>) -> Result<Option<CallRule>, RequestError> {
        let callable = tools.callable();
        let required = tools.choice == ToolChoice::Required;
        if callable.is_empty() {
            return Ok(None);
        }
        let tokens = (self.served.tokenizer.special(CALL), self.served.tokenizer.special(CALL_END));
        let (Some(trigger), Some(end)) = tokens else {
            if !required {
                return Ok(None);
            }
            let message = format!("calls cannot be forced: the model has no token {CALL}; send \"auto\" or \"none\"");
            return Err(RequestError::unsupported("tool_choice", message));
        };
        let shapes = call_shapes(tools, CallForm::of(self.served.template));
        let source = Source::Calls(Calls { shapes, end });
        let mut of_tools = Vec::new();
        let grammar = self.compile("tools", &source, &mut of_tools)?.matcher();
        check_strict(tools, &of_tools)?;
        relaxed.append(&mut of_tools);
        let separator = self.tokens(BETWEEN_CALLS, "tools")?;
        Ok(Some(CallRule { trigger, grammar, required, many: tools.parallel, separator }))
    }

    fn thinking(
        &self,
        bounds: &ThinkingBounds,
        is_open: bool,
        constraint: &Constraint,
    ) -> Result<Option<ThinkingRule>, RequestError> {
        let tokens = (self.served.tokenizer.special(OPEN), self.served.tokenizer.special(CLOSE));
        let (Some(open), Some(close)) = tokens else {
            let asks =
                bounds.fields().next().or_else(|| constraint.answer.grammar.as_ref().map(|_| "grammar".to_owned()));
            return match asks {
                Some(param) => {
                    let message = format!("the model has no token {CLOSE}, so the end of its thinking cannot be seen");
                    Err(RequestError::unsupported(param, message))
                }
                None => Ok(None),
            };
        };
        let message = match bounds.budget_tokens {
            Some(0) => EMPTY_THOUGHT,
            _ => bounds.message.as_str(),
        };
        Ok(Some(ThinkingRule {
            is_open,
            open,
            close,
            grammar: self.thought(bounds)?,
            budget_tokens: bounds.budget_tokens,
            message: self.tokens(message, "reasoning_budget_message")?,
            separator: self.tokens(AFTER_THINKING, "messages")?,
            calls_end_it: self.served.profile.chat.calls_end_thinking,
        }))
    }

    /// The shape of the thought: a shipped grammar by name, or GBNF.
    fn thought(&self, bounds: &ThinkingBounds) -> Result<Option<crate::grammar::Matcher>, RequestError> {
        let Some(asked) = &bounds.grammar else { return Ok(None) };
        let (param, text) = (asked.param, asked.value.as_str());
        let text = match catalogue::find(text) {
            Some(shipped) => shipped.text,
            None if text.contains("::=") => text,
            None => {
                let names: Vec<&str> = catalogue::SHIPPED.iter().map(|shipped| shipped.name).collect();
                let message = format!("{text:?} is no grammar; send GBNF, or one of {}", names.join(", "));
                return Err(RequestError::invalid(param, message));
            }
        };
        let compiled = self.compile(param, &Source::Gbnf(text.to_owned()), &mut Vec::new())?;
        if bounds.budget_tokens.is_none() && !is_bounded(text) {
            let message = "the grammar bounds no length, so the thinking might never end; send a budget with it";
            return Err(RequestError::invalid(param, message));
        }
        Ok(Some(compiled.matcher()))
    }

    fn tokens(&self, text: &str, param: &str) -> Result<Vec<Token>, RequestError> {
        let tokens = self.served.tokenizer.encode(text, Specials::AsText);
        tokens.map_err(|error| RequestError::invalid(param, format!("the text cannot be tokenised: {error}")))
    }
}

/// Does every text of this GBNF grammar come to an end.
pub fn is_bounded(text: &str) -> bool {
    gbnf::parse(text).is_ok_and(|grammar| crate::grammar::thinking::longest(&grammar).is_some())
}

fn refused(param: &str, error: &GrammarError) -> RequestError {
    match error {
        GrammarError::Limit { .. } => RequestError::too_large(param, format!("`{param}`: {error}")),
        _ => RequestError::invalid(param, format!("`{param}`: {error}")),
    }
}

/// One line for people: where, what, and what holds instead.
pub fn shown(relaxed: &Relaxed) -> String {
    format!("{}: {}; {}", relaxed.pointer, relaxed.what, relaxed.to)
}

/// A tool that asks to be followed to the letter is refused where it cannot be.
fn check_strict(tools: &ToolSettings, relaxed: &[Relaxed]) -> Result<(), RequestError> {
    for (i, tool) in tools.tools.iter().enumerate().filter(|(_, tool)| tool.strict == Some(true)) {
        let path = schema_path(i);
        let is_inside =
            |part: &&Relaxed| part.pointer.strip_prefix(&path).is_some_and(|at| at.is_empty() || at.starts_with('/'));
        if let Some(part) = relaxed.iter().find(is_inside) {
            let message = format!(
                "the tool `{}` is strict, and this of its schema cannot be enforced: {}; leave out that part or `strict`",
                tool.name,
                shown(part)
            );
            return Err(RequestError::unsupported(format!("tools[{i}].function.strict"), message));
        }
    }
    Ok(())
}
