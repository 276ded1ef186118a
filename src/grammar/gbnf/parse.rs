//! From text to rules, with line, column and the fix for everything that is wrong.

use std::collections::HashMap;

use super::ast::{CharSet, Expr, Grammar, Rule, TokenName, TokenRef};
use super::check;
use super::limits::{MAX_ALTERNATIVES, MAX_BYTES, MAX_DEPTH, MAX_REPETITIONS, MAX_RULES};
use crate::grammar::error::{GrammarError, Position};

type Parsed<T> = Result<T, GrammarError>;

/// Quantifiers in a row, as in `x*?`: more than this says nothing new and would nest without end.
const MAX_QUANTIFIERS: usize = 4;

/// Parses and checks a grammar.
///
/// # Errors
/// What is wrong first, with its place: syntax, an undefined or repeated rule, left recursion, a rule that can never end, a
/// limit.
pub fn parse(text: &str) -> Parsed<Grammar> {
    GrammarError::within("bytes of the grammar", text.len(), MAX_BYTES)?;
    let mut parser = Parser { text, byte: 0, at: Position { line: 1, column: 1 }, ..Parser::default() };
    parser.grammar()?;
    let grammar = parser.finish()?;
    check::check(&grammar)?;
    Ok(grammar)
}

struct Name {
    text: String,
    /// Where it was first seen.
    at: Position,
    rule: Option<Rule>,
}

struct Parser<'a> {
    text: &'a str,
    byte: usize,
    at: Position,
    depth: usize,
    alternatives: usize,
    names: Vec<Name>,
    by_name: HashMap<&'a str, usize>,
}

impl Default for Parser<'_> {
    fn default() -> Self {
        let at = Position { line: 1, column: 1 };
        Parser { text: "", byte: 0, at, depth: 0, alternatives: 0, names: Vec::new(), by_name: HashMap::new() }
    }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

