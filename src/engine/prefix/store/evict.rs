//! What is given up when there is no room: the least worth for its bytes.
//!
//! The worth of a state is the prefill that it saves against the next state above it, times how
//! likely a prompt is to go on from it: what stands there, how often it was used and how long ago.
//! A beginning that many prompts share is used by all of them, so it is not old, and it saves all
//! that is before it.

use super::super::boundary::likelihood;
use super::super::tree::{Node, NodeId, OnDisk, Part, ROOT, position};
use super::Store;

/// Requests after which an unused state is worth half.
const HALF_LIFE: f64 = 64.0;

impl Store {
    /// Gives up states until `n_bytes` more fit into host memory. `false`: they never will.
    pub(super) fn make_room(&mut self, n_bytes: u64) -> bool {
        if n_bytes > self.ram_budget {
            return false;
        }
        while self.ram_bytes + n_bytes > self.ram_budget {
            let bytes = |store: &Store, node: &Node| store.ram_to_free(node);
            let Some(victim) = self.least_worth(bytes) else { return false };
            self.evict_ram(victim);
        }
        true
    }

    /// Gives up files until `n_bytes` more fit on disk.
    pub(super) fn make_disk_room(&mut self, n_bytes: u64) -> bool {
        if n_bytes > self.disk_budget {
            return false;
        }
        while self.disk_bytes + n_bytes > self.disk_budget {
            let bytes = |store: &Store, node: &Node| {
                if store.persisting.contains(&node.key) { 0 } else { disk_to_free(node) }
            };
            let Some(victim) = self.least_worth(bytes) else { return false };
            self.evict_disk(victim);
        }
        true
    }

    fn least_worth(&self, bytes: impl Fn(&Store, &Node) -> u64) -> Option<NodeId> {
        let candidates = self.tree.iter().filter_map(|(id, node)| {
            let n = bytes(self, node);
            (n > 0).then(|| (id, self.worth(node) / n as f64))
        });
        candidates.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(id, _)| id)
    }

    /// Tokens of prefill that the state is expected to save, in no unit of its own.
    pub(super) fn worth(&self, node: &Node) -> f64 {
        let saved = position(node.end) - self.restorable_above(node);
        let age = self.clock.saturating_sub(node.last_used) as f64;
        let used = f64::from(1 + node.hits) + node.children.len() as f64;
        f64::from(saved.max(1)) * f64::from(likelihood(node.kind)) * used * 0.5f64.powf(age / HALF_LIFE)
    }

    fn restorable_above(&self, node: &Node) -> u32 {
        let mut at = node.parent;
        while let Some(above) = self.tree.get(at).filter(|_| at != ROOT) {
            if above.point.as_ref().is_some_and(Part::exists) {
                return position(above.end);
            }
            at = above.parent;
        }
        0
    }

    /// Bytes of a node that may leave host memory: its point, and its rows where nothing needs them
    /// or disk has them.
    fn ram_to_free(&self, node: &Node) -> u64 {
        let free = |part: &Part| part.disk != OnDisk::Writing && !self.pinned.contains(&part.id);
        let point = node.point.as_ref().filter(|part| free(part)).map_or(0, Part::ram_bytes);
        let rows = node.rows.as_ref().map(|rows| &rows.part).filter(|part| free(part));
        let unneeded = |part: &&Part| part.disk == OnDisk::Yes || node.children.is_empty();
        // The point of a leaf must be free too, or the leaf would be left without rows.
        let with_point = node.point.as_ref().is_none_or(free);
        point + rows.filter(unneeded).filter(|_| with_point).map_or(0, Part::ram_bytes)
    }

    fn evict_ram(&mut self, id: NodeId) {
        let Some(node) = self.tree.get(id) else { return };
        let leaf = node.children.is_empty();
        let pinned = &self.pinned;
        let free = |part: &Part| part.disk != OnDisk::Writing && !pinned.contains(&part.id);
        let rows_go = |part: &Part| free(part) && (part.disk == OnDisk::Yes || leaf);
        let (mut freed, mut lost) = (0, Vec::new());
        let Some(node) = self.tree.get_mut(id) else { return };
        let point_free = node.point.as_ref().is_none_or(free);
        if let Some(part) = node.point.as_mut().filter(|part| free(part)) {
            freed += part.ram.take().map_or(0, |bytes| bytes.len() as u64);
        }
        if let Some(rows) = node.rows.as_mut().filter(|rows| rows_go(&rows.part) && point_free) {
            freed += rows.part.ram.take().map_or(0, |bytes| bytes.len() as u64);
        }
        if node.point.as_ref().is_some_and(|part| !part.exists()) {
            node.evicted = true;
            lost.extend(node.point.take());
        }
        // Rows without a point on disk may be gone in a leaf only, which goes with them.
        let rows_lost = node.rows.as_ref().is_some_and(|rows| !rows.part.exists() && rows.part.disk == OnDisk::No);
        self.ram_bytes -= freed;
        self.totals.evicted_ram += 1;
        self.totals.lost += u64::from(!lost.is_empty());
        self.discard(lost);
        self.version += 1;
        if rows_lost && leaf {
            let parent = self.tree.get(id).map_or(ROOT, |node| node.parent);
            self.remove(id);
            self.prune(parent);
        } else {
            self.prune(id);
        }
    }

    fn evict_disk(&mut self, id: NodeId) {
        let Some(node) = self.tree.get_mut(id) else { return };
        let leaf = node.children.is_empty();
        let mut parts = Vec::new();
        if let Some(part) = node.point.as_mut().filter(|part| part.disk == OnDisk::Yes) {
            part.disk = OnDisk::No;
            parts.push((part.id, part.len));
        }
        if let Some(rows) = node.rows.as_mut().filter(|rows| leaf && rows.part.disk == OnDisk::Yes) {
            rows.part.disk = OnDisk::No;
            parts.push((rows.part.id, rows.part.len));
        }
        if node.point.as_ref().is_some_and(|part| !part.exists()) {
            node.evicted = true;
            if let Some(part) = node.point.take() {
                self.owners.remove(&part.id);
            }
        }
        self.disk_bytes = self.disk_bytes.saturating_sub(parts.iter().map(|(_, len)| *len as u64).sum());
        self.totals.evicted_disk += 1;
        self.version += 1;
        self.rerecord(id);
        self.remove_files(vec![], parts.into_iter().map(|(part, _)| part).collect());
        let gone = self.tree.get(id).is_some_and(|n| leaf && n.rows.as_ref().is_some_and(|rows| !rows.part.exists()));
        if gone {
            let parent = self.tree.get(id).map_or(ROOT, |node| node.parent);
            self.remove(id);
            self.prune(parent);
        } else {
            self.prune(id);
        }
    }
}

/// Bytes of a node that may leave the disk. Rows that others need stay.
fn disk_to_free(node: &Node) -> u64 {
    let on_disk = |part: &&Part| part.disk == OnDisk::Yes;
    let point = node.point.as_ref().filter(on_disk).map_or(0, |part| part.len as u64);
    let rows = node.rows.as_ref().map(|rows| &rows.part).filter(on_disk).filter(|_| node.children.is_empty());
    point + rows.map_or(0, |part| part.len as u64)
}
