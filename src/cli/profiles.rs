//! `plateau profile list | show | check`.

use std::fmt::Write as _;

use crate::app::Failure;
use crate::config::resolve::Layers;
use crate::config::{Resolved, builtin, env, resolve};

use super::flags::SettingFlags;

/// One line a built-in profile.
pub fn list() -> Result<String, Failure> {
    let mut out = String::new();
    for name in builtin::names() {
        let layers = Layers { profile: Some(name.to_owned()), ..Layers::default() };
        let profile = resolve(&layers)?.profile;
        let _ = writeln!(out, "{name:<18}{}", profile.description);
    }
    Ok(out)
}

/// Every value with its origin, in the form of a profile file.
pub fn show(flags: &SettingFlags, env: &[env::Variable]) -> Result<String, Failure> {
    let resolved = flags.resolve(env)?;
    let mut out = String::new();
    let _ = writeln!(out, "name = {:?}\ndescription = {:?}", resolved.profile.name, resolved.profile.description);
    let mut section = "";
    for (setting, value, origin) in resolved.rows() {
        if setting.section() != section {
            section = setting.section();
            let _ = writeln!(out, "\n[{section}]");
        }
        let name = &setting.key[section.len() + 1..];
        let shown = if setting.key == "server.api_key" && value != "\"none\"" { "\"...\"" } else { &value };
        let _ = writeln!(out, "{:<44} # {origin}", format!("{name} = {shown}"));
    }
    Ok(out)
}

/// Says that the profile is valid, or what is wrong with it.
pub fn check(flags: &SettingFlags, env: &[env::Variable]) -> Result<String, Failure> {
    let resolved: Resolved = flags.resolve(env)?;
    Ok(format!("{}: valid\n", resolved.profile.name))
}
