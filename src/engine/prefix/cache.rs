//! The prefix cache as the scheduler uses it: what to begin a request from, what to save, and why
//! something was processed again.
//!
//! Without host memory for it (`ram_bytes` 0) it is off, and everything here says so.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::boundary;
use super::disk::Disk;
use super::key::Fingerprint;
use super::store::{Fetch, InsertPoint, Store, StoreTotals};
use super::tree::{Node, NodeId, OnDisk, Part, PrefixMatch, ROOT};
use crate::engine::request::breakpoint::{Breakpoint, BreakpointKind};
use crate::engine::request::event::Restored;
use crate::engine::request::item::{Extent, PromptItem};
use crate::engine::runner::state_bytes::StateBytes;
use crate::engine::runner::{RunnerFacts, Saved};
use crate::units::Token;

/// Requests that are remembered.
const N_RECENT: usize = 32;

/// Nodes that a view of the cache lists.
const N_LISTED: usize = 1000;

/// What the prefix cache may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixSettings {
    /// Host memory for saved states; 0: off.
    pub ram_bytes: u64,
    pub disk: Option<DiskSettings>,
    /// Tokens between states of a prompt without breakpoints; `None`: by their size.
    pub interval_tokens: Option<usize>,
    pub fingerprint: Fingerprint,
    /// Every so many restores, process the prompt again instead and compare; `None`: never.
    pub check_every: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskSettings {
    pub folder: PathBuf,
    pub bytes: u64,
}

impl PrefixSettings {
    /// Nothing is saved; what idle sequences hold is reused all the same.
    pub const OFF: PrefixSettings = PrefixSettings {
        ram_bytes: 0,
        disk: None,
        interval_tokens: None,
        fingerprint: Fingerprint(0),
        check_every: None,
    };
}

/// A node of the tree, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    pub key: u64,
    pub parent: u64,
    /// Tokens from the beginning of the prompt.
    pub n_tokens: usize,
    pub kind: BreakpointKind,
    pub hits: u32,
    pub ram_bytes: u64,
    pub disk_bytes: u64,
    /// A prompt can go on from here.
    pub restorable: bool,
    /// The last tokens before the place; images are left out.
    pub tail: Vec<Token>,
}

/// How one request began.
#[derive(Clone, Debug, PartialEq)]
pub struct RecentRequest {
    pub id: String,
    pub n_prompt: usize,
    pub n_cached: usize,
    pub restored: Restored,
}

/// The cache as it is, for `GET /cache`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CacheView {
    pub on: bool,
    pub ram_bytes: u64,
    pub ram_budget: u64,
    pub disk_bytes: u64,
    pub disk_budget: u64,
    /// Why there is no disk tier although one was asked for.
    pub disk_off: Option<String>,
    pub interval_tokens: usize,
    pub n_nodes: usize,
    pub totals: StoreTotals,
    pub checks: Checks,
    /// The first thousand.
    pub nodes: Vec<NodeView>,
    /// The last requests, oldest first.
    pub recent: Vec<RecentRequest>,
}

/// Outcomes of comparing a saved state with one computed anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    pub identical: u64,
    /// Equal but for rounding, as devices and other batches bring about.
    pub rounded: u64,
    pub wrong: u64,
}

/// See the module.
pub(in crate::engine) struct PrefixCache {
    store: Option<Store>,
    settings: PrefixSettings,
    interval: usize,
    point_bytes: u64,
    disk_off: Option<String>,
    recent: VecDeque<RecentRequest>,
    n_remembered: u64,
    n_restores: u64,
    pub checks: Checks,
    published: Option<(u64, u64, Checks)>,
}

impl PrefixCache {
    /// Opens the disk tier too, where there is one; a folder that cannot be used is logged and does
    /// without.
    pub fn open(settings: PrefixSettings, facts: &RunnerFacts) -> PrefixCache {
        let point_bytes = facts.point_bytes;
        let on = settings.ram_bytes > 0 && point_bytes.is_some();
        if settings.ram_bytes > 0 && !on {
            tracing::warn!("the prefix cache is off: states of this model cannot be saved");
        }
        let interval = settings
            .interval_tokens
            .unwrap_or_else(|| boundary::interval_tokens(facts.n_ctx, point_bytes.unwrap_or(0), settings.ram_bytes));
        let mut store = on.then(|| Store::new(settings.ram_bytes));
        let mut disk_off = None;
        if let (Some(store), Some(disk)) = (&mut store, &settings.disk) {
            match Disk::open(&disk.folder, settings.fingerprint) {
                Ok((opened, records)) => {
                    tracing::info!(folder = %disk.folder.display(), states = records.len(), "prefix cache on disk");
                    store.attach(opened, records, disk.bytes);
                }
                Err(error) => {
                    tracing::warn!(error, "the prefix cache has no disk tier");
                    disk_off = Some(error);
                }
            }
        }
        PrefixCache {
            store,
            interval,
            point_bytes: point_bytes.unwrap_or(0),
            settings,
            disk_off,
            recent: VecDeque::new(),
            n_remembered: 0,
            n_restores: 0,
            checks: Checks::default(),
            published: None,
        }
    }

