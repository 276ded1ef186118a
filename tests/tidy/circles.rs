//! No import circles between files.
//!
//! A file imports another when a path in it, in a `use` or anywhere else, leads to something that the other one defines.
//! Re-exports are followed to the definition, so a facade (`pub use child::Item` in the parent) stands in nobody's way: who
//! takes `super::Item` imports the child that defines it. `mod child;` alone and a re-export of what lies below are no
//! imports: they say where things are. A child that takes an item of its parent and a parent that calls its child are a
//! circle. Tests do not count: they may look at everything.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::tree::{Module, Target, Tree};

/// From, to, and where the import stands.
pub type Edges = BTreeMap<(String, String), BTreeSet<usize>>;

pub fn edges(tree: &Tree) -> Edges {
    let mut edges = Edges::new();
    for (module, contents) in &tree.modules {
        for used in tree.uses(module).filter(|used| !used.is_test) {
            let Some(Target::Item { module: to, .. }) = used.passed.last() else { continue };
            let only_named = used.import.is_some_and(|import| import.is_public) && is_below(to, module);
            let Some(target) = tree.modules.get(to) else { continue };
            if target.file != contents.file && !target.is_test && !only_named {
                let name = |file: usize| tree.sources[file].path.clone();
                edges.entry((name(contents.file), name(target.file))).or_default().insert(used.line);
            }
        }
    }
    edges
}

fn is_below(module: &Module, parent: &Module) -> bool {
    module.len() > parent.len() && module.starts_with(parent)
}

/// Files that import each other in circles, each group sorted, the groups in the order of their first file.
pub fn circles(edges: &Edges) -> Vec<Vec<String>> {
    let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (from, to) in edges.keys() {
        next.entry(from).or_default().insert(to);
        next.entry(to).or_default();
    }
    let reached: BTreeMap<&str, BTreeSet<&str>> = next.keys().map(|file| (*file, reach(&next, file))).collect();
    let mut groups: BTreeSet<Vec<String>> = BTreeSet::new();
    for (file, reaches) in reached.iter().filter(|(file, reaches)| reaches.contains(*file)) {
        let back = |other: &&&str| reached[**other].contains(file);
        groups.insert(reaches.iter().filter(back).map(|other| (*other).to_owned()).collect());
    }
    groups.into_iter().collect()
}

fn reach<'a>(next: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &'a str) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut open: Vec<&str> = next[from].iter().copied().collect();
    while let Some(file) = open.pop() {
        if seen.insert(file) {
            open.extend(next[file].iter().copied());
        }
    }
    seen
}

/// A circle with its edges and where they stand.
pub fn describe(circle: &[String], edges: &Edges) -> String {
    let mut out = format!("{} files: {}\n", circle.len(), circle.join(" "));
    for ((from, to), lines) in edges.iter().filter(|((from, to), _)| circle.contains(from) && circle.contains(to)) {
        let lines: Vec<String> = lines.iter().map(usize::to_string).collect();
        writeln!(out, "    {from} -> {to}  (line {})", lines.join(", ")).unwrap();
    }
    out
}
