//! The process environment. The only place that reads it; everything else is handed what it needs.

use std::ffi::OsString;

/// Every variable of ours starts with this.
pub const PREFIX: &str = "PLATEAU_";

/// Chooses the profile, as `--profile` does.
pub const PROFILE: &str = "PLATEAU_PROFILE";

/// The level of the log, as `--log` does.
pub const LOG: &str = "PLATEAU_LOG";

/// `true` writes the log as JSON, as `--log-json` does.
pub const LOG_JSON: &str = "PLATEAU_LOG_JSON";

/// Another name of PLATEAU_MODEL_KERNELS: the plug-in reads it by this name in hosts that are not plateau.
pub const KERNELS: &str = "PLATEAU_KERNELS";

/// A variable of ours with its value.
pub type Variable = (String, String);

/// The variables that start with `PREFIX`, in alphabetical order. Bytes that are not UTF-8 become U+FFFD, which no range
/// accepts and no file name matches, so that the error names the variable.
pub fn variables() -> Vec<Variable> {
    ours(std::env::vars_os())
}

fn ours(all: impl Iterator<Item = (OsString, OsString)>) -> Vec<Variable> {
    let mut found: Vec<Variable> = all
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .filter(|(name, _)| name.starts_with(PREFIX))
        .collect();
    found.sort();
    found
}

/// The value of one of them.
pub fn value<'a>(variables: &'a [Variable], name: &str) -> Option<&'a str> {
    variables.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
}

/// Has the user asked for text without colours (<https://no-color.org>).
pub fn no_color() -> bool {
    std::env::vars_os().any(|(name, value)| name == "NO_COLOR" && !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_others_are_left_alone() {
        let all = [("PLATEAU_B", "2"), ("PATH", "/bin"), ("PLATEAU_A", "1"), ("XPLATEAU_C", "3")];
        let found = ours(all.iter().map(|(n, v)| (OsString::from(n), OsString::from(v))));
        assert_eq!(found, [("PLATEAU_A".to_owned(), "1".to_owned()), ("PLATEAU_B".to_owned(), "2".to_owned())]);
        assert_eq!(value(&found, "PLATEAU_B"), Some("2"));
        assert_eq!(value(&found, "PATH"), None);
    }
}
