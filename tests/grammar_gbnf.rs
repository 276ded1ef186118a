//! GBNF: syntax, its errors, and that what the matcher allows is what the grammar says.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "grammar/reference.rs"]
mod reference;

use std::sync::LazyLock;

use plateau::grammar::gbnf::{Grammar, parse};
use plateau::grammar::{Compiled, Engine, GrammarError, Source, Vocabulary};
use plateau::units::Token;
use proptest::prelude::*;
use reference::{Verdict, judge};

static BYTES: LazyLock<Engine> = LazyLock::new(|| Engine::new(Vocabulary::bytes(&[])).unwrap());

fn compile(text: &str) -> Compiled {
    BYTES.compile(&Source::Gbnf(text.to_owned())).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn verdict(compiled: &Compiled, text: &str) -> Verdict {
    let mut matcher = compiled.matcher();
    for byte in text.bytes() {
        if matcher.accept(Token(byte.into())).is_err() {
            return Verdict::Impossible;
        }
    }
    if matcher.is_accepting() { Verdict::Whole } else { Verdict::Beginning }
}

fn error(text: &str) -> String {
    let error = parse(text).unwrap_err();
    error.to_string()
}

#[track_caller]
fn agree(grammar: &Grammar, compiled: &Compiled, text: &str, source: &str) {
    for end in (0..=text.len()).filter(|&end| text.is_char_boundary(end)) {
        let prefix = &text[..end];
        assert_eq!(verdict(compiled, prefix), judge(grammar, prefix), "{prefix:?} under\n{source}");
    }
}

/// (grammar, whole texts, texts that are none)
const FIXTURES: &[(&str, &[&str], &[&str])] = &[
    ("root ::= \"a\" | \"bc\"", &["a", "bc"], &["", "b", "ab", "bcc"]),
    ("root ::= [a-c]+ \"c\"", &["ac", "cc", "abcc"], &["c", "ab", ""]),
    ("root ::= [^\\n\\x41-\\x43]{2,3}", &["ab", "\u{E9}z\u{1F600}"], &["a", "Aa", "a\n", "abcd"]),
    ("root ::= .{,2}", &["", "\n", "\u{1F600}x"], &["abc"]),
    ("root ::= \"\\u00e9\\U0001F600\\t\\\"\\\\\\[\\]\\-\"", &["\u{E9}\u{1F600}\t\"\\[]-"], &["\u{E9}"]),
    ("root ::= [a-]+", &["a-", "-"], &["b"]),
    ("root ::= x y*  # a comment\nx ::= \"x\"\n# another\ny ::= \"y\" |\n  \"z\"\n  | \"w\"", &["x", "xyzw"], &["y"]),
    ("root ::= (\n \"a\" # inside\n | \"b\"\n)? \"c\"", &["c", "ac", "bc"], &["abc", "a"]),
    ("root ::= under_score dash-ed\nunder_score ::= \"u\"\ndash-ed ::= \"d\"", &["ud"], &["u"]),
    ("root ::= \"a\" opt\nopt ::= \"b\" |\nnever ::= \"n\"", &["a", "ab"], &["an"]),
    ("root ::= \"x\" {2} \"y\"{1,} (\"z\"){0}", &["xxy", "xxyyy"], &["xy", "xxyz"]),
    ("root ::= ws \"a\"\nws ::= ([ \\t] ws)?", &["a", " \t a"], &["b"]),
    ("root ::= \"(\" root \")\" | \"\"", &["", "()", "((()))"], &["(", "())"]),
    ("root ::= [a-z]+ | \"(\" root [a-z] \")\"", &["ab", "(abc)", "((abc)d)"], &["(a)", "()"]),
    ("root ::= \"a\" root \"a\" | \"b\" root \"b\" | \"a\" | \"b\"", &["aba", "a", "abbba"], &["ab", "abb"]),
    (
        "root ::= list\nlist ::= item rest\nrest ::= \",\" list | \"\"\nitem ::= [a-z] [a-z0-9]*",
        &["a", "a1,b,c"],
        &["1", "a,"],
    ),
    ("root ::= \"i\" \"f\"? root | \"f\" | \"if\"", &["f", "if", "iff", "ifif", "iif"], &["i", "ff"]),
    ("root ::= \"[\" (root (\",\" root)*)? \"]\" | [0-9]{1,3}", &["[]", "[1,[22,333],[]]"], &["[,]", "4444", "[4444]"]),
    ("root ::= (\"\\u00e0\"* \"\\u00e1\" root)?", &["", "\u{E0}\u{E1}", "\u{E1}\u{E1}"], &["\u{E0}"]),
];

#[test]
fn fixtures_are_accepted_and_rejected() {
    for (source, whole, not) in FIXTURES {
        let (grammar, compiled) = (parse(source).unwrap(), compile(source));
        for text in *whole {
            assert_eq!(verdict(&compiled, text), Verdict::Whole, "{text:?} under\n{source}");
            agree(&grammar, &compiled, text, source);
        }
        for text in *not {
            assert_ne!(verdict(&compiled, text), Verdict::Whole, "{text:?} under\n{source}");
            agree(&grammar, &compiled, text, source);
        }
    }
}

/// Grammar text of a few rules over a small alphabet: most contain repetitions that compete for the same characters.
fn grammars() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        4 => prop::sample::select(vec!["\"a\"", "\"b\"", "\"ab\"", "\"ba\"", "\"aab\"", "\"\\u00e9\"", "\"\""]),
        3 => prop::sample::select(vec!["[ab]", "[^a]", "[a]", "[a-b\\u00e0-\\u00e9]", "."]),
        3 => prop::sample::select(vec!["root", "x", "y"]),
    ]
    .prop_map(str::to_owned);
    let expr = leaf.prop_recursive(3, 12, 3, |inner| {
        let quantifier = prop::sample::select(vec!["", "", "*", "+", "?", "{2}", "{1,2}", "{,2}", "{2,}"]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(|items| items.join(" ")),
            (prop::collection::vec(inner.clone(), 1..3), quantifier)
                .prop_map(|(items, quantifier)| format!("({}){quantifier}", items.join(" | "))),
        ]
    });
    // Recursion in the middle keeps most of them from being one regular expression.
    let shape = prop::sample::select(vec![
        "root ::= A x B\nx ::= [ab] x C | D\ny ::= \"b\" | A",
        "root ::= A x* B\nx ::= \"a\" root C | D\ny ::= B | \"b\"",
        "root ::= A | x B\nx ::= [ab] y C | D\ny ::= \"b\" x? \"a\" | B",
        "root ::= A\nx ::= B | C\ny ::= D | \"b\"",
    ]);
    (shape, [expr.clone(), expr.clone(), expr.clone(), expr])
        .prop_map(|(shape, parts)| {
            let mut text = shape.to_owned();
            for (letter, part) in ["A", "B", "C", "D"].iter().zip(parts) {
                text = text.replace(letter, &format!("({part})"));
            }
            text
        })
        .prop_filter("left recursion, or a rule without end", |text| parse(text).is_ok())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Every prefix of every text gets the same verdict as from the reference.
    #[test]
    fn the_matcher_agrees_with_the_reference(
        source in grammars(),
        texts in prop::collection::vec("[ab\u{E0}\u{E9}]{0,7}", 12),
    ) {
        let grammar = parse(&source).unwrap();
        match BYTES.compile(&Source::Gbnf(source.clone())) {
            Ok(compiled) => texts.iter().for_each(|text| agree(&grammar, &compiled, text, &source)),
            Err(error) => prop_assert!(false, "{error}\n{source}"),
        }
    }

    /// Any text at all is parsed or refused.
    #[test]
    fn parsing_never_panics(text in "[a-z:=\"\\[\\]()|*+?{},0-9<>!\\\\^.# \n-]{0,80}") {
        let _ = parse(&text);
    }
}

