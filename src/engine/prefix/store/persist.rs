//! Host memory and disk kept in step: what is written, what comes back, what the index says.
//!
//! A state is written as soon as it is saved, with all that it stands on. The index never names a
//! part that is not there.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::super::disk::index::{PartEntry, Record};
use super::super::disk::{Disk, Done, Job, Write};
use super::super::tree::{NodeId, OnDisk, Part, ROOT, Rows};
use super::Store;
use crate::engine::runner::state_bytes::StateBytes;

/// The share of the memory budget that may wait to be written: a quarter. More is written when its
/// turn comes again.
const IN_FLIGHT_SHARE: u64 = 4;

impl Store {
    /// Adds the disk tier with what its index knows.
    pub fn attach(&mut self, disk: Disk, records: Vec<Record>, budget: u64) {
        self.disk = Some(disk);
        self.disk_budget = budget;
        let mut ids = HashMap::from([(0, ROOT)]);
        let mut orphans = Vec::new();
        for record in records {
            self.next_id =
                record.parts().map(|part| part.id).chain([record.key, self.next_id - 1]).max().unwrap_or(0) + 1;
            match ids.get(&record.parent) {
                Some(parent) => {
                    let id = self.adopt(*parent, &record);
                    ids.insert(record.key, id);
                }
                None => orphans.push(record),
            }
        }
        for record in &orphans {
            self.remove_files(vec![record.key], record.parts().map(|part| part.id).collect());
        }
        for id in self.tree.below(ROOT) {
            let incomplete = self.tree.spans(id, 0).is_none();
            let bare = self.tree.get(id).is_some_and(|node| node.point.is_none() && node.children.is_empty());
            if id != ROOT && (incomplete || bare) {
                self.remove(id);
            }
        }
        self.make_disk_room(0);
        self.version += 1;
    }

    fn adopt(&mut self, parent: NodeId, record: &Record) -> NodeId {
        let mut items = self.tree.items(parent);
        items.extend(record.edge.iter().cloned());
        let id = self.tree.add(parent, &items, record.kind, record.key);
        let part = |entry: PartEntry| Part { id: entry.id, len: entry.len, ram: None, disk: OnDisk::Yes };
        for entry in record.parts() {
            self.owners.insert(entry.id, id);
            self.disk_bytes += entry.len as u64;
        }
        if let Some(node) = self.tree.get_mut(id) {
            node.hits = record.hits;
            node.point = record.point.map(part);
            node.rows = record.rows.map(|(start, entry)| Rows { start, part: part(entry) });
        }
        id
    }

    /// Hands a node and what it stands on over to be written, where that is not on disk yet.
    pub(super) fn persist(&mut self, id: NodeId) {
        if self.disk.is_none() {
            return;
        }
        let mut chain = Vec::new();
        let mut at = id;
        while let Some(node) = self.tree.get(at).filter(|_| at != ROOT) {
            chain.push(at);
            at = node.parent;
        }
        let unwritten = |part: &&mut Part| part.disk == OnDisk::No && part.ram.is_some();
        let needed: u64 = chain
            .iter()
            .flat_map(|id| self.parts(*id))
            .filter(|p| p.disk == OnDisk::No && p.ram.is_some())
            .map(|p| p.len as u64)
            .sum();
        if self.in_flight.values().sum::<u64>() + needed > self.ram_budget / IN_FLIGHT_SHARE {
            return;
        }
        self.persisting = chain.iter().filter_map(|id| self.tree.get(*id)).map(|node| node.key).collect();
        let fits = self.make_disk_room(needed);
        self.persisting.clear();
        if !fits {
            return;
        }
        let mut writes = Vec::new();
        for id in &chain {
            let Some(node) = self.tree.get_mut(*id) else { continue };
            let rows = node.rows.as_mut().map(|rows| &mut rows.part);
            for part in node.point.as_mut().into_iter().chain(rows).filter(unwritten) {
                part.disk = OnDisk::Writing;
                writes.extend(part.ram.clone().map(|bytes| Write { id: part.id, bytes }));
            }
        }
        self.in_flight.extend(writes.iter().map(|write: &Write| (write.id, write.bytes.len() as u64)));
        self.disk_bytes += needed;
        let mut changed = chain;
        changed.extend(self.tree.get(id).map(|node| node.children.clone()).unwrap_or_default());
        let records = changed.iter().filter_map(|id| self.record(*id)).collect();
        self.send(Job::Write { parts: writes, records });
    }

    pub(super) fn parts(&self, id: NodeId) -> impl Iterator<Item = &Part> {
        let node = self.tree.get(id);
        let rows = node.and_then(|node| node.rows.as_ref()).map(|rows| &rows.part);
        node.and_then(|node| node.point.as_ref()).into_iter().chain(rows)
    }

