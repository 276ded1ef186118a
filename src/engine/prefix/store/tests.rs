//! The tracker, the budgets and what comes back, over memory and disk, with files spoiled in between.

use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;

use super::super::disk::{Disk, file};
use super::super::key::Fingerprint;
use super::*;
use crate::units::Token;

const FINGERPRINT: Fingerprint = Fingerprint(5);
/// Bytes of a point in these tests.
const POINT: usize = 16;

fn items(text: &str) -> Vec<PromptItem> {
    text.bytes().map(|b| PromptItem::Token(Token(b.into()))).collect()
}

fn point(text: &str) -> Vec<u8> {
    let mut point = format!("{:>1$}", text.len(), POINT / 2).into_bytes();
    point.extend_from_slice(&super::super::key::checksum(text.as_bytes()).to_le_bytes());
    point
}

fn save(store: &mut Store, text: &str, kind: BreakpointKind) -> bool {
    let items = items(text);
    store.tick();
    let Some(place) = store.place(&items, POINT as u64) else { return false };
    let rows = text.as_bytes()[place.start as usize..].to_vec();
    store.insert(place, &items, kind, Saved { point: point(text).into(), rows: rows.into() })
}

/// The longest state that `text` can go on from, with disk reads waited for.
fn best(store: &mut Store, text: &str, kept: u32) -> Option<usize> {
    let items = items(text);
    let (_, nodes) = store.find(&items, items.len(), kept);
    for node in nodes {
        loop {
            let end = store.tree().get(node).map_or(0, |n| position(n.end));
            match store.fetch(node, kept.min(end)) {
                Fetch::Gone => break,
                Fetch::Waiting => store.wait(Duration::from_secs(600)),
                Fetch::Ready(state) => {
                    check(&state, &text[..end as usize], kept.min(end));
                    store.release();
                    return Some(end as usize);
                }
            }
        }
    }
    store.release();
    None
}

/// The state is that of `text`, and nothing else's.
fn check(state: &SavedState, text: &str, kept: u32) {
    assert_eq!(*state.point, point(text).into());
    let kept = state.rows.first().map_or(kept, |(span, _)| span.from);
    let mut rows = text.as_bytes()[..kept as usize].to_vec();
    for (span, bytes) in &state.rows {
        assert_eq!(span.from as usize, rows.len());
        rows.extend_from_slice(&bytes[(span.from - span.start) as usize..(span.to - span.start) as usize]);
    }
    assert_eq!(rows, text.as_bytes());
}

fn open(dir: &Path, ram: u64, disk_bytes: u64) -> Store {
    let mut store = Store::new(ram);
    let (disk, records) = Disk::open(dir, FINGERPRINT).unwrap();
    store.attach(disk, records, disk_bytes);
    store
}

/// Lets the I/O thread finish.
fn settle(store: &mut Store) {
    while !store.in_flight.is_empty() {
        store.wait(Duration::from_secs(600));
    }
}

fn assert_budgets(store: &Store) {
    let ram: u64 = store
        .tree
        .iter()
        .flat_map(|(_, n)| n.point.iter().chain(n.rows.as_ref().map(|r| &r.part)))
        .map(Part::ram_bytes)
        .sum();
    assert_eq!(ram, store.ram_bytes, "the tracker");
    assert!(store.ram_bytes <= store.ram_budget, "{} of {}", store.ram_bytes, store.ram_budget);
    let parts = store.tree.iter().flat_map(|(_, n)| n.point.iter().chain(n.rows.as_ref().map(|r| &r.part)));
    let disk: u64 = parts.filter(|part| part.disk != OnDisk::No).map(|part| part.len as u64).sum();
    assert_eq!(disk, store.disk_bytes, "the tracker of the disk");
    assert!(store.disk_bytes <= store.disk_budget.max(disk * u64::from(store.disk.is_none())));
}

#[test]
fn a_state_larger_than_the_budget_is_not_saved_and_nothing_else_is_lost_for_it() {
    let mut store = Store::new(60);
    assert!(save(&mut store, "abc", BreakpointKind::Grid));
    assert!(!save(&mut store, &"x".repeat(100), BreakpointKind::Grid));
    assert_eq!(best(&mut store, "abcd", 0), Some(3));
    assert_eq!(store.totals().too_large, 1);
}

/// One long prompt must not push out the beginning that all prompts share.
#[test]
fn the_shared_beginning_outlives_a_long_prompt() {
    let mut store = Store::new(400);
    let system = "s".repeat(40);
    assert!(save(&mut store, &system, BreakpointKind::System));
    for i in 0..30 {
        save(&mut store, &format!("{system}{}", "u".repeat(10 + i)), BreakpointKind::Grid);
    }
    for i in 0..20 {
        save(&mut store, &format!("{i:02}{}", "o".repeat(30)), BreakpointKind::PromptEnd);
        assert_eq!(best(&mut store, &format!("{system}new"), 0), Some(40), "after {i}");
    }
    assert_budgets(&store);
}

