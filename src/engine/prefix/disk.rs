//! The disk tier: parts as files in the folder of their fingerprint, an index beside them, one
//! thread that does all I/O.
//!
//! The engine hands over work and looks at what is done; it never waits here while anything
//! generates. What fails is logged and told; nothing here decides what is worth keeping (`store`).

pub mod file;
pub mod index;
pub mod offline;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use index::{Index, Record};

use super::key::Fingerprint;
use crate::engine::runner::state_bytes::StateBytes;

/// A part to be written.
pub(super) struct Write {
    pub id: u64,
    pub bytes: Arc<StateBytes>,
}

/// Work for the thread, done in order.
pub(super) enum Job {
    /// Parts, then the records of nodes that have them.
    Write {
        parts: Vec<Write>,
        records: Vec<Record>,
    },
    /// Records, then their parts.
    Remove {
        keys: Vec<u64>,
        parts: Vec<u64>,
    },
    Read {
        id: u64,
        len: usize,
    },
}

/// Work that is done.
pub(super) enum Done {
    /// The parts are on disk, or (`false`) none of them counts as being there.
    Written { parts: Vec<u64>, ok: bool },
    /// The bytes, or `None` for a part that is gone.
    Read { id: u64, bytes: Option<Arc<StateBytes>> },
}

/// The way to the thread. Dropping it lets the thread finish what was handed over and waits for it.
pub(super) struct Disk {
    jobs: Option<Sender<Job>>,
    done: Receiver<Done>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // A panic is in the log already.
            let _ = thread.join();
        }
    }
}

impl Disk {
    /// Opens the folder of `fingerprint` in `folder` and starts the thread. Returns what the index
    /// knows whose parts are there.
    ///
    /// # Errors
    /// The reason, for the log: the server goes on without this tier.
    pub fn open(folder: &Path, fingerprint: Fingerprint) -> Result<(Disk, Vec<Record>), String> {
        let folder = folder.join(fingerprint.folder());
        let published = |error: &dyn std::fmt::Display| format!("{}: {error}", folder.display());
        fs::create_dir_all(&folder).map_err(|error| published(&error))?;
        let index = Index::open(&folder).map_err(|error| published(&error))?;
        let records = sound_records(&index, &folder).map_err(|error| published(&error))?;
        sweep(&folder, &records).map_err(|error| published(&error))?;
        // Without a bound of their own: parts that wait are bounded in bytes (`store::persist`),
        // all else is a few words.
        let (jobs, inbox) = channel();
        let (outbox, done) = channel();
        let worker = Worker { folder: folder.clone(), fingerprint, index, outbox };
        let thread = std::thread::Builder::new().name("cache-disk".to_owned()).spawn(move || worker.run(&inbox));
        let thread = thread.map_err(|error| published(&error))?;
        Ok((Disk { jobs: Some(jobs), done, thread: Some(thread) }, records))
    }

    pub fn send(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            // A dead thread has said why; its parts count as never written.
            let _ = jobs.send(job);
        }
    }

    /// What was done since the last call.
    pub fn poll(&self) -> Option<Done> {
        self.done.try_recv().ok()
    }

    /// Waits for something done. For when the engine has nothing else to do. `Err`: the thread is
    /// dead.
    pub fn wait(&self, time: Duration) -> Result<Option<Done>, ()> {
        match self.done.recv_timeout(time) {
            Ok(done) => Ok(Some(done)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(()),
        }
    }
}

/// Records whose parts are all there; the others leave the index.
fn sound_records(index: &Index, folder: &Path) -> Result<Vec<Record>, index::IndexError> {
    let (records, mut unsound) = index.records()?;
    let (sound, incomplete): (Vec<Record>, Vec<Record>) =
        records.into_iter().partition(|record| record.parts().all(|part| file::is_there(folder, part.id, part.len)));
    unsound.extend(incomplete.iter().map(|record| record.key));
    if !unsound.is_empty() {
        tracing::warn!(
            folder = %folder.display(),
            n = unsound.len(),
            "saved states whose files are missing or incomplete were dropped"
        );
        index.change(&[], &unsound)?;
    }
    Ok(sound)
}

