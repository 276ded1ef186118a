//! What every file keeps: documentation, size, no unfinished work, comments in ASCII, no tests that never run.

use std::ops::Range;

use proc_macro2::{TokenStream, TokenTree};

use super::tree::Source;

/// The longest file that is still one subject. Tables of data may be longer: name them here with the reason.
const MAX_LINES: usize = 600;
const LONG_FILES: &[(&str, &str)] = &[];

/// Macros that stand for work to be done, and words for it in comments.
const MACROS: &[&str] = &["todo", "unimplemented", "dbg"];
const WORDS: &[&str] = &["FIXME", "XXX"];

/// Everything that is wrong with a file of `src`.
pub fn faults(source: &Source) -> Vec<String> {
    let Source { path, text, tokens, syntax } = source;
    let mut wrong = Vec::new();
    if !syntax.attrs.iter().any(|attr| attr.path().is_ident("doc") && matches!(attr.style, syn::AttrStyle::Inner(_))) {
        wrong.push(format!("{path}: no module documentation"));
    }
    let lines = text.lines().count();
    if lines > MAX_LINES && !LONG_FILES.iter().any(|(file, _)| file == path) {
        wrong.push(format!("{path}: {lines} lines, more than {MAX_LINES}; split it by subject"));
    }
    let mut found = Found::default();
    found.read(tokens.clone());
    wrong.extend(found.macros.iter().map(|(name, line)| format!("{path}:{line}: {name}!")));
    let outside = |at: usize| !found.literals.iter().any(|literal| literal.contains(&at));
    for word in WORDS {
        wrong.extend(text.match_indices(word).filter(|(at, _)| outside(*at)).map(|(at, _)| at_line(source, at, word)));
    }
    let foreign = text.char_indices().find(|(at, c)| !c.is_ascii() && outside(*at));
    wrong.extend(foreign.map(|(at, c)| at_line(source, at, &format!("{c:?}: comments and names are ASCII"))));
    wrong.extend(ignored(path, tokens.clone()));
    wrong
}

/// Tests that are not run, in every form of the attribute.
pub fn ignored(path: &str, tokens: TokenStream) -> Vec<String> {
    let mut lines = Vec::new();
    find_ignored(tokens, &mut lines);
    lines.into_iter().map(|line| format!("{path}:{line}: an ignored test")).collect()
}

fn at_line(source: &Source, at: usize, what: &str) -> String {
    format!("{}:{}: {what}", source.path, source.text[..at].matches('\n').count() + 1)
}

#[derive(Default)]
struct Found {
    /// Literals as bytes of the source; documentation, which is a literal to the compiler, is none.
    literals: Vec<Range<usize>>,
    macros: Vec<(String, usize)>,
}

impl Found {
    fn read(&mut self, tokens: TokenStream) {
        let mut before: Option<proc_macro2::Ident> = None;
        for token in tokens {
            match token {
                TokenTree::Literal(literal) => self.literal(&literal),
                TokenTree::Group(group) => self.read(group.stream()),
                TokenTree::Ident(ident) => {
                    before = Some(ident);
                    continue;
                }
                TokenTree::Punct(punct) if punct.as_char() == '!' => {
                    let name = before.as_ref().filter(|name| MACROS.iter().any(|other| *name == other));
                    self.macros.extend(name.map(|name| (name.to_string(), name.span().start().line)));
                }
                TokenTree::Punct(_) => {}
            }
            before = None;
        }
    }

    fn literal(&mut self, literal: &proc_macro2::Literal) {
        let is_doc = literal.span().source_text().is_some_and(|text| text.starts_with('/'));
        if !is_doc {
            self.literals.push(literal.span().byte_range());
        }
    }
}

/// `#[ignore]`, `#[ignore = ".."]`, `#[cfg_attr(.., ignore)]`.
fn find_ignored(tokens: TokenStream, lines: &mut Vec<usize>) {
    let mut is_hash = false;
    for token in tokens {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '#' => {
                is_hash = true;
                continue;
            }
            TokenTree::Group(group) => {
                if is_hash && says_ignore(group.stream()) {
                    lines.push(group.span_open().start().line);
                }
                find_ignored(group.stream(), lines);
            }
            _ => {}
        }
        is_hash = false;
    }
}

fn says_ignore(attribute: TokenStream) -> bool {
    let mut tokens = attribute.into_iter();
    match (tokens.next(), tokens.next()) {
        (Some(TokenTree::Ident(name)), _) if name == "ignore" => true,
        (Some(TokenTree::Ident(name)), Some(TokenTree::Group(group))) if name == "cfg_attr" => {
            let is_ignore = |part: &TokenTree| matches!(part, TokenTree::Ident(name) if name == "ignore");
            group.stream().into_iter().any(|part| is_ignore(&part))
        }
        _ => false,
    }
}
