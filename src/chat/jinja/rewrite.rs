//! Rewrites the source of a template where minijinja's syntax or types cannot be bent from outside:
//!
//! * `{% generation %}` (marks the assistant's tokens for training) becomes a plain scope;
//! * `a ~ b` becomes `a|string ~ b|string`, since `~` prints floats, lists and dicts in minijinja's
//!   own way;
//! * `'%s' % x` becomes a filter, since minijinja has no `%` for strings.
//!
//! Works on tokens, not on a syntax tree. Where an operand's border is not certain it stays as it
//! is: then only the text of a float, list or dict can differ.

use std::collections::BTreeSet;

pub(super) const PRINTF_FILTER: &str = "python_printf";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
    Word,
    Operator,
}

#[derive(Clone, Copy, Debug)]
struct Token<'s> {
    kind: Kind,
    text: &'s str,
    start: usize,
}

impl Token<'_> {
    fn end(&self) -> usize {
        self.start + self.text.len()
    }
    fn is(&self, operator: &str) -> bool {
        self.kind == Kind::Operator && self.text == operator
    }
    fn is_one_of(&self, operators: &[&str]) -> bool {
        self.kind == Kind::Operator && operators.contains(&self.text)
    }
    /// Can an operand end with this token.
    fn ends_operand(&self) -> bool {
        match self.kind {
            Kind::Text | Kind::Number => true,
            Kind::Word => !KEYWORDS.contains(&self.text),
            Kind::Operator => CLOSERS.contains(&self.text),
        }
    }
}

const KEYWORDS: [&str; 13] =
    ["and", "or", "not", "in", "is", "if", "else", "elif", "for", "set", "print", "recursive", "do"];
const OPENERS: [&str; 3] = ["(", "[", "{"];
const CLOSERS: [&str; 3] = [")", "]", "}"];
/// Bind tighter than `~`, so an operand of `~` may contain them.
const TIGHTER: [&str; 5] = ["*", "/", "//", "%", "**"];

/// The source as it goes to minijinja. Never fails: what cannot be read is left for minijinja to
/// complain about.
pub fn rewrite(source: &str) -> String {
    let mut out = String::with_capacity(source.len() + 64);
    let mut copied = 0;
    let mut at = 0;
    while let Some(tag) = next_tag(source, at) {
        at = match tag {
            Tag::Skip { end } => end,
            Tag::Code { start, close, is_block } => {
                let (tokens, end) = tokens_until(source, start, close);
                if is_block && is_raw(&tokens) {
                    end_of_raw(source, end)
                } else {
                    for edit in edits(&tokens, is_block) {
                        out.push_str(&source[copied..edit.start]);
                        out.push_str(&edit.text);
                        copied = edit.end;
                    }
                    end
                }
            }
        };
    }
    out.push_str(&source[copied..]);
    out
}

enum Tag {
    /// A comment.
    Skip {
        end: usize,
    },
    Code {
        start: usize,
        close: &'static str,
        is_block: bool,
    },
}

fn next_tag(source: &str, from: usize) -> Option<Tag> {
    let bytes = source.as_bytes();
    let mut at = from;
    loop {
        at += source.get(at..)?.find('{')?;
        match bytes.get(at + 1) {
            Some(b'{') => return Some(Tag::Code { start: at + 2, close: "}}", is_block: false }),
            Some(b'%') => return Some(Tag::Code { start: at + 2, close: "%}", is_block: true }),
            Some(b'#') => {
                let end = source[at + 2..].find("#}").map_or(source.len(), |len| at + 2 + len + 2);
                return Some(Tag::Skip { end });
            }
            _ => at += 1,
        }
    }
}

fn is_raw(tokens: &[Token<'_>]) -> bool {
    tokens.iter().find(|token| token.kind == Kind::Word).is_some_and(|token| token.text == "raw")
}

/// The position of the `{% endraw %}` tag.
fn end_of_raw(source: &str, from: usize) -> usize {
    let mut at = from;
    while let Some(len) = source[at..].find("{%") {
        let tag = at + len;
        if source[tag + 2..].trim_start_matches(['-', '+']).trim_start().starts_with("endraw") {
            return tag;
        }
        at = tag + 2;
    }
    source.len()
}

/// Reads the tokens of one tag; the second value is the position behind the tag's end.
fn tokens_until<'s>(source: &'s str, start: usize, close: &str) -> (Vec<Token<'s>>, usize) {
    let mut tokens = Vec::new();
    let mut open_brackets = 0_usize;
    let mut at = start;
    while let Some(c) = source[at..].chars().next() {
        let rest = &source[at..];
        if open_brackets == 0 && rest.strip_prefix(['-', '+']).unwrap_or(rest).starts_with(close) {
            return (tokens, at + close.len() + usize::from(!rest.starts_with(close)));
        }
        if c.is_whitespace() {
            at += c.len_utf8();
            continue;
        }
        let (kind, len) = match c {
            '\'' | '"' => (Kind::Text, text_len(rest)),
            '0'..='9' => (Kind::Number, number_len(rest)),
            _ if c.is_alphabetic() || c == '_' => {
                (Kind::Word, rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len()))
            }
            _ => (Kind::Operator, operator_len(rest)),
        };
        let token = Token { kind, text: &rest[..len], start: at };
        if token.is_one_of(&OPENERS) {
            open_brackets += 1;
        } else if token.is_one_of(&CLOSERS) {
            open_brackets = open_brackets.saturating_sub(1);
        }
        tokens.push(token);
        at += len;
    }
    (tokens, source.len())
}