/// Removes files that no record knows: what a killed process left. Files of others stay, with a
/// word about them.
fn sweep(folder: &Path, records: &[Record]) -> std::io::Result<()> {
    let known: std::collections::HashSet<u64> = records.iter().flat_map(Record::parts).map(|part| part.id).collect();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let orphan = file::id_of(&name).is_some_and(|id| !known.contains(&id)) || file::is_unfinished(&name);
        if orphan {
            tracing::info!(file = %entry.path().display(), "removing a file that an unfinished write left");
            fs::remove_file(entry.path())?;
        } else if file::id_of(&name).is_none() && name != index::FILE {
            tracing::warn!(file = %entry.path().display(), "a foreign file in the folder of the prefix cache is left alone");
        }
    }
    Ok(())
}

/// Takes the reads that come next, and returns the job after them.
fn more_reads(inbox: &Receiver<Job>, reads: &mut Vec<(u64, usize)>) -> Option<Job> {
    loop {
        match inbox.try_recv() {
            Ok(Job::Read { id, len }) => reads.push((id, len)),
            other => return other.ok(),
        }
    }
}

/// Files that are read at once.
const N_READERS: usize = 4;

struct Worker {
    folder: PathBuf,
    fingerprint: Fingerprint,
    index: Index,
    outbox: Sender<Done>,
}

impl Worker {
    fn run(self, inbox: &Receiver<Job>) {
        let mut next = inbox.recv().ok();
        while let Some(job) = next.take() {
            match job {
                Job::Write { parts, records } => {
                    let ok = self.write(&parts, &records);
                    self.tell(Done::Written { parts: parts.iter().map(|part| part.id).collect(), ok });
                }
                Job::Remove { keys, parts } => self.remove(&keys, &parts),
                Job::Read { id, len } => {
                    let mut reads = vec![(id, len)];
                    next = more_reads(inbox, &mut reads);
                    self.read_all(&reads);
                }
            }
            next = next.or_else(|| inbox.recv().ok());
        }
    }

    /// A long prompt is dozens of files: some at a time, since one reader leaves a fast disk idle.
    fn read_all(&self, reads: &[(u64, usize)]) {
        let at = AtomicUsize::new(0);
        let work = || {
            while let Some((id, len)) = reads.get(at.fetch_add(1, Ordering::Relaxed)) {
                let bytes = self.read(*id, *len);
                self.tell(Done::Read { id: *id, bytes });
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..reads.len().min(N_READERS) {
                // Without another thread this one does it all.
                let _ = std::thread::Builder::new().name("cache-read".to_owned()).spawn_scoped(scope, work);
            }
            work();
        });
    }

    fn tell(&self, done: Done) {
        // The engine is gone: nobody needs to know.
        let _ = self.outbox.send(done);
    }

    fn write(&self, parts: &[Write], records: &[Record]) -> bool {
        let write = |part: &Write| file::write(&self.folder, self.fingerprint, part.id, &part.bytes);
        let written = parts.iter().try_for_each(write).map_err(|error| error.to_string());
        let indexed = written.and_then(|()| self.index.change(records, &[]).map_err(|error| error.to_string()));
        if let Err(error) = &indexed {
            tracing::warn!(folder = %self.folder.display(), error, "a state could not be saved to disk");
            self.remove(&[], &parts.iter().map(|part| part.id).collect::<Vec<_>>());
        }
        indexed.is_ok()
    }

