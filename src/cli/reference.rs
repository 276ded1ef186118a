//! docs/cli.md, generated from the command line's own description, so that it cannot be out of date.

use std::fmt::Write as _;

use clap::{Arg, Command, CommandFactory};

use super::Cli;
use crate::config::SETTINGS;

const HEAD: &str = "# Command line\n\n<!-- Generated: `UPDATE=1 cargo test --test docs` rewrites this file. -->\n";

/// The whole page.
pub fn cli_markdown() -> String {
    let mut page = String::from(HEAD);
    let mut root = Cli::command();
    root.build();
    push_command(&mut page, &root, "plateau");
    page.push_str("\n## Settings\n\nTaken by `serve`, `run`, `doctor`, `profile show` and `profile check`. [profiles.md](profiles.md) says what each accepts.\n\n");
    page.push_str("| flag | environment | |\n|---|---|---|\n");
    for setting in SETTINGS {
        let names: Vec<String> =
            std::iter::once(setting.flag()).chain(setting.short_flags.iter().map(|s| (*s).to_owned())).collect();
        let flags = names.iter().map(|name| format!("`--{name}`")).collect::<Vec<_>>().join(" ");
        let _ = writeln!(page, "| {flags} | `{}` | {} |", setting.env(), setting.doc());
    }
    page
}

fn push_command(page: &mut String, command: &Command, path: &str) {
    let _ = write!(page, "\n## {path}\n");
    if let Some(about) = command.get_long_about().or_else(|| command.get_about()) {
        let _ = write!(page, "\n{about}\n");
    }
    if let Some(after) = command.get_after_help() {
        let _ = write!(page, "\n{after}\n");
    }
    let is_setting = |arg: &Arg| SETTINGS.iter().any(|setting| setting.key == arg.get_id().as_str());
    let own: Vec<&Arg> = command
        .get_arguments()
        .filter(|arg| !is_setting(arg) && !["help", "version"].contains(&arg.get_id().as_str()))
        .filter(|arg| path == "plateau" || !arg.is_global_set())
        .filter(|arg| !arg.is_hide_set())
        .collect();
    if !own.is_empty() {
        page.push_str("\n| argument | |\n|---|---|\n");
    }
    for arg in own {
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default().replace('\n', " ");
        let _ = writeln!(page, "| `{}` | {} |", spelling(arg), help.replace('|', "\\|"));
    }
    if command.get_arguments().any(is_setting) {
        page.push_str("\nAlso every flag of [Settings](#settings).\n");
    }
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        push_command(page, sub, &format!("{path} {}", sub.get_name()));
    }
}

fn spelling(arg: &Arg) -> String {
    let value = arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string).unwrap_or_default();
    let takes_value = arg.get_action().takes_values();
    match arg.get_long() {
        Some(long) if takes_value => format!("--{long} <{value}>"),
        Some(long) => format!("--{long}"),
        None => format!("[{value}]"),
    }
    .replace('|', "\\|")
}
