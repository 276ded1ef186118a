//! The architecture's rules, kept by a test: which layer may name which, where unsafe, axum and llama.cpp may appear, no import
//! circles, module docs, sizes. docs/ARCHITECTURE.md explains them.
//!
//! The rules work on parsed sources, so that comments, strings and formatting hide nothing; `snippets` shows for each rule what
//! it must report and what it must let pass. One subject a file.

#![expect(clippy::unwrap_used, reason = "a failure here is the test's failure")]

mod circles;
mod files;
mod layers;
mod listing;
mod paths;
mod rooms;
mod safety;
mod snippets;
mod tree;

use tree::{Source, Tree};

fn none(wrong: &[String]) {
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn layers_name_only_what_the_arrows_allow() {
    none(&layers::breaches(&Tree::of_crate()));
}

#[test]
fn foreign_names_stay_in_their_rooms() {
    none(&rooms::strays(&Tree::of_crate()));
}

#[test]
fn there_are_no_circles_of_imports() {
    let edges = circles::edges(&Tree::of_crate());
    none(&circles::circles(&edges).iter().map(|circle| circles::describe(circle, &edges)).collect::<Vec<_>>());
}

#[test]
fn every_module_says_what_it_is_for_and_fits_one_subject() {
    none(&Tree::of_crate().sources.iter().flat_map(files::faults).collect::<Vec<_>>());
}

#[test]
fn unsafe_blocks_say_why_they_are_sound() {
    let (n, wrong) = safety::unsafe_code(&Tree::of_crate().sources);
    assert!(n > 10, "the scanner finds no unsafe blocks: {n}");
    none(&wrong);
}

#[test]
fn every_test_runs() {
    let root = listing::root();
    let is_ours = |name: &&String| name.ends_with(".rs") && !name.starts_with("src/");
    let names: Vec<String> = listing::files().iter().filter(is_ours).cloned().collect();
    assert!(names.len() > 40, "the tests were not found");
    let read = |name: &String| files::ignored(name, std::fs::read_to_string(root.join(name)).unwrap().parse().unwrap());
    none(&names.iter().flat_map(read).collect::<Vec<_>>());
}

#[test]
fn no_file_names_machines_registries_or_foreign_weights() {
    let root = listing::root();
    let read = |name: &String| listing::faults(name, std::fs::read_to_string(root.join(name)).ok().as_deref());
    none(&listing::files().iter().flat_map(read).collect::<Vec<_>>());
}

#[test]
fn without_git_the_same_files_are_found() {
    let walked = listing::walked(&listing::root());
    let missing: Vec<String> = listing::files().into_iter().filter(|name| !walked.contains(name)).collect();
    // A link is listed by git and is no file of its own.
    none(&missing.into_iter().filter(|name| !&listing::root().join(name).is_symlink()).collect::<Vec<_>>());
}
