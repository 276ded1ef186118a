//! The disk tier's folder looked at without a server: list, verify, clear.
//!
//! A folder that a running server has open is left to it: the server is asked instead.

use std::fs;
use std::path::Path;

use super::super::key::Fingerprint;
use super::file;
use super::index::{self, Index, Record};

/// The states of one fingerprint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    pub fingerprint: Fingerprint,
    /// Parents before children.
    pub records: Vec<Record>,
    /// Why they cannot be listed.
    pub problem: Option<String>,
}

impl Listing {
    pub fn bytes(&self) -> u64 {
        self.records.iter().flat_map(Record::parts).map(|part| part.len as u64).sum()
    }
}

/// A file that is not what the index says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub file: String,
    pub problem: String,
}

/// What lies in `folder`, a subfolder for each fingerprint.
pub fn list(folder: &Path) -> std::io::Result<Vec<Listing>> {
    let mut all = Vec::new();
    for (fingerprint, path) in subfolders(folder)? {
        let opened = Index::open(&path).and_then(|index| index.records());
        all.push(match opened {
            Ok((records, _)) => Listing { fingerprint, records, problem: None },
            Err(error) => Listing { fingerprint, records: Vec::new(), problem: Some(error.to_string()) },
        });
    }
    Ok(all)
}

/// Reads every file that an index names, and compares its checksum. Returns how many were read and
/// those that are wrong.
pub fn verify(folder: &Path) -> std::io::Result<(usize, Vec<Fault>)> {
    let (mut n_read, mut faults) = (0, Vec::new());
    for listing in list(folder)? {
        let path = folder.join(listing.fingerprint.folder());
        if let Some(problem) = listing.problem {
            faults.push(Fault { file: path.join(index::FILE).display().to_string(), problem });
        }
        for part in listing.records.iter().flat_map(Record::parts) {
            n_read += 1;
            if let Err(error) = file::read(&path, listing.fingerprint, part.id, part.len) {
                let file = file::path(&path, part.id).display().to_string();
                faults.push(Fault { file, problem: error.to_string() });
            }
        }
    }
    Ok((n_read, faults))
}

/// Removes all states; files of others stay. Returns the files that were removed.
pub fn clear(folder: &Path) -> std::io::Result<usize> {
    let mut n_removed = 0;
    for (_, path) in subfolders(folder)? {
        // Whoever has the index open is using the files.
        drop(Index::open(&path).map_err(std::io::Error::other)?);
        for entry in fs::read_dir(&path)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if file::id_of(&name).is_some() || file::is_unfinished(&name) || name == index::FILE {
                fs::remove_file(entry.path())?;
                n_removed += 1;
            }
        }
        // A folder with a stranger's file in it stays.
        let _ = fs::remove_dir(&path);
    }
    Ok(n_removed)
}

fn subfolders(folder: &Path) -> std::io::Result<Vec<(Fingerprint, std::path::PathBuf)>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let number = u64::from_str_radix(&name, 16).ok().filter(|_| name.len() == 16);
        if let Some(number) = number.filter(|_| entry.path().is_dir()) {
            all.push((Fingerprint(number), entry.path()));
        }
    }
    all.sort();
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::super::index::PartEntry;
    use super::*;
    use crate::engine::request::breakpoint::BreakpointKind;

    #[test]
    fn a_folder_is_listed_verified_and_cleared_of_nothing_but_states() {
        let dir = tempfile::tempdir().unwrap();
        let mine = Fingerprint(0xab);
        let path = dir.path().join(mine.folder());
        fs::create_dir_all(&path).unwrap();
        fs::write(dir.path().join("notes"), b"mine").unwrap();
        let point = Some(PartEntry { id: 1, len: 5 });
        let record =
            Record { key: 2, parent: 0, kind: BreakpointKind::Turn, hits: 0, point, rows: None, edge: Vec::new() };
        file::write(&path, mine, 1, b"state").unwrap();
        Index::open(&path).unwrap().change(std::slice::from_ref(&record), &[]).unwrap();
        let listings = list(dir.path()).unwrap();
        assert_eq!((listings.len(), listings[0].bytes()), (1, 5));
        assert_eq!(listings[0].records, [record]);
        assert_eq!(verify(dir.path()).unwrap(), (1, vec![]));
        fs::write(file::path(&path, 1), b"not a state").unwrap();
        assert_eq!(verify(dir.path()).unwrap().1.len(), 1);
        assert_eq!(clear(dir.path()).unwrap(), 2);
        assert!(!path.exists() && dir.path().join("notes").exists());
    }
}
