//! The matcher: masks, ends, rollback, drafts, forced text; regular expressions, Lark, choices; the shipped grammars.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "grammar/languages.rs"]
mod languages;
#[path = "grammar/walk.rs"]
mod walk;

use std::sync::LazyLock;

use languages::{LANGUAGES, Language};
use plateau::grammar::catalogue::{SHIPPED, find};
use plateau::grammar::{Compiled, Engine, GrammarError, MatchError, Matcher, Source, Vocabulary};
use plateau::units::Token;
use proptest::prelude::*;
use rand_core::{RngCore, SeedableRng};

static BYTES: LazyLock<Engine> = LazyLock::new(|| Engine::new(Vocabulary::bytes(&[])).unwrap());

/// The words after the bytes, two tokens that end, and one that is never generated.
const WORDS: &[&str] =
    &["ab", "abc", "aba", "b\n", "PLAN", "PLAN: ", "{\"", "\":", "\u{E9}a", "ab", " the", "</think>"];
const FIRST_WORD: u32 = 256;
const THINK: Token = Token(FIRST_WORD + 11);
const UNUSED: Token = Token(FIRST_WORD + 12);
const END: [Token; 2] = [Token(FIRST_WORD + 13), Token(FIRST_WORD + 14)];

fn vocabulary() -> Vocabulary {
    let mut pieces: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    pieces.extend(WORDS.iter().map(|word| word.as_bytes().to_vec()));
    pieces.extend([Vec::new(), b"<|im_end|>".to_vec(), b"<|endoftext|>".to_vec()]);
    let mut special = vec![false; pieces.len()];
    special[THINK.index()] = true;
    Vocabulary { pieces, special, end: END.to_vec(), tokenize: None }
}

static ENGINE: LazyLock<Engine> = LazyLock::new(|| Engine::new(vocabulary()).unwrap());