    /// What the index shall say of a node; `None`: nothing of it is on disk.
    fn record(&self, id: NodeId) -> Option<Record> {
        let node = self.tree.get(id)?;
        let entry = |part: &Part| (part.disk != OnDisk::No).then_some(PartEntry { id: part.id, len: part.len });
        let point = node.point.as_ref().and_then(entry);
        let rows = node.rows.as_ref().and_then(|rows| Some((rows.start, entry(&rows.part)?)));
        let parent = self.tree.get(node.parent)?.key;
        (point.is_some() || rows.is_some()).then(|| Record {
            key: node.key,
            parent,
            kind: node.kind,
            hits: node.hits,
            point,
            rows,
            edge: node.edge.clone(),
        })
    }

    /// Brings the index up to date with a node that lost parts.
    pub(super) fn rerecord(&mut self, id: NodeId) {
        match self.record(id) {
            Some(record) => self.send(Job::Write { parts: Vec::new(), records: vec![record] }),
            None => {
                let key = self.tree.get(id).map(|node| node.key);
                self.remove_files(key.into_iter().collect(), Vec::new());
            }
        }
    }

    /// Takes a node out of the index; its files go after that.
    pub(super) fn unrecord(&mut self, key: u64, parts: &[Part]) {
        if parts.iter().any(|part| part.disk != OnDisk::No) {
            self.remove_files(vec![key], Vec::new());
        }
    }

    pub(super) fn remove_files(&self, keys: Vec<u64>, parts: Vec<u64>) {
        if !keys.is_empty() || !parts.is_empty() {
            self.send(Job::Remove { keys, parts });
        }
    }

    fn send(&self, job: Job) {
        if let Some(disk) = &self.disk {
            disk.send(job);
        }
    }

    /// Has a part read that is on disk alone.
    pub(super) fn ask_for(&mut self, id: u64) {
        let Some(len) = self.part(id).filter(|part| part.ram.is_none()).map(|part| part.len) else { return };
        if !self.reading.contains(&id) {
            self.reading.push(id);
            self.send(Job::Read { id, len });
        }
    }

    /// Books what the I/O thread has done.
    pub fn poll(&mut self) {
        while let Some(done) = self.disk.as_ref().and_then(Disk::poll) {
            self.done(done);
        }
    }

    /// Waits a little for the I/O thread; for when there is nothing else to do.
    pub fn wait(&mut self, time: Duration) {
        match self.disk.as_ref().map(|disk| disk.wait(time)) {
            Some(Ok(Some(done))) => self.done(done),
            Some(Err(())) => self.disk_died(),
            Some(Ok(None)) | None => {}
        }
    }

    fn done(&mut self, done: Done) {
        self.version += 1;
        match done {
            Done::Written { parts, ok } => {
                self.totals.unwritten += u64::from(!ok);
                for id in parts {
                    self.written(id, ok);
                }
            }
            Done::Read { id, bytes } => {
                self.reading.retain(|reading| *reading != id);
                self.read(id, bytes);
            }
        }
    }

    fn written(&mut self, id: u64, ok: bool) {
        self.in_flight.remove(&id);
        let Some(part) = self.part_mut(id) else { return };
        part.disk = if ok { OnDisk::Yes } else { OnDisk::No };
        let len = part.len as u64;
        if !ok {
            self.disk_bytes = self.disk_bytes.saturating_sub(len);
        }
    }

    fn read(&mut self, id: u64, bytes: Option<Arc<StateBytes>>) {
        match bytes {
            None => {
                self.totals.unreadable += 1;
                self.lose(id);
            }
            Some(bytes) => {
                let n_bytes = bytes.footprint() as u64;
                if let Some(part) = self.part_mut(id).filter(|part| part.ram.is_none()) {
                    part.ram = Some(bytes);
                    self.ram_bytes += n_bytes;
                    self.fetched.push(id);
                }
            }
        }
    }

    /// A part cannot be had: a point takes its state with it, rows take all that stands on them.
    fn lose(&mut self, id: u64) {
        let Some(&owner) = self.owners.get(&id) else { return };
        let Some(node) = self.tree.get_mut(owner) else { return };
        if node.point.as_ref().is_some_and(|part| part.id == id) {
            let lost = node.point.take().into_iter().collect();
            self.discard(lost);
            self.rerecord(owner);
            self.prune(owner);
        } else {
            self.forget(owner);
        }
    }

    /// Without its thread the tier is gone, with what is in it alone.
    fn disk_died(&mut self) {
        tracing::error!(
            "the thread of the prefix cache's disk tier died; states on disk are out of reach until a restart"
        );
        self.disk = None;
        self.reading.clear();
        for id in self.tree.below(ROOT) {
            let gone = self.parts(id).any(|part| part.ram.is_none());
            if gone {
                self.forget(id);
            }
        }
    }
}
