//! Compiled constraints, kept for the requests that come with the same ones: agents send the same tools with every turn.

use std::sync::Arc;

use quick_cache::sync::Cache;

use super::compile::{Compiled, Engine};
use super::error::GrammarError;
use super::source::Source;

/// Constraints kept. Each takes some 100 KB to some MB; an agent has a handful.
const MAX_ENTRIES: usize = 64;

/// Cheap to clone. Who asks for a constraint that another is compiling waits for that one.
#[derive(Clone)]
pub struct Grammars {
    engine: Engine,
    known: Arc<Cache<String, Compiled>>,
}

impl Grammars {
    pub fn new(engine: Engine) -> Grammars {
        Grammars { engine, known: Arc::new(Cache::new(MAX_ENTRIES)) }
    }

    /// Compiles, or gives what was compiled from the same source. Blocks for as long as that takes.
    ///
    /// # Errors
    /// As `Engine::compile`; an error is not kept.
    pub fn compile(&self, source: &Source) -> Result<Compiled, GrammarError> {
        self.known.get_or_insert_with(&source.key(), || self.engine.compile(source))
    }

    /// Constraints that are kept now.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}
