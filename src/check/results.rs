//! Where a run is kept: a folder with `run.json` and the files of the command. Each is whole at any moment.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::verdict::Report;

/// Why a check cannot begin or go on, each kind with an exit code of its own.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RunError {
    #[error("{0}")]
    Usage(String),
    /// The server cannot be reached, or a file cannot be read or written.
    #[error("{0}")]
    Unavailable(String),
    #[error("{0}")]
    Internal(String),
}

/// The folder of a run.
#[derive(Clone, Debug)]
pub struct Results {
    dir: PathBuf,
}

impl Results {
    /// Makes the folder, or takes one whose run had the same command and settings.
    ///
    /// # Errors
    /// A folder of another run, or one that cannot be made.
    pub fn open(dir: Option<&Path>, report: &Report) -> Result<Results, RunError> {
        let dir = match dir {
            Some(dir) => dir.to_path_buf(),
            None => new_folder(report)?,
        };
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&dir);
        made.map_err(|error| unwritten(&dir, &error))?;
        let results = Results { dir };
        let path = results.path("run.json");
        if let Ok(text) = std::fs::read_to_string(&path) {
            let known: Value = serde_json::from_str(&text)
                .map_err(|error| RunError::Usage(format!("{} is no report: {error}", path.display())))?;
            let differs = |key: &&str| known["settings"].get(*key) != report.settings.get(*key);
            let keys = [&known["settings"], &report.settings].map(|map| map.as_object().cloned().unwrap_or_default());
            let mut names: Vec<&str> = keys.iter().flat_map(|map| map.keys().map(String::as_str)).collect();
            names.sort_unstable();
            names.dedup();
            names.retain(differs);
            if known["command"] != report.command {
                names.insert(0, "command");
            }
            if !names.is_empty() {
                let (dir, names) = (results.dir.display(), names.join(", "));
                let message = format!("{dir} holds a run of other settings ({names}); name another folder");
                return Err(RunError::Usage(message));
            }
        }
        Ok(results)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// # Errors
    /// A file that cannot be written.
    pub fn write_report(&self, report: &Report) -> Result<(), RunError> {
        write_json(&self.path("run.json"), report)
    }

    /// Begins a file anew.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<(), RunError> {
        write_whole(&self.path(name), text)
    }

    /// Adds a line in one write.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn append(&self, name: &str, line: &str) -> Result<(), RunError> {
        append(&self.path(name), line)
    }

    /// The lines of a file of JSON lines that were written to their end.
    pub fn lines(&self, name: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path(name)).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |at| &text[..at]);
        whole.lines().map_while(|line| serde_json::from_str(line).ok()).collect()
    }
}

/// Adds a line to a file, which is made where it is missing.
///
/// # Errors
/// A file that cannot be written.
pub fn append(path: &Path, line: &str) -> Result<(), RunError> {
    let opened = OpenOptions::new().append(true).create(true).open(path);
    let written = opened.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    written.map_err(|error| unwritten(path, &error))
}

/// Writes a file so that a reader sees the old one or the new one, and nothing between.
///
/// # Errors
/// A file that cannot be written.
pub fn write_whole(path: &Path, text: &str) -> Result<(), RunError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    let part = path.with_file_name(name);
    let written = std::fs::write(&part, text).and_then(|()| std::fs::rename(&part, path));
    written.map_err(|error| unwritten(path, &error))
}

/// # Errors
/// A file that cannot be written.
pub fn write_json(path: &Path, report: &Report) -> Result<(), RunError> {
    let text = serde_json::to_string_pretty(report).map_err(|error| RunError::Internal(error.to_string()))?;
    write_whole(path, &(text + "\n"))
}

/// A folder that nobody else has, named after the time and the command: runs may begin in the same second.
fn new_folder(report: &Report) -> Result<PathBuf, RunError> {
    let root = Path::new("plateau-results");
    let made = DirBuilder::new().recursive(true).mode(0o700).create(root);
    made.map_err(|error| unwritten(root, &error))?;
    let name = format!("{}-{}", chrono::Utc::now().format("%Y%m%dT%H%M%SZ"), report.command.replace(' ', "-"));
    let names = std::iter::once(name.clone()).chain((2..).map(|n| format!("{name}-{n}")));
    for dir in names.map(|name| root.join(name)) {
        match DirBuilder::new().mode(0o700).create(&dir) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(unwritten(&dir, &error)),
            Ok(()) => return Ok(dir),
        }
    }
    Err(RunError::Internal("no name for a folder is free".to_owned()))
}

fn unwritten(path: &Path, error: &std::io::Error) -> RunError {
    RunError::Unavailable(format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_folder_takes_the_same_run_again_and_no_other() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("a/b");
        let report = Report::new("full", json!({"seed": 1, "url": "x"}));
        let results = Results::open(Some(&dir), &report).unwrap();
        assert_eq!(std::fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
        results.write_report(&report).unwrap();
        assert!(Results::open(Some(&dir), &report).is_ok());
        let other = Report::new("full", json!({"seed": 2, "url": "x", "more": 1}));
        let error = Results::open(Some(&dir), &other).unwrap_err();
        assert!(matches!(&error, RunError::Usage(text) if text.contains("(more, seed)")), "{error}");
        let error = Results::open(Some(&dir), &Report::new("soak", report.settings.clone())).unwrap_err();
        assert!(error.to_string().contains("(command)"), "{error}");
        assert!(!dir.join("run.json.part").exists());
    }

    #[test]
    fn a_line_that_was_not_written_to_its_end_is_none() {
        let root = tempfile::tempdir().unwrap();
        let results = Results::open(Some(root.path()), &Report::new("x", json!({}))).unwrap();
        results.append("a.jsonl", "{\"n\":1}").unwrap();
        results.append("a.jsonl", "{\"n\":2}").unwrap();
        let mut text = std::fs::read_to_string(results.path("a.jsonl")).unwrap();
        text.push_str("{\"n\":3");
        results.write("a.jsonl", &text).unwrap();
        assert_eq!(results.lines("a.jsonl"), [json!({"n": 1}), json!({"n": 2})]);
    }
}
