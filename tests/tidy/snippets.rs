//! The test of the test: for each rule snippets that it must report, and others that look like them and are fine.

use super::tree::Tree;
use super::{Source, circles, files, layers, listing, rooms, safety};

type Files = &'static [(&'static str, &'static str)];

/// Layers with something in each that others can name.
const BASE: Files = &[
    (
        "lib.rs",
        "pub mod api; pub mod chat; pub mod engine; pub mod grammar; pub mod llama; pub mod text; pub mod units;",
    ),
    ("api/mod.rs", "pub struct Body; pub mod wire;"),
    ("api/wire.rs", "pub struct Wire;"),
    (
        "chat/mod.rs",
        "mod given; pub use given::Given; pub use crate::grammar::Schema; pub use crate::text as words; pub fn ask() {}",
    ),
    ("chat/given.rs", "pub struct Given;"),
    ("engine/mod.rs", "mod handle; pub mod request; pub use handle::Handle; pub use request::Request;"),
    ("engine/handle.rs", "pub struct Handle;"),
    ("engine/request.rs", "pub struct Request; pub enum Item { Token }"),
    ("grammar/mod.rs", "pub struct Schema; pub fn compile() {}"),
    ("llama/mod.rs", ""),
    ("text/mod.rs", "pub struct Tokenizer; pub mod stop;"),
    ("text/stop.rs", "pub struct Stop;"),
    ("units.rs", "pub struct Token;"),
];

fn tree(more: Files) -> Tree {
    let mut all: Vec<(String, String)> = BASE.iter().map(|(path, text)| ((*path).into(), (*text).into())).collect();
    for (path, text) in more {
        all.retain(|(other, _)| other != path);
        all.push(((*path).into(), (*text).into()));
    }
    Tree::new(all)
}

fn check(rule: &str, reported: &[Files], fine: &[Files], breaches: impl Fn(&Tree) -> Vec<String>) {
    let base = breaches(&tree(&[]));
    assert!(base.is_empty(), "{rule}: {base:?}");
    for files in reported {
        assert!(!breaches(&tree(files)).is_empty(), "{rule} lets pass: {files:?}");
    }
    for files in fine {
        let told = breaches(&tree(files));
        assert!(told.is_empty(), "{rule} reports: {files:?}: {told:?}");
    }
}

#[test]
fn layers_are_told_by_every_kind_of_path() {
    let reported: &[Files] = &[
        &[("text/a.rs", "use crate::api::Body;")],
        &[("text/a.rs", "fn f() { crate::api::Body; }")],
        &[("text/a.rs", "fn f(x: crate::api::Body) {}")],
        &[("text/a.rs", "use super::super::api::Body;")],
        &[("text/a.rs", "use crate::{units::Token, api::{self, wire::Wire}};")],
        &[("text/a.rs", "use crate::api as other; fn f(x: other::Body) {}")],
        &[("text/a.rs", "use crate::api::*;")],
        &[("text/a.rs", "use ::plateau::api::Body;")],
        &[("text/a.rs", "use crate\n    ::\n    api::Body;")],
        &[("text/a.rs", "fn f() { println!(\"{}\", crate::api::Body); }")],
        &[("text/a.rs", "macro_rules! m { () => { $crate::api::Body } }")],
        &[("text/a.rs", "impl crate::api::Shown for X {}")],
        &[("text/a.rs", "#[crate::api::mark] fn f() {}")],
        &[("text/a.rs", "pub mod deep { pub mod er { use super::super::super::super::api::Body; } }")],
        // Through re-exports.
        &[("api/a.rs", "use crate::chat::Schema;")],
        &[("api/a.rs", "use crate::chat; fn f(x: chat::Schema) {}")],
        &[("grammar/a.rs", "use crate::engine::Request;")],
        &[("sampling/a.rs", "use crate::chat::words::stop::Stop;")],
        // A layer that nobody has entered.
        &[("novelty/mod.rs", "")],
    ];
    let fine: &[Files] = &[
        &[("text/a.rs", "// use crate::api::Body;\n/* crate::api */\n/// crate::api::Body\nfn f() {}")],
        &[("text/a.rs", "const A: &str = \"crate::api::Body\"; const B: &str = r#\"use crate::api::Body; \"\"#;")],
        &[("text/a.rs", "const A: char = '\"'; const B: &str = \"\\\"\"; use crate::units::Token;")],
        &[(
            "text/a.rs",
            "use crate::text::Tokenizer; use super::stop::Stop; use self::inner::X; mod inner { pub struct X; }",
        )],
        &[("text/a.rs", "pub(in crate::text) fn api() {} fn f() { let api = 1; api::<u8>(); }")],
        &[("api/a.rs", "use crate::chat::Given; use crate::chat::ask;")],
        &[("chat/a.rs", "use crate::grammar::Schema; use crate::engine::Request; fn f() { Request::new(); }")],
        &[("llama/a.rs", "use crate::engine::request::Item; fn f() { Item::Token; }")],
    ];
    check("layers", reported, fine, layers::breaches);
}

