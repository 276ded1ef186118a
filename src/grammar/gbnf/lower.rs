//! From GBNF to Lark text, exactly.
//!
//! The parser below works on lexemes, and its lexer takes the longest match. A whole regular grammar becomes one lexeme, of
//! which every beginning is known to the lexer: exact. In another grammar the largest regular parts become lexemes where the
//! longest match loses nothing (`automaton`); a part for which that is not so is divided, in the end into single characters,
//! none of which is the beginning of another.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use super::ast::{CharSet, Expr, Grammar, TokenRef};
use super::automaton::{Bytes, Nfa, can_swallow};
use super::check::{is_nullable, nullable};
use super::limits::MAX_PARTS;
use super::regular::{is_regular, regular_rules};
use crate::grammar::error::GrammarError;

/// States and pairs of states that are looked at to find lexemes. A published grammar needs a few thousand.
const MAX_WORK: usize = 6_000_000;
const WORK: &str = "work to tell the lexemes of the grammar apart";

/// Turns a token into ranges of ids.
pub(in crate::grammar) type Resolve<'a> = &'a dyn Fn(&TokenRef) -> Result<Vec<(u32, u32)>, GrammarError>;

/// The grammar as Lark text.
///
/// # Errors
/// Those of `resolve`, more parts than the parser can hold, and more work than is done for one request.
pub(in crate::grammar) fn lower(mut grammar: Grammar, resolve: Resolve) -> Result<String, GrammarError> {
    let regular = regular_rules(&mut grammar);
    let nullable = nullable(&grammar);
    let (mut divided, mut work) = (HashSet::new(), 0);
    loop {
        let shape = Shape::new(&grammar, &regular, &nullable, &divided);
        let parts = shape.rules.values().map(Node::parts).sum();
        GrammarError::within("lexemes and groups that the parser keeps apart", parts, MAX_PARTS)?;
        let conflicts = shape.conflicts(&mut work)?;
        GrammarError::within(WORK, work, MAX_WORK)?;
        if conflicts.is_empty() {
            return Writer { shape: &shape, resolve, out: String::new(), done: HashSet::new() }.write();
        }
        divided.extend(conflicts);
    }
}

/// A rule body over lexemes.
enum Node {
    Empty,
    Lexeme(usize),
    Token(TokenRef),
    Rule(usize),
    Seq(Vec<Node>),
    Alt(Vec<Node>),
    Repeat(Box<Node>, u32, Option<u32>),
}

impl Node {
    fn parts(&self) -> usize {
        match self {
            Node::Empty | Node::Lexeme(_) | Node::Token(_) | Node::Rule(_) => 1,
            Node::Seq(nodes) | Node::Alt(nodes) => 1 + nodes.iter().map(Node::parts).sum::<usize>(),
            // A bounded repetition is built from some copies.
            Node::Repeat(inner, ..) => 8 + inner.parts(),
        }
    }
}

/// The grammar with its regular parts cut out.
struct Shape<'a> {
    grammar: &'a Grammar,
    regular: &'a [bool],
    nullable: &'a [bool],
    divided: &'a HashSet<Expr>,
    /// The bodies of the rules that the parser sees.
    rules: HashMap<usize, Node>,
    lexemes: Vec<Expr>,
    by_expr: HashMap<Expr, usize>,
    /// Rules named and not yet in `rules`.
    open: Vec<usize>,
}