#[test]
fn errors_name_the_place_and_the_fix() {
    for (source, expected) in [
        ("", "line 1, column 1: the grammar is empty; it needs `root ::= ...`"),
        ("foo ::= \"a\"", "line 1, column 1: there is no rule `root`; generation starts there"),
        (
            "a ::= (\"\")*\nroot ::= a |",
            "line 2, column 1: rule `root` matches the empty text alone; nothing could be generated",
        ),
        ("root ::= \"a", "line 1, column 10: this text is not closed; add a `\"`"),
        ("root ::= [a", "line 1, column 10: this class is not closed; add a `]`"),
        ("root ::= []", "line 1, column 10: this class matches no character; nothing could be generated here"),
        ("root ::= [b-a]", "line 1, column 11: the range ends before it begins; swap its ends, or escape `-`"),
        (
            "root ::= (\"a\"",
            "line 1, column 14: `)` was expected for the `(` at line 1, column 10, not the end of the text",
        ),
        (
            "root ::= \"a\")",
            "line 1, column 13: an item, `|` or the end of the line was expected, not ')'; there is no `(` for it",
        ),
        ("root ::= * \"a\"", "line 1, column 10: '*' needs an item before it; put a literal '*' in quotes"),
        ("root ::= [a-z]{5,2}", "line 1, column 15: {5,2} repeats at least 5 and at most 2 times; swap the numbers"),
        ("root ::= \"a\"{,}", "line 1, column 15: `{,}` has no number; write `*`"),
        (
            "root ::= \"a\"{20000}",
            "line 1, column 14: 20000 repetitions are more than 10000; leave the number out for no bound",
        ),
        ("root ::= item\nItem ::= \"a\"", "line 1, column 10: rule `item` is not defined; did you mean `Item`?"),
        (
            "root ::= \"a\"\nroot ::= \"b\"",
            "line 2, column 1: rule `root` is defined twice, first at line 1, column 1; join them with `|`",
        ),
        ("root ::= \"\\u12\"", "line 1, column 13: this escape needs 4 hexadecimal digits"),
        (
            "root ::= \"\\ud800\"",
            "line 1, column 11: U+D800 is no Unicode character; a character beyond U+FFFF is written \\UNNNNNNNN",
        ),
        ("root = \"a\"", "line 1, column 6: `::=` was expected after the rule name `root`, not '='"),
        ("root ::= \"a\" $", "line 1, column 14: an item, `|` or the end of the line was expected, not '$'"),
        ("root ::= <think", "line 1, column 10: this token is not closed; add a `>`, or put a literal `<` in quotes"),
        (
            "root ::= \"x\" a\na ::= b? c\nb ::= \"b\"\nc ::= a \"c\" | \"d\"",
            "line 2, column 1: left recursion: a -> c -> a; let an item come before the name, or write a repetition (`x (\",\" x)*`)",
        ),
        (
            "root ::= \"a\" root",
            "line 1, column 1: rule `root` can never end: all its alternatives need a rule without end; add one that does not",
        ),
    ] {
        assert_eq!(error(source), expected, "{source}");
    }
    assert!(error("root ::= \"\\d\"").starts_with("line 1, column 11: unknown escape `\\d`; known are"));
}

