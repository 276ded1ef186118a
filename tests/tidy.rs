//! The architecture's rules, kept by a test: which layer may name which, where unsafe, axum and llama.cpp may appear, module
//! docs, sizes. docs/ARCHITECTURE.md explains them.

#![expect(clippy::unwrap_used, reason = "a failure here is the test's failure")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

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
            "picture",
        ],
    ),
    ("api", &["chat", "engine", "config", "telemetry", "text", "picture"]),
    ("chat", &["grammar", "text", "sampling", "engine", "config", "picture"]),
    ("picture", &[]),
    ("engine", &["grammar", "text", "sampling", "config", "telemetry"]),
    ("llama", &["engine", "text", "sampling", "config", "gguf"]),
    ("text", &["gguf"]),
    ("check", &[]),
    ("config", &[]),
    ("gguf", &[]),
    ("sampling", &[]),
    ("grammar", &[]),
    ("gpu", &[]),
    ("check", &[]),
    ("telemetry", &[]),
    ("units", &[]),
];

/// What the tests of a layer compare it with.
const TEST_ARROWS: &[(&str, &str)] = &[("llama/vision/tests.rs", "picture")];

/// In these, only the named modules of the engine may be used: the seam, not the thread.
const ENGINE_SEAM: &[(&str, &[&str])] =
    &[("llama", &["runner", "vision", "request"]), ("chat", &["request", "constraint", "vision"])];

/// The longest file that is still one subject. Tables of data may be longer: name them here with the reason.
const MAX_LINES: usize = 600;
const LONG_FILES: &[(&str, &str)] = &[];

fn sources() -> BTreeMap<PathBuf, String> {
    fn walk(dir: &Path, into: &mut BTreeMap<PathBuf, String>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, into);
            } else if path.extension().is_some_and(|e| e == "rs") {
                into.insert(path.clone(), std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    let mut all = BTreeMap::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut all);
    assert!(all.len() > 30, "the sources were not found");
    all
}

fn relative(path: &Path) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    path.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/")
}

fn layer(path: &Path) -> String {
    relative(path).split('/').next().unwrap().trim_end_matches(".rs").to_owned()
}

/// The source without comments and without the contents of string literals, line structure kept.
fn code(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let bytes: Vec<char> = source.chars().collect();
    let mut i = 0;
    while i < bytes.len() {
        let rest = |n: usize| bytes.get(i + n).copied().unwrap_or('\0');
        match bytes[i] {
            '/' if rest(1) == '/' => {
                while i < bytes.len() && bytes[i] != '\n' {
                    i += 1;
                }
            }
            '"' => {
                out.push('"');
                i += 1;
                while i < bytes.len() && bytes[i] != '"' {
                    if bytes[i] == '\\' {
                        i += 1;
                    } else if bytes[i] == '\n' {
                        out.push('\n');
                    }
                    i += 1;
                }
                out.push('"');
                i += 1;
            }
            // A quote character literal would open a string for the scanner.
            '\'' if rest(1) == '"' && rest(2) == '\'' => i += 3,
            '\'' if rest(1) == '\\' && rest(3) == '\'' => i += 4,
            c => {
                out.push(c);
                i += 1;
            }
        }
    }
    out
}

/// Second path segments behind `crate::first` in code, groups (`crate::{a, b::c}`) opened.
fn crate_paths(code: &str) -> Vec<(String, String)> {
    let ident = |text: &str| -> String { text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect() };
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let after = &code[at + 7..];
        let mut push = |item: &str| {
            let first = ident(item.trim_start());
            let tail = item.trim_start()[first.len()..].strip_prefix("::").map(ident).unwrap_or_default();
            if !first.is_empty() {
                found.push((first, tail));
            }
        };
        if let Some(group) = after.strip_prefix('{') {
            let mut depth = 0usize;
            let mut start = 0;
            for (i, c) in group.char_indices() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => {
                        push(&group[start..i]);
                        break;
                    }
                    '}' => depth -= 1,
                    ',' if depth == 0 => {
                        push(&group[start..i]);
                        start = i + 1;
                    }
                    _ => {}
                }
            }
        } else {
            push(after);
        }
    }
    found
}