fn show(c: Option<char>) -> String {
    c.map_or_else(|| "the end of the text".to_owned(), |c| format!("{c:?}"))
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.byte..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.byte += c.len_utf8();
        match c {
            '\n' => self.at = Position { line: self.at.line + 1, column: 1 },
            _ => self.at.column += 1,
        }
        Some(c)
    }

    fn eat(&mut self, c: char) -> bool {
        let here = self.peek() == Some(c);
        if here {
            self.bump();
        }
        here
    }

    fn fail<T>(&self, message: impl Into<String>) -> Parsed<T> {
        Err(GrammarError::text(self.at, message))
    }

    /// Skips spaces and comments, and ends of lines too where they mean nothing.
    fn space(&mut self, newlines: bool) {
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' => {}
                '\r' | '\n' if newlines => {}
                '#' => {
                    while self.peek().is_some_and(|c| c != '\n' && c != '\r') {
                        self.bump();
                    }
                    continue;
                }
                _ => return,
            }
            self.bump();
        }
    }

    fn name(&mut self) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        self.byte += end;
        self.at.column += end;
        &rest[..end]
    }

    fn index(&mut self, name: &'a str, at: Position) -> Parsed<usize> {
        if let Some(&index) = self.by_name.get(name) {
            return Ok(index);
        }
        GrammarError::within("rules of the grammar", self.names.len() + 1, MAX_RULES)?;
        self.names.push(Name { text: name.to_owned(), at, rule: None });
        self.by_name.insert(name, self.names.len() - 1);
        Ok(self.names.len() - 1)
    }

    /// Is this the head of the next rule? Only asked where a rule's end is not marked by an end of line.
    fn at_rule_head(&self) -> bool {
        let after = self.rest().trim_start_matches(is_name);
        after.len() < self.rest().len() && after.trim_start_matches([' ', '\t']).starts_with("::=")
    }

    fn grammar(&mut self) -> Parsed<()> {
        self.space(true);
        while self.peek().is_some() {
            self.rule()?;
            self.space(true);
        }
        Ok(())
    }

    fn rule(&mut self) -> Parsed<()> {
        let at = self.at;
        let name = self.name();
        if name.is_empty() {
            return self.fail(format!("a rule (`name ::= ...`) was expected, not {}", show(self.peek())));
        }
        self.space(false);
        if !self.rest().starts_with("::=") {
            return self.fail(format!("`::=` was expected after the rule name `{name}`, not {}", show(self.peek())));
        }
        (0..3).for_each(|_| _ = self.bump());
        let index = self.index(name, at)?;
        if let Some(first) = &self.names[index].rule {
            let message = format!("rule `{name}` is defined twice, first at {}; join them with `|`", first.at);
            return Err(GrammarError::text(at, message));
        }
        self.space(true);
        let expr = self.alternatives(false)?;
        if !matches!(self.peek(), None | Some('\n' | '\r')) && !self.at_rule_head() {
            let fix = if self.peek() == Some(')') { "; there is no `(` for it" } else { "" };
            return self
                .fail(format!("an item, `|` or the end of the line was expected, not {}{fix}", show(self.peek())));
        }
        self.names[index].rule = Some(Rule { name: name.to_owned(), at, expr });
        Ok(())
    }

    fn alternatives(&mut self, nested: bool) -> Parsed<Expr> {
        let mut all = Vec::new();
        loop {
            self.alternatives += 1;
            GrammarError::within("alternatives of the grammar", self.alternatives, MAX_ALTERNATIVES)?;
            all.push(self.sequence(nested)?);
            if !nested {
                self.continue_on_bar();
            }
            if !self.eat('|') {
                break;
            }
            self.space(true);
        }
        // Equal alternatives say nothing new, and would make a parse ambiguous.
        let mut seen = std::collections::HashSet::new();
        all.retain(|expr| seen.insert(expr.clone()));
        Ok(Expr::alt(all))
    }

    /// Moves to a `|` at the beginning of one of the next lines.
    fn continue_on_bar(&mut self) {
        let before = (self.byte, self.at);
        self.space(true);
        if self.peek() != Some('|') {
            (self.byte, self.at) = before;
        }
    }

    fn sequence(&mut self, nested: bool) -> Parsed<Expr> {
        let mut items = Vec::new();
        while let Some(c) = self.peek() {
            let item = match c {
                '"' => self.literal()?,
                '[' => Expr::Class(self.class()?),
                '.' => {
                    self.bump();
                    Expr::Class(CharSet::any())
                }
                '<' | '!' => self.token()?,
                '(' => self.group()?,
                '*' | '+' | '?' | '{' => {
                    return self.fail(format!("{c:?} needs an item before it; put a literal {c:?} in quotes"));
                }
                c if is_name(c) => {
                    if self.at_rule_head() {
                        break;
                    }
                    let at = self.at;
                    let name = self.name();
                    Expr::Rule(self.index(name, at)?)
                }
                _ => break,
            };
            self.space(nested);
            items.push(self.quantified(item, nested)?);
        }
        Ok(Expr::seq(items))
    }

    fn quantified(&mut self, mut item: Expr, nested: bool) -> Parsed<Expr> {
        for count in 0.. {
            let (min, max) = match self.peek() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => {
                    if count < MAX_QUANTIFIERS {
                        let (min, max) = self.counts(nested)?;
                        item = Expr::repeat(item, min, max);
                        self.space(nested);
                        continue;
                    }
                    (0, None)
                }
                _ => break,
            };
            if count >= MAX_QUANTIFIERS {
                return self.fail(format!("more than {MAX_QUANTIFIERS} quantifiers in a row; one says the same"));
            }
            self.bump();
            item = Expr::repeat(item, min, max);
            self.space(nested);
        }
        Ok(item)
    }

    fn counts(&mut self, nested: bool) -> Parsed<(u32, Option<u32>)> {
        let open = self.at;
        self.bump();
        self.space(nested);
        let min = self.number()?;
        self.space(nested);
        let (min, max) = if self.eat(',') {
            self.space(nested);
            let max = self.number()?;
            self.space(nested);
            if min.is_none() && max.is_none() {
                return self.fail("`{,}` has no number; write `*`");
            }
            (min.unwrap_or(0), max)
        } else {
            match min {
                Some(min) => (min, Some(min)),
                None => return self.fail(format!("a number was expected in `{{...}}`, not {}", show(self.peek()))),
            }
        };
        if !self.eat('}') {
            return self.fail(format!("`}}` was expected to close a repetition, not {}", show(self.peek())));
        }
        if let Some(max) = max.filter(|&max| max < min) {
            let message = format!("{{{min},{max}}} repeats at least {min} and at most {max} times; swap the numbers");
            return Err(GrammarError::text(open, message));
        }
        Ok((min, max))
    }

    fn number(&mut self) -> Parsed<Option<u32>> {
        let at = self.at;
        let digits = self.digits();
        if digits.is_empty() {
            return Ok(None);
        }
        match digits.parse::<u32>() {
            Ok(n) if n as usize <= MAX_REPETITIONS => Ok(Some(n)),
            _ => Err(GrammarError::text(
                at,
                format!("{digits} repetitions are more than {MAX_REPETITIONS}; leave the number out for no bound"),
            )),
        }
    }

    fn digits(&mut self) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        self.byte += end;
        self.at.column += end;
        &rest[..end]
    }

    fn group(&mut self) -> Parsed<Expr> {
        let open = self.at;
        self.bump();
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            let message = format!("groups are nested more than {MAX_DEPTH} deep; name the inner ones as rules");
            return Err(GrammarError::text(open, message));
        }
        self.space(true);
        let expr = self.alternatives(true)?;
        if !self.eat(')') {
            return self.fail(format!("`)` was expected for the `(` at {open}, not {}", show(self.peek())));
        }
        self.depth -= 1;
        Ok(expr)
    }

    fn literal(&mut self) -> Parsed<Expr> {
        let open = self.at;
        self.bump();
        let mut text = String::new();
        loop {
            match self.peek() {
                Some('"') => break,
                None => return Err(GrammarError::text(open, "this text is not closed; add a `\"`")),
                Some(_) => {
                    let at = self.at;
                    let code = self.character()?;
                    match char::from_u32(code) {
                        Some(c) => text.push(c),
                        None => return Err(not_a_character(at, code)),
                    }
                }
            }
        }
        self.bump();
        Ok(Expr::text(&text))
    }

    fn class(&mut self) -> Parsed<CharSet> {
        let open = self.at;
        self.bump();
        let negated = self.eat('^');
        let mut ranges = Vec::new();
        loop {
            match self.peek() {
                Some(']') => break,
                None => return Err(GrammarError::text(open, "this class is not closed; add a `]`")),
                Some(_) => {}
            }
            let at = self.at;
            let low = self.character()?;
            let mut high = low;
            if self.peek() == Some('-') && !self.rest().starts_with("-]") {
                self.bump();
                if self.peek().is_none() {
                    return Err(GrammarError::text(open, "this class is not closed; add a `]`"));
                }
                high = self.character()?;
            } else if char::from_u32(low).is_none() {
                return Err(not_a_character(at, low));
            }
            if high < low {
                return Err(GrammarError::text(at, "the range ends before it begins; swap its ends, or escape `-`"));
            }
            ranges.push((low, high));
        }
        self.bump();
        let set = CharSet::new(ranges);
        let set = if negated { set.complement() } else { set };
        if set.is_empty() {
            return Err(GrammarError::text(open, "this class matches no character; nothing could be generated here"));
        }
        Ok(set)
    }

    /// One character of a text or a class, as a number: escapes can name what is no character.
    fn character(&mut self) -> Parsed<u32> {
        let at = self.at;
        let Some(c) = self.bump() else { return self.fail("the text ends here") };
        if c != '\\' {
            return Ok(c.into());
        }
        let escape = self.bump();
        Ok(match escape {
            Some('x') => return self.hex(2),
            Some('u') => return self.hex(4),
            Some('U') => return self.hex(8),
            Some('t') => '\t'.into(),
            Some('r') => '\r'.into(),
            Some('n') => '\n'.into(),
            Some(c @ ('\\' | '"' | '[' | ']' | '-')) => c.into(),
            Some(c) => {
                let fix =
                    "known are \\n \\r \\t \\\\ \\\" \\[ \\] \\- \\xNN \\uNNNN \\UNNNNNNNN; other characters need none";
                return Err(GrammarError::text(at, format!("unknown escape `\\{}`; {fix}", c.escape_default())));
            }
            None => return Err(GrammarError::text(at, "the text ends in the middle of an escape")),
        })
    }

    fn hex(&mut self, digits: usize) -> Parsed<u32> {
        let at = self.at;
        let mut value: u32 = 0;
        for _ in 0..digits {
            match self.peek().and_then(|c| c.to_digit(16)) {
                Some(digit) => value = value << 4 | digit,
                None => return Err(GrammarError::text(at, format!("this escape needs {digits} hexadecimal digits"))),
            }
            self.bump();
        }
        Ok(value)
    }

    fn token(&mut self) -> Parsed<Expr> {
        let at = self.at;
        let negated = self.eat('!');
        let start = self.byte;
        if !self.eat('<') {
            return self.fail(format!("`<` was expected after `!`, not {}", show(self.peek())));
        }
        let name = if self.eat('[') {
            let id = self.digits().parse::<u32>().ok().filter(|_| self.rest().starts_with("]>"));
            let Some(id) = id else {
                return Err(GrammarError::text(at, "a token by its number is written `<[123]>`"));
            };
            self.bump();
            self.bump();
            TokenName::Id(id)
        } else {
            while self.peek().is_some_and(|c| c != '>' && c != '\n' && c != '\r') {
                self.bump();
            }
            if !self.eat('>') {
                return Err(GrammarError::text(
                    at,
                    "this token is not closed; add a `>`, or put a literal `<` in quotes",
                ));
            }
            TokenName::Named(self.text[start..self.byte].to_owned())
        };
        Ok(Expr::Token(TokenRef { name, negated, at }))
    }

    fn finish(self) -> Parsed<Grammar> {
        let start = Position { line: 1, column: 1 };
        let mut rules = Vec::with_capacity(self.names.len());
        for name in &self.names {
            let Some(rule) = &name.rule else {
                let near = nearest(&name.text, self.names.iter().filter(|other| other.rule.is_some()));
                let fix = near.map_or_else(|| "define it".to_owned(), |near| format!("did you mean `{near}`?"));
                let message = format!("rule `{}` is not defined; {fix}", name.text);
                return Err(GrammarError::text(name.at, message));
            };
            rules.push(rule.clone());
        }
        match self.by_name.get("root") {
            Some(&root) => Ok(Grammar { rules, root }),
            None if rules.is_empty() => Err(GrammarError::text(start, "the grammar is empty; it needs `root ::= ...`")),
            None => Err(GrammarError::text(start, "there is no rule `root`; generation starts there")),
        }
    }
}

fn not_a_character(at: Position, code: u32) -> GrammarError {
    GrammarError::text(
        at,
        format!("U+{code:04X} is no Unicode character; a character beyond U+FFFF is written \\UNNNNNNNN"),
    )
}

/// A defined name that differs in letter case, `-` against `_`, or one character at the end.
fn nearest<'a>(name: &str, defined: impl Iterator<Item = &'a Name>) -> Option<&'a str> {
    let plain = |name: &str| name.to_ascii_lowercase().replace(['-', '_'], "");
    let wanted = plain(name);
    defined.map(|name| name.text.as_str()).find(|&other| {
        let other = plain(other);
        let (short, long) = if other.len() < wanted.len() { (&other, &wanted) } else { (&wanted, &other) };
        !short.is_empty() && long.starts_with(short.as_str()) && long.len() - short.len() <= 1
    })
}