#[test]
fn the_seam_of_the_engine_is_seen_through_its_facade() {
    let reported: &[Files] = &[
        &[("llama/a.rs", "use crate::engine::handle::Handle;")],
        &[("llama/a.rs", "use crate::engine::Handle;")],
        &[("llama/a.rs", "use crate::engine; fn f(x: engine::Handle) {}")],
        &[("chat/a.rs", "use crate::engine::{Request, Handle as H};")],
        &[("chat/a.rs", "fn f() { vec![crate::engine::Handle]; }")],
    ];
    let fine: &[Files] = &[
        &[("chat/a.rs", "use crate::engine::{Request, request::Item};")],
        &[("api/a.rs", "use crate::engine::Handle;")],
    ];
    check("seam", reported, fine, layers::breaches);
}

#[test]
fn rooms_are_told_by_words_and_not_by_texts() {
    let reported: &[Files] = &[
        &[("text/a.rs", "use axum::Json;")],
        &[("text/a.rs", "fn f() { axum::serve(); }")],
        &[("text/a.rs", "use axum as http;")],
        &[("chat/a.rs", "use llama_cpp_sys_2::llama_model;")],
        &[("chat/a.rs", "fn f() { unsafe { g() } }")],
        &[("chat/a.rs", "unsafe impl Send for X {}")],
        &[("chat/a.rs", "macro_rules! m { () => { unsafe { g() } } }")],
        &[("api/a.rs", "use axum::http::StatusCode;")],
        &[("chat/a.rs", "fn f() { std::env::var(\"X\"); }")],
        &[("chat/a.rs", "use std::env::var;")],
        &[("chat/a.rs", "use std::env; fn f() { env::vars(); }")],
        &[("chat/a.rs", "use std::env as e; fn f() { e::var_os(\"X\"); }")],
        &[("chat/a.rs", "use std::sync::{Arc, Mutex};")],
        &[("chat/a.rs", "use tokio::sync::RwLock;")],
        &[("chat/a.rs", "static mut N: u32 = 0;")],
        &[("chat/a.rs", "static\n    mut N: u32 = 0;")],
    ];
    let fine: &[Files] = &[
        &[("api/a.rs", "use axum::Json;")],
        &[("api/error.rs", "use axum::http::StatusCode;")],
        &[("text/a.rs", "// axum unsafe Mutex\nconst A: &str = \"use axum::Json; unsafe { } static mut\";")],
        &[("text/a.rs", "const A: &str = r##\"\"unsafe { } StatusCode\"##; const B: &[u8] = br\"Mutex\";")],
        &[("text/a.rs", "struct MutexLike; fn unsafe_looking() {} fn env() { env!(\"X\"); }")],
        &[("config/env.rs", "fn f() { std::env::var(\"X\"); }"), ("config/mod.rs", "")],
        &[("text/a.rs", "static N: u32 = 0; fn f(mut n: u32) {}")],
    ];
    check("rooms", reported, fine, rooms::strays);
}

