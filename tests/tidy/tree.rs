//! The crate as the compiler sees it, as far as names go: modules, what each defines, what each gives on, what each imports.
//!
//! Built from parsed sources (or from texts, so that the rules can be tested with snippets). Names are resolved as far as paths
//! allow: `crate::`, `self::`, `super::`, imported names, children, re-exports. Methods and fields are not followed, and inside
//! macros every `a::b` counts as a path.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::listing;
use super::paths::{self, Named};

/// A module by its names below the crate, `["api", "sse"]`; the crate itself is empty.
pub type Module = Vec<String>;

/// One source file.
pub struct Source {
    /// Below `src`, with slashes.
    pub path: String,
    pub text: String,
    pub tokens: proc_macro2::TokenStream,
    pub syntax: syn::File,
}

impl Source {
    pub fn new(path: String, text: String) -> Source {
        let tokens: proc_macro2::TokenStream = text.parse().unwrap_or_else(|error| panic!("{path}: {error}"));
        let syntax = syn::parse2(tokens.clone()).unwrap_or_else(|error| panic!("{path}: {error}"));
        Source { path, text, tokens, syntax }
    }
}

/// What one module holds; inline modules are modules of the same file.
#[derive(Default)]
pub struct Contents {
    /// Its file, as an index into `sources`.
    pub file: usize,
    /// Below `#[cfg(test)]`, or a file that only such a declaration brings in.
    pub is_test: bool,
    pub defines: BTreeSet<String>,
    /// Every import: the local name and the path as it is written.
    pub imports: Vec<Import>,
    /// Every other path.
    pub named: Vec<Named>,
}

/// A name that `use` brings in.
#[derive(Clone, Debug)]
pub struct Import {
    /// `*` for all names.
    pub name: String,
    pub path: Vec<String>,
    /// `pub use`, to anybody.
    pub is_public: bool,
    pub is_test: bool,
    pub line: usize,
}

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Another crate, by its name.
    Extern(String),
    /// A module of this crate and, unless the path names the module itself, what is meant in it.
    Item { module: Module, item: Option<String> },
}

/// All of it.
pub struct Tree {
    pub sources: Vec<Source>,
    pub modules: BTreeMap<Module, Contents>,
}

impl Tree {
    /// The sources of this crate.
    pub fn of_crate() -> Tree {
        let root = listing::root().join("src");
        let mut texts = Vec::new();
        collect(&root, &root, &mut texts);
        assert!(texts.len() > 100, "the sources were not found");
        texts.sort();
        Tree::new(texts)
    }

    /// Files by their path below `src`.
    pub fn new(texts: Vec<(String, String)>) -> Tree {
        let sources: Vec<Source> = texts.into_iter().map(|(path, text)| Source::new(path, text)).collect();
        let mut modules = BTreeMap::new();
        for (file, source) in sources.iter().enumerate() {
            paths::read(file, &module_of(&source.path), &source.syntax, &mut modules);
        }
        let mut tree = Tree { sources, modules };
        tree.spread_tests();
        tree
    }

    /// A module below a test is a test.
    fn spread_tests(&mut self) {
        let tests: Vec<Module> =
            self.modules.iter().filter(|(_, contents)| contents.is_test).map(|(module, _)| module.clone()).collect();
        for (module, contents) in &mut self.modules {
            contents.is_test |= tests.iter().any(|test| module.starts_with(test));
        }
    }

    pub fn file_of(&self, module: &[String]) -> Option<&Source> {
        self.modules.get(module).map(|contents| &self.sources[contents.file])
    }

    /// Every path of the module with what it leads to, imports included; a glob leads to the module.
    pub fn uses<'a>(&'a self, module: &'a Module) -> impl Iterator<Item = Use<'a>> {
        let contents = &self.modules[module];
        let imports = contents.imports.iter().map(|import| (&import.path, import.line, import.is_test, Some(import)));
        let named = contents.named.iter().map(|named| (&named.path, named.line, named.is_test, None));
        imports.chain(named).map(move |(path, line, is_test, import)| Use {
            path,
            line,
            is_test: is_test || contents.is_test,
            import,
            passed: self.resolve(module, path),
        })
    }

    /// Where a path leads, through every re-export on its way: the last target is where the thing is defined.
    pub fn resolve(&self, from: &Module, path: &[String]) -> Vec<Target> {
        let mut passed = Vec::new();
        self.follow(from, path, &mut passed, &mut BTreeSet::new());
        passed
    }

