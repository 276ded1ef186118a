//! From a source to something that matchers are made of. Slow (a millisecond to a second): never on the engine thread.

use std::sync::Arc;

use llguidance::ParserFactory;
use llguidance::toktrie::{InferenceCapabilities, TokEnv};

use super::error::{GrammarError, first_lines};
use super::matcher::Matcher;
use super::relaxed::Relaxed;
use super::source::Source;
use super::vocabulary::{Lexicon, Vocabulary};

/// The libraries below recurse over nested schemas and chains of rules, within limits that are set for this stack.
const STACK_BYTES: usize = 128 * 1024 * 1024;

/// What the lexer may spend on its first states, in nodes (about 50,000 a millisecond).
const COMPILE_FUEL: u64 = 2_000_000;
/// What the lexer may spend on one mask (about 14,000 a millisecond).
const STEP_FUEL: u64 = 1_000_000;
/// Parser items of one mask (about 20,000 a millisecond): grammars that are parsed character by character need many.
const STEP_ITEMS: usize = 2_000_000;

/// Kinds of tokens of which a mask takes all at once where each of their texts may follow: else every token is walked. Each
/// costs some 10 MB with a vocabulary of 250,000 tokens. Inside strings and lines these are nearly the whole vocabulary.
const SLICES: [&str; 7] = [
    r"[\x20\x0A\x0D\x09]+",
    // A line of text, one of ASCII, and the inside of a JSON string.
    r"[^\x00-\x1F\x7F]{1,30}",
    r"[\x20-\x7E]{1,30}",
    r#"[^"\\\x00-\x1F\x7F]{1,30}"#,
    // The first word of a text, without a space before it and with one.
    r#"[\x21\x23-\x5B\x5D-\x7E][\x20\x21\x23-\x5B\x5D-\x7E]{0,29}"#,
    r#"\x20[\x21\x23-\x5B\x5D-\x7E][\x20\x21\x23-\x5B\x5D-\x7E]{0,28}"#,
    // Names.
    r"[a-z]{1,10}",
];

/// Makes constraints for one model. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    factory: Arc<ParserFactory>,
    lexicon: Arc<Lexicon>,
}

/// A constraint for one model, to be shared by its generations. Cheap to clone.
#[derive(Clone)]
pub struct Compiled {
    template: Arc<Matcher>,
    relaxed: Arc<[Relaxed]>,
}

impl Engine {
    /// Indexes the vocabulary: 0.1 to 1 s for 250,000 tokens.
    ///
    /// # Errors
    /// A malformed vocabulary.
    pub fn new(vocabulary: Vocabulary) -> Result<Engine, GrammarError> {
        let lexicon = Arc::new(Lexicon::new(vocabulary)?);
        let env: TokEnv = lexicon.clone();
        let capabilities = InferenceCapabilities::default();
        let mut factory =
            ParserFactory::new(&env, capabilities, &SLICES.map(str::to_owned)).map_err(|error| refused(&error))?;
        factory.quiet();
        let limits = factory.limits_mut();
        limits.initial_lexer_fuel = COMPILE_FUEL;
        limits.step_lexer_fuel = STEP_FUEL;
        limits.step_max_items = STEP_ITEMS;
        limits.verbose_errors = false;
        Ok(Engine { factory: Arc::new(factory), lexicon })
    }

    /// Tokens of the vocabulary: a mask has a bit for each.
    pub fn n_vocab(&self) -> usize {
        self.lexicon.n_vocab()
    }

    /// Compiles on a thread of its own and waits for it.
    ///
    /// # Errors
    /// Why the source is no constraint, or too large for one.
    pub fn compile(&self, source: &Source) -> Result<Compiled, GrammarError> {
        std::thread::scope(|scope| {
            let work = || self.compile_here(source);
            let thread = std::thread::Builder::new().name("grammar".to_owned()).stack_size(STACK_BYTES);
            let joined = thread.spawn_scoped(scope, work).map(std::thread::ScopedJoinHandle::join);
            match joined {
                Ok(Ok(result)) => result,
                Ok(Err(_)) => Err(GrammarError::Refused(format!("compiling the {} failed", source.kind()))),
                Err(error) => Err(GrammarError::Refused(format!("no thread to compile on: {error}"))),
            }
        })
    }

    fn compile_here(&self, source: &Source) -> Result<Compiled, GrammarError> {
        let (grammar, relaxed) = source.lower(&self.lexicon)?;
        let parser = self.factory.create_parser(grammar).map_err(|error| match source {
            Source::Lark(_) => refused(&error),
            _ => GrammarError::Refused(format!("the {} cannot be compiled: {}", source.kind(), first_line(&error))),
        })?;
        let mut template = Matcher::new(llguidance::Matcher::new(Ok(parser)), self.lexicon.clone());
        // The first mask finds a constraint that no text satisfies, and fills the lexer's tables for all generations.
        template
            .mask()
            .map_err(|error| GrammarError::Refused(format!("the {} matches no text: {error}", source.kind())))?;
        Ok(Compiled { template: Arc::new(template), relaxed: relaxed.into() })
    }
}

impl Compiled {
    /// What holds for one generation from its first token on.
    pub fn matcher(&self) -> Matcher {
        self.template.separate()
    }

    /// The parts of a schema that are less strict than asked for.
    pub fn relaxed(&self) -> &[Relaxed] {
        &self.relaxed
    }
}

/// The library's message without the place in text that we wrote ourselves.
fn first_line(error: &impl std::fmt::Display) -> String {
    let text = first_lines(error);
    let line = text.lines().next().unwrap_or_default();
    let place = |c: char| c.is_ascii_digit() || "()at :".contains(c);
    if line.starts_with("at ") { line.trim_start_matches(place).to_owned() } else { line.to_owned() }
}

fn refused(error: &impl std::fmt::Display) -> GrammarError {
    GrammarError::Refused(first_lines(error))
}
