//! Generated pages equal what the program would write now. `UPDATE=1 cargo test --test docs` rewrites them.

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
