//! The conditions that are compared, and the request that each makes.

use serde_json::{Map, Value, json};

use super::problem::Problem;
use super::shape::{SHAPES, Shape};

const TASK: &str =
    "Complete this Python function. Answer with the whole function, with its imports, in one ```python block.";
const TERSE: &str = "Think in at most three short lines, then answer.";

/// One way of thinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// As the model likes.
    Free,
    /// The prompt asks for brevity.
    Terse,
    /// No thinking.
    Off,
    /// As the model likes, within the budget of tokens.
    Budget,
    /// In the shape of a shipped grammar.
    Shaped(&'static Shape),
    /// The solution in the file, without a server: judges the sandbox.
    Reference,
}

/// How a server is asked for a grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `thinking: {"grammar": NAME, "budget_tokens": N}`.
    Thinking,
    /// llama-server: `grammar` for the whole output, `thinking_budget_tokens`.
    Grammar,
    /// vLLM: `structured_outputs.grammar` for the whole output.
    StructuredOutputs,
}

impl Condition {
    /// What is compared when nothing else is asked for: free first, all others are held against it.
    pub fn standard() -> Vec<Condition> {
        let mut all = vec![Condition::Free, Condition::Terse, Condition::Off];
        all.extend(SHAPES.iter().map(Condition::Shaped));
        all
    }

    pub fn name(self) -> &'static str {
        match self {
            Condition::Free => "free",
            Condition::Terse => "terse",
            Condition::Off => "off",
            Condition::Budget => "budget",
            Condition::Shaped(shape) => shape.name,
            Condition::Reference => "reference",
        }
    }

    pub fn find(name: &str) -> Option<Condition> {
        let plain = [Condition::Free, Condition::Terse, Condition::Off, Condition::Budget, Condition::Reference];
        let mut all = plain.into_iter().chain(SHAPES.iter().map(Condition::Shaped));
        all.find(|condition| condition.name() == name)
    }

    pub fn shape(self) -> Option<&'static Shape> {
        match self {
            Condition::Shaped(shape) => Some(shape),
            _ => None,
        }
    }

    pub(super) fn needs_server(self) -> bool {
        self != Condition::Reference
    }

    /// The members of a chat request that this condition is about. `Err`: the server's dialect has no word for it.
    pub(super) fn fields(self, dialect: Dialect, budget: Option<u32>) -> Result<Map<String, Value>, String> {
        let mut fields = Map::new();
        fields.insert("chat_template_kwargs".to_owned(), json!({"enable_thinking": self != Condition::Off}));
        let is_bounded = matches!(self, Condition::Shaped(_) | Condition::Budget);
        let budget = budget.filter(|_| is_bounded);
        if self == Condition::Budget && budget.is_none() {
            return Err("the condition `budget` needs --budget-tokens".to_owned());
        }
        match dialect {
            Dialect::Thinking if is_bounded => {
                let mut thinking = Map::new();
                thinking.extend(self.shape().map(|shape| ("grammar".to_owned(), json!(shape.name))));
                thinking.extend(budget.map(|n| ("budget_tokens".to_owned(), json!(n))));
                fields.insert("thinking".to_owned(), Value::Object(thinking));
            }
            Dialect::Thinking => {}
            Dialect::Grammar => {
                fields.extend(self.shape().map(|shape| ("grammar".to_owned(), json!(shape.whole_output()))));
                fields.extend(budget.map(|n| ("thinking_budget_tokens".to_owned(), json!(n))));
            }
            Dialect::StructuredOutputs => {
                if budget.is_some() {
                    return Err("--budget-tokens has no field in requests with structured_outputs".to_owned());
                }
                let grammar = self.shape().map(|shape| json!({"grammar": shape.whole_output()}));
                fields.extend(grammar.map(|grammar| ("structured_outputs".to_owned(), grammar)));
            }
        }
        Ok(fields)
    }

    pub(super) fn messages(self, problem: &Problem) -> Value {
        let task = format!("{TASK}\n\n```python\n{}\n```", problem.prompt.trim_end());
        let user = json!({"role": "user", "content": task});
        match self {
            Condition::Terse => json!([{"role": "system", "content": TERSE}, user]),
            _ => json!([user]),
        }
    }
}

impl Dialect {
    pub fn name(self) -> &'static str {
        match self {
            Dialect::Thinking => "thinking",
            Dialect::Grammar => "grammar",
            Dialect::StructuredOutputs => "structured-outputs",
        }
    }
}