    fn follow(&self, from: &Module, path: &[String], passed: &mut Vec<Target>, seen: &mut BTreeSet<(Module, String)>) {
        let Some((first, rest)) = path.split_first() else { return };
        match first.as_str() {
            "crate" | "plateau" | "$crate" => self.walk(Vec::new(), rest, passed, seen),
            "self" => self.walk(from.clone(), rest, passed, seen),
            "super" => self.walk(from[..from.len().saturating_sub(1)].to_vec(), rest, passed, seen),
            _ if self.has(from, first) => self.walk(from.clone(), path, passed, seen),
            _ => match self.globbed(from, first) {
                Some(module) => self.walk(module, path, passed, seen),
                None => passed.push(Target::Extern(first.clone())),
            },
        }
    }

    /// From a module on along names.
    fn walk(&self, at: Module, path: &[String], passed: &mut Vec<Target>, seen: &mut BTreeSet<(Module, String)>) {
        let Some((name, rest)) = path.split_first() else {
            return passed.push(Target::Item { module: at, item: None });
        };
        match name.as_str() {
            "self" | "*" => return self.walk(at, rest, passed, seen),
            "super" => return self.walk(at[..at.len().saturating_sub(1)].to_vec(), rest, passed, seen),
            _ => {}
        }
        let child: Module = at.iter().chain([name]).cloned().collect();
        if self.modules.contains_key(&child) {
            return self.walk(child, rest, passed, seen);
        }
        passed.push(Target::Item { module: at.clone(), item: Some(name.clone()) });
        let Some(contents) = self.modules.get(&at) else { return };
        if contents.defines.contains(name) || !seen.insert((at.clone(), name.clone())) {
            return;
        }
        if let Some(import) = contents.imports.iter().find(|import| import.name == *name) {
            let full: Vec<String> = import.path.iter().chain(rest).cloned().collect();
            // An import that is not absolute may begin with its own name, as `use serde;` does.
            if import.path.first() != Some(name) {
                self.follow(&at, &full, passed, seen);
            } else {
                passed.push(Target::Extern(name.clone()));
            }
            return;
        }
        if let Some(module) = self.globbed(&at, name) {
            self.walk(module, path, passed, seen);
        }
    }

    /// Does the module know this name without a path.
    fn has(&self, module: &Module, name: &str) -> bool {
        let child: Module = module.iter().cloned().chain([name.to_owned()]).collect();
        let contents = self.modules.get(module);
        self.modules.contains_key(&child)
            || contents.is_some_and(|contents| {
                contents.defines.contains(name) || contents.imports.iter().any(|import| import.name == name)
            })
    }

    /// The module that `use something::*` brings the name from.
    fn globbed(&self, module: &Module, name: &str) -> Option<Module> {
        let globs = self.modules.get(module)?.imports.iter().filter(|import| import.name == "*");
        globs
            .filter_map(|glob| self.absolute(module, &glob.path))
            .find(|target| target != module && self.has(target, name))
    }

    /// A path to a module, without following re-exports.
    fn absolute(&self, from: &Module, path: &[String]) -> Option<Module> {
        let (first, rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" | "plateau" => Vec::new(),
            "self" => from.clone(),
            "super" => from[..from.len().saturating_sub(1)].to_vec(),
            _ => from.iter().cloned().chain([first.clone()]).collect(),
        };
        for name in rest.iter().filter(|name| *name != "*" && *name != "self") {
            match name.as_str() {
                "super" => drop(at.pop()),
                _ => at.push(name.clone()),
            }
        }
        self.modules.contains_key(&at).then_some(at)
    }
}

/// One path in a module.
pub struct Use<'a> {
    pub path: &'a [String],
    pub line: usize,
    pub is_test: bool,
    /// Where it is in a `use`.
    pub import: Option<&'a Import>,
    /// What it leads to, through every re-export on the way.
    pub passed: Vec<Target>,
}

fn collect(root: &Path, folder: &Path, into: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(root, &path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
            into.push((name, std::fs::read_to_string(&path).unwrap()));
        }
    }
}

/// `main.rs` is a crate of its own, which names this one `plateau`.
pub fn module_of(path: &str) -> Module {
    let path = path.trim_end_matches(".rs");
    let mut names: Module = path.split('/').map(str::to_owned).collect();
    if names.last().is_some_and(|last| last == "mod" || last == "lib") {
        names.pop();
    }
    names
}

/// The first name below the crate: `api`, or `lib` for the crate itself.
pub fn layer(module: &[String]) -> &str {
    module.first().map_or("lib", String::as_str)
}
