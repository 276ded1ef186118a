//! What a row of the table says.

/// Which endpoints know a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Both,
    Chat,
    Completions,
}

/// One of the two generation endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    Chat,
    Completions,
}

impl Scope {
    pub fn covers(self, endpoint: Endpoint) -> bool {
        match self {
            Scope::Both => true,
            Scope::Chat => endpoint == Endpoint::Chat,
            Scope::Completions => endpoint == Endpoint::Completions,
        }
    }
}

/// What happens to a field. JSON texts, so that the table is a constant.
#[derive(Clone, Copy, Debug)]
pub enum Verdict {
    /// It changes the generation or the answer. `default` is for people; `sample` is a value that
    /// is not the default; `bad` one that is refused.
    Consumed { default: &'static str, sample: &'static str, bad: &'static str },
    /// Refused by name, except for null and for the values that ask for nothing (a list in JSON).
    /// `sample` is refused.
    Refused { neutral: &'static str, sample: &'static str },
    /// Accepted without effect and reported.
    PassedOver { sample: &'static str },
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub name: &'static str,
    pub scope: Scope,
    pub verdict: Verdict,
    pub doc: &'static str,
}
