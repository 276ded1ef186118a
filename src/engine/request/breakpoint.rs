//! Where later prompts are likely to go on from, and what a request leaves in the prefix cache.

/// A place in a prompt that later prompts are likely to begin like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breakpoint {
    /// Items before it.
    pub at: usize,
    pub kind: BreakpointKind,
}

/// What stands at a breakpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakpointKind {
    /// The end of system prompt and tools.
    System,
    /// The beginning of a message.
    Message,
    /// The beginning of the assistant's turn that is to be generated.
    Turn,
    /// Before a block of thinking.
    Thinking,
    /// After a block of thinking.
    ThinkingEnd,
    /// The whole prompt but its last item.
    PromptEnd,
    /// The end of an answer, whole or broken off.
    AnswerEnd,
    /// After the last row of an image. The engine finds these itself.
    Image,
    /// Nothing in particular.
    Grid,
}

/// What a request leaves in the prefix cache. What it begins from is `cache_prompt`'s business.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheUse {
    /// Save states of it for later requests.
    pub store: bool,
    /// In ascending order.
    pub breakpoints: Vec<Breakpoint>,
}

impl CacheUse {
    /// Saves, without knowing anything about the prompt.
    pub const NO_BREAKPOINTS: CacheUse = CacheUse { store: true, breakpoints: Vec::new() };
}