impl<'a> Shape<'a> {
    fn new(grammar: &'a Grammar, regular: &'a [bool], nullable: &'a [bool], divided: &'a HashSet<Expr>) -> Shape<'a> {
        let (rules, by_expr) = (HashMap::new(), HashMap::new());
        let mut shape = Shape {
            grammar,
            regular,
            nullable,
            divided,
            rules,
            lexemes: Vec::new(),
            by_expr,
            open: vec![grammar.root],
        };
        while let Some(rule) = shape.open.pop() {
            if !shape.rules.contains_key(&rule) {
                let node = shape.node(&grammar.rules[rule].expr);
                shape.rules.insert(rule, node);
            }
        }
        shape
    }

    fn lexeme(&mut self, expr: Expr) -> Node {
        if expr == Expr::Empty {
            return Node::Empty;
        }
        let next = self.lexemes.len();
        let index = *self.by_expr.entry(expr).or_insert_with_key(|expr| {
            self.lexemes.push(expr.clone());
            next
        });
        Node::Lexeme(index)
    }

    fn is_whole(&self, expr: &Expr) -> bool {
        is_regular(expr, self.regular) && !self.divided.contains(expr)
    }

    fn node(&mut self, expr: &Expr) -> Node {
        if self.is_whole(expr) {
            return self.lexeme(expr.clone());
        }
        match expr {
            Expr::Empty => Node::Empty,
            Expr::Class(_) => self.lexeme(expr.clone()),
            Expr::Token(token) => Node::Token(token.clone()),
            Expr::Text(text) => Node::Seq(text.chars().map(|c| self.lexeme(Expr::Text(c.to_string()))).collect()),
            Expr::Rule(rule) => {
                self.open.push(*rule);
                Node::Rule(*rule)
            }
            Expr::Repeat(inner, min, max) => Node::Repeat(Box::new(self.node(inner)), *min, *max),
            Expr::Seq(items) => Node::Seq(self.runs(items)),
            Expr::Alt(items) => {
                let (whole, mut rest): (Vec<&Expr>, Vec<&Expr>) = items.iter().partition(|item| self.is_whole(item));
                let mut nodes = Vec::new();
                let joined = Expr::alt(whole.iter().copied().cloned().collect());
                if whole.len() > 1 && self.is_whole(&joined) {
                    nodes.push(self.lexeme(joined));
                } else {
                    rest.extend(whole);
                }
                nodes.extend(rest.into_iter().map(|item| self.node(item)));
                Node::Alt(nodes)
            }
        }
    }

    /// Neighbours that are whole make one lexeme, unless that was divided.
    fn runs(&mut self, items: &[Expr]) -> Vec<Node> {
        let join = |run: &[Expr]| Expr::seq(run.to_vec());
        let mut nodes = Vec::new();
        let mut at = 0;
        while at < items.len() {
            let mut run = items[at..].iter().take_while(|item| self.is_whole(item)).count();
            while run > 1 && !self.is_whole(&join(&items[at..at + run])) {
                run /= 2;
            }
            if run > 1 {
                nodes.push(self.lexeme(join(&items[at..at + run])));
                at += run;
            } else {
                nodes.push(self.node(&items[at]));
                at += 1;
            }
        }
        nodes
    }

    fn is_nullable(&self, node: &Node) -> bool {
        match node {
            Node::Empty => true,
            Node::Token(_) => false,
            Node::Lexeme(index) => is_nullable(&self.lexemes[*index], &|rule| self.nullable[rule]),
            Node::Rule(rule) => self.nullable[*rule],
            Node::Seq(nodes) => nodes.iter().all(|node| self.is_nullable(node)),
            Node::Alt(nodes) => nodes.iter().any(|node| self.is_nullable(node)),
            Node::Repeat(inner, min, _) => *min == 0 || self.is_nullable(inner),
        }
    }

    /// The parts that must be divided, none when the text is exact. A single character is never among them.
    fn conflicts(&self, work: &mut usize) -> Result<Vec<Expr>, GrammarError> {
        // One lexeme alone is decided by the lexer as a whole.
        if let Some(Node::Lexeme(_)) = self.rules.get(&self.grammar.root) {
            return Ok(Vec::new());
        }
        *work += self.lexemes.len() * self.lexemes.len() / 8;
        GrammarError::within(WORK, *work, MAX_WORK)?;
        let nfas: Vec<Option<Nfa>> = self.lexemes.iter().map(|expr| Nfa::new(self.grammar, expr)).collect();
        if nfas.iter().any(Option::is_none) {
            let large = self.lexemes.iter().zip(&nfas).filter(|(_, nfa)| nfa.is_none());
            return Ok(large.map(|(expr, _)| expr.clone()).collect());
        }
        let nfas: Vec<Nfa> = nfas.into_iter().flatten().collect();
        *work += nfas.iter().map(Nfa::states).sum::<usize>();
        let firsts: Vec<Bytes> = nfas.iter().map(Nfa::first).collect();
        let after = Follow::new(self, &firsts).after;
        let mut conflicts = HashSet::new();
        for (ended, nfa) in nfas.iter().enumerate() {
            for (other, longer) in nfas.iter().enumerate() {
                let expr = &self.lexemes[other];
                if !is_one_character(expr)
                    && !conflicts.contains(&other)
                    && firsts[ended].meets(firsts[other])
                    && can_swallow(nfa, longer, after[ended], work)
                {
                    conflicts.insert(other);
                }
                GrammarError::within(WORK, *work, MAX_WORK)?;
            }
        }
        Ok(conflicts.into_iter().map(|index| self.lexemes[index].clone()).collect())
    }
}

