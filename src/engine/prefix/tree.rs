//! The tree of saved states: which prompts begin alike, and what must be put together to restore
//! one.
//!
//! A node is a place in a prompt where a state was saved. It has a point (recurrent state, pending
//! hidden state) and the attention rows of its edge; a state is one point and the rows of all edges
//! up to it. Prompts that part are siblings: adding one takes nothing from another. A node without
//! a point is there for the rows that others need.
//!
//! Nothing here knows budgets (`store`) or files (`disk`).

use std::sync::Arc;

use crate::engine::request::breakpoint::BreakpointKind;
use crate::engine::request::item::{Extent, PromptItem};
use crate::engine::runner::state_bytes::StateBytes;

/// Index of a node; valid until the node is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::engine) struct NodeId(pub usize);

/// The empty prompt.
pub(super) const ROOT: NodeId = NodeId(0);

/// Is a copy of a part on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnDisk {
    No,
    /// It was handed over to be written.
    Writing,
    Yes,
}

/// A piece of saved state.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// Unique, also over restarts.
    pub id: u64,
    pub len: usize,
    pub ram: Option<Arc<StateBytes>>,
    pub disk: OnDisk,
}

impl Part {
    pub fn new(id: u64, bytes: StateBytes) -> Part {
        Part { id, len: bytes.len(), ram: Some(Arc::new(bytes)), disk: OnDisk::No }
    }

    pub fn ram_bytes(&self) -> u64 {
        self.ram.as_ref().map_or(0, |bytes| bytes.footprint() as u64)
    }

    /// It can be had.
    pub fn exists(&self) -> bool {
        self.ram.is_some() || self.disk == OnDisk::Yes
    }
}

/// Attention rows of positions `start..` the node's end; `start` lies before its parent's end where
/// the parent came later.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    pub start: u32,
    pub part: Part,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Unique, also over restarts; 0 is the root's.
    pub key: u64,
    pub parent: NodeId,
    pub children: Vec<NodeId>,
    /// Items from the parent's end to this one's.
    pub edge: Vec<PromptItem>,
    pub end: Extent,
    pub point: Option<Part>,
    pub rows: Option<Rows>,
    pub kind: BreakpointKind,
    /// Requests that began here.
    pub hits: u32,
    /// The store's count of requests when it was last of use.
    pub last_used: u64,
    /// There was a point, and it had to go.
    pub evicted: bool,
}

/// Part of a node's rows that a state is put together from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Span {
    pub node: NodeId,
    pub start: u32,
    pub end: u32,
    /// The wanted positions of `start..end`.
    pub from: u32,
    pub to: u32,
}

/// How far a prompt is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::engine) struct PrefixMatch {
    /// Nodes that the prompt goes through, the root left out.
    pub nodes: Vec<NodeId>,
    /// Items that it shares with some prompt of the tree.
    pub n_common: usize,
    /// What that prompt has next.
    pub next: Option<PromptItem>,
}

pub(super) struct Tree {
    nodes: Vec<Option<Node>>,
    free: Vec<usize>,
}

impl Tree {
    pub fn new() -> Tree {
        let root = Node {
            key: 0,
            parent: ROOT,
            children: Vec::new(),
            edge: Vec::new(),
            end: Extent::default(),
            point: None,
            rows: None,
            kind: BreakpointKind::Grid,
            hits: 0,
            last_used: 0,
            evicted: false,
        };
        Tree { nodes: vec![Some(root)], free: Vec::new() }
    }

