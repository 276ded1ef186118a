//! The grammars that come with the program: shapes for thinking that cannot run away. Each is a file under `grammars/`.

/// A grammar by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shipped {
    pub name: &'static str,
    /// GBNF. The first line is a comment that says what it is for.
    pub text: &'static str,
}

/// All of them, in the order in which they are listed.
pub const SHIPPED: &[Shipped] = &[
    Shipped { name: "scratchpad", text: include_str!("../../grammars/scratchpad.gbnf") },
    Shipped { name: "goal", text: include_str!("../../grammars/goal.gbnf") },
    Shipped { name: "goal-code", text: include_str!("../../grammars/goal-code.gbnf") },
    Shipped { name: "tagline", text: include_str!("../../grammars/tagline.gbnf") },
    Shipped { name: "check", text: include_str!("../../grammars/check.gbnf") },
];

impl Shipped {
    /// What the grammar is for: its first line.
    pub fn doc(&self) -> &'static str {
        self.text.lines().next().unwrap_or_default().trim_start_matches('#').trim()
    }
}

/// The shipped grammar of this name.
pub fn find(name: &str) -> Option<&'static Shipped> {
    SHIPPED.iter().find(|shipped| shipped.name == name)
}
