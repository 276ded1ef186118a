//! One table of routes.

/// Which handler answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Chat,
    Completions,
    Models,
    Model,
    Tokenize,
    Detokenize,
    ApplyTemplate,
    Health,
    Props,
    Metrics,
    Sequences,
    Cache,
    ClearCache,
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    pub method: &'static str,
    /// The first is the documented one, the others are aliases.
    pub paths: &'static [&'static str],
    /// Answers without the key.
    pub public: bool,
    pub doc: &'static str,
    pub(super) action: Action,
}

const fn route(
    method: &'static str,
    paths: &'static [&'static str],
    action: Action,
    public: bool,
    doc: &'static str,
) -> Route {
    Route { method, paths, public, doc, action }
}

/// Every route.
#[rustfmt::skip]
pub const ROUTES: &[Route] = &[
    route("POST", &["/v1/chat/completions", "/chat/completions"], Action::Chat, false, "Continue a conversation."),
    route("POST", &["/v1/completions", "/completions"], Action::Completions, false, "Continue raw text or tokens."),
    route("GET", &["/v1/models", "/models"], Action::Models, false, "The served model, with its context length."),
    route("GET", &["/v1/models/{*id}", "/models/{*id}"], Action::Model, false, "The same for one id; another id is 404."),
    route("POST", &["/tokenize"], Action::Tokenize, false, "`{content, add_special, parse_special, with_pieces}` to tokens."),
    route("POST", &["/detokenize"], Action::Detokenize, false, "`{tokens}` to text."),
    route("POST", &["/apply-template"], Action::ApplyTemplate, false, "A chat request to the text of its prompt."),
    route("GET", &["/health", "/v1/health"], Action::Health, true, "200, or 503 with the reason."),
    route("GET", &["/props"], Action::Props, false, "Build, model, template, default sampling, and which features are on or off and why."),
    route("GET", &["/metrics"], Action::Metrics, false, "OpenMetrics text."),
    route("GET", &["/sequences"], Action::Sequences, false, "What each sequence is doing."),
    route("GET", &["/cache"], Action::Cache, false, "The prefix cache: budgets, the tree of saved states, and why the last requests processed what they did."),
    route("POST", &["/cache/clear"], Action::ClearCache, false, "Forget all saved states, in memory and on disk."),
];

/// The table of `docs/api.md`.
pub fn docs() -> String {
    let mut out = String::from("| method | path | what it does |\n|---|---|---|\n");
    for Route { method, paths, public, doc, .. } in ROUTES {
        let paths =
            paths.iter().map(|path| format!("`{}`", path.replace("{*id}", "{id}"))).collect::<Vec<_>>().join(", ");
        let public = if *public { " Never asks for the key." } else { "" };
        out.push_str(&format!("| {method} | {paths} | {doc}{public} |\n"));
    }
    out
}

/// Is this path answered without the key.
pub(super) fn is_public(path: &str) -> bool {
    ROUTES.iter().any(|route| route.public && route.paths.contains(&path))
}