    /// All nodes but the root.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().enumerate().skip(1).filter_map(|(i, node)| Some((NodeId(i), node.as_ref()?)))
    }

    pub fn get(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.0)?.as_ref()
    }

    pub fn get_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.nodes.get_mut(id.0)?.as_mut()
    }

    pub fn len(&self) -> usize {
        self.nodes.len() - 1 - self.free.len()
    }

    fn children(&self, id: NodeId) -> impl Iterator<Item = (NodeId, &Node)> {
        let children = self.get(id).map_or(&[][..], |node| &node.children);
        children.iter().filter_map(|child| Some((*child, self.get(*child)?)))
    }

    /// Follows `items` as far as the tree knows them.
    pub fn longest_match(&self, items: &[PromptItem]) -> PrefixMatch {
        let mut matched = PrefixMatch::default();
        let mut at = ROOT;
        let mut n = 0;
        while let Some((id, node)) = self.children(at).find(|(_, node)| items[n..].starts_with(&node.edge)) {
            matched.nodes.push(id);
            n += node.edge.len();
            at = id;
        }
        let rest = &items[n..];
        let shared = |edge: &[PromptItem]| edge.iter().zip(rest).take_while(|(a, b)| a == b).count();
        let best = self.children(at).map(|(_, node)| (shared(&node.edge), node)).max_by_key(|(n, _)| *n);
        matched.n_common = n + best.map_or(0, |(n, _)| n);
        matched.next = best.and_then(|(n, node)| node.edge.get(n).cloned());
        matched
    }

    /// The node at the end of `items`, if there is one, and its parent-to-be otherwise.
    pub fn locate(&self, items: &[PromptItem]) -> (NodeId, bool) {
        let matched = self.longest_match(items);
        let at = matched.nodes.last().copied().unwrap_or(ROOT);
        (at, self.get(at).is_some_and(|node| node.end.n_items == items.len()))
    }

    /// Adds the node of `items` below `parent` (from `locate`). Nodes that go on from there become
    /// its children.
    pub fn add(&mut self, parent: NodeId, items: &[PromptItem], kind: BreakpointKind, key: u64) -> NodeId {
        let n_parent = self.get(parent).map_or(0, |node| node.end.n_items);
        let edge = items[n_parent..].to_vec();
        let beyond: Vec<NodeId> =
            self.children(parent).filter(|(_, node)| node.edge.starts_with(&edge)).map(|(id, _)| id).collect();
        let node = Node {
            key,
            parent,
            children: beyond.clone(),
            end: Extent::of(items),
            point: None,
            rows: None,
            kind,
            hits: 0,
            last_used: 0,
            evicted: false,
            edge,
        };
        let n_edge = node.edge.len();
        let id = match self.free.pop() {
            Some(slot) => {
                self.nodes[slot] = Some(node);
                NodeId(slot)
            }
            None => {
                self.nodes.push(Some(node));
                NodeId(self.nodes.len() - 1)
            }
        };
        for child in &beyond {
            if let Some(node) = self.get_mut(*child) {
                node.parent = id;
                node.edge.drain(..n_edge);
            }
        }
        if let Some(node) = self.get_mut(parent) {
            node.children.retain(|child| !beyond.contains(child));
            node.children.push(id);
        }
        id
    }

    /// Removes a node without children.
    pub fn remove(&mut self, id: NodeId) -> Option<Node> {
        if id == ROOT || self.get(id).is_none_or(|node| !node.children.is_empty()) {
            return None;
        }
        let node = self.nodes[id.0].take()?;
        self.free.push(id.0);
        if let Some(parent) = self.get_mut(node.parent) {
            parent.children.retain(|child| *child != id);
        }
        Some(node)
    }

    /// The node and everything below it, children first.
    pub fn below(&self, id: NodeId) -> Vec<NodeId> {
        let mut all = vec![id];
        let mut i = 0;
        while i < all.len() {
            all.extend(self.children(all[i]).map(|(child, _)| child));
            i += 1;
        }
        all.reverse();
        all
    }

    /// The items from the root to the end of a node.
    pub fn items(&self, id: NodeId) -> Vec<PromptItem> {
        let mut edges = Vec::new();
        let mut at = id;
        while let Some(node) = self.get(at).filter(|_| at != ROOT) {
            edges.push(&node.edge);
            at = node.parent;
        }
        edges.into_iter().rev().flatten().cloned().collect()
    }

    /// The rows that `id` needs beyond position `kept`, in ascending order. The first ones begin at
    /// or before `kept`: a part of what was saved together would lie in the cache in another order,
    /// and round otherwise. `None`: some are gone.
    pub fn spans(&self, id: NodeId, kept: u32) -> Option<Vec<Span>> {
        let mut spans = Vec::new();
        let mut at = id;
        let mut to = position(self.get(id)?.end);
        while to > kept {
            let node = self.get(at).filter(|_| at != ROOT)?;
            let end = position(node.end);
            if let Some(rows) = node.rows.as_ref().filter(|rows| rows.start < to && end >= to && rows.part.exists()) {
                spans.push(Span { node: at, start: rows.start, end, from: rows.start, to });
                to = rows.start;
            } else if end < to {
                return None;
            }
            at = node.parent;
        }
        spans.reverse();
        Some(spans)
    }

    /// The position that the nearest node above `id` (or `id` itself) ends at which has rows up to
    /// it: where rows that are saved below it may begin.
    pub fn covered(&self, id: NodeId) -> u32 {
        let mut at = id;
        while at != ROOT {
            if self.spans(at, 0).is_some() {
                return self.get(at).map_or(0, |node| position(node.end));
            }
            at = self.get(at).map_or(ROOT, |node| node.parent);
        }
        0
    }
}