    pub fn is_on(&self) -> bool {
        self.store.is_some()
    }

    /// Where chunks of a prompt end so that states can be saved; nowhere while the cache is
    /// off.
    pub fn chunk_boundaries(&self, items: &[PromptItem], breakpoints: &[Breakpoint]) -> Vec<Breakpoint> {
        if self.is_on() { boundary::plan(items, breakpoints, self.interval) } else { Vec::new() }
    }

    /// A request comes in for the first time.
    pub fn tick(&mut self) {
        if let Some(store) = &mut self.store {
            store.tick();
        }
    }

    /// See `Store::find`.
    pub fn find(&self, items: &[PromptItem], limit: usize, kept: u32) -> (PrefixMatch, Vec<NodeId>) {
        self.store.as_ref().map(|store| store.find(items, limit, kept)).unwrap_or_default()
    }

    pub fn fetch(&mut self, node: NodeId, kept: u32) -> Fetch {
        self.store.as_mut().map_or(Fetch::Gone, |store| store.fetch(node, kept))
    }

    /// Where a node ends.
    pub fn end_of(&self, node: NodeId) -> Extent {
        self.store.as_ref().and_then(|store| store.tree().get(node)).map_or(Extent::default(), |node| node.end)
    }

    /// Was there a state beyond `n_items` along a match that had to go.
    pub fn lost_beyond(&self, matched: &PrefixMatch, n_items: usize) -> bool {
        let node = |id: &NodeId| self.store.as_ref().and_then(|store| store.tree().get(*id));
        matched.nodes.iter().filter_map(node).any(|node| node.end.n_items > n_items && node.evicted)
    }

    /// A restore is over, or given up.
    pub fn release(&mut self) {
        if let Some(store) = &mut self.store {
            store.release();
        }
    }

    pub fn forget(&mut self, node: NodeId) {
        if let Some(store) = &mut self.store {
            store.forget(node);
        }
    }

    pub fn clear(&mut self) {
        if let Some(store) = &mut self.store {
            store.clear();
        }
    }

    /// Is this restore one of those that are computed again instead.
    pub fn is_sample(&mut self) -> bool {
        self.n_restores += 1;
        self.settings.check_every.is_some_and(|every| self.n_restores.is_multiple_of(every.max(1).into()))
    }

    /// Where the state after `items` would go; `None`: nowhere, or it is there.
    pub fn place(&mut self, items: &[PromptItem]) -> Option<InsertPoint> {
        let point_bytes = self.point_bytes;
        self.store.as_mut()?.place(items, point_bytes)
    }

    pub fn insert(&mut self, place: InsertPoint, items: &[PromptItem], kind: BreakpointKind, saved: Saved) {
        let Some(store) = &mut self.store else { return };
        self.point_bytes = saved.point.len() as u64;
        if !store.insert(place, items, kind, saved) {
            tracing::debug!(tokens = items.len(), "a state was not saved: it is larger than the budget of the cache");
        }
    }

    /// The saved state after exactly these items, where host memory has it.
    pub fn point_at(&self, items: &[PromptItem]) -> Option<(NodeId, Arc<StateBytes>)> {
        let tree = self.store.as_ref()?.tree();
        let (id, exact) = tree.locate(items);
        let point = tree.get(id).filter(|_| exact)?.point.as_ref()?.ram.clone()?;
        Some((id, point))
    }

    /// Books what the I/O thread has done.
    pub fn poll(&mut self) {
        if let Some(store) = &mut self.store {
            store.poll();
        }
    }

    /// Waits a little for the I/O thread.
    pub fn wait(&mut self, time: Duration) {
        if let Some(store) = &mut self.store {
            store.wait(time);
        }
    }

    /// Remembers how a request began.
    pub fn remember(&mut self, request: RecentRequest) {
        if self.recent.len() == N_RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(request);
        self.n_remembered += 1;
    }

    /// Bytes in host memory and on disk, and the number of nodes.
    pub fn sizes(&self) -> (u64, u64, usize) {
        self.store.as_ref().map_or((0, 0, 0), |s| (s.ram_bytes(), s.disk_bytes(), s.tree().len()))
    }