    fn remove(&self, keys: &[u64], parts: &[u64]) {
        let unindexed = if keys.is_empty() { Ok(()) } else { self.index.change(&[], keys) };
        if let Err(error) = unindexed {
            tracing::warn!(folder = %self.folder.display(), %error, "states could not be removed from disk");
            return;
        }
        for id in parts {
            match fs::remove_file(file::path(&self.folder, *id)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    tracing::warn!(folder = %self.folder.display(), %error, "a saved state could not be removed");
                }
                _ => {}
            }
        }
    }

    fn read(&self, id: u64, len: usize) -> Option<Arc<StateBytes>> {
        match file::read(&self.folder, self.fingerprint, id, len) {
            Ok(bytes) => Some(Arc::new(bytes.into())),
            Err(error) => {
                let file = file::path(&self.folder, id);
                tracing::warn!(file = %file.display(), "a saved state was dropped: the file {error}");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::index::PartEntry;
    use super::*;
    use crate::engine::request::breakpoint::BreakpointKind;

    fn record(key: u64) -> Record {
        let point = Some(PartEntry { id: key, len: 5 });
        Record { key, parent: 0, kind: BreakpointKind::Grid, hits: 0, point, rows: None, edge: Vec::new() }
    }

    fn write(disk: &Disk, key: u64) {
        let parts = vec![Write { id: key, bytes: Arc::new(b"state".to_vec().into()) }];
        disk.send(Job::Write { parts, records: vec![record(key)] });
    }

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn what_was_written_is_there_after_a_restart_and_orphans_and_incomplete_files_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let mine = Fingerprint(9);
        let folder = dir.path().join(mine.folder());
        let (disk, records) = Disk::open(dir.path(), mine).unwrap();
        assert!(records.is_empty());
        (1..=4).for_each(|key| write(&disk, key));
        disk.send(Job::Remove { keys: vec![4], parts: vec![4] });
        drop(disk);
        // A write that was killed, a file cut short, one gone, a stranger's.
        fs::write(folder.join("00000000000000aa.part"), b"half").unwrap();
        fs::write(folder.join("00000000000000ab.part.tmp"), b"half").unwrap();
        fs::write(folder.join("notes.txt"), b"mine").unwrap();
        fs::write(file::path(&folder, 2), b"short").unwrap();
        fs::remove_file(file::path(&folder, 3)).unwrap();
        let (disk, records) = Disk::open(dir.path(), mine).unwrap();
        assert_eq!(records, [record(1)]);
        drop(disk);
        let mut names: Vec<String> =
            fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names, ["0000000000000001.part", "index.redb", "notes.txt"]);
    }

    #[test]
    fn many_parts_are_read_whatever_is_asked_for_in_between() {
        let dir = tempfile::tempdir().unwrap();
        let (disk, _) = Disk::open(dir.path(), Fingerprint(9)).unwrap();
        (1..=20).for_each(|key| write(&disk, key));
        for id in 1..=20 {
            disk.send(Job::Read { id, len: 5 });
            if id == 7 {
                disk.send(Job::Remove { keys: vec![12], parts: vec![12] });
            }
        }
        let mut read = Vec::new();
        while read.len() < 20 {
            if let Ok(Some(Done::Read { id, bytes })) = disk.wait(LONG) {
                read.push((id, bytes.map(|bytes| bytes.to_vec())));
            }
        }
        read.sort();
        let expected = (1..=20).map(|id| (id, (id != 12).then(|| b"state".to_vec())));
        assert_eq!(read, expected.collect::<Vec<_>>());
    }

    #[test]
    fn altered_bytes_are_never_handed_out() {
        let dir = tempfile::tempdir().unwrap();
        let mine = Fingerprint(9);
        let (disk, _) = Disk::open(dir.path(), mine).unwrap();
        write(&disk, 1);
        assert!(matches!(disk.wait(LONG), Ok(Some(Done::Written { ok: true, .. }))));
        let path = file::path(&dir.path().join(mine.folder()), 1);
        let mut bytes = fs::read(&path).unwrap();
        if let Some(last) = bytes.last_mut() {
            *last ^= 1;
        }
        fs::write(&path, bytes).unwrap();
        disk.send(Job::Read { id: 1, len: 5 });
        assert!(matches!(disk.wait(LONG), Ok(Some(Done::Read { id: 1, bytes: None }))));
    }

    #[test]
    fn a_folder_that_cannot_be_used_is_a_reason_and_no_panic() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), b"").unwrap();
        assert!(Disk::open(&dir.path().join("file"), Fingerprint(1)).is_err());
        let (_one, _) = Disk::open(dir.path(), Fingerprint(1)).unwrap();
        assert!(Disk::open(dir.path(), Fingerprint(1)).is_err(), "another process has it");
    }
}