#[test]
fn bombs_are_refused_on_a_small_stack() {
    let nested = |n: usize| format!("root ::= {}\"a\"{}", "(".repeat(n), ")".repeat(n));
    let chain = |n: usize| {
        let rules: String = (0..n).map(|i| format!("r{i} ::= \"x\" r{}\n", i + 1)).collect();
        format!("root ::= r0\n{rules}r{n} ::= \"a\"")
    };
    let circle = |n: usize| {
        let rules: String = (0..n).map(|i| format!("r{i} ::= r{}\n", (i + 1) % n)).collect();
        format!("root ::= r0\n{rules}")
    };
    let choices = |n: usize| (0..n).map(|i| format!("\"{i}\"")).collect::<Vec<_>>().join(" | ");
    let doubling: String = (0..40).map(|i| format!("r{i} ::= r{j} r{j}\n", j = i + 1)).collect();
    let bombs = [
        nested(60_000),
        nested(65),
        chain(60_000),
        chain(1_100),
        circle(4_000),
        format!("root ::= {}", "[a-z]{0,9} ".repeat(20_000)),
        format!("root ::= {}", choices(100_000)),
        "root ::= (([a-z]{0,2000} \"b\"){0,2000} \"c\"){0,2000}".to_owned(),
        format!("root ::= r0\n{doubling}r40 ::= \"a\""),
        format!("root ::= \"a\"{}", "?".repeat(100_000)),
        format!("root ::= \"{}\"", "a".repeat(10_000_000)),
        format!("root ::= {}", "\"a\" ".repeat(1_000_000)),
        format!("root ::= [{}", "a-".repeat(100_000)),
    ];
    // A quarter of what a thread of the server has.
    let small = std::thread::Builder::new().stack_size(512 * 1024);
    let refused = small.spawn(move || bombs.iter().filter(|bomb| parse(bomb).is_err()).count()).unwrap();
    assert_eq!(refused.join().unwrap(), 13);
}

