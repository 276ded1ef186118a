//! Every unsafe block and impl says why it is sound.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::tree::Source;

/// Lines above an unsafe block in which its comment must stand.
const ABOVE: usize = 8;

/// Unsafe blocks and impls of all sources, and those without a `SAFETY:` comment.
pub fn unsafe_code<'a>(sources: impl IntoIterator<Item = &'a Source>) -> (usize, Vec<String>) {
    let (mut n, mut wrong) = (0, Vec::new());
    for source in sources {
        let mut lines = Vec::new();
        find(source.tokens.clone(), &mut lines);
        let text: Vec<&str> = source.text.lines().collect();
        for line in lines {
            n += 1;
            let is_said = text[line.saturating_sub(1 + ABOVE)..line]
                .iter()
                .any(|text| text.split_once("//").is_some_and(|(_, comment)| comment.contains("SAFETY:")));
            if !is_said {
                wrong.push(format!("{}:{line}: no SAFETY comment", source.path));
            }
        }
    }
    (n, wrong)
}

fn find(tokens: TokenStream, lines: &mut Vec<usize>) {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(word) if word == "unsafe" => {
                let needs = match tokens.peek() {
                    Some(TokenTree::Group(group)) => group.delimiter() == Delimiter::Brace,
                    Some(TokenTree::Ident(next)) => next == "impl",
                    _ => false,
                };
                if needs {
                    lines.push(word.span().start().line);
                }
            }
            TokenTree::Group(group) => find(group.stream(), lines),
            _ => {}
        }
    }
}
