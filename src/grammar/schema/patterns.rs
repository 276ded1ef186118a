//! Regular expressions of strings, as `pattern` writes them: searched for, unless anchored.

use std::fmt::Write as _;

use llguidance::derivre::{RegexAst, RegexBuilder};
use llguidance::regex_to_lark;

/// Bytes of a `pattern`.
const MAX_BYTES: usize = 8_192;
/// What may be spent on a question about an expression, in nodes.
const FUEL: u64 = 20_000;
/// Characters of the texts that are left out of an expression.
const MAX_LEFT_OUT: usize = 4_000;

/// Why a regular expression cannot be enforced.
pub(super) fn problem(pattern: &str) -> Option<String> {
    if pattern.len() > MAX_BYTES {
        return Some(format!("longer than {MAX_BYTES} bytes"));
    }
    if let Some(class) = ambiguous(pattern) {
        return Some(format!("{class} is read in more than one way"));
    }
    let made = RegexBuilder::new().mk_regex_for_serach(&regex_to_lark(pattern, "dw"));
    let error = made.err()?.to_string();
    // The last line of the parser's message says what is wrong.
    let last = error.lines().rfind(|line| !line.trim().is_empty()).unwrap_or(&error);
    Some(last.trim().trim_start_matches("error: ").chars().take(160).collect())
}

/// What the readers of `pattern` do not agree on: flags and set operations are the Rust library's own, and `\z` and the like
/// are letters elsewhere.
fn ambiguous(pattern: &str) -> Option<&'static str> {
    let anywhere = ["(?i", "(?m", "(?s", "(?x", "(?u", "(?U", "(?-", "(?R", "\\A", "\\z", "\\<", "\\>", "\\a"];
    let in_class = ["&&", "--", "~~", "[:"];
    let has_class = || in_class.into_iter().find(|text| classes(pattern).any(|class| class.contains(text)));
    anywhere.into_iter().find(|text| pattern.contains(text)).or_else(has_class)
}

/// The insides of bracketed classes.
fn classes(pattern: &str) -> impl Iterator<Item = &str> {
    let (mut found, mut start, mut escaped) = (Vec::new(), None, false);
    for (at, c) in pattern.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' if start.is_none() => start = Some(at + 1),
            ']' => found.extend(start.take().map(|start| &pattern[start..at])),
            _ => {}
        }
    }
    found.into_iter()
}

/// Blanks by ECMA-262, which is what `pattern` is written in.
const BLANKS: &str =
    "\\t\\n\\x0B\\f\\r \\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}\\x{FEFF}";

/// The pattern with what ECMA-262 means by `\s`, `\S` and `.` written out, which the library reads otherwise.
pub(super) fn ecma(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let (mut escaped, mut in_class) = (false, false);
    for c in pattern.chars() {
        match c {
            's' if escaped => {
                out.pop();
                out.push_str(&format!("[{BLANKS}]"));
            }
            'S' if escaped => {
                out.pop();
                out.push_str(&format!("[^{BLANKS}]"));
            }
            '.' if !escaped && !in_class => out.push_str("[^\\n\\r\\x{2028}\\x{2029}]"),
            _ => out.push(c),
        }
        match c {
            _ if escaped => {}
            '[' => in_class = true,
            ']' => in_class = false,
            _ => {}
        }
        escaped = c == '\\' && !escaped;
    }
    out
}

fn search(pattern: &str) -> RegexAst {
    RegexAst::SearchRegex(regex_to_lark(pattern, "dw"))
}

/// Does a text match? Nothing where that costs too much to say.
pub(super) fn matches(pattern: &str, text: &str) -> Option<bool> {
    let mut builder = RegexBuilder::new();
    let expr = builder.mk(&search(pattern)).ok()?;
    Some(builder.to_regex_limited(expr, FUEL).ok()?.is_match(text))
}

