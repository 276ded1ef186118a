//! Names that belong into one room: foreign crates, unsafe code, locks, the environment.

use proc_macro2::{TokenStream, TokenTree};

use super::tree::{Source, Tree, layer, module_of};

/// (a name or a path, layers that may hold it). A path counts also where its parts come by `use`.
const ROOMS: &[(&str, &[&str])] = &[
    ("llama_cpp_sys_2", &["llama"]),
    ("unsafe", &["llama"]),
    ("axum", &["api", "app"]),
    ("StatusCode", &["api"]),
    ("minijinja", &["chat"]),
    ("nvml_wrapper", &["gpu"]),
    ("prometheus_client", &["telemetry"]),
    ("env::var", &["config"]),
    ("env::var_os", &["config"]),
    ("env::vars", &["config"]),
    ("env::vars_os", &["config"]),
    ("env::set_var", &[]),
    ("Mutex", &["llama"]),
    ("RwLock", &[]),
    ("static mut", &[]),
];

/// The one file of its layer that may know it.
const FILES: &[(&str, &str)] = &[("StatusCode", "api/error.rs")];

/// Every name outside its room.
pub fn strays(tree: &Tree) -> Vec<String> {
    let mut wrong = Vec::new();
    for source in &tree.sources {
        let mut words = Vec::new();
        flatten(source.tokens.clone(), &mut words);
        let imports = imported(tree, source);
        for (name, layers) in ROOMS {
            let sought: Vec<&str> = name.split([' ', ':']).filter(|part| !part.is_empty()).collect();
            let Some(line) = find(&words, &sought, name.contains("::")).or_else(|| find_path(&imports, &sought)) else {
                continue;
            };
            let module = module_of(&source.path);
            let file = FILES.iter().find(|(other, _)| other == name).map(|(_, file)| *file);
            if !layers.contains(&layer(&module)) {
                wrong.push(format!("{}:{line}: `{name}` belongs to {layers:?}", source.path));
            } else if file.is_some_and(|file| file != source.path) {
                wrong.push(format!("{}:{line}: `{name}` belongs to {} alone", source.path, file.unwrap()));
            }
        }
    }
    wrong
}

/// Words and marks in their order, without comments and with no regard to literals.
fn flatten(tokens: TokenStream, into: &mut Vec<(String, usize)>) {
    for token in tokens {
        let line = token.span().start().line;
        match token {
            TokenTree::Ident(ident) => into.push((ident.to_string(), line)),
            TokenTree::Punct(punct) => into.push((punct.as_char().to_string(), line)),
            TokenTree::Group(group) => {
                into.push(("(".to_owned(), line));
                flatten(group.stream(), into);
                into.push((")".to_owned(), line));
            }
            TokenTree::Literal(_) => into.push(("\"".to_owned(), line)),
        }
    }
}

fn find(words: &[(String, usize)], sought: &[&str], is_path: bool) -> Option<usize> {
    let step = if is_path { 3 } else { 1 };
    let fits = |at: usize| {
        sought.iter().enumerate().all(|(i, part)| words.get(at + i * step).is_some_and(|(word, _)| word == part))
            && (!is_path || words[at + 1].0 == ":")
    };
    (0..words.len()).find(|at| fits(*at)).map(|at| words[at].1)
}

/// The full paths of all names that the file imports or uses, and their lines.
fn imported(tree: &Tree, source: &Source) -> Vec<(Vec<String>, usize)> {
    let here = |contents: &&super::tree::Contents| tree.sources[contents.file].path == source.path;
    let mut paths = Vec::new();
    for contents in tree.modules.values().filter(here) {
        paths.extend(contents.imports.iter().map(|import| (import.path.clone(), import.line)));
        for named in &contents.named {
            let import = contents.imports.iter().find(|import| import.name == named.path[0]);
            let full = import.map(|import| import.path.iter().chain(&named.path[1..]).cloned().collect());
            paths.extend(full.map(|path| (path, named.line)));
        }
    }
    paths
}

fn find_path(paths: &[(Vec<String>, usize)], sought: &[&str]) -> Option<usize> {
    let fits = |path: &[String]| sought.len() > 1 && path.windows(sought.len()).any(|window| window == sought);
    paths.iter().find(|(path, _)| fits(path)).map(|(_, line)| *line)
}
