//! Headers of answers: their names, and what a client is told in them.

use axum::http::HeaderMap;

use crate::chat::Notices;

/// Names the fields of the request that had no effect.
pub const IGNORED_HEADER: &str = "x-plateau-ignored";
/// Says which parts of schemas hold less strictly than asked for.
pub const RELAXED_HEADER: &str = "x-plateau-widened";
/// The id of the request, as in the log.
pub const ID_HEADER: &str = "x-request-id";

/// Most names in `x-plateau-ignored`, and most characters of each: a header has to stay small.
const MAX_IGNORED: usize = 32;
const MAX_IGNORED_CHARS: usize = 64;

/// The same of `x-plateau-widened`.
const MAX_RELAXED: usize = 16;
const MAX_RELAXED_CHARS: usize = 200;

/// Tells the client what had no effect and what holds less strictly than asked for.
pub fn report(headers: &mut HeaderMap, notices: &Notices) {
    let Notices { ignored, relaxed } = notices;
    report_ignored(headers, ignored);
    report_relaxed(headers, relaxed);
}

/// Tells the client which fields had no effect.
pub fn report_ignored(headers: &mut HeaderMap, ignored: &[String]) {
    if ignored.is_empty() {
        return;
    }
    tracing::debug!(?ignored, "fields without effect");
    if let Ok(value) = shown(ignored).parse() {
        headers.insert(IGNORED_HEADER, value);
    }
}

/// Tells the client which parts of its schemas do not hold as strictly as they say.
fn report_relaxed(headers: &mut HeaderMap, relaxed: &[String]) {
    if relaxed.is_empty() {
        return;
    }
    tracing::debug!(?relaxed, "parts of schemas hold less strictly than asked for");
    let printable = |c: char| if c.is_ascii_graphic() && c != '|' || c == ' ' { c } else { '?' };
    let line = |line: &String| line.chars().take(MAX_RELAXED_CHARS).map(printable).collect::<String>();
    let mut lines: Vec<String> = relaxed.iter().take(MAX_RELAXED).map(line).collect();
    if relaxed.len() > MAX_RELAXED {
        lines.push(format!("and {} more", relaxed.len() - MAX_RELAXED));
    }
    if let Ok(value) = lines.join(" | ").parse() {
        headers.insert(RELAXED_HEADER, value);
    }
}

/// Names as a header can carry them.
fn shown(ignored: &[String]) -> String {
    let printable = |c: char| if c.is_ascii_graphic() && c != ',' { c } else { '?' };
    let name = |name: &String| name.chars().take(MAX_IGNORED_CHARS).map(printable).collect::<String>();
    let mut names: Vec<String> = ignored.iter().take(MAX_IGNORED).map(name).collect();
    if ignored.len() > MAX_IGNORED {
        names.push(format!("and-{}-more", ignored.len() - MAX_IGNORED));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_stays_small_and_printable_whatever_the_fields_are_called() {
        let names: Vec<String> = (0..100).map(|i| format!("\u{1F600}\r\nx: {i}{}", "y".repeat(10_000))).collect();
        let text = shown(&names);
        assert!(text.len() < 4096 && text.ends_with(", and-68-more"), "{text}");
        assert!(text.parse::<axum::http::HeaderValue>().is_ok());
    }
}