/// Does no text match all of these and have such a length? True only when it is certain.
pub(super) fn is_empty<'a>(patterns: impl Iterator<Item = &'a str>, min: u64, max: Option<u64>) -> bool {
    let mut all: Vec<RegexAst> = patterns.map(search).collect();
    let max = max.map_or(String::new(), |max| max.to_string());
    all.push(RegexAst::Regex(format!("(?s:.{{{min},{max}}})")));
    let mut builder = RegexBuilder::new();
    let Ok(expr) = builder.mk(&RegexAst::And(all)) else { return false };
    builder.to_regex_limited(expr, FUEL).is_ok_and(|mut regex| regex.always_empty())
}

/// Does no text match both? True only when it is certain.
pub(super) fn are_disjoint(a: &str, b: &str) -> bool {
    is_empty([a, b].into_iter(), 0, None)
}

/// The pattern of every text but these.
pub(super) fn all_but(texts: &[&str]) -> Option<String> {
    if texts.iter().map(|text| text.chars().count() + 1).sum::<usize>() > MAX_LEFT_OUT {
        return None;
    }
    let mut sorted: Vec<Vec<char>> = texts.iter().map(|text| text.chars().collect()).collect();
    sorted.sort_unstable();
    sorted.dedup();
    let rows: Vec<&[char]> = sorted.iter().map(Vec::as_slice).collect();
    let depth = rows.iter().map(|row| row.len()).max().unwrap_or(0);
    // Each character is a group inside the one before it.
    (depth <= 100).then(|| format!("^(?:{})$", outside(&rows)))
}

/// What may follow where the rest of the text is none of `rows`, which are sorted.
fn outside(rows: &[&[char]]) -> String {
    let ends = rows.first().is_some_and(|row| row.is_empty());
    let rows = if ends { &rows[1..] } else { rows };
    let mut firsts = String::new();
    let mut options = Vec::new();
    let mut at = 0;
    while at < rows.len() {
        let first = rows[at][0];
        let n = rows[at..].iter().take_while(|row| row[0] == first).count();
        let rests: Vec<&[char]> = rows[at..at + n].iter().map(|row| &row[1..]).collect();
        let _ = write!(firsts, "\\x{{{:X}}}", first as u32);
        options.push(format!("\\x{{{:X}}}(?:{})", first as u32, outside(&rests)));
        at += n;
    }
    options.push(if firsts.is_empty() { "(?s:.)(?s:.*)".to_owned() } else { format!("[^{firsts}](?s:.*)") });
    if !ends {
        options.push(String::new());
    }
    options.join("|")
}

/// The pattern as an expression that a whole text matches, or nothing where its anchors are at places that this cannot tell.
pub(super) fn whole(pattern: &str) -> Option<String> {
    let mut options = Vec::new();
    for option in alternatives(pattern) {
        let start = option.starts_with('^');
        let body = option.strip_prefix('^').unwrap_or(option);
        let end = ends_anchored(body);
        let body = if end { &body[..body.len() - 1] } else { body };
        if has_anchor(body) {
            // A group around all of it may hold the anchors.
            return None;
        }
        let any = |anchored: bool| if anchored { "" } else { "(?s:.*)" };
        options.push(format!("{}(?:{body}){}", any(start), any(end)));
    }
    Some(regex_to_lark(&options.join("|"), "dw"))
}

/// The expression of one text.
pub(super) fn literal(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        let _ = write!(out, "\\x{{{:X}}}", c as u32);
    }
    if out.is_empty() { "(?:)".to_owned() } else { out }
}

/// Is there a text that matches all of these expressions and none of those? False only when it is certain.
pub(in crate::grammar) fn has_text<'a>(
    all: impl Iterator<Item = &'a str>,
    none: impl Iterator<Item = &'a str>,
) -> bool {
    let regex = |text: &str| RegexAst::Regex(text.to_owned());
    let none = none.map(|text| RegexAst::Not(Box::new(regex(text))));
    let any = regex("(?s:.*)");
    let parts: Vec<RegexAst> = all.map(regex).chain(none).chain([any]).collect();
    let mut builder = RegexBuilder::new();
    let Ok(expr) = builder.mk(&RegexAst::And(parts)) else { return true };
    builder.to_regex_limited(expr, FUEL).map_or(true, |mut regex| !regex.always_empty())
}