#[test]
fn circles_are_told_whatever_way_they_are_imported() {
    let reported: &[Files] = &[
        &[("text/a.rs", "use super::b::B; pub struct A;"), ("text/b.rs", "use super::a::A; pub struct B;")],
        &[("text/a.rs", "fn f() { super::b::g(); }"), ("text/b.rs", "use crate::text::a::f; pub fn g() {}")],
        // Of a child and the items of its parent.
        &[("text/a.rs", "mod inner; use inner::I; pub struct A;"), ("text/a/inner.rs", "use super::A; pub struct I;")],
        &[
            ("text/a.rs", "mod inner; fn f() { inner::g(); } pub struct A;"),
            ("text/a/inner.rs", "use super::*; pub fn g() {}"),
        ],
        // Through the facade of the folder.
        &[
            ("text/mod.rs", "mod a; mod b; pub use a::A; pub use b::B;"),
            ("text/a.rs", "use super::B; pub struct A;"),
            ("text/b.rs", "use super::A; pub struct B;"),
        ],
        // Of three, through two layers and inside a macro.
        &[
            ("text/a.rs", "use super::b::B; pub struct A;"),
            ("text/b.rs", "fn f() { vec![crate::text::c::C]; } pub struct B;"),
            ("text/c.rs", "use crate::text::{a::{A}, stop::Stop}; pub struct C;"),
        ],
        &[
            ("api/a.rs", "use crate::chat::Given; pub struct A;"),
            ("chat/given.rs", "use crate::api::a::A; pub struct Given;"),
        ],
    ];
    let fine: &[Files] = &[
        &[("text/a.rs", "use super::b::B; pub struct A;"), ("text/b.rs", "pub struct B;")],
        // A declaration and a facade are no imports.
        &[
            ("text/a.rs", "mod inner; pub use inner::I; pub struct A;"),
            ("text/a/inner.rs", "use super::A; pub struct I;"),
        ],
        &[
            ("text/a.rs", "mod inner; mod other; use inner::I;"),
            ("text/a/inner.rs", "pub struct I;"),
            ("text/a/other.rs", "use super::inner::I;"),
        ],
        // Tests may look at everything.
        &[
            ("text/a.rs", "use super::b::B; pub struct A;"),
            ("text/b.rs", "pub struct B; #[cfg(test)] mod tests { use super::super::a::A; }"),
        ],
        &[
            ("text/a.rs", "use super::b::B; pub struct A; #[cfg(test)] mod tests;"),
            ("text/a/tests.rs", "use super::*; use super::super::c::C;"),
            ("text/b.rs", "pub struct B; #[cfg(all(test, unix))] use super::a::A;"),
            ("text/c.rs", "use super::a::A; pub struct C;"),
        ],
        // Comments and texts import nothing.
        &[
            ("text/a.rs", "use super::b::B; pub struct A;"),
            ("text/b.rs", "// super::a::A\npub struct B; const T: &str = \"super::a::A\";"),
        ],
        // One file alone.
        &[("text/a.rs", "mod one { use super::two::T; pub struct O; } mod two { use super::one::O; pub struct T; }")],
    ];
    check("circles", reported, fine, |tree| {
        circles::circles(&circles::edges(tree)).into_iter().map(|c| c.join(" ")).collect()
    });
    let not_test: Files = &[
        ("text/a.rs", "use super::b::B; pub struct A;"),
        ("text/b.rs", "pub struct B; #[cfg(not(test))] use super::a::A;"),
    ];
    assert_eq!(circles::circles(&circles::edges(&tree(not_test))), [["text/a.rs", "text/b.rs"]]);
}

fn source(text: &str) -> Source {
    Source::new("a.rs".into(), text.into())
}

