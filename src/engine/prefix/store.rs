//! The saved states with their tiers: host memory within a budget of bytes, disk within another.
//!
//! What a state is, and when one is saved or restored, is decided elsewhere (`cache`); here it is
//! kept, found, brought back from disk and, when room is needed, given up in the order of its
//! worth.

mod evict;
mod persist;

use std::collections::HashMap;
use std::sync::Arc;

use super::boundary::likelihood;
use super::disk::Disk;
use super::tree::{Node, NodeId, OnDisk, Part, PrefixMatch, ROOT, Rows, Span, Tree, position};
use crate::engine::request::breakpoint::BreakpointKind;
use crate::engine::request::item::PromptItem;
use crate::engine::runner::Saved;
use crate::engine::runner::state_bytes::StateBytes;

/// Counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreTotals {
    pub saved: u64,
    /// Parts that had to leave host memory, and those of them that were on disk nowhere.
    pub evicted_ram: u64,
    pub lost: u64,
    pub evicted_disk: u64,
    /// States that were not saved: larger than the budget.
    pub too_large: u64,
    /// Reads from disk that failed: incomplete, altered or missing files.
    pub unreadable: u64,
    /// Writes to disk that failed.
    pub unwritten: u64,
}

/// Bytes of a state, ready to be restored.
pub(in crate::engine) struct SavedState {
    pub point: Arc<StateBytes>,
    pub rows: Vec<(Span, Arc<StateBytes>)>,
    /// Some of it came from disk for this.
    pub from_disk: bool,
}

/// What becomes of a wish for a state.
pub(in crate::engine) enum Fetch {
    Ready(SavedState),
    /// Parts are on their way from disk.
    Waiting,
    /// It is not to be had.
    Gone,
}

/// Where a new state will be filed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct InsertPoint {
    at: NodeId,
    /// First position whose attention rows must be saved with it.
    pub start: u32,
}

pub(super) struct Store {
    tree: Tree,
    /// Node of each part.
    owners: HashMap<u64, NodeId>,
    ram_budget: u64,
    ram_bytes: u64,
    disk: Option<Disk>,
    disk_budget: u64,
    disk_bytes: u64,
    /// Parts handed to the I/O thread and not written yet, with their bytes.
    in_flight: HashMap<u64, u64>,
    /// Parts that the restore in the making needs: not to be evicted.
    pinned: Vec<u64>,
    /// Keys of the nodes that are being written: what is on disk of them stays there.
    persisting: Vec<u64>,
    /// Parts that were read for it.
    fetched: Vec<u64>,
    reading: Vec<u64>,
    next_id: u64,
    /// Requests so far.
    clock: u64,
    totals: StoreTotals,
    /// Changes with everything that a reader could see.
    version: u64,
}

