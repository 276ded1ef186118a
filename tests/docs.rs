//! Generated pages equal what the program would write now (`UPDATE=1 cargo test --test docs`
//! rewrites them), and pages that name files name those that exist.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

/// Compares a page under docs/ with its generated text, or rewrites it.
fn page(name: &str, generated: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
    if std::env::vars_os().any(|(name, _)| name == "UPDATE") {
        std::fs::write(&path, generated).unwrap();
        return;
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let first = committed.lines().zip(generated.lines()).position(|(a, b)| a != b);
    let line = first.unwrap_or(committed.lines().count().min(generated.lines().count())) + 1;
    assert!(committed == generated, "docs/{name} is out of date from line {line}: UPDATE=1 cargo test --test docs");
}

#[test]
fn profiles_page_equals_the_table_of_settings() {
    page("profiles.md", &plateau::config::reference::profiles_markdown().unwrap());
}

#[test]
fn cli_page_equals_the_command_line() {
    page("cli.md", &plateau::cli::reference::cli_markdown());
}

/// The walk of one request in docs/ARCHITECTURE.md: at most ten lines, and every file is there.
#[test]
fn the_walk_of_a_chat_request_names_files_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("docs/ARCHITECTURE.md")).unwrap();
    let (_, after) = page.split_once("### The same, file by file\n").unwrap();
    let steps: Vec<&str> = after.lines().take_while(|line| !line.is_empty()).collect();
    assert!((1..=10).contains(&steps.len()), "{} lines", steps.len());
    for step in steps {
        let files: Vec<&str> = step.split('`').filter(|text| text.starts_with("src/")).collect();
        assert!(!files.is_empty(), "no file is named: {step}");
        for file in files {
            assert!(root.join(file).is_file(), "there is no {file}: {step}");
        }
    }
}