fn gbnf(text: &str) -> Compiled {
    ENGINE.compile(&Source::Gbnf(text.to_owned())).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn allowed(matcher: &mut Matcher) -> Vec<u32> {
    let mask = matcher.mask().unwrap();
    (0..mask.len() as u32 * 32).filter(|id| mask[*id as usize / 32] >> (id % 32) & 1 == 1).collect()
}

fn word(text: &str) -> Token {
    Token(FIRST_WORD + WORDS.iter().position(|word| *word == text).unwrap() as u32)
}

fn byte(byte: u8) -> Token {
    Token(byte.into())
}

fn accepts(source: &Source, text: &str) -> bool {
    let compiled = BYTES.compile(source).unwrap_or_else(|error| panic!("{error}: {source:?}"));
    let mut matcher = compiled.matcher();
    text.bytes().all(|b| matcher.accept(byte(b)).is_ok()) && matcher.is_accepting()
}

#[test]
fn a_mask_has_every_token_that_fits_and_no_other() {
    let mut matcher = gbnf("root ::= \"ab\" [a-c]? \"\\n\"?").matcher();
    // Both tokens with the same bytes.
    let twin = FIRST_WORD + 9;
    assert_eq!(allowed(&mut matcher), [97, word("ab").0, word("abc").0, word("aba").0, twin]);
    matcher.accept(Token(twin)).unwrap();
    assert_eq!(allowed(&mut matcher), [10, 97, 98, 99, word("b\n").0, END[0].0, END[1].0]);
    assert_eq!(matcher.mask().unwrap().len(), ENGINE.n_vocab().div_ceil(32));
}

#[test]
fn a_text_ends_exactly_where_it_may() {
    let mut matcher = gbnf("root ::= \"a\" \"b\"?").matcher();
    assert!(!matcher.is_accepting() && !matcher.is_finished());
    assert_eq!(matcher.accept(END[0]), Err(MatchError::NotAllowed(END[0])));
    matcher.accept(byte(b'a')).unwrap();
    assert!(matcher.is_accepting() && !matcher.is_finished());
    matcher.accept(byte(b'b')).unwrap();
    assert!(matcher.is_accepting() && matcher.is_finished());
    assert_eq!(allowed(&mut matcher), [END[0].0, END[1].0]);
    assert_eq!(matcher.accept(byte(b'b')), Err(MatchError::NotAllowed(byte(b'b'))));
    matcher.accept(END[1]).unwrap();
    assert!(matcher.is_finished());
    assert_eq!(matcher.mask(), Err(MatchError::Ended));
    assert_eq!(matcher.accept(END[1]), Err(MatchError::Ended));
    // Back over the end and one character.
    matcher.rollback(2).unwrap();
    assert_eq!(allowed(&mut matcher), [98, END[0].0, END[1].0]);
    assert!(matcher.rollback(2).is_err());
}

/// A binding that accepted the end of the grammar twice aborted the process.
#[test]
fn a_token_that_does_not_fit_changes_nothing() {
    let mut matcher = gbnf("root ::= \"a\" | \"b\" root").matcher();
    for wrong in [byte(b'c'), END[0], THINK, UNUSED, Token(1 << 30)] {
        assert_eq!(matcher.accept(wrong), Err(MatchError::NotAllowed(wrong)));
    }
    assert_eq!(allowed(&mut matcher), [97, 98]);
    matcher.accept(byte(b'b')).unwrap();
    matcher.accept(byte(b'a')).unwrap();
    assert!(matcher.is_finished());
}

#[test]
fn a_draft_is_validated_masked_and_taken_back() {
    let mut matcher = gbnf("root ::= \"PLAN: \" [a-z]{1,3} \"\\n\"").matcher();
    let draft = [word("PLAN"), byte(b':'), byte(b' '), word("ab"), word("b\n"), END[0], byte(b'x')];
    assert_eq!(matcher.validate(&draft), Ok(6));
    assert_eq!(matcher.validate(&[word("PLAN: "), THINK, byte(b'a')]), Ok(1));
    assert_eq!(matcher.validate(&[]), Ok(0));
    let mut masks = vec![allowed(&mut matcher)];
    for token in &draft[..6] {
        matcher.accept(*token).unwrap();
        masks.push(if matcher.mask().is_ok() { allowed(&mut matcher) } else { Vec::new() });
    }
    assert!(masks[6].is_empty());
    for at in (0..6).rev() {
        matcher.rollback(1).unwrap();
        assert_eq!(allowed(&mut matcher), masks[at], "after {at} tokens");
    }
    // A fork goes its own way.
    let mut fork = matcher.fork();
    fork.accept(word("PLAN: ")).unwrap();
    assert_eq!(allowed(&mut matcher), masks[0]);
    assert_ne!(allowed(&mut fork), masks[0]);
}

#[test]
fn forced_text_is_offered_without_the_piece_that_may_still_grow() {
    let mut matcher = gbnf("root ::= \"PLAN: the\" [a-z] \"ab\"").matcher();
    // " the" and what follows might be one token.
    assert_eq!(matcher.forced(), [word("PLAN: "), byte(b't'), byte(b'h')]);
    for token in [word("PLAN: "), byte(b't'), byte(b'h'), byte(b'e')] {
        matcher.accept(token).unwrap();
    }
    assert_eq!(matcher.forced(), []);
    matcher.accept(byte(b'q')).unwrap();
    // Here the text ends: the whole of it is sure.
    assert_eq!(matcher.forced(), [word("ab")]);
    assert_eq!(allowed(&mut matcher), [97, word("ab").0, FIRST_WORD + 9]);
    assert_eq!(gbnf("root ::= </think> \"a\"").matcher().forced(), [THINK, byte(b'a')]);
}

#[test]
fn no_token_left_is_an_error_and_never_an_empty_mask() {
    // Of this vocabulary no token begins with "a".
    let pieces = vec![b"b".to_vec(), b"<end>".to_vec()];
    let vocabulary = Vocabulary { pieces, special: vec![false, true], end: vec![Token(1)], tokenize: None };
    let engine = Engine::new(vocabulary).unwrap();
    let error = engine.compile(&Source::Gbnf("root ::= \"a\"".to_owned())).err().unwrap();
    assert!(error.to_string().contains("no token of the vocabulary"), "{error}");
    let mut matcher = engine.compile(&Source::Gbnf("root ::= \"ba\"".to_owned())).unwrap().matcher();
    matcher.accept(Token(0)).unwrap();
    assert_eq!(matcher.mask(), Err(MatchError::DeadEnd));
    assert!(Engine::new(Vocabulary::default()).is_err());
}

#[test]
fn generations_of_one_grammar_share_nothing_that_changes() {
    let compiled = gbnf("root ::= [a-c]{2} \"PLAN\"");
    let run = |compiled: Compiled| {
        let mut matcher = compiled.matcher();
        for token in [word("ab"), word("PLAN"), END[0]] {
            matcher.accept(token).unwrap();
        }
        matcher.is_finished()
    };
    let threads: Vec<_> =
        (0..4).map(|_| compiled.clone()).map(|compiled| std::thread::spawn(move || run(compiled))).collect();
    assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
}

#[test]
fn regular_expressions_match_the_whole_text() {
    let regex = |text: &str| Source::Regex(text.to_owned());
    for (source, fit, not) in [
        ("[a-z]+", "abc", "abc1"),
        ("^(foo|bar)/\\d{2}$", "bar/42", "bar/4"),
        ("a\\$", "a$", "a"),
        ("(?i)yes|no", "YES", "y"),
        (".*", "", "\n"),
    ] {
        assert!(accepts(&regex(source), fit), "{fit:?} under {source}");
        assert!(!accepts(&regex(source), not), "{not:?} under {source}");
    }
    for source in ["", "(", "a(?=b)", "(a)\\1", "[z-a]", "[^\\s\\S]"] {
        assert!(BYTES.compile(&regex(source)).is_err(), "{source}");
    }
    assert!(BYTES.compile(&regex(&"(".repeat(60_000))).is_err());
    assert!(BYTES.compile(&regex(&format!("{}a{}", "(".repeat(200), ")".repeat(200)))).is_err());
    assert!(BYTES.compile(&regex(&"a".repeat(100_000))).is_err());
}

#[test]
fn lark_grammars_and_choices() {
    let lark = |text: &str| Source::Lark(text.to_owned());
    let sum = lark("start: NUMBER (\"+\" NUMBER)*\nNUMBER: /[0-9]+/\n%ignore / /");
    assert!(accepts(&sum, "1 + 22") && !accepts(&sum, "1 +"));
    for source in [
        "",
        "start: nope",
        "start: a\na: \"x\" a",
        "start: \"a\" start",
        &"(".repeat(1_000),
        &format!("start: {}\"a\"", "~".repeat(9_000)),
    ] {
        let compiled = BYTES.compile(&lark(source));
        // An endless text is no fault to Lark; what is refused is refused in time.
        assert!(compiled.is_err() || source.contains("\"x\" a") || source.contains("\"a\" start"), "{source}");
    }
    let chain = |n: usize| {
        let rules: String = (0..n).map(|i| format!("r{i}: \"x\" r{}\n", i + 1)).collect();
        lark(&format!("start: r0\n{rules}r{n}: \"y\""))
    };
    assert!(accepts(&chain(990), &format!("{}y", "x".repeat(990))));
    assert!(matches!(BYTES.compile(&chain(1_100)), Err(GrammarError::Limit { .. })));
    let choice = |texts: &[&str]| Source::Choice(texts.iter().map(|text| (*text).to_owned()).collect());
    let answers = choice(&["yes", "no", "yes, but", "n\"\\\u{E9}\n", "no"]);
    for text in ["yes", "no", "yes, but", "n\"\\\u{E9}\n"] {
        assert!(accepts(&answers, text), "{text:?}");
    }
    assert!(!accepts(&answers, "yes, ") && !accepts(&answers, ""));
    assert!(accepts(&choice(&["", "a"]), ""));
    assert!(matches!(BYTES.compile(&choice(&[])), Err(GrammarError::Refused(_))));
    let many = Source::Choice((0..100_000).map(|i| i.to_string()).collect());
    assert!(matches!(BYTES.compile(&many), Err(GrammarError::Limit { .. })));
}

const LINE: &str = "x";

/// (name, texts that fit, texts that do not)
fn shipped_fixtures() -> Vec<(&'static str, Vec<String>, Vec<String>)> {
    let lines = |labels: &[&str]| labels.iter().map(|label| format!("{label}: {LINE}\n")).collect::<String>();
    let notes = |n: usize| format!("PLAN: a\n{}VERDICT: c\n", "NOTE: b\n".repeat(n));
    let long = |n: usize| format!("PLAN: {}\nVERDICT: c\n", "\u{E9}".repeat(n));
    let tag = |k: &str, r: &str| format!("Q=solve M=case K={k} R={r} V=ok\n");
    let cases = |n: usize| format!("PLAN: a\n{}CHECK: b\nVERDICT: c\n", "CASE: d\n".repeat(n));
    vec![
        (
            "scratchpad",
            vec![notes(0), notes(15), long(240)],
            vec![
                notes(16),
                long(241),
                "PLAN: a\nNOTE: b\n".into(),
                "PLAN:  a\nVERDICT: c\n".into(),
                "PLAN: \nVERDICT: c\n".into(),
            ],
        ),
        (
            "goal",
            vec![lines(&["GOAL", "APPROACH", "EDGE"])],
            vec![lines(&["GOAL", "EDGE"]), lines(&["GOAL", "APPROACH", "EDGE", "EDGE"])],
        ),
        (
            "goal-code",
            vec![lines(&["GOAL", "STATE", "ALGO", "EDGE", "VERIFY"])],
            vec![lines(&["GOAL", "STATE", "ALGO", "EDGE"])],
        ),
        (
            "tagline",
            vec![tag("two.sum", "n-1!"), tag("a,b,c,d,e", "z"), tag(&format!("a{}", "b".repeat(18)), "z")],
            vec![
                tag("a,b,c,d,e,f", "z"),
                tag("", "z"),
                tag("1", "z"),
                tag(&format!("a{}", "b".repeat(19)), "z"),
                "Q=solve".into(),
            ],
        ),
        (
            "check",
            vec![cases(0), cases(12), lines(&["PLAN", "STATE", "STATE", "STATE", "NOTE", "CASE", "CHECK", "VERDICT"])],
            vec![
                cases(13),
                lines(&["PLAN", "STATE", "STATE", "STATE", "STATE", "CHECK", "VERDICT"]),
                lines(&["PLAN", "VERDICT"]),
            ],
        ),
    ]
}

#[test]
fn shipped_grammars_accept_their_shape_and_end_by_themselves() {
    let fixtures = shipped_fixtures();
    assert_eq!(
        fixtures.iter().map(|(name, ..)| *name).collect::<Vec<_>>(),
        SHIPPED.iter().map(|s| s.name).collect::<Vec<_>>()
    );
    for (name, fit, not) in fixtures {
        let source = Source::Gbnf(find(name).unwrap().text.to_owned());
        let compiled = BYTES.compile(&source).unwrap();
        for text in fit {
            let mut matcher = compiled.matcher();
            assert_eq!(text.bytes().position(|b| matcher.accept(byte(b)).is_err()), None, "{text:?} under {name}");
            assert!(matcher.is_finished(), "{text:?} under {name} could go on");
        }
        for text in not {
            assert!(!accepts(&source, &text), "{text:?} under {name}");
        }
        for seed in 0..4 {
            let text = walk::generate(&mut compiled.matcher(), seed);
            assert!(accepts(&source, &text), "{text:?} under {name}");
        }
    }
}

#[test]
fn languages_accept_their_texts_and_no_others() {
    for Language { name, grammar, fit, not } in LANGUAGES {
        let source = Source::Gbnf((*grammar).to_owned());
        for text in *fit {
            assert!(accepts(&source, text), "{text:?} under {name}");
        }
        for text in *not {
            assert!(!accepts(&source, text), "{text:?} under {name}");
        }
    }
}

#[test]
fn languages_generate_what_they_accept_with_tokens_of_many_bytes() {
    for Language { name, grammar, .. } in LANGUAGES {
        let source = Source::Gbnf((*grammar).to_owned());
        let compiled = ENGINE.compile(&source).unwrap();
        for seed in 0..20 {
            let text = generate_words(&compiled, seed);
            assert!(accepts(&source, &text), "{text:?} under {name}");
            if *name == "json" {
                assert!(
                    serde_json::from_str::<serde_json::Value>(&text).is_ok_and(|value| value.is_object()),
                    "{text:?}"
                );
            }
        }
    }
}

/// Random tokens of the mask, with a rollback now and then; closing brackets once it has gone on for long.
fn generate_words(compiled: &Compiled, seed: u64) -> String {
    let (vocabulary, mut matcher) = (vocabulary(), compiled.matcher());
    let mut rng = rand_pcg::Pcg64::seed_from_u64(seed);
    let mut tokens: Vec<Token> = Vec::new();
    for step in 0..5_000 {
        let options = allowed(&mut matcher);
        let is_closing = |id: &u32| *id >= END[0].0 || (*id < 256 && b"\"}])=;".contains(&(*id as u8)));
        let closing: Vec<u32> = options.iter().copied().filter(is_closing).collect();
        let hurry = step > 80 && rng.next_u32() % 3 != 0 && !closing.is_empty();
        let from = if hurry { &closing } else { &options };
        let token = match from.last() {
            Some(&last) if hurry && last >= END[0].0 => Token(last),
            _ => Token(from[rng.next_u32() as usize % from.len()]),
        };
        assert_eq!(matcher.validate(&[token]), Ok(1), "{token:?}");
        matcher.accept(token).unwrap();
        tokens.push(token);
        if rng.next_u32() % 9 == 0 {
            let n = (rng.next_u32() as usize % 3).min(tokens.len());
            matcher.rollback(n).unwrap();
            tokens.truncate(tokens.len() - n);
        }
        if matcher.is_finished() {
            tokens.retain(|token| !END.contains(token));
            let bytes: Vec<u8> = tokens.iter().flat_map(|token| vocabulary.pieces[token.index()].clone()).collect();
            return String::from_utf8(bytes).unwrap();
        }
    }
    panic!("no end")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// A mask says of every token what accepting it says.
    #[test]
    fn masks_and_acceptance_agree(language in 0..LANGUAGES.len(), seed in any::<u64>(), steps in 0..30_usize) {
        let compiled = gbnf(LANGUAGES[language].grammar);
        let mut matcher = compiled.matcher();
        let mut rng = rand_pcg::Pcg64::seed_from_u64(seed);
        for _ in 0..steps {
            if matcher.is_finished() {
                break;
            }
            let options = allowed(&mut matcher);
            matcher.accept(Token(options[rng.next_u32() as usize % options.len()])).unwrap();
        }
        prop_assume!(matcher.mask().is_ok());
        let options = allowed(&mut matcher);
        for id in 0..ENGINE.n_vocab() as u32 {
            let accepted = matcher.accept(Token(id)).is_ok();
            prop_assert_eq!(accepted, options.contains(&id), "token {} under {}", id, LANGUAGES[language].name);
            if accepted {
                matcher.rollback(1).unwrap();
            }
        }
    }
}