fn is_one_character(expr: &Expr) -> bool {
    match expr {
        Expr::Class(_) => true,
        Expr::Text(text) => text.chars().nth(1).is_none(),
        _ => false,
    }
}

/// The bytes that may come after each lexeme and each rule.
struct Follow<'a> {
    shape: &'a Shape<'a>,
    firsts: &'a [Bytes],
    rule_firsts: HashMap<usize, Bytes>,
    rule_after: HashMap<usize, Bytes>,
    after: Vec<Bytes>,
    changed: bool,
}

impl<'a> Follow<'a> {
    fn new(shape: &'a Shape<'a>, firsts: &'a [Bytes]) -> Follow<'a> {
        let (rule_firsts, rule_after) = (HashMap::new(), HashMap::new());
        let after = vec![Bytes::default(); firsts.len()];
        let mut follow = Follow { shape, firsts, rule_firsts, rule_after, after, changed: true };
        while std::mem::take(&mut follow.changed) {
            for (rule, node) in &shape.rules {
                let bytes = follow.first(node);
                if follow.rule_firsts.insert(*rule, bytes) != Some(bytes) {
                    follow.changed = true;
                }
            }
        }
        follow.changed = true;
        while std::mem::take(&mut follow.changed) {
            for (rule, node) in &shape.rules {
                let after = follow.rule_after.get(rule).copied().unwrap_or_default();
                follow.pass(node, after);
            }
        }
        follow
    }

    fn first(&self, node: &Node) -> Bytes {
        let all = |nodes: &[Node]| nodes.iter().map(|node| self.first(node)).fold(Bytes::default(), Bytes::or);
        match node {
            Node::Empty => Bytes::default(),
            Node::Lexeme(index) => self.firsts[*index],
            Node::Token(_) => Bytes::TOKEN,
            Node::Rule(rule) => self.rule_firsts.get(rule).copied().unwrap_or_default(),
            Node::Alt(nodes) => all(nodes),
            Node::Repeat(inner, ..) => self.first(inner),
            Node::Seq(nodes) => {
                let begin =
                    nodes.iter().position(|node| !self.shape.is_nullable(node)).map_or(nodes.len(), |at| at + 1);
                all(&nodes[..begin])
            }
        }
    }

    /// Notes that `after` may follow this node.
    fn pass(&mut self, node: &Node, after: Bytes) {
        match node {
            Node::Empty | Node::Token(_) => {}
            Node::Lexeme(index) => {
                let joined = self.after[*index].or(after);
                self.changed |= joined != self.after[*index];
                self.after[*index] = joined;
            }
            Node::Rule(rule) => {
                let before = self.rule_after.get(rule).copied().unwrap_or_default();
                let joined = before.or(after);
                self.changed |= joined != before;
                self.rule_after.insert(*rule, joined);
            }
            Node::Alt(nodes) => nodes.iter().for_each(|node| self.pass(node, after)),
            Node::Repeat(inner, _, Some(1)) => self.pass(inner, after),
            Node::Repeat(inner, ..) => {
                let again = self.first(inner).or(after);
                self.pass(inner, again);
            }
            Node::Seq(nodes) => {
                let mut after = after;
                for node in nodes.iter().rev() {
                    self.pass(node, after);
                    let first = self.first(node);
                    after = if self.shape.is_nullable(node) { after.or(first) } else { first };
                }
            }
        }
    }
}

/// Writes the Lark text. Names are made here: `r3` a rule of the parser, `R3` the same as a part of lexemes, `T5` a lexeme.
struct Writer<'a> {
    shape: &'a Shape<'a>,
    resolve: Resolve<'a>,
    out: String,
    /// Rules that are written as parts of lexemes.
    done: HashSet<usize>,
}

