//! What was written: one profile file, parsed to settings with their lines. Says nothing about other layers, and reads a
//! file only when asked for one by path.

use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::error::{ConfigError, Origin};
use super::settings::{SETTINGS, Setting};
use super::value::Value;

/// Largest profile file that is read, in bytes: a model given by mistake is refused without being read.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A parsed profile file.
#[derive(Debug)]
pub struct ProfileFile {
    /// How errors and `profile show` name it.
    pub label: String,
    pub name: String,
    pub description: String,
    /// A built-in profile whose values hold where this file is silent.
    pub extends: Option<String>,
    pub written: Vec<Written>,
}

/// One line of it.
pub struct Written {
    pub setting: &'static Setting,
    pub value: Value,
    pub line: usize,
}

impl std::fmt::Debug for Written {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} = {} at line {}", self.setting.key, self.value, self.line)
    }
}

impl ProfileFile {
    /// Reads and parses the file at `path`.
    pub fn read(path: &Path) -> Result<ProfileFile, ConfigError> {
        let label = path.display().to_string();
        let refuse = |message: String| ConfigError {
            key: label.clone(),
            origin: Origin::File { file: label.clone(), line: 1 },
            message,
            fix: "give the path of a profile file or the name of a built-in profile".to_owned(),
        };
        let bytes = std::fs::metadata(path).map_err(|e| refuse(format!("cannot be read: {e}")))?.len();
        if bytes > MAX_FILE_BYTES {
            return Err(refuse(format!("{bytes} bytes are too many for a profile")));
        }
        let text = std::fs::read_to_string(path).map_err(|e| refuse(format!("cannot be read: {e}")))?;
        ProfileFile::parse(&label, &text)
    }

    /// Parses the text of a file; `label` names it in errors.
    pub fn parse(label: &str, text: &str) -> Result<ProfileFile, ConfigError> {
        Parser { label, text }.file()
    }
}

struct Parser<'a> {
    label: &'a str,
    text: &'a str,
}

impl Parser<'_> {
    fn file(&self) -> Result<ProfileFile, ConfigError> {
        let root = DeTable::parse(self.text).map_err(|e| {
            let at = e.span().map_or(0, |span| span.start);
            self.error(self.label, at, e.message().to_owned(), "mend the TOML")
        })?;
        let mut file = ProfileFile {
            label: self.label.to_owned(),
            name: String::new(),
            description: String::new(),
            extends: None,
            written: Vec::new(),
        };
        for (key, value) in root.get_ref() {
            let at = key.span().start;
            match (key.get_ref().as_ref(), value.get_ref()) {
                ("name", DeValue::String(s)) => file.name = s.to_string(),
                ("description", DeValue::String(s)) => file.description = s.to_string(),
                ("extends", DeValue::String(s)) => file.extends = Some(s.to_string()),
                (name @ ("name" | "description" | "extends"), _) => {
                    return Err(self.error(name, at, "not a text".to_owned(), "put it in quotes"));
                }
                (section, DeValue::Table(table)) => self.section(section, at, table, &mut file.written)?,
                (other, _) => return Err(self.unknown(other, at)),
            }
        }
        for (key, text) in [("name", &file.name), ("description", &file.description)] {
            if text.trim().is_empty() {
                return Err(self.error(key, 0, "missing".to_owned(), "every profile says what it is"));
            }
        }
        Ok(file)
    }

    fn section(&self, name: &str, at: usize, table: &DeTable<'_>, out: &mut Vec<Written>) -> Result<(), ConfigError> {
        if !SETTINGS.iter().any(|setting| setting.is_of(name)) {
            return Err(self.unknown(name, at));
        }
        for (key, value) in table {
            let at = key.span().start;
            let path = format!("{name}.{}", key.get_ref());
            let setting = Setting::find(&path).ok_or_else(|| self.unknown(&path, at))?;
            let value = setting
                .read_toml(value.get_ref())
                .map_err(|message| self.error(&path, at, message, &format!("use {}", setting.accepts())))?;
            out.push(Written { setting, value, line: self.line(at) });
        }
        Ok(())
    }

    fn unknown(&self, key: &str, at: usize) -> ConfigError {
        let fix = match nearest(key) {
            Some(near) => format!("did you mean `{near}`? `plateau profile show` lists the keys"),
            None => "`plateau profile show` lists the keys".to_owned(),
        };
        self.error(key, at, "not a setting".to_owned(), &fix)
    }

    fn error(&self, key: &str, at: usize, message: String, fix: &str) -> ConfigError {
        let origin = Origin::File { file: self.label.to_owned(), line: self.line(at) };
        ConfigError { key: key.to_owned(), origin, message, fix: fix.to_owned() }
    }

    /// Line of a byte offset, from 1.
    fn line(&self, at: usize) -> usize {
        1 + self.text.as_bytes().iter().take(at).filter(|b| **b == b'\n').count()
    }
}

/// The setting whose name (with or without its section) is closest, if any is close: one slip in three letters at most.
pub fn nearest(key: &str) -> Option<&'static str> {
    let name = |key: &str| key.rsplit('.').next().unwrap_or(key).to_owned();
    SETTINGS
        .iter()
        .map(|setting| (distance(key, setting.key).min(distance(&name(key), &name(setting.key))), setting.key))
        .min()
        .filter(|(distance, _)| *distance <= 2 && distance * 3 <= name(key).len())
        .map(|(_, key)| key)
}

/// Levenshtein distance in bytes; keys are short.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edits() {
        assert_eq!(distance("ctx", "ctx"), 0);
        assert_eq!(distance("ctx", "cxt"), 2);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(nearest("engine.paralel"), Some("engine.parallel"));
        assert_eq!(nearest("paralell"), Some("engine.parallel"));
        assert_eq!(nearest("frobnicate"), None);
        assert_eq!(nearest("bin"), None, "short names are close to everything");
    }
}