#[test]
fn layers_name_only_what_the_arrows_allow() {
    let mut wrong = Vec::new();
    for (path, source) in sources() {
        let from = layer(&path);
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == from) else {
            wrong.push(format!("{}: the layer `{from}` has no row in ARROWS", relative(&path)));
            continue;
        };
        for (to, tail) in crate_paths(&code(&source)) {
            let inside = to == from || to == "units" || to.chars().next().is_some_and(char::is_uppercase);
            let compared = TEST_ARROWS.contains(&(relative(&path).as_str(), to.as_str()));
            if !inside && !compared && !allowed.contains(&"*") && !allowed.contains(&to.as_str()) {
                wrong.push(format!("{}: `{from}` may not name `{to}`", relative(&path)));
            }
            if let Some((_, seam)) = ENGINE_SEAM.iter().find(|(name, _)| *name == from)
                && to == "engine"
                && tail.chars().next().is_some_and(char::is_lowercase)
                && !seam.contains(&tail.as_str())
            {
                wrong.push(format!("{}: `{from}` may not name `engine::{tail}`", relative(&path)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn foreign_names_stay_in_their_rooms() {
    // (text in code, layers that may hold it)
    let rooms: &[(&str, &[&str])] = &[
        ("llama_cpp_2", &["llama"]),
        ("llama_cpp_sys_2", &["llama"]),
        ("unsafe", &["llama"]),
        ("axum", &["api", "app"]),
        ("StatusCode", &["api"]),
        ("minijinja", &["chat"]),
        ("nvml_wrapper", &["gpu"]),
        ("prometheus_client", &["telemetry"]),
        ("env::var", &["config"]),
        ("Mutex", &["llama"]),
        ("RwLock", &[]),
        ("static mut", &[]),
    ];
    let mut wrong = Vec::new();
    for (path, source) in sources() {
        let code = code(&source);
        for (text, layers) in rooms {
            let there = code.match_indices(text).any(|(at, _)| {
                let word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
                !word(code[..at].chars().next_back()) && !word(code[at + text.len()..].chars().next())
            });
            if there && !layers.contains(&layer(&path).as_str()) {
                wrong.push(format!("{}: `{text}` belongs to {layers:?}", relative(&path)));
            }
        }
        if code.contains("StatusCode") && layer(&path) == "api" && relative(&path) != "api/error.rs" {
            wrong.push(format!("{}: StatusCode belongs to api/error.rs alone", relative(&path)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_module_says_what_it_is_for_and_fits_one_subject() {
    let mut wrong = Vec::new();
    for (path, source) in sources() {
        let name = relative(&path);
        if !source.starts_with("//!") {
            wrong.push(format!("{name}: no module documentation"));
        }
        let lines = source.lines().count();
        if lines > MAX_LINES && !LONG_FILES.iter().any(|(file, _)| *file == name) {
            wrong.push(format!("{name}: {lines} lines, more than {MAX_LINES}; split it by subject"));
        }
        for marker in ["FIXME", "XXX", "todo!", "unimplemented!", "dbg!", "#[ignore]"] {
            if source.contains(marker) {
                wrong.push(format!("{name}: {marker}"));
            }
        }
        if !source.is_ascii() && !code_is_ascii_outside_strings(&source) {
            wrong.push(format!("{name}: comments are ASCII"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Test data may hold any text; comments and identifiers are ASCII.
fn code_is_ascii_outside_strings(source: &str) -> bool {
    source.lines().all(|line| match line.find("//") {
        Some(at) if !line[..at].contains('"') => line[at..].is_ascii(),
        _ => true,
    })
}

#[test]
fn unsafe_blocks_say_why_they_are_sound() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for (path, source) in sources() {
        let lines: Vec<&str> = source.lines().collect();
        for (i, line) in lines.iter().enumerate() {
            let trimmed = line.trim_start();
            if trimmed.starts_with("//") || !(line.contains("unsafe {") || trimmed.starts_with("unsafe impl")) {
                continue;
            }
            seen += 1;
            let before = lines[i.saturating_sub(8)..=i].join("\n");
            if !before.contains("SAFETY:") {
                wrong.push(format!("{}:{}: no SAFETY comment", relative(&path), i + 1));
            }
        }
    }
    assert!(seen > 10, "the scanner finds no unsafe blocks: {seen}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_file_names_machines_registries_or_foreign_weights() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let listed = std::process::Command::new("git").args(["ls-files"]).current_dir(root).output();
    // A source archive has no git; then there is nothing to list.
    let Some(listed) = listed.ok().filter(|o| o.status.success()) else { return };
    let listed = String::from_utf8(listed.stdout).unwrap();
    let hosts = ["pypi", "crates", "npmjs"].map(|h| format!("{h}.{}", if h == "crates" { "io" } else { "org" }));
    let mut wrong = Vec::new();
    for name in listed.lines() {
        let path = root.join(name);
        if name.ends_with(".gguf") {
            if !name.starts_with("vendor/demo-model/plateau-demo") {
                wrong.push(format!("{name}: only the demo model's weights are committed"));
            }
            continue;
        }
        // Cargo.lock names its registry by a URL of cargo's own making.
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        if name == "Cargo.lock" || name == "fuzz/Cargo.lock" {
            continue;
        }
        for host in &hosts {
            if text.contains(host.as_str()) {
                wrong.push(format!("{name}: names a package registry's host"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
