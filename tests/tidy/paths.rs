//! Reads the names of one file: definitions, imports and every other path, each with the module that it stands in.

use std::collections::BTreeMap;

use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::tree::{Contents, Import, Module};

/// A path of two names or more, or an attribute's.
#[derive(Clone, Debug)]
pub struct Named {
    pub path: Vec<String>,
    pub is_test: bool,
    pub line: usize,
}

/// Adds the modules of a file.
pub fn read(file: usize, module: &Module, syntax: &syn::File, modules: &mut BTreeMap<Module, Contents>) {
    // A declaration in another file may have said already that this is a test.
    modules.entry(module.clone()).or_default().file = file;
    let mut reader = Reader { file, at: module.clone(), test_depth: 0, modules };
    if is_test(&syntax.attrs) {
        reader.here().is_test = true;
    }
    syntax.items.iter().for_each(|item| reader.define(item));
    reader.visit_file(syntax);
}

struct Reader<'a> {
    file: usize,
    at: Module,
    /// How many of the enclosing items are below `#[cfg(test)]`.
    test_depth: usize,
    modules: &'a mut BTreeMap<Module, Contents>,
}

impl Reader<'_> {
    fn here(&mut self) -> &mut Contents {
        self.modules.entry(self.at.clone()).or_default()
    }

    fn add(&mut self, path: Vec<String>, line: usize) {
        let is_test = self.test_depth > 0;
        // One name alone is an item of the same module, or an import that is counted already, or a variable.
        if path.len() > 1 {
            self.here().named.push(Named { path, is_test, line });
        }
    }

    fn define(&mut self, item: &syn::Item) {
        let name = match item {
            syn::Item::Const(item) => &item.ident,
            syn::Item::Enum(item) => &item.ident,
            syn::Item::Fn(item) => &item.sig.ident,
            syn::Item::Static(item) => &item.ident,
            syn::Item::Struct(item) => &item.ident,
            syn::Item::Trait(item) => &item.ident,
            syn::Item::TraitAlias(item) => &item.ident,
            syn::Item::Type(item) => &item.ident,
            syn::Item::Union(item) => &item.ident,
            _ => return,
        };
        let name = name.to_string();
        self.here().defines.insert(name);
    }

    fn import(&mut self, tree: &syn::UseTree, before: &[String], is_public: bool) {
        let line = tree.span().start().line;
        let with = |name: &syn::Ident| before.iter().cloned().chain([plain(name)]).collect::<Vec<_>>();
        let (name, path) = match tree {
            syn::UseTree::Path(tree) => return self.import(&tree.tree, &with(&tree.ident), is_public),
            syn::UseTree::Group(tree) => {
                return tree.items.iter().for_each(|tree| self.import(tree, before, is_public));
            }
            syn::UseTree::Glob(_) => ("*".to_owned(), before.to_vec()),
            syn::UseTree::Name(tree) if tree.ident == "self" => {
                (before.last().cloned().unwrap_or_default(), before.to_vec())
            }
            syn::UseTree::Name(tree) => (plain(&tree.ident), with(&tree.ident)),
            syn::UseTree::Rename(tree) if tree.ident == "self" => (plain(&tree.rename), before.to_vec()),
            syn::UseTree::Rename(tree) => (plain(&tree.rename), with(&tree.ident)),
        };
        let is_test = self.test_depth > 0;
        self.here().imports.push(Import { name, path, is_public, is_test, line });
    }

    /// Inside a macro nothing is known but tokens.
    fn scan(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let (mut colons, mut line) = (0, 0);
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.add(std::mem::take(&mut path), line);
                    }
                    line = ident.span().start().line;
                    path.push(plain(&ident));
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' && !path.is_empty() => colons += 1,
                TokenTree::Group(group) => {
                    self.add(std::mem::take(&mut path), line);
                    colons = 0;
                    self.scan(group.stream());
                }
                _ => {
                    self.add(std::mem::take(&mut path), line);
                    colons = 0;
                }
            }
        }
        self.add(path, line);
    }

    fn within(&mut self, is_test: bool, read: impl FnOnce(&mut Self)) {
        self.test_depth += usize::from(is_test);
        read(self);
        self.test_depth -= usize::from(is_test);
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        self.within(is_test(attributes(item)), |reader| visit::visit_item(reader, item));
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        let attrs = match item {
            syn::ImplItem::Fn(item) => &item.attrs,
            syn::ImplItem::Const(item) => &item.attrs,
            syn::ImplItem::Type(item) => &item.attrs,
            _ => &vec![],
        };
        self.within(is_test(attrs), |reader| visit::visit_impl_item(reader, item));
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.at.push(plain(&item.ident));
        let (file, is_test) = (self.file, self.test_depth > 0);
        let here = self.here();
        here.is_test |= is_test;
        if let Some((_, items)) = &item.content {
            here.file = file;
            items.iter().for_each(|item| self.define(item));
            items.iter().for_each(|item| self.visit_item(item));
        }
        self.at.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let is_public = !matches!(item.vis, syn::Visibility::Inherited);
        self.import(&item.tree, &[], is_public);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let line = path.span().start().line;
        self.add(path.segments.iter().map(|segment| plain(&segment.ident)).collect(), line);
        visit::visit_path(self, path);
    }

    /// `pub(in crate::a)` says who may look, not what is looked at.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        visit::visit_macro(self, item);
        self.scan(item.tokens.clone());
    }
}

/// `r#type` is `type`.
fn plain(ident: &syn::Ident) -> String {
    ident.to_string().trim_start_matches("r#").to_owned()
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// `#[test]`, `#[cfg(test)]`, `#[cfg(all(test, ..))]`; not `#[cfg(not(test))]`.
pub fn is_test(attrs: &[syn::Attribute]) -> bool {
    attrs.iter().any(|attr| {
        let last = attr.path().segments.last().map(|segment| segment.ident.to_string());
        match &attr.meta {
            syn::Meta::Path(_) => last.as_deref() == Some("test"),
            syn::Meta::List(list) if last.as_deref() == Some("cfg") => says_test(list.tokens.clone()),
            _ => false,
        }
    })
}

fn says_test(tokens: TokenStream) -> bool {
    let mut negated = false;
    for token in tokens {
        match token {
            TokenTree::Ident(ident) if ident == "test" => return true,
            TokenTree::Ident(ident) => negated = ident == "not",
            TokenTree::Group(group) if !negated && says_test(group.stream()) => return true,
            _ => {}
        }
    }
    false
}
