//! The results on disk: what is written is done, also when the process is killed a moment later.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::CheckError;
use super::options::Options;
use super::problem::Problem;
use super::record::Record;

/// What all results of a journal have in common: the first line of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    pub model: String,
    pub dialect: String,
    pub budget_tokens: Option<u32>,
    pub max_tokens: u32,
    pub temperature: f64,
    /// Of the problems' texts. A longer list that begins the same has another one.
    pub problems_hash: String,
}

impl Settings {
    pub(super) fn of(options: &Options, model: &str, problems: &[Problem]) -> Settings {
        let texts = problems.iter().flat_map(|p| [&p.task_id, &p.prompt, &p.entry_point, &p.test]);
        Settings {
            model: model.to_owned(),
            dialect: options.dialect.name().to_owned(),
            budget_tokens: options.budget_tokens,
            max_tokens: options.max_tokens,
            temperature: options.temperature,
            problems_hash: format!("{:016x}", fnv(texts.flat_map(|text| text.bytes().chain([0])))),
        }
    }

    /// The names of what is not the same.
    fn differences(&self, other: &Settings) -> Vec<&'static str> {
        let pairs = [
            (self.model == other.model, "model"),
            (self.dialect == other.dialect, "grammar-as"),
            (self.budget_tokens == other.budget_tokens, "budget-tokens"),
            (self.max_tokens == other.max_tokens, "max-tokens"),
            (self.temperature.to_bits() == other.temperature.to_bits(), "temperature"),
            (self.problems_hash == other.problems_hash, "problems or limit"),
        ];
        pairs.into_iter().filter(|(is_same, _)| !is_same).map(|(_, name)| name).collect()
    }
}

/// FNV-1a with 64 bits: told apart must be what a person confuses, not what an attacker makes.
fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}

pub(super) struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Opens or begins the file, and reads what is done. A line that was not written to its end is cut off.
    pub(super) fn open(path: &Path, settings: &Settings) -> Result<(Journal, Vec<Record>), CheckError> {
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = opened.map_err(CheckError::write(path))?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(CheckError::read(path))?;
        let whole = text.rfind('\n').map_or(0, |at| at + 1);
        file.set_len(whole as u64).map_err(CheckError::write(path))?;
        file.seek(SeekFrom::End(0)).map_err(CheckError::write(path))?;
        let mut journal = Journal { path: path.to_owned(), file };
        let mut lines = text[..whole].lines().enumerate();
        let Some((_, first)) = lines.next() else {
            journal.write(settings)?;
            return Ok((journal, Vec::new()));
        };
        let wrong = |at: usize, error: serde_json::Error| {
            CheckError::malformed(path, format!("line {}: {error}; name another file for the results", at + 1))
        };
        let known: Settings = serde_json::from_str(first).map_err(|error| wrong(0, error))?;
        let differences = known.differences(settings);
        if !differences.is_empty() {
            let message = format!(
                "holds results of other settings ({}); use the same settings or another file",
                differences.join(", ")
            );
            return Err(CheckError::malformed(path, message));
        }
        let records: Result<Vec<Record>, CheckError> =
            lines.map(|(at, line)| serde_json::from_str(line).map_err(|error| wrong(at, error))).collect();
        Ok((journal, records?))
    }

    pub(super) fn add(&mut self, record: &Record) -> Result<(), CheckError> {
        self.write(record)
    }

    /// One line, in one write.
    fn write(&mut self, value: &impl Serialize) -> Result<(), CheckError> {
        let mut line =
            serde_json::to_vec(value).map_err(|error| CheckError::malformed(&self.path, error.to_string()))?;
        line.push(b'\n');
        self.file.write_all(&line).map_err(CheckError::write(&self.path))
    }
}