pub(super) fn position(extent: Extent) -> u32 {
    extent.pos().0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::units::Token;

    fn items(text: &str) -> Vec<PromptItem> {
        text.bytes().map(|b| PromptItem::Token(Token(b.into()))).collect()
    }

    fn add(tree: &mut Tree, text: &str) -> NodeId {
        let items = items(text);
        let (at, exact) = tree.locate(&items);
        if exact {
            return at;
        }
        let start = tree.covered(at);
        let id = tree.add(at, &items, BreakpointKind::Grid, 1);
        let node = tree.get_mut(id).unwrap();
        node.point = Some(Part::new(1, b"point".to_vec().into()));
        node.rows = Some(Rows { start, part: Part::new(2, text.as_bytes()[start as usize..].to_vec().into()) });
        id
    }

    /// The rows of a state, put together behind those of `kept` that are still needed.
    fn restored(tree: &Tree, id: NodeId, kept: &str) -> Option<String> {
        let spans = tree.spans(id, kept.len() as u32)?;
        let mut bytes = kept.as_bytes()[..spans.first().map_or(kept.len(), |span| span.from as usize)].to_vec();
        for span in spans {
            let rows = tree.get(span.node)?.rows.as_ref()?;
            let part = rows.part.ram.as_ref()?;
            bytes.extend_from_slice(&part[(span.from - span.start) as usize..(span.to - span.start) as usize]);
        }
        String::from_utf8(bytes).ok()
    }

    #[test]
    fn a_divergence_destroys_nothing() {
        let mut tree = Tree::new();
        let (long, short) = (add(&mut tree, "abcdefgh"), add(&mut tree, "abcd"));
        let branch = add(&mut tree, "abcdxy");
        for (id, text) in [(long, "abcdefgh"), (short, "abcd"), (branch, "abcdxy")] {
            assert_eq!(restored(&tree, id, "").as_deref(), Some(text));
            assert_eq!(tree.items(id), items(text));
        }
        assert_eq!(tree.get(branch).unwrap().rows.as_ref().unwrap().part.len, 2, "the common rows are there once");
        assert_eq!(tree.spans(branch, 3).map(|spans| spans[0].from), Some(0), "what was saved together comes together");
        assert_eq!(tree.spans(branch, 4).map(|spans| spans[0].from), Some(4));
    }

    #[test]
    fn a_walk_names_the_first_item_that_differs() {
        let mut tree = Tree::new();
        add(&mut tree, "abcdefgh");
        add(&mut tree, "abcd");
        let matched = tree.longest_match(&items("abcdefxx"));
        assert_eq!((matched.nodes.len(), matched.n_common), (1, 6));
        assert_eq!(matched.next, Some(items("g")[0]));
    }

    #[test]
    fn a_state_without_all_of_its_rows_is_no_state() {
        let mut tree = Tree::new();
        let parent = add(&mut tree, "abcd");
        let child = add(&mut tree, "abcdef");
        tree.get_mut(parent).unwrap().rows = None;
        assert_eq!(tree.spans(child, 0), None);
        assert_eq!(restored(&tree, child, "abcd").as_deref(), Some("abcdef"), "the rest may be where it is");
        assert!(tree.remove(parent).is_none(), "it has children");
    }

    proptest! {
        #[test]
        fn every_state_is_put_together_whatever_came_in_between(texts in prop::collection::vec("[ab]{1,9}", 1..40)) {
            let mut tree = Tree::new();
            let mut ids = Vec::new();
            for text in &texts {
                ids.push(add(&mut tree, text));
            }
            for (id, text) in ids.iter().zip(&texts) {
                for kept in 0..=text.len() {
                    prop_assert_eq!(restored(&tree, *id, &text[..kept]), Some(text.clone()));
                }
                let matched = tree.longest_match(&items(text));
                prop_assert_eq!(matched.nodes.last(), Some(id));
                prop_assert_eq!(matched.n_common, text.len());
            }
            // Leaves first, everything can go.
            for id in tree.below(ROOT) {
                prop_assert_eq!(tree.remove(id).is_some(), id != ROOT);
            }
            prop_assert_eq!(tree.len(), 0);
        }
    }
}