    pub fn totals(&self) -> StoreTotals {
        self.store.as_ref().map(Store::totals).unwrap_or_default()
    }

    /// The cache as it is, where anything has changed since the last one.
    pub fn view(&mut self) -> Option<CacheView> {
        let version = (self.store.as_ref().map_or(0, Store::version), self.n_remembered, self.checks);
        if self.published.replace(version) == Some(version) {
            return None;
        }
        let (ram_bytes, disk_bytes, n_nodes) = self.sizes();
        let on_disk = self.settings.disk.as_ref().filter(|_| self.store.as_ref().is_some_and(Store::has_disk));
        Some(CacheView {
            on: self.is_on(),
            ram_bytes,
            ram_budget: self.settings.ram_bytes,
            disk_bytes,
            disk_budget: on_disk.map_or(0, |disk| disk.bytes),
            disk_off: self.disk_off.clone(),
            interval_tokens: self.interval,
            n_nodes,
            totals: self.totals(),
            checks: self.checks,
            nodes: self.store.as_ref().map(nodes).unwrap_or_default(),
            recent: self.recent.iter().cloned().collect(),
        })
    }
}

/// Tokens of a node that a view shows.
const TAIL_TOKENS: usize = 12;

fn nodes(store: &Store) -> Vec<NodeView> {
    let tree = store.tree();
    let view = |(id, node): (NodeId, &Node)| {
        let parts = || node.point.iter().chain(node.rows.as_ref().map(|rows| &rows.part));
        let tail = node.edge.iter().rev().filter_map(PromptItem::token).take(TAIL_TOKENS);
        NodeView {
            key: node.key,
            parent: tree.get(node.parent).map_or(0, |parent| parent.key),
            n_tokens: node.end.n_tokens,
            kind: node.kind,
            hits: node.hits,
            ram_bytes: parts().map(Part::ram_bytes).sum(),
            disk_bytes: parts().filter(|part| part.disk == OnDisk::Yes).map(|part| part.len as u64).sum(),
            restorable: node.point.as_ref().is_some_and(Part::exists) && tree.spans(id, 0).is_some(),
            tail: tail.collect::<Vec<_>>().into_iter().rev().collect(),
        }
    };
    debug_assert!(tree.get(ROOT).is_some());
    tree.iter().take(N_LISTED).map(view).collect()
}

/// Distance of two states that is taken for rounding, against the length of the saved one. The
/// bound is a choice; the distance is logged with the verdict.
const ROUNDING: f64 = 0.02;

/// Compares a saved point with one computed anew: bytes first, then as vectors of floats.
pub(in crate::engine) fn compare(saved: &Arc<StateBytes>, anew: &[u8]) -> Verdict {
    if ***saved == *anew {
        return Verdict::Identical;
    }
    if saved.len() != anew.len() {
        return Verdict::Wrong(f64::INFINITY);
    }
    // Lengths and positions between the floats are tiny numbers when they are read as such.
    let floats = |bytes: &[u8]| -> Vec<f64> {
        bytes.chunks_exact(4).map(|b| f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect()
    };
    let (a, b) = (floats(saved), floats(anew));
    let length = a.iter().map(|x| x * x).sum::<f64>().sqrt();
    let distance = a.iter().zip(&b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt() / length;
    if distance <= ROUNDING { Verdict::Rounded(distance) } else { Verdict::Wrong(distance) }
}

/// See `compare`; with the distance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::engine) enum Verdict {
    Identical,
    Rounded(f64),
    Wrong(f64),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(floats: &[f32]) -> Vec<u8> {
        floats.iter().flat_map(|x| x.to_le_bytes()).collect()
    }

    #[test]
    fn rounding_is_told_from_a_wrong_state() {
        let state: Vec<f32> = (0..1000).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0).collect();
        let saved = Arc::new(StateBytes::from(bytes(&state)));
        let changed =
            |by: f32| bytes(&state.iter().enumerate().map(|(i, x)| x + by * (i % 3) as f32).collect::<Vec<_>>());
        assert_eq!(compare(&saved, &bytes(&state)), Verdict::Identical);
        assert!(matches!(compare(&saved, &changed(1e-4)), Verdict::Rounded(_)));
        assert!(matches!(compare(&saved, &changed(0.1)), Verdict::Wrong(_)));
        assert!(matches!(compare(&saved, &bytes(&state[1..])), Verdict::Wrong(_)));
        let mut broken = state.clone();
        broken[7] = f32::NAN;
        assert!(matches!(compare(&saved, &bytes(&broken)), Verdict::Wrong(_)), "not a number is not near anything");
    }
}
