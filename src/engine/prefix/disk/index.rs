//! The index of a folder of parts: which node of the tree each belongs to, in one redb file.
//!
//! A record is written after its parts and removed before them, so whatever moment a process dies
//! at, a record has its parts; parts without a record are swept at the next start.

use std::path::Path;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use super::super::key::{decode_items, encode_items};
use crate::engine::request::breakpoint::BreakpointKind;
use crate::engine::request::item::PromptItem;

const NODES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("nodes-1");

/// Pages that redb keeps: records are small and read once.
const CACHE_BYTES: usize = 8 << 20;

/// Its name in the folder.
pub const FILE: &str = "index.redb";

const KINDS: [BreakpointKind; 9] = [
    BreakpointKind::System,
    BreakpointKind::Message,
    BreakpointKind::Turn,
    BreakpointKind::Thinking,
    BreakpointKind::ThinkingEnd,
    BreakpointKind::PromptEnd,
    BreakpointKind::AnswerEnd,
    BreakpointKind::Grid,
    BreakpointKind::Image,
];

/// A part as the index knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartEntry {
    pub id: u64,
    pub len: usize,
}

/// A node as the index knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub key: u64,
    /// 0: the root.
    pub parent: u64,
    pub kind: BreakpointKind,
    pub hits: u32,
    pub point: Option<PartEntry>,
    /// With the position that they begin at.
    pub rows: Option<(u32, PartEntry)>,
    pub edge: Vec<PromptItem>,
}

impl Record {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + 5 * self.edge.len());
        let kind = KINDS.iter().position(|kind| *kind == self.kind).unwrap_or(0);
        out.push(kind as u8);
        out.extend_from_slice(&self.parent.to_le_bytes());
        out.extend_from_slice(&self.hits.to_le_bytes());
        for (start, part) in [self.point.map(|part| (0, part)), self.rows].map(Option::unzip) {
            out.push(u8::from(part.is_some()));
            out.extend_from_slice(&start.unwrap_or(0).to_le_bytes());
            let part = part.unwrap_or(PartEntry { id: 0, len: 0 });
            out.extend_from_slice(&part.id.to_le_bytes());
            out.extend_from_slice(&(part.len as u64).to_le_bytes());
        }
        encode_items(&self.edge, &mut out);
        out
    }

    fn decode(key: u64, bytes: &[u8]) -> Option<Record> {
        let (kind, bytes) = bytes.split_first()?;
        let (parent, bytes) = bytes.split_first_chunk::<8>()?;
        let (hits, mut bytes) = bytes.split_first_chunk::<4>()?;
        let mut parts = [None; 2];
        for part in &mut parts {
            let (there, rest) = bytes.split_first()?;
            let (start, rest) = rest.split_first_chunk::<4>()?;
            let (id, rest) = rest.split_first_chunk::<8>()?;
            let (len, rest) = rest.split_first_chunk::<8>()?;
            let len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
            let entry = (u32::from_le_bytes(*start), PartEntry { id: u64::from_le_bytes(*id), len });
            *part = (*there == 1).then_some(entry);
            bytes = rest;
        }
        Some(Record {
            key,
            parent: u64::from_le_bytes(*parent),
            kind: *KINDS.get(usize::from(*kind))?,
            hits: u32::from_le_bytes(*hits),
            point: parts[0].map(|(_, part)| part),
            rows: parts[1],
            edge: decode_items(bytes)?,
        })
    }

    /// Its parts.
    pub fn parts(&self) -> impl Iterator<Item = PartEntry> {
        self.point.into_iter().chain(self.rows.map(|(_, part)| part))
    }
}

/// An open index: one process has it at a time.
pub struct Index {
    db: Database,
}

/// The index cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the index {0}")]
pub struct IndexError(String);

fn failed(error: impl std::fmt::Display) -> IndexError {
    IndexError(format!("failed: {error}"))
}