/// Walks over the characters outside classes: `see` gets the place, the character, and the groups around it.
fn walk(pattern: &str, mut see: impl FnMut(usize, char, usize)) {
    let (mut depth, mut in_class, mut escaped) = (0_usize, false, false);
    for (at, c) in pattern.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ']' if in_class => in_class = false,
            _ if in_class => {}
            '[' => in_class = true,
            '(' => {
                see(at, c, depth);
                depth += 1;
            }
            ')' => {
                depth = depth.saturating_sub(1);
                see(at, c, depth);
            }
            _ => see(at, c, depth),
        }
    }
}

fn alternatives(pattern: &str) -> Vec<&str> {
    let mut cuts = Vec::new();
    walk(pattern, |at, c, depth| {
        if c == '|' && depth == 0 {
            cuts.push(at);
        }
    });
    let mut from = 0;
    let mut options: Vec<&str> = cuts
        .into_iter()
        .map(|at| {
            let option = &pattern[from..at];
            from = at + 1;
            option
        })
        .collect();
    options.push(&pattern[from..]);
    options
}

fn ends_anchored(body: &str) -> bool {
    let mut last = None;
    walk(body, |at, c, _| last = (c == '$').then_some(at));
    last.is_some_and(|at| at + 1 == body.len())
}

fn has_anchor(body: &str) -> bool {
    let mut found = false;
    walk(body, |_, c, _| found |= c == '^' || c == '$');
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_but_some_texts_is_exact() {
        let pattern = all_but(&["a", "ab", "", "x\ny", "\u{e9}"]).unwrap();
        for out in ["a", "ab", "", "x\ny", "\u{e9}"] {
            assert_eq!(matches(&pattern, out), Some(false), "{out:?}");
        }
        for inside in ["b", "aa", "abc", "x", "x\n", "x\nyz", "\u{e8}", "\u{e9}\u{e9}", "\n"] {
            assert_eq!(matches(&pattern, inside), Some(true), "{inside:?}");
        }
        assert_eq!(matches(&all_but(&["a"]).unwrap(), ""), Some(true));
    }

    #[test]
    fn blanks_and_dots_are_those_of_ecma() {
        for (pattern, text, expected) in [
            ("^\\s$", "\u{85}", false),
            ("^\\s$", "\u{feff}", true),
            ("^\\S$", "\u{feff}", false),
            ("^[\\s\\d]+$", "1 \u{a0}", true),
            ("^[^\\s.]$", ".", false),
            ("^.$", "\r", false),
            ("^\\.$", ".", true),
            ("^\\\\s$", "\\s", true),
        ] {
            assert_eq!(matches(&ecma(pattern), text), Some(expected), "{pattern} {text:?}");
        }
    }

    #[test]
    fn anchors_are_read_where_they_can_be() {
        let fits = |pattern: &str, text: &str| {
            let mut builder = RegexBuilder::new();
            let expr = builder.mk(&RegexAst::Regex(whole(pattern).unwrap())).unwrap();
            builder.to_regex_limited(expr, FUEL).unwrap().is_match(text)
        };
        for (pattern, text, expected) in [
            ("b", "abc", true),
            ("^b", "abc", false),
            ("^b", "bc", true),
            ("c$", "abc", true),
            ("^a|c$", "xc", true),
            ("^a|c$", "xcx", false),
            ("^(a|b)$", "b", true),
            ("[$^|]", "x|", true),
            ("\\$", "a$b", true),
            ("^a/b$", "a/b", true),
        ] {
            assert_eq!(fits(pattern, text), expected, "{pattern} {text}");
            assert_eq!(matches(pattern, text), Some(expected), "{pattern} {text}");
        }
        assert_eq!(whole("(^a|b)$"), None);
    }
}
