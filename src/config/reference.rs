//! docs/profiles.md, generated from the table of settings and the built-in profiles, so that it cannot be out of date.

use std::fmt::Write as _;

use super::resolve::{Layers, resolve};
use super::settings::{SETTINGS, Setting};
use super::{ConfigError, Origin, Resolved, builtin};

const HEAD: &str = "# Profiles and settings\n\n\
    <!-- Generated: `UPDATE=1 cargo test --test docs` rewrites this file. -->\n\n\
    A profile is a TOML file that says how one model runs on one kind of machine. `plateau serve --profile NAME` takes a\n\
    built-in one, `--profile FILE.toml` one of yours. Without `--profile`, the demo model is served with `demo`, and a\n\
    model given by `--model` with `generic`.\n\n\
    Every setting can be written in four places; a later one wins:\n\n\
    1. the defaults in the table below,\n\
    2. the profile file (and the built-in profile that it `extends`),\n\
    3. the environment: `PLATEAU_` and the key in capitals, the dot as an underscore,\n\
    4. the flag: `--` and the key with dashes.\n\n\
    `plateau profile show [NAME|FILE]` prints each value with the place that it comes from, `plateau profile check` only the\n\
    first thing that is wrong. An unknown key is an error, and so is an unknown variable that starts with `PLATEAU_` and the\n\
    name of a section; another one that looks like a setting is reported at start.\n\n\
    A profile file needs `name` and `description`; everything else is optional. `extends = \"agent\"` starts from a built-in\n\
    profile instead of the defaults:\n\n\
    ```toml\n\
    name = \"my-agent\"\n\
    description = \"agent with a longer context on a 32 GB card\"\n\
    extends = \"agent\"\n\n\
    [engine]\n\
    ctx_tokens = 262144\n\
    ```\n";

/// The whole page.
pub fn profiles_markdown() -> Result<String, ConfigError> {
    let mut page = String::from(HEAD);
    let base = resolve(&named(builtin::DEFAULT))?;
    page.push_str("\n## Built-in profiles\n\nThe reason for each value is beside it in `configs/NAME.toml`.\n");
    for name in builtin::names() {
        push_profile(&mut page, &resolve(&named(name))?);
    }
    page.push_str("\n## Settings\n");
    let mut section = "";
    for setting in SETTINGS {
        if setting.section() != section {
            section = setting.section();
            let _ = write!(page, "\n### {section}\n\n| key | default | accepts | |\n|---|---|---|---|\n");
        }
        push_setting(&mut page, setting, &base);
    }
    Ok(page)
}

fn named(name: &str) -> Layers {
    Layers { profile: Some(name.to_owned()), ..Layers::default() }
}

fn push_profile(page: &mut String, resolved: &Resolved) {
    let profile = &resolved.profile;
    let _ = write!(page, "\n### {}\n\n{}.\n\n", profile.name, capital(&profile.description));
    for (setting, value, origin) in resolved.rows() {
        if let Origin::File { file, .. } = origin {
            let _ = writeln!(page, "- `{} = {value}` ({file})", setting.key);
        }
    }
}

fn push_setting(page: &mut String, setting: &Setting, base: &Resolved) {
    let short: String = setting.short_flags.iter().map(|short| format!(" Also `--{short}`.")).collect();
    let _ = writeln!(
        page,
        "| `{}` | `{}` | {} | {}{short} |",
        setting.key,
        setting.show(&base.profile).replace('\n', "\\n"),
        setting.accepts(),
        setting.doc(),
    );
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}
