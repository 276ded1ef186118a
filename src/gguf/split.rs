//! Models split over files (`NAME-00001-of-00003.gguf`): metadata from the first part, tensors from all.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::metadata::Keys;
use super::reader::{Gguf, GgufError};

const MAX_PARTS: u64 = 1024;

impl Gguf {
    /// Reads and checks the header of the model at `path`: of all its parts, where `path` is the first of several. A part
    /// that is missing or does not belong there is named.
    pub fn open(path: &Path) -> Result<Gguf, GgufError> {
        let mut gguf = Gguf::open_part(path)?;
        let keys = Keys::new(&gguf);
        let n_parts = keys.optional_integer("split.count", 0..=MAX_PARTS)?.unwrap_or(1);
        if n_parts <= 1 {
            return Ok(gguf);
        }
        if keys.integer("split.no", 0..=MAX_PARTS)? != 0 {
            let what = format!(
                "{} is not the first part; give the file that ends in -00001-of-{n_parts:05}.gguf",
                path.display()
            );
            return Err(GgufError::Metadata { key: "split.no".to_owned(), what });
        }
        let n_tensors = keys.integer("split.tensors.count", 0..=u64::from(u32::MAX))?;
        let mut names: HashSet<String> = gguf.tensors.iter().map(|tensor| tensor.name.clone()).collect();
        for part in 1..n_parts {
            let part_path = part_path(path, part, n_parts)?;
            let other = Gguf::open_part(&part_path)?;
            check_part(&other, &part_path, part)?;
            if let Some(twice) = other.tensors.iter().find(|tensor| !names.insert(tensor.name.clone())) {
                let what = format!("is in {} and in a part before it", part_path.display());
                return Err(GgufError::Tensor { name: twice.name.clone(), what });
            }
            gguf.file_bytes = gguf.file_bytes.saturating_add(other.file_bytes);
            gguf.tensors.extend(other.tensors);
        }
        if gguf.tensors.len() as u64 != n_tensors {
            let what = format!("says {n_tensors}, but the {n_parts} parts have {} tensors", gguf.tensors.len());
            return Err(GgufError::Metadata { key: "split.tensors.count".to_owned(), what });
        }
        Ok(gguf)
    }
}

/// The path of part `part` (from 0), beside the first one.
fn part_path(first: &Path, part: u64, n_parts: u64) -> Result<PathBuf, GgufError> {
    let ending = format!("-00001-of-{n_parts:05}.gguf");
    let name = first.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(&ending));
    match name {
        Some(name) => Ok(first.with_file_name(format!("{name}-{:05}-of-{n_parts:05}.gguf", part + 1))),
        None => Err(GgufError::Metadata {
            key: "split.count".to_owned(),
            what: format!("is {n_parts}, so the name of {} must end in {ending}", first.display()),
        }),
    }
}

fn check_part(part: &Gguf, path: &Path, expected: u64) -> Result<(), GgufError> {
    let found = Keys::new(part).integer("split.no", 0..=MAX_PARTS)?;
    if found == expected {
        return Ok(());
    }
    let what = format!("{} says it is part {found}, not {expected} (from 0)", path.display());
    Err(GgufError::Metadata { key: "split.no".to_owned(), what })
}