#[test]
fn states_come_back_after_a_restart_and_nothing_is_read_before_it_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path(), 10_000, 10_000);
    for text in ["ab", "abcd", "abcdef", "abxy", "q"] {
        assert!(save(&mut store, text, BreakpointKind::Message));
    }
    drop(store);
    let mut store = open(dir.path(), 10_000, 10_000);
    assert_eq!(store.ram_bytes(), 0);
    for (text, n) in [("abcdefgh", 6), ("abxyz", 4), ("abc", 2), ("qq", 1)] {
        assert_eq!(best(&mut store, text, 0), Some(n), "{text}");
    }
    assert_eq!(store.tree().get(NodeId(1)).map(|node| node.kind), Some(BreakpointKind::Message));
    assert_budgets(&store);
}

#[test]
fn a_corrupted_file_costs_what_stands_on_it_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path(), 10_000, 10_000);
    for text in ["ab", "abcd", "q"] {
        assert!(save(&mut store, text, BreakpointKind::Message));
    }
    // The rows of "ab", which "abcd" needs too.
    let rows = store.tree().iter().find(|(_, n)| n.end.n_items == 2).and_then(|(_, n)| n.rows.clone()).unwrap();
    drop(store);
    let path = file::path(&dir.path().join(FINGERPRINT.folder()), rows.part.id);
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let mut store = open(dir.path(), 10_000, 10_000);
    assert_eq!(best(&mut store, "abcd", 0), None);
    assert_eq!(best(&mut store, "q", 0), Some(1));
    assert_eq!(store.totals().unreadable, 1);
    assert!(save(&mut store, "abcd", BreakpointKind::Message), "it can be saved again");
    assert_eq!(best(&mut store, "abcd", 0), Some(4));
    assert_budgets(&store);
}

#[test]
fn a_disk_that_refuses_writes_leaves_memory_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path(), 10_000, 10_000);
    let folder = dir.path().join(FINGERPRINT.folder());
    // A folder where the file should be: as good as a full disk for the writer.
    for id in 1..20 {
        std::fs::create_dir_all(file::path(&folder, id).join("x")).unwrap();
    }
    assert!(save(&mut store, "abcd", BreakpointKind::Message));
    settle(&mut store);
    assert_eq!(best(&mut store, "abcd", 0), Some(4));
    assert!(store.totals().unwritten > 0);
    assert_eq!(store.disk_bytes(), 0);
    assert_budgets(&store);
}

#[derive(Clone, Debug)]
enum Act {
    Save(String),
    Find(String, u8),
    Forget(u8),
    Restart,
    /// Flips a bit of a file, cuts one, or removes one.
    Spoil(u8, u8),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => "[ab]{1,24}".prop_map(Act::Save),
        4 => ("[ab]{1,28}", any::<u8>()).prop_map(|(text, kept)| Act::Find(text, kept)),
        1 => any::<u8>().prop_map(Act::Forget),
        1 => Just(Act::Restart),
        1 => (any::<u8>(), 0u8..3).prop_map(|(which, how)| Act::Spoil(which, how)),
    ]
}

fn spoil(dir: &Path, which: u8, how: u8) {
    let folder = dir.join(FINGERPRINT.folder());
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "part"));
    files.sort();
    if files.is_empty() {
        return;
    }
    let path = &files[usize::from(which) % files.len()];
    let mut bytes = std::fs::read(path).unwrap();
    match how {
        0 => *bytes.last_mut().unwrap() ^= 64,
        1 => bytes.truncate(bytes.len() / 2),
        _ => return std::fs::remove_file(path).unwrap(),
    }
    std::fs::write(path, bytes).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn no_order_of_edits_evictions_restarts_and_faults_ever_gives_a_wrong_state(
        acts in prop::collection::vec(act(), 1..60),
        ram in 60u64..600,
        disk in 60u64..900,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut store = open(dir.path(), ram, disk);
        for act in acts {
            match act {
                Act::Save(text) => {
                    save(&mut store, &text, BreakpointKind::Grid);
                }
                Act::Find(text, kept) => {
                    // `best` checks what it finds.
                    let kept = u32::from(kept) % (text.len() as u32 + 1);
                    best(&mut store, &text, kept);
                }
                Act::Forget(which) => {
                    let ids: Vec<NodeId> = store.tree().iter().map(|(id, _)| id).collect();
                    if let Some(id) = ids.get(usize::from(which) % ids.len().max(1)) {
                        store.forget(*id);
                    }
                }
                Act::Restart => {
                    drop(store);
                    store = open(dir.path(), ram, disk);
                }
                Act::Spoil(which, how) => {
                    settle(&mut store);
                    spoil(dir.path(), which, how);
                }
            }
            assert_budgets(&store);
        }
        // No orphans: every file is some node's.
        drop(store);
        let store = open(dir.path(), ram, disk);
        let owners = store.owners.clone();
        drop(store);
        let folder = dir.path().join(FINGERPRINT.folder());
        for entry in std::fs::read_dir(&folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            prop_assert!(file::id_of(&name).is_none_or(|id| owners.contains_key(&id)), "{}", name);
        }
    }
}