impl Index {
    /// Opens the index of `folder`, or makes one. One that is no index is replaced: it would be in
    /// the way for ever.
    pub fn open(folder: &Path) -> Result<Index, IndexError> {
        let path = folder.join(FILE);
        let open = || Database::builder().set_cache_size(CACHE_BYTES).create(&path);
        let db = match open() {
            Err(redb::DatabaseError::Storage(redb::StorageError::Corrupted(reason))) => {
                tracing::warn!(path = %path.display(), reason, "the index of the prefix cache is incomplete and begins anew");
                std::fs::remove_file(&path).map_err(failed)?;
                open().map_err(failed)?
            }
            Err(redb::DatabaseError::Storage(redb::StorageError::Io(error)))
                if error.kind() == std::io::ErrorKind::InvalidData =>
            {
                tracing::warn!(path = %path.display(), %error, "the index of the prefix cache is no index and begins anew");
                std::fs::remove_file(&path).map_err(failed)?;
                open().map_err(failed)?
            }
            opened => opened.map_err(failed)?,
        };
        Ok(Index { db })
    }

    /// All records that can be read, parents before children; the keys of the others.
    pub fn records(&self) -> Result<(Vec<Record>, Vec<u64>), IndexError> {
        let read = self.db.begin_read().map_err(failed)?;
        let table = match read.open_table(NODES) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok((Vec::new(), Vec::new())),
            Err(error) => return Err(failed(error)),
        };
        let (mut records, mut unreadable) = (Vec::new(), Vec::new());
        for row in table.iter().map_err(failed)? {
            let (key, value) = row.map_err(failed)?;
            match Record::decode(key.value(), value.value()) {
                Some(record) => records.push(record),
                None => unreadable.push(key.value()),
            }
        }
        Ok((parents_first(records), unreadable))
    }

    /// Writes and removes records in one transaction.
    pub fn change(&self, put: &[Record], remove: &[u64]) -> Result<(), IndexError> {
        let write = self.db.begin_write().map_err(failed)?;
        {
            let mut table = write.open_table(NODES).map_err(failed)?;
            for record in put {
                table.insert(record.key, record.encode().as_slice()).map_err(failed)?;
            }
            for key in remove {
                table.remove(key).map_err(failed)?;
            }
        }
        write.commit().map_err(failed)
    }
}

/// Children follow their parents; those whose parents are missing come last, in any order.
fn parents_first(records: Vec<Record>) -> Vec<Record> {
    let mut children: std::collections::HashMap<u64, Vec<Record>> = std::collections::HashMap::new();
    for record in records {
        children.entry(record.parent).or_default().push(record);
    }
    let mut sorted = children.remove(&0).unwrap_or_default();
    let mut i = 0;
    while i < sorted.len() {
        sorted.extend(children.remove(&sorted[i].key).unwrap_or_default());
        i += 1;
    }
    sorted.extend(children.into_values().flatten());
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Token;

    fn record(key: u64, parent: u64) -> Record {
        Record {
            key,
            parent,
            kind: BreakpointKind::Turn,
            hits: 3,
            point: Some(PartEntry { id: key * 10, len: 5 }),
            rows: key.is_multiple_of(2).then_some((4, PartEntry { id: key * 10 + 1, len: 1 << 33 })),
            edge: (0..key as u32).map(|t| PromptItem::Token(Token(t))).collect(),
        }
    }

    #[test]
    fn records_read_back_after_the_index_was_closed() {
        let dir = tempfile::tempdir().unwrap();
        let index = Index::open(dir.path()).unwrap();
        assert_eq!(index.records().unwrap(), (vec![], vec![]));
        index.change(&[record(2, 9), record(5, 2), record(9, 0)], &[]).unwrap();
        assert!(Index::open(dir.path()).is_err(), "two processes never share it");
        index.change(&[record(7, 9)], &[5]).unwrap();
        drop(index);
        let (records, unreadable) = Index::open(dir.path()).unwrap().records().unwrap();
        assert_eq!(records[0], record(9, 0), "parents come first");
        assert_eq!(records.len(), 3);
        assert!(records.contains(&record(2, 9)) && records.contains(&record(7, 9)));
        assert!(unreadable.is_empty());
    }

    #[test]
    fn a_file_that_is_no_index_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), b"not a database at all, but long enough to be taken for one").unwrap();
        let index = Index::open(dir.path()).unwrap();
        index.change(&[record(1, 0)], &[]).unwrap();
        assert_eq!(index.records().unwrap().0.len(), 1);
    }

    #[test]
    fn a_record_that_was_cut_is_not_read() {
        let whole = record(2, 1).encode();
        assert_eq!(Record::decode(2, &whole), Some(record(2, 1)));
        for n in 0..whole.len() {
            assert_ne!(Record::decode(2, &whole[..n]), Some(record(2, 1)));
        }
    }
}