fn text_len(rest: &str) -> usize {
    let quote = rest.chars().next();
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if Some(c) == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

fn number_len(rest: &str) -> usize {
    let digits = |text: &str| text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    let mut len = digits(rest);
    if rest[len..].strip_prefix('.').is_some_and(|fraction| fraction.starts_with(|c: char| c.is_ascii_digit())) {
        len += 1 + digits(&rest[len + 1..]);
    }
    let signed = rest[len..].strip_prefix(['-', '+']);
    match signed {
        Some(exponent) if rest[..len].ends_with(['e', 'E']) && !rest.starts_with("0x") => len + 1 + digits(exponent),
        _ => len,
    }
}

fn operator_len(rest: &str) -> usize {
    match rest.get(..2) {
        Some("**" | "//" | "==" | "!=" | "<=" | ">=") => 2,
        _ => rest.chars().next().map_or(1, char::len_utf8),
    }
}

/// Replaces `start..end` by `text`.
struct Edit {
    start: usize,
    end: usize,
    text: String,
}

fn edits(tokens: &[Token<'_>], is_block: bool) -> Vec<Edit> {
    let mut edits = Vec::new();
    if is_block && let Some(token) = tokens.iter().find(|token| token.kind == Kind::Word) {
        let scope = match token.text {
            "generation" => Some("with"),
            "endgeneration" => Some("endwith"),
            _ => None,
        };
        edits.extend(scope.map(|word| Edit { start: token.start, end: token.end(), text: word.into() }));
    }
    let mut string_ends = BTreeSet::new();
    for (index, token) in tokens.iter().enumerate() {
        if token.is("~") {
            string_ends.extend(left_operand_end(tokens, index));
            string_ends.extend(right_operand_end(tokens, index));
        } else if token.is("%")
            && index > 0
            && tokens[index - 1].kind == Kind::Text
            && let Some(last) = primary_end(tokens, index + 1)
        {
            edits.push(Edit { start: token.start, end: token.end(), text: format!("|{PRINTF_FILTER}(") });
            edits.push(Edit { start: tokens[last].end(), end: tokens[last].end(), text: ")".into() });
        }
    }
    edits.extend(string_ends.into_iter().map(|at| Edit { start: at, end: at, text: "|string".into() }));
    edits.sort_by_key(|edit| edit.start);
    edits
}

/// Where `|string` goes for the operand before the `~` at `tilde`; nothing when it is a literal or
/// not a plain operand.
fn left_operand_end(tokens: &[Token<'_>], tilde: usize) -> Option<usize> {
    let n = operand_len(tokens, (0..tilde).rev(), &CLOSERS, &OPENERS)?;
    string_end(&tokens[tilde - n..tilde])
}

/// The same for the operand behind the `~`.
fn right_operand_end(tokens: &[Token<'_>], tilde: usize) -> Option<usize> {
    let first = tilde + 1;
    let n = operand_len(tokens, first..tokens.len(), &OPENERS, &CLOSERS)?;
    string_end(&tokens[first..first + n])
}

/// How many of the tokens at `places`, which lead away from a `~`, are its operand; `None` where
/// that is not certain. `inward` brackets lead into a group, `outward` ones out of it.
fn operand_len(
    tokens: &[Token<'_>],
    places: impl Iterator<Item = usize>,
    inward: &[&str],
    outward: &[&str],
) -> Option<usize> {
    let (mut depth, mut n) = (0_usize, 0);
    for index in places {
        let token = &tokens[index];
        if token.is_one_of(inward) {
            depth += 1;
        } else if token.is_one_of(outward) {
            if depth == 0 {
                break;
            }
            depth -= 1;
        } else if depth == 0 {
            let is_test = token.text == "is" && token.kind == Kind::Word;
            let is_sign = token.is_one_of(&["-", "+"]) && (index == 0 || !tokens[index - 1].ends_operand());
            if token.is_one_of(&TIGHTER) || is_test || is_sign {
                return None;
            }
            if ends_expression(token) {
                break;
            }
        }
        n += 1;
    }
    Some(n)
}

fn string_end(operand: &[Token<'_>]) -> Option<usize> {
    operand.last().filter(|_| !is_literal(operand)).map(Token::end)
}

/// A token outside of brackets that cannot be part of an operand of `~`.
fn ends_expression(token: &Token<'_>) -> bool {
    match token.kind {
        Kind::Operator => !token.is_one_of(&[".", "|", "(", ")", "[", "]", "{", "}"]),
        Kind::Word => KEYWORDS.contains(&token.text),
        Kind::Text | Kind::Number => false,
    }
}

fn is_literal(tokens: &[Token<'_>]) -> bool {
    matches!(tokens, [token] if token.kind == Kind::Text)
}

/// The last token of the operand that starts at `first`: a name, literal or bracket with what
/// follows it directly.
fn primary_end(tokens: &[Token<'_>], first: usize) -> Option<usize> {
    let token = tokens.get(first)?;
    let mut last = match token.kind {
        Kind::Operator if token.is_one_of(&OPENERS) => closing(tokens, first)?,
        Kind::Operator => return None,
        Kind::Word if KEYWORDS.contains(&token.text) => return None,
        _ => first,
    };
    while let Some(token) = tokens.get(last + 1) {
        last = if token.is("(") || token.is("[") {
            closing(tokens, last + 1)?
        } else if token.is(".") || token.is("|") {
            last + 2
        } else {
            break;
        };
    }
    (last < tokens.len()).then_some(last)
}

fn closing(tokens: &[Token<'_>], opener: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate().skip(opener) {
        if token.is_one_of(&OPENERS) {
            depth += 1;
        } else if token.is_one_of(&CLOSERS) {
            depth -= 1;
            if depth == 0 {
                return Some(index);
            }
        }
    }
    None
}