#[test]
fn unfinished_and_undocumented_files_are_told() {
    let long = format!("//! Doc.\n{}", "\n".repeat(600));
    for text in [
        "fn f() {}",
        "// Not documentation.\nfn f() {}",
        "/// Of the item.\nfn f() {}",
        &long,
        "//! Doc.\n// FIXME later\n",
        "//! Doc.\n/// XXX\nfn f() {}",
        "//! Doc.\nfn f() { todo!() }",
        "//! Doc.\nfn f() { std::unimplemented!(\"x\") }",
        "//! Doc.\nfn f() { vec![dbg!(1)]; }",
        "//! Doc.\n#[test]\n#[ignore]\nfn f() {}",
        "//! Doc.\n#[test]\n#[ignore = \"slow\"]\nfn f() {}",
        "//! Doc.\n#[test]\n#[cfg_attr(unix, ignore)]\nfn f() {}",
        "//! Doc.\n#[cfg_attr(all(unix, test), test, ignore = \"slow\")]\nfn f() {}",
        "//! Doc.\nmacro_rules! m { () => { #[ignore] fn f() {} } }",
        "//! D\u{f6}c.\n",
        "//! Doc.\nfn f() {} // \u{2014}\n",
        "//! Doc.\nfn f\u{e9}() {}",
    ] {
        assert!(!files::faults(&source(text)).is_empty(), "lets pass: {text:.80}");
    }
    for text in [
        "//! Doc.\nfn f() {}",
        "#![doc = \"Doc.\"]\nfn f() {}",
        "//! Doc.\nconst A: &str = \"FIXME todo!() #[ignore]\"; const B: &str = r#\"XXX \"dbg!\"\"#;",
        "//! Doc.\nconst A: &str = \"\u{e9}\"; const B: char = '\u{1F600}'; // ascii\n",
        "//! Doc.\nfn ignore() { ignore(); todo(); } #[serde(ignore)] struct A;",
        "//! Doc.\nfn f(a: bool) { if a != ignore {} }",
    ] {
        assert_eq!(files::faults(&source(text)), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn unsafe_code_without_a_reason_is_told() {
    for (text, n, n_wrong) in [
        ("fn f() { unsafe { g() } }", 1, 1),
        ("fn f() { unsafe\n{ g() } }", 1, 1),
        ("unsafe impl Send for X {}", 1, 1),
        ("fn f() { m!(unsafe { g() }) }", 1, 1),
        ("// SAFETY: sound.\nunsafe impl Send for X {}\n\n\n\n\n\n\n\n\n\nunsafe impl Sync for X {}", 2, 1),
        ("fn f() { let a = \"SAFETY:\"; unsafe { g() } }", 1, 1),
        ("fn f() {\n    // SAFETY: sound.\n    unsafe { g() }\n}", 1, 0),
        ("unsafe fn f() {} // unsafe { }\nconst A: &str = \"unsafe { }\";", 0, 0),
        ("unsafe extern \"C\" { fn f(); }", 0, 0),
    ] {
        let (found, wrong) = safety::unsafe_code([&source(text)]);
        assert_eq!((found, wrong.len()), (n, n_wrong), "{text}");
    }
}

#[test]
fn registries_and_weights_are_told() {
    let host = |name: &str, end: &str| format!("see https://{name}.{end}/x");
    for (name, text) in [
        ("docs/a.md", Some(host("pypi", "org"))),
        ("a.sh", Some(host("crates", "io"))),
        ("a.json", Some(host("registry.npmjs", "org"))),
        ("model.gguf", None),
        ("vendor/demo-model/other.gguf", None),
    ] {
        assert!(!listing::faults(name, text.as_deref()).is_empty(), "{name}");
    }
    for (name, text) in [
        ("Cargo.lock", Some(host("crates", "io"))),
        ("fuzz/Cargo.lock", Some(host("crates", "io"))),
        ("vendor/demo-model/plateau-demo.gguf", None),
        ("docs/a.md", Some("crates and pip".to_owned())),
        ("a.png", None),
    ] {
        assert_eq!(listing::faults(name, text.as_deref()), Vec::<String>::new());
    }
}