impl Writer<'_> {
    fn write(mut self) -> Result<String, GrammarError> {
        let shape = self.shape;
        let _ = writeln!(self.out, "start: r{}", shape.grammar.root);
        let mut rules: Vec<(&usize, &Node)> = shape.rules.iter().collect();
        rules.sort_unstable_by_key(|(rule, _)| **rule);
        for (rule, node) in rules {
            let body = self.node(node)?;
            let _ = writeln!(self.out, "r{rule}: {body}");
        }
        let mut named = Vec::new();
        for (index, expr) in shape.lexemes.iter().enumerate() {
            let text = terminal(expr);
            // A lexeme is never empty: what may be left out is said by the rule.
            let some = if self.may_be_empty(index) { " & /(?s:.)+/" } else { "" };
            let _ = writeln!(self.out, "T{index}: ({text}){some}");
            named.extend(expr.rules());
        }
        while let Some(rule) = named.pop() {
            if self.done.insert(rule) {
                let expr = &shape.grammar.rules[rule].expr;
                let _ = writeln!(self.out, "R{rule}: {}", terminal(expr));
                named.extend(expr.rules());
            }
        }
        Ok(self.out)
    }

    fn may_be_empty(&self, lexeme: usize) -> bool {
        self.shape.is_nullable(&Node::Lexeme(lexeme))
    }

    fn node(&self, node: &Node) -> Result<String, GrammarError> {
        let all = |nodes: &[Node], between: &str| {
            let parts: Result<Vec<String>, GrammarError> = nodes.iter().map(|node| self.node(node)).collect();
            parts.map(|parts| format!("({})", parts.join(between)))
        };
        Ok(match node {
            Node::Empty => "\"\"".to_owned(),
            Node::Lexeme(index) => format!("T{index}{}", if self.may_be_empty(*index) { "?" } else { "" }),
            Node::Rule(rule) => format!("r{rule}"),
            Node::Seq(nodes) => all(nodes, " ")?,
            Node::Alt(nodes) => all(nodes, " | ")?,
            Node::Repeat(inner, min, max) => format!("({}){}", self.node(inner)?, quantifier(*min, *max)),
            Node::Token(token) => {
                let ranges = (self.resolve)(token)?;
                let ranges: Vec<String> = ranges.iter().map(|(low, high)| format!("{low}-{high}")).collect();
                format!("<[{}]>", ranges.join(","))
            }
        })
    }
}

fn quantifier(min: u32, max: Option<u32>) -> String {
    match (min, max) {
        (0, None) => "*".to_owned(),
        (1, None) => "+".to_owned(),
        (0, Some(1)) => "?".to_owned(),
        (min, None) => format!("{{{min},}}"),
        (min, Some(max)) => format!("{{{min},{max}}}"),
    }
}

/// A regular expression as the body of a terminal.
fn terminal(expr: &Expr) -> String {
    let all = |items: &[Expr], between: &str| {
        let parts: Vec<String> = items.iter().map(terminal).collect();
        format!("({})", parts.join(between))
    };
    match expr {
        // Tokens are no part of lexemes.
        Expr::Empty | Expr::Token(_) => "\"\"".to_owned(),
        Expr::Text(text) => {
            let characters = text.chars().fold(String::new(), |mut out, c| {
                push_code(&mut out, c.into());
                out
            });
            format!("/{characters}/")
        }
        Expr::Class(set) if *set == CharSet::any() => "/(?s:.)/".to_owned(),
        Expr::Class(set) => {
            let mut out = String::from("/[");
            for &(low, high) in set.ranges() {
                push_code(&mut out, low);
                if high > low {
                    out.push('-');
                    push_code(&mut out, high);
                }
            }
            out + "]/"
        }
        Expr::Rule(rule) => format!("R{rule}"),
        Expr::Seq(items) => all(items, " "),
        Expr::Alt(items) => all(items, " | "),
        Expr::Repeat(inner, min, max) => format!("({}){}", terminal(inner), quantifier(*min, *max)),
    }
}

fn push_code(out: &mut String, code: u32) {
    match char::from_u32(code) {
        Some(c) if c.is_ascii_alphanumeric() => out.push(c),
        _ => _ = write!(out, "\\x{{{code:X}}}"),
    }
}