#[test]
fn what_is_large_and_within_the_limits_compiles() {
    let choices: Vec<String> = (0..5_000).map(|i| format!("\"choice {i}\"")).collect();
    let compiled = compile(&format!("root ::= {}", choices.join(" | ")));
    assert_eq!(verdict(&compiled, "choice 4999"), Verdict::Whole);
    assert_eq!(verdict(&compiled, "choice 5000"), Verdict::Impossible);
    let rules: String = (0..400).map(|i| format!("r{i} ::= \"(\" r{} \")\"\n", i + 1)).collect();
    let compiled = compile(&format!("root ::= r0 | \"[\" root \"]\"\n{rules}r400 ::= \"a\""));
    assert_eq!(verdict(&compiled, &format!("[{}a{}]", "(".repeat(400), ")".repeat(400))), Verdict::Whole);
    let recursive = choices.join(" | ");
    let compiled = compile(&format!("root ::= \"(\" root \")\" | {recursive}"));
    assert_eq!(verdict(&compiled, "((choice 4999))"), Verdict::Whole);
    // As many rules that name one another as there may be, in a line and in a circle.
    let circle: String = (0..990).map(|i| format!("r{i} ::= \"{i} \" (r{} | \".\")\n", (i + 1) % 990)).collect();
    assert_eq!(verdict(&compile(&format!("root ::= r0\n{circle}")), "0 1 2 ."), Verdict::Whole);
    let line: String = (0..990).map(|i| format!("r{i} ::= \"x\" | r{}\n", i + 1)).collect();
    let line = format!("root ::= r0 | \"(\" root \")\"\n{line}r990 ::= \"y\" root \"z\"");
    assert_eq!(verdict(&compile(&line), "(yxz)"), Verdict::Whole);
    let nested = format!("root ::= {}\"a\"{} | \"b\" root \"b\"", "(".repeat(64), ")".repeat(64));
    assert_eq!(verdict(&compile(&nested), "bab"), Verdict::Whole);
}

/// One text begins with the other and a character that may follow that: it would be divided into its characters.
#[test]
fn what_the_parser_cannot_hold_is_refused() {
    let text = "a".repeat(30_000);
    let source = format!("root ::= \"({text}\" (\"a\" | root) \")\" | \"({text}ab\"");
    let error = BYTES.compile(&Source::Gbnf(source)).err().unwrap();
    assert!(matches!(error, GrammarError::Limit { .. }), "{error}");
}

#[test]
fn tokens_are_reached_by_name_and_by_id_and_are_no_text() {
    let engine = Engine::new(Vocabulary::bytes(&["<think>".to_owned(), "</think>".to_owned()])).unwrap();
    let compile = |text: &str| engine.compile(&Source::Gbnf(text.to_owned()));
    let mut matcher = compile("root ::= <think> [a-z]+ <[257]> !<think>").unwrap().matcher();
    for (token, allowed) in [(b'a' as u32, false), (257, false), (256, true), (256, false), (b'a' as u32, true)] {
        assert_eq!(matcher.accept(Token(token)).is_ok(), allowed, "{token}");
    }
    matcher.accept(Token(257)).unwrap();
    assert!(matcher.accept(Token(256)).is_err());
    assert!(!matcher.is_accepting());
    matcher.accept(Token(b'x'.into())).unwrap();
    assert!(matcher.is_finished());
    // The name in quotes is text.
    let mut matcher = compile("root ::= \"<think>\"").unwrap().matcher();
    assert!(matcher.accept(Token(256)).is_err());
    "<think>".bytes().for_each(|byte| matcher.accept(Token(byte.into())).unwrap());
    for (source, message) in [
        ("root ::= \"a\"\n | <nope>", "line 2, column 4: the model has no token <nope>"),
        ("root ::= <[9999]>", "line 1, column 10: the model has no token <[9999]>"),
        ("root ::= <end of text>", "line 1, column 10: <end of text> ends the generation"),
    ] {
        let Err(error @ GrammarError::Text { .. }) = compile(source) else { panic!("{source}") };
        assert!(error.to_string().starts_with(message), "{error}");
    }
}
