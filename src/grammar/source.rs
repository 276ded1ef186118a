//! What a constraint can be written in, and its lowering to what `llguidance` takes.

use llguidance::api::TopLevelGrammar;
use serde_json::{Value, json};

use super::calls::Calls;
use super::error::{GrammarError, Position};
use super::gbnf::{self, Expr, Grammar, Rule, TokenName, TokenRef};
use super::relaxed::Relaxed;
use super::schema;
use super::vocabulary::Lexicon;
use crate::units::Token;

/// Bytes of a regular expression or a Lark grammar.
const MAX_BYTES: usize = 64 * 1024;
/// Brackets inside one another in a regular expression or a Lark grammar, literal ones counted too.
const MAX_BRACKETS: usize = 128;
/// Colons in a Lark grammar: chains of definitions are followed by recursion.
const MAX_DEFINITIONS: usize = 1_000;
/// Strings to choose from, and their bytes.
const MAX_CHOICES: usize = 20_000;
const MAX_CHOICE_BYTES: usize = 512 * 1024;

/// A constraint as it was asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// llama.cpp's grammar language.
    Gbnf(String),
    /// A JSON value that the schema accepts.
    JsonSchema(Value),
    /// Any JSON object.
    JsonObject,
    /// The whole text matches. Look-around and back-references are out of reach.
    Regex(String),
    /// The Lark dialect of `llguidance`.
    Lark(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// A call of a tool.
    Calls(Calls),
}

impl Source {
    /// The name of the front end, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Source::Gbnf(_) => "GBNF grammar",
            Source::JsonSchema(_) => "JSON schema",
            Source::JsonObject => "JSON object",
            Source::Regex(_) => "regular expression",
            Source::Lark(_) => "Lark grammar",
            Source::Choice(_) => "choice",
            Source::Calls(_) => "tool call",
        }
    }

    /// Two sources with the same text are the same.
    pub(super) fn key(&self) -> String {
        match self {
            Source::Gbnf(text) | Source::Regex(text) | Source::Lark(text) => format!("{}:{text}", self.kind()),
            Source::JsonSchema(schema) => format!("{}:{schema}", self.kind()),
            Source::JsonObject => self.kind().to_owned(),
            Source::Choice(_) | Source::Calls(_) => format!("{self:?}"),
        }
    }

    pub(super) fn lower(&self, lexicon: &Lexicon) -> Result<(TopLevelGrammar, Vec<Relaxed>), GrammarError> {
        let lark = |text: String| (TopLevelGrammar::from_lark(text), Vec::new());
        Ok(match self {
            Source::Gbnf(text) => lark(gbnf(gbnf::parse(text)?, lexicon)?),
            Source::Choice(texts) => lark(gbnf(choice(texts)?, lexicon)?),
            Source::JsonSchema(schema) => {
                let (schema, relaxed) = schema::lower(schema)?;
                (TopLevelGrammar::from_json_schema(schema), relaxed)
            }
            Source::Calls(calls) => calls.lower()?,
            Source::JsonObject => {
                let (schema, relaxed) = schema::lower(&json!({"type": "object"}))?;
                (TopLevelGrammar::from_json_schema(schema), relaxed)
            }
            Source::Regex(text) => {
                brackets("regular expression", text)?;
                (TopLevelGrammar::from_regex(unanchored(text)), Vec::new())
            }
            Source::Lark(text) => {
                brackets("Lark grammar", text)?;
                GrammarError::within("definitions", text.matches(':').count(), MAX_DEFINITIONS)?;
                lark(text.clone())
            }
        })
    }
}

fn gbnf(grammar: Grammar, lexicon: &Lexicon) -> Result<String, GrammarError> {
    gbnf::lower(grammar, &|token| resolve(token, lexicon))
}

fn resolve(token: &TokenRef, lexicon: &Lexicon) -> Result<Vec<(u32, u32)>, GrammarError> {
    let id = match &token.name {
        TokenName::Named(name) => lexicon.by_name(name),
        TokenName::Id(id) => Some(Token(*id)).filter(|id| id.index() < lexicon.n_vocab()),
    };
    let Some(id) = id else {
        let fix = "name a token of the model, or put the text in quotes";
        return Err(GrammarError::text(token.at, format!("the model has no token {}; {fix}", token.name)));
    };
    if lexicon.is_end(id) {
        let message = format!("{} ends the generation, which a grammar does by ending; leave it out", token.name);
        return Err(GrammarError::text(token.at, message));
    }
    Ok(if token.negated { lexicon.all_but(id) } else { vec![(id.0, id.0)] })
}

fn choice(texts: &[String]) -> Result<Grammar, GrammarError> {
    GrammarError::within("texts to choose from", texts.len(), MAX_CHOICES)?;
    GrammarError::within("bytes of the texts to choose from", texts.iter().map(String::len).sum(), MAX_CHOICE_BYTES)?;
    let mut all: Vec<&String> = texts.iter().collect();
    all.sort_unstable();
    all.dedup();
    if all.is_empty() {
        return Err(GrammarError::Refused("there is nothing to choose from; give one text or more".to_owned()));
    }
    let expr = Expr::alt(all.into_iter().map(|text| Expr::text(text)).collect());
    let rule = Rule { name: "root".to_owned(), at: Position { line: 1, column: 1 }, expr };
    Ok(Grammar { rules: vec![rule], root: 0 })
}

/// The parsers below are recursive: nesting is bounded before they see the text.
fn brackets(what: &'static str, text: &str) -> Result<(), GrammarError> {
    let bytes_of = if what == "Lark grammar" { "bytes of the Lark grammar" } else { "bytes of the regular expression" };
    GrammarError::within(bytes_of, text.len(), MAX_BYTES)?;
    if text.trim().is_empty() {
        return Err(GrammarError::Refused(format!("the {what} is empty")));
    }
    let (mut depth, mut deepest, mut negations) = (0_usize, 0, 0);
    for c in text.chars() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        negations = if c == '~' { negations + 1 } else { 0 };
        deepest = deepest.max(depth + negations);
    }
    GrammarError::within("brackets inside one another", deepest, MAX_BRACKETS)
}

/// The whole text must match anyway: `^` and `$` around the expression say the same.
fn unanchored(text: &str) -> &str {
    let text = text.strip_prefix('^').unwrap_or(text);
    match text.strip_suffix('$') {
        // An escaped dollar is one of the text.
        Some(rest) if (rest.len() - rest.trim_end_matches('\\').len()).is_multiple_of(2) => rest,
        _ => text,
    }
}
