//! Which layer may name which. A re-export counts as what it gives on: who takes `chat::Schema` where chat has `pub use
//! crate::grammar::Schema` names `grammar`.

use super::tree::{Module, Target, Tree, Use, layer};

/// `layer -> layers it may name`. `units` may be named by all. A layer that is missing here is an error.
const ARROWS: &[(&str, &[&str])] = &[
    ("main", &["cli", "app", "config", "telemetry"]),
    ("lib", &["*"]),
    ("app", &["*"]),
    (
        "cli",
        &[
            "app",
            "config",
            "gguf",
            "gpu",
            "engine",
            "chat",
            "text",
            "sampling",
            "telemetry",
            "llama",
            "api",
            "grammar",
            "check",
            "image",
        ],
    ),
    ("api", &["chat", "engine", "config", "telemetry", "text", "image"]),
    ("chat", &["grammar", "text", "sampling", "engine", "config", "image"]),
    ("image", &[]),
    ("engine", &["grammar", "text", "sampling", "config", "telemetry"]),
    ("llama", &["engine", "text", "sampling", "config", "gguf"]),
    ("text", &["gguf"]),
    ("check", &[]),
    ("config", &[]),
    ("gguf", &[]),
    ("sampling", &[]),
    ("grammar", &[]),
    ("gpu", &[]),
    ("telemetry", &[]),
    ("units", &[]),
];

/// What the tests of a layer compare it with.
const TEST_ARROWS: &[(&str, &str)] = &[("llama/vision/tests.rs", "image")];

/// In these, only the named modules of the engine may be used: the seam, not the thread.
const ENGINE_SEAM: &[(&str, &[&str])] =
    &[("llama", &["lost", "request", "runner", "vision"]), ("chat", &["constraint", "request", "vision"])];

/// Types of a further layer that a layer passes on unopened: (layer, the path that names it, the further layer).
const PASSED_ON: &[(&str, &str, &str)] = &[("api", "crate::chat::constraint::Grammars", "grammar")];

/// Every breach of the arrows.
pub fn breaches(tree: &Tree) -> Vec<String> {
    let mut wrong = Vec::new();
    for module in tree.modules.keys() {
        let from = layer(module);
        match ARROWS.iter().find(|(name, _)| *name == from) {
            Some((_, allowed)) => tree.uses(module).for_each(|used| check(tree, module, allowed, &used, &mut wrong)),
            None => wrong.push(format!("{}: the layer `{from}` has no row in ARROWS", place(tree, module, 1))),
        }
    }
    wrong.sort();
    wrong.dedup();
    wrong
}

fn check(tree: &Tree, module: &Module, allowed: &[&str], used: &Use<'_>, wrong: &mut Vec<String>) {
    let from = layer(module);
    let compared = |to: &str| used.is_test && TEST_ARROWS.contains(&(tree.file_of(module).unwrap().path.as_str(), to));
    let seam = ENGINE_SEAM.iter().find(|(name, _)| *name == from).map(|(_, seam)| *seam);
    for target in &used.passed {
        let Target::Item { module: to, .. } = target else { continue };
        // The crate itself holds nothing but its layers.
        let (name, path) = (layer(to), used.path.join("::"));
        if name == from || name == "units" || to.is_empty() || allowed.contains(&"*") {
            continue;
        }
        let passed_on = PASSED_ON.contains(&(from, path.as_str(), name));
        if !allowed.contains(&name) && !compared(name) && !passed_on {
            wrong.push(format!("{}: `{from}` may not name `{name}` (`{path}`)", place(tree, module, used.line)));
        }
        if let (Some(seam), "engine", Some(inner)) = (seam, name, to.get(1))
            && !seam.contains(&inner.as_str())
        {
            let place = place(tree, module, used.line);
            wrong.push(format!("{place}: `{from}` may not name `engine::{inner}` (`{path}`)"));
        }
    }
}

fn place(tree: &Tree, module: &Module, line: usize) -> String {
    format!("{}:{line}", tree.file_of(module).unwrap().path)
}
