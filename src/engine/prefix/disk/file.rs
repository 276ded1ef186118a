//! One part of a saved state as a file: a header that says whose it is, then the bytes.
//!
//! Written under another name and renamed, so that a file under its own name is whole; what a lost
//! machine left behind is told apart by the checksum.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::super::key::{Fingerprint, checksum};

const MAGIC: [u8; 8] = *b"PLTPART1";
/// Magic, fingerprint, id, length, checksum of the bytes, checksum of the header before it.
const HEADER_BYTES: usize = 48;

/// Why a file is not what the index says.
#[derive(Debug, thiserror::Error)]
pub enum PartError {
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("has no valid header")]
    Header,
    #[error("belongs to another model or build")]
    Foreign,
    #[error("is another part, or has another length")]
    Other,
    #[error("is incomplete or altered: its checksum differs")]
    Checksum,
}

/// Where part `id` lies in `folder`.
pub fn path(folder: &Path, id: u64) -> PathBuf {
    folder.join(format!("{id:016x}.part"))
}

/// The id in a file name of `path`'s kind.
pub fn id_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".part").filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok()
}

/// Is it a name that `write` uses for a file in the making.
pub fn is_unfinished(name: &str) -> bool {
    name.strip_suffix(".tmp").is_some_and(|name| id_of(name).is_some())
}

/// Writes a part.
pub fn write(folder: &Path, fingerprint: Fingerprint, id: u64, bytes: &[u8]) -> io::Result<()> {
    let path = path(folder, id);
    let mut unfinished = path.clone().into_os_string();
    unfinished.push(".tmp");
    let written = put(Path::new(&unfinished), &header(fingerprint, id, bytes), bytes);
    let renamed = written.and_then(|()| fs::rename(&unfinished, &path));
    if renamed.is_err() {
        // Half a file is of no use to anybody; if it cannot be removed, the next start does.
        let _ = fs::remove_file(&unfinished);
    }
    renamed
}

fn put(path: &Path, header: &[u8], bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(header)?;
    file.write_all(bytes)
}

/// Reads part `id` of `len` bytes and checks it.
pub fn read(folder: &Path, fingerprint: Fingerprint, id: u64, len: usize) -> Result<Vec<u8>, PartError> {
    let mut file = File::open(path(folder, id))?;
    let on_disk = file.metadata()?.len();
    if on_disk != (HEADER_BYTES + len) as u64 {
        return Err(if on_disk < HEADER_BYTES as u64 { PartError::Header } else { PartError::Other });
    }
    let mut header = [0; HEADER_BYTES];
    file.read_exact(&mut header)?;
    let sum = check_header(&header, fingerprint, id, len)?;
    let mut bytes = Vec::with_capacity(len);
    file.read_to_end(&mut bytes)?;
    if bytes.len() != len || checksum(&bytes) != sum {
        return Err(PartError::Checksum);
    }
    Ok(bytes)
}

/// Has the file of part `id` the right length. Says nothing about its bytes.
pub fn is_there(folder: &Path, id: u64, len: usize) -> bool {
    fs::metadata(path(folder, id)).is_ok_and(|data| data.len() == (HEADER_BYTES + len) as u64)
}

fn header(fingerprint: Fingerprint, id: u64, bytes: &[u8]) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&MAGIC);
    let numbers = [fingerprint.0, id, bytes.len() as u64, checksum(bytes)];
    for (i, number) in numbers.into_iter().enumerate() {
        header[8 + 8 * i..16 + 8 * i].copy_from_slice(&number.to_le_bytes());
    }
    let sum = checksum(&header[..40]);
    header[40..].copy_from_slice(&sum.to_le_bytes());
    header
}

/// Returns the checksum of the bytes.
fn check_header(header: &[u8; HEADER_BYTES], fingerprint: Fingerprint, id: u64, len: usize) -> Result<u64, PartError> {
    let number = |at: usize| header[at..].first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    if header[..8] != MAGIC || number(40) != checksum(&header[..40]) {
        return Err(PartError::Header);
    }
    if number(8) != fingerprint.0 {
        return Err(PartError::Foreign);
    }
    if number(16) != id || number(24) != len as u64 {
        return Err(PartError::Other);
    }
    Ok(number(32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_reads_back_and_any_altered_byte_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let (mine, bytes) = (Fingerprint(7), b"a recurrent state".to_vec());
        write(dir.path(), mine, 3, &bytes).unwrap();
        assert_eq!(read(dir.path(), mine, 3, bytes.len()).unwrap(), bytes);
        assert!(is_there(dir.path(), 3, bytes.len()) && !is_there(dir.path(), 3, 1) && !is_there(dir.path(), 4, 1));
        let whole = fs::read(path(dir.path(), 3)).unwrap();
        for at in 0..whole.len() {
            let mut altered = whole.clone();
            altered[at] ^= 1;
            fs::write(path(dir.path(), 3), &altered).unwrap();
            assert!(read(dir.path(), mine, 3, bytes.len()).is_err(), "byte {at}");
            fs::write(path(dir.path(), 3), &whole[..at]).unwrap();
            assert!(read(dir.path(), mine, 3, bytes.len()).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_part_of_another_model_or_another_place_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), Fingerprint(7), 3, b"state").unwrap();
        assert!(matches!(read(dir.path(), Fingerprint(8), 3, 5), Err(PartError::Foreign)));
        fs::rename(path(dir.path(), 3), path(dir.path(), 4)).unwrap();
        assert!(matches!(read(dir.path(), Fingerprint(7), 4, 5), Err(PartError::Other)));
        assert!(matches!(read(dir.path(), Fingerprint(7), 3, 5), Err(PartError::Io(_))));
    }

    #[test]
    fn names_of_parts_are_known_from_others() {
        assert_eq!(id_of("00000000000000ff.part"), Some(255));
        assert_eq!(id_of("ff.part"), None);
        assert!(is_unfinished("00000000000000ff.part.tmp") && !is_unfinished("notes.tmp"));
    }
}
