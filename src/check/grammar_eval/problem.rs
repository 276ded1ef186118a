//! Code problems, one JSON object a line, in the form of HumanEval.

use std::collections::HashSet;
use std::path::Path;

use serde::Deserialize;

use super::error::CheckError;

/// A Python function to complete. Other members of the object are left alone.
#[derive(Clone, Debug, Deserialize)]
pub struct Problem {
    pub task_id: String,
    /// Imports, the head of the function and its description.
    pub prompt: String,
    /// The name of the function.
    pub entry_point: String,
    /// Defines `check(candidate)`, which raises an error for a wrong function.
    pub test: String,
    /// The body of a right function.
    #[serde(default)]
    pub canonical_solution: Option<String>,
}

/// The first `limit` problems of the file.
pub(super) fn read(path: &Path, limit: Option<usize>) -> Result<Vec<Problem>, CheckError> {
    let bytes = std::fs::read(path).map_err(CheckError::read(path))?;
    if bytes.starts_with(&[0x1F, 0x8B]) {
        return Err(CheckError::malformed(path, "compressed; unpack it with gunzip first"));
    }
    let text = String::from_utf8(bytes).map_err(|_| CheckError::malformed(path, "not UTF-8 text"))?;
    let mut problems: Vec<Problem> = Vec::new();
    let mut seen = HashSet::new();
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    for (index, line) in lines.take(limit.unwrap_or(usize::MAX)) {
        let at = index + 1;
        let problem: Problem =
            serde_json::from_str(line).map_err(|error| CheckError::malformed(path, format!("line {at}: {error}")))?;
        if !seen.insert(problem.task_id.clone()) {
            let message = format!("line {at}: task_id {:?} is there twice", problem.task_id);
            return Err(CheckError::malformed(path, message));
        }
        problems.push(problem);
    }
    if problems.is_empty() {
        return Err(CheckError::malformed(path, "no problem in it"));
    }
    Ok(problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &[u8], limit: Option<usize>) -> Result<Vec<Problem>, CheckError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("problems.jsonl");
        std::fs::write(&path, text).unwrap();
        read(&path, limit)
    }

    const LINE: &str =
        r#"{"task_id":"a/0","prompt":"def f():\n","entry_point":"f","test":"def check(c): pass","more":1}"#;

    #[test]
    fn a_line_is_a_problem_and_a_fault_names_its_line() {
        let other = LINE.replace("a/0", "a/1");
        assert_eq!(read_text(format!("{LINE}\n\n{other}\n").as_bytes(), None).unwrap().len(), 2);
        assert_eq!(read_text(format!("{LINE}\n{other}\n").as_bytes(), Some(1)).unwrap().len(), 1);
        for (text, message) in [
            (format!("{LINE}\n{LINE}").into_bytes(), "line 2: task_id \"a/0\" is there twice"),
            (format!("{LINE}\n{{}}").into_bytes(), "line 2: missing field"),
            (b"\n".to_vec(), "no problem in it"),
            (vec![0x1F, 0x8B, 8], "gunzip"),
            (vec![0xFF], "not UTF-8"),
        ] {
            let error = read_text(&text, None).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