impl Store {
    pub fn new(ram_budget: u64) -> Store {
        Store {
            tree: Tree::new(),
            owners: HashMap::new(),
            ram_budget,
            ram_bytes: 0,
            disk: None,
            disk_budget: 0,
            disk_bytes: 0,
            in_flight: HashMap::new(),
            pinned: Vec::new(),
            persisting: Vec::new(),
            fetched: Vec::new(),
            reading: Vec::new(),
            next_id: 1,
            clock: 0,
            totals: StoreTotals::default(),
            version: 0,
        }
    }

    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    pub fn totals(&self) -> StoreTotals {
        self.totals
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn ram_bytes(&self) -> u64 {
        self.ram_bytes
    }

    pub fn disk_bytes(&self) -> u64 {
        self.disk_bytes
    }

    pub fn has_disk(&self) -> bool {
        self.disk.is_some()
    }

    /// A request begins: time goes on.
    pub fn tick(&mut self) {
        self.clock += 1;
    }

    /// Follows a prompt, and the nodes of it that can be restored where rows up to `kept` are at
    /// hand, deepest first.
    pub fn find(&self, items: &[PromptItem], limit: usize, kept: u32) -> (PrefixMatch, Vec<NodeId>) {
        let matched = self.tree.longest_match(items);
        let usable = |id: &&NodeId| {
            let node = self.tree.get(**id);
            let fits = node.is_some_and(|n| n.end.n_items <= limit && n.point.as_ref().is_some_and(Part::exists));
            fits && self.tree.spans(**id, kept).is_some()
        };
        let found = matched.nodes.iter().rev().filter(usable).copied().collect();
        (matched, found)
    }

    /// The parts of a state, from host memory or disk.
    pub fn fetch(&mut self, id: NodeId, kept: u32) -> Fetch {
        let Some((point, spans)) = self.parts_of(id, kept) else { return Fetch::Gone };
        self.pinned = spans.iter().map(|(_, part)| *part).chain([point]).collect();
        for part in self.pinned.clone() {
            self.ask_for(part);
        }
        let Some(state) = self.state(point, &spans) else { return Fetch::Waiting };
        self.touch(id);
        Fetch::Ready(state)
    }

    /// A restore is over, or given up.
    pub fn release(&mut self) {
        self.unpin();
        self.fetched.clear();
        self.make_room(0);
    }

    fn unpin(&mut self) {
        let pinned = std::mem::take(&mut self.pinned);
        let owners: Vec<NodeId> = pinned.iter().filter_map(|part| self.owners.get(part).copied()).collect();
        owners.into_iter().for_each(|node| self.prune(node));
    }

    fn parts_of(&self, id: NodeId, kept: u32) -> Option<(u64, Vec<(Span, u64)>)> {
        let point = self.tree.get(id)?.point.as_ref().filter(|part| part.exists())?.id;
        let rows = |span: Span| Some((span, self.tree.get(span.node)?.rows.as_ref()?.part.id));
        let spans = self.tree.spans(id, kept)?.into_iter().map(rows).collect::<Option<Vec<_>>>()?;
        Some((point, spans))
    }

    fn state(&self, point: u64, spans: &[(Span, u64)]) -> Option<SavedState> {
        let bytes = |part: u64| self.part(part)?.ram.clone();
        let rows = spans.iter().map(|(span, part)| Some((*span, bytes(*part)?))).collect::<Option<Vec<_>>>()?;
        Some(SavedState { point: bytes(point)?, rows, from_disk: !self.fetched.is_empty() })
    }

    fn part(&self, id: u64) -> Option<&Part> {
        let node = self.tree.get(*self.owners.get(&id)?)?;
        let rows = node.rows.as_ref().map(|rows| &rows.part);
        node.point.as_ref().into_iter().chain(rows).find(|part| part.id == id)
    }

    fn part_mut(&mut self, id: u64) -> Option<&mut Part> {
        let node = self.tree.get_mut(*self.owners.get(&id)?)?;
        let rows = node.rows.as_mut().map(|rows| &mut rows.part);
        node.point.as_mut().into_iter().chain(rows).find(|part| part.id == id)
    }

    fn touch(&mut self, id: NodeId) {
        let clock = self.clock;
        if let Some(node) = self.tree.get_mut(id) {
            node.hits += 1;
        }
        let mut at = id;
        while at != ROOT {
            let Some(node) = self.tree.get_mut(at) else { break };
            node.last_used = clock;
            at = node.parent;
        }
        self.version += 1;
    }

    /// Where the state after `items` would be filed; `None`: it is there already, or could never be
    /// kept. `point_bytes`: what a point will take.
    pub fn place(&mut self, items: &[PromptItem], point_bytes: u64) -> Option<InsertPoint> {
        if point_bytes > self.ram_budget {
            return None;
        }
        let (at, exact) = self.tree.locate(items);
        if exact {
            let clock = self.clock;
            let node = self.tree.get_mut(at)?;
            node.last_used = clock;
            if node.point.as_ref().is_some_and(Part::exists) && self.tree.spans(at, 0).is_some() {
                return None;
            }
        }
        Some(InsertPoint { at, start: self.tree.covered(at) })
    }

    /// Files a state of `items` that was saved for `place`. `false`: there is no room for it.
    pub fn insert(&mut self, place: InsertPoint, items: &[PromptItem], kind: BreakpointKind, saved: Saved) -> bool {
        let Saved { point, rows } = saved;
        let n_bytes = (point.footprint() + rows.footprint()) as u64;
        // What the state stands on must stay while room is made for it.
        self.pinned = self.parts_of_rows(place.at);
        let fits = self.make_room(n_bytes);
        self.unpin();
        // Making room can take nodes away, those that the place was found by among them.
        let (at, exact) = self.tree.locate(items);
        if !fits || self.tree.covered(at) < place.start {
            self.totals.too_large += 1;
            return false;
        }
        let id = match exact {
            true => at,
            false => {
                let key = self.take_id();
                self.tree.add(at, items, kind, key)
            }
        };
        let (point_id, rows_id) = (self.take_id(), self.take_id());
        let clock = self.clock;
        let Some(node) = self.tree.get_mut(id) else { return false };
        node.last_used = clock;
        node.evicted = false;
        if likelihood(kind) > likelihood(node.kind) {
            node.kind = kind;
        }
        let mut old: Vec<Part> = node.point.replace(Part::new(point_id, point)).into_iter().collect();
        self.owners.insert(point_id, id);
        if position(node.end) > place.start {
            old.extend(
                node.rows.replace(Rows { start: place.start, part: Part::new(rows_id, rows) }).map(|rows| rows.part),
            );
            self.owners.insert(rows_id, id);
        }
        self.ram_bytes += n_bytes;
        self.discard(old);
        self.totals.saved += 1;
        self.version += 1;
        self.persist(id);
        true
    }

    fn parts_of_rows(&self, id: NodeId) -> Vec<u64> {
        let spans = self.tree.spans(id, 0).unwrap_or_default();
        spans.iter().filter_map(|span| Some(self.tree.get(span.node)?.rows.as_ref()?.part.id)).collect()
    }

    fn take_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    /// A state turned out to be of no use: it and all that stands on it go.
    pub fn forget(&mut self, id: NodeId) {
        for node in self.tree.below(id) {
            self.remove(node);
        }
        self.prune(self.tree.get(id).map_or(ROOT, |node| node.parent));
    }

    /// Forgets everything, in memory and on disk.
    pub fn clear(&mut self) {
        self.forget(ROOT);
    }

    /// Takes a node without children out of the tree, its parts with it.
    fn remove(&mut self, id: NodeId) {
        let Some(Node { key, point, rows, .. }) = self.tree.remove(id) else { return };
        let parts: Vec<Part> = point.into_iter().chain(rows.map(|rows| rows.part)).collect();
        self.unrecord(key, &parts);
        self.discard(parts);
        self.version += 1;
    }

    /// Books that parts are no more.
    fn discard(&mut self, parts: Vec<Part>) {
        for part in parts {
            self.owners.remove(&part.id);
            self.ram_bytes -= part.ram_bytes();
            if part.disk != OnDisk::No {
                self.disk_bytes = self.disk_bytes.saturating_sub(part.len as u64);
                self.remove_files(vec![], vec![part.id]);
            }
        }
    }

    /// Removes nodes from `id` upwards that nobody needs: without a point and without children.
    fn prune(&mut self, mut id: NodeId) {
        while let Some(node) = self.tree.get(id).filter(|_| id != ROOT) {
            let needed = !node.children.is_empty() || node.point.as_ref().is_some_and(Part::exists);
            let parent = node.parent;
            let pinned = self.parts(id).any(|part| self.pinned.contains(&part.id));
            if needed || pinned {
                return;
            }
            self.remove(id);
            id = parent;
        }
    }
}

#[cfg(test)]
mod tests;
