//! What no file of the repository holds: hosts of package registries, weights of others.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders that are not part of the repository, where there is no git to say so.
const NOT_OURS: &[&str] = &[".git", "target", "node_modules", "__pycache__", ".venv"];

/// The folder of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Files of the repository by their path below its root: what git lists, or in a source archive all that is there.
pub fn files() -> Vec<String> {
    let root = root();
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(&root).output();
    let names = match listed.ok().filter(|output| output.status.success() && !output.stdout.is_empty()) {
        Some(output) => String::from_utf8(output.stdout).unwrap().split_terminator('\0').map(str::to_owned).collect(),
        None => walked(&root),
    };
    assert!(names.len() > 300, "the files of the repository were not found: {}", names.len());
    names
}

/// The same without git.
pub fn walked(root: &Path) -> Vec<String> {
    let (mut names, mut open) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(root.join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            let is_ours = !NOT_OURS.iter().any(|name| path.file_name().is_some_and(|last| last == *name));
            match entry.file_type().unwrap() {
                kind if kind.is_dir() && is_ours => open.push(path),
                kind if kind.is_file() => names.push(path.to_string_lossy().replace('\\', "/")),
                _ => {}
            }
        }
    }
    names.sort();
    names
}

/// What is wrong with a file of this name and text; `None` for a file that is no text.
pub fn faults(name: &str, text: Option<&str>) -> Vec<String> {
    let hosts = ["pypi", "crates", "npmjs"].map(|h| format!("{h}.{}", if h == "crates" { "io" } else { "org" }));
    if name.ends_with(".gguf") {
        let is_demo = name.starts_with("vendor/demo-model/plateau-demo");
        return if is_demo { vec![] } else { vec![format!("{name}: only the demo model's weights are committed")] };
    }
    // A lock file of cargo names its registry by a URL of cargo's own making.
    let Some(text) = text.filter(|_| !name.ends_with("Cargo.lock")) else { return vec![] };
    let named = hosts.iter().filter(|host| text.contains(host.as_str()));
    named.map(|_| format!("{name}: names a package registry's host")).collect()
}
