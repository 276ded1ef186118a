//! Constraints that were made to break what reads them, each given to a child process, which must answer all of them and
//! still work afterwards, and still print the message of a panic elsewhere: the library sets a panic hook. Prints what each took: `cargo test --release --no-default-features --test grammar_bombs`.
//!
//! Without the test harness: the child is this program itself. Nothing is asserted of the times but that there is an end.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "a test's report")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use plateau::grammar::{Engine, Source, Vocabulary};
use plateau::units::Token;
use serde_json::{Map, Value, json};

const PANIC: &str = "a panic of another thread";
/// A bomb that took longer hangs.
const HANGS: Duration = Duration::from_secs(120);

/// How a bomb is answered.
#[derive(Clone, Copy, PartialEq)]
enum Expected {
    Refused,
    /// Taken, with a part that is not enforced and said so.
    Widened,
}

struct Bomb {
    name: &'static str,
    expected: Expected,
    /// Nothing: the bytes were no text, which is where a server stops reading.
    source: fn() -> Option<Source>,
}

fn gbnf(text: impl Into<String>) -> Option<Source> {
    Some(Source::Gbnf(text.into()))
}

fn schema(value: Value) -> Option<Source> {
    Some(Source::JsonSchema(value))
}

fn nested(n: usize) -> String {
    format!("{}\"a\"{}", "(".repeat(n), ")".repeat(n))
}

fn names(n: usize) -> Vec<String> {
    (0..n).map(|i| format!("name {i}")).collect()
}

/// `n` definitions that refer to the next one, the last to the first.
fn circle(n: usize) -> Value {
    let defs: Map<String, Value> =
        (0..n).map(|i| (format!("d{i}"), json!({"$ref": format!("#/$defs/d{}", (i + 1) % n)}))).collect();
    json!({"$defs": defs, "$ref": "#/$defs/d0"})
}

const BOMBS: &[Bomb] = &[
    Bomb {
        name: "60,000 nested parentheses",
        expected: Expected::Refused,
        source: || gbnf(format!("root ::= {}", nested(60_000))),
    },
    Bomb {
        name: "60,000 open parentheses",
        expected: Expected::Refused,
        source: || gbnf(format!("root ::= {}", "(".repeat(60_000))),
    },
    Bomb {
        name: "the same as a regular expression",
        expected: Expected::Refused,
        source: || Some(Source::Regex(nested(60_000))),
    },
    Bomb {
        name: "the same in Lark",
        expected: Expected::Refused,
        source: || Some(Source::Lark(format!("start: {}", nested(60_000)))),
    },
    Bomb { name: "[a-z]{5,2}", expected: Expected::Refused, source: || gbnf("root ::= [a-z]{5,2}") },
    Bomb {
        name: "the schema that makes it",
        expected: Expected::Refused,
        source: || schema(json!({"type": "string", "minLength": 5, "maxLength": 2})),
    },
    Bomb {
        name: "minItems above maxItems",
        expected: Expected::Refused,
        source: || schema(json!({"properties": {"a": {"type": "array", "minItems": 3, "maxItems": 1}}})),
    },
    Bomb {
        name: "100,000 alternatives",
        expected: Expected::Refused,
        source: || gbnf(format!("root ::= \"{}\"", names(100_000).join("\" | \""))),
    },
    Bomb { name: "100,000 choices", expected: Expected::Refused, source: || Some(Source::Choice(names(100_000))) },
    Bomb {
        name: "enum of 100,000",
        expected: Expected::Widened,
        source: || schema(json!({"properties": {"a": {"enum": names(100_000)}}})),
    },
    Bomb { name: "left recursion", expected: Expected::Refused, source: || gbnf("root ::= root \"a\" | \"a\"") },
    Bomb { name: "recursion without end", expected: Expected::Refused, source: || gbnf("root ::= \"a\" root") },
    Bomb {
        name: "a schema that requires itself",
        expected: Expected::Refused,
        source: || schema(json!({"properties": {"a": {"$ref": "#"}}, "required": ["a"]})),
    },
    Bomb {
        name: "schema of 10 MB",
        expected: Expected::Refused,
        source: || schema(json!({"description": "x".repeat(10_000_000)})),
    },
    Bomb {
        name: "grammar of 10 MB",
        expected: Expected::Refused,
        source: || gbnf(format!("root ::= \"{}\"", "a".repeat(10_000_000))),
    },
    Bomb { name: "circle of one $ref", expected: Expected::Refused, source: || schema(circle(1)) },
    Bomb { name: "circle of 10,000 $ref", expected: Expected::Refused, source: || schema(circle(10_000)) },
    Bomb { name: "circle of 30,000 $ref", expected: Expected::Refused, source: || schema(circle(30_000)) },
    Bomb {
        name: "invalid UTF-8 in a grammar",
        expected: Expected::Refused,
        source: || String::from_utf8(b"root ::= \"\xFF\"".to_vec()).ok().map(Source::Gbnf),
    },
    Bomb {
        name: "invalid UTF-8 in a schema",
        expected: Expected::Refused,
        source: || serde_json::from_slice(b"{\"const\": \"\xC3\x28\"}").ok().map(Source::JsonSchema),
    },
    Bomb { name: "a surrogate as a character", expected: Expected::Refused, source: || gbnf("root ::= \"\\ud800\"") },
    Bomb { name: "empty grammar", expected: Expected::Refused, source: || gbnf("") },
    Bomb { name: "empty root", expected: Expected::Refused, source: || gbnf("root ::= ") },
    Bomb { name: "empty choice", expected: Expected::Refused, source: || Some(Source::Choice(Vec::new())) },
    Bomb {
        name: "repetitions multiplied",
        expected: Expected::Refused,
        source: || gbnf("root ::= (([a-z]{0,2000} \"b\"){0,2000} \"c\"){0,2000}"),
    },
    Bomb {
        name: "a step of many remainders",
        expected: Expected::Widened,
        source: || schema(json!({"multipleOf": 4_294_967_291_u64})),
    },
    Bomb {
        name: "a quantifier of nothing",
        expected: Expected::Refused,
        source: || Some(Source::Regex("*a".to_owned())),
    },
];

fn main() {
    if std::env::args().nth(1).as_deref() == Some("child") {
        return child();
    }
    let mut process = Command::new(std::env::current_exe().unwrap());
    let mut process =
        process.arg("child").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
    let (sender, answers) = channel();
    std::thread::spawn(move || {
        BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    let mut slowest = Duration::ZERO;
    for (index, bomb) in BOMBS.iter().enumerate() {
        let start = Instant::now();
        writeln!(input, "{index}").unwrap();
        let Ok(answer) = answers.recv_timeout(HANGS) else {
            let _ = process.kill();
            panic!("{}: no answer; the child ended with {:?}", bomb.name, process.wait());
        };
        let took = start.elapsed();
        slowest = slowest.max(took);
        println!("{:>6} ms  {:<34} {answer}", took.as_millis(), bomb.name);
        let begin = if bomb.expected == Expected::Refused { "refused: " } else { "widened: " };
        assert!(answer.starts_with(begin), "{}: {answer}", bomb.name);
    }
    writeln!(input, "ok").unwrap();
    assert_eq!(answers.recv_timeout(HANGS).as_deref(), Ok("alive"));
    drop(input);
    let ended = process.wait_with_output().unwrap();
    let errors = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.success() && errors.contains(PANIC), "{errors}");
    println!("{} bombs, the slowest {} ms, and the child is alive", BOMBS.len(), slowest.as_millis());
}

/// Answers a number with what became of that bomb, anything else with a sign of life.
fn child() {
    let engine = Engine::new(Vocabulary::bytes(&[])).unwrap();
    for line in std::io::stdin().lines().map_while(Result::ok) {
        println!(
            "{}",
            line.parse()
                .map_or_else(|_| sign_of_life(&engine).to_owned(), |index: usize| defuse(&engine, &BOMBS[index]))
        );
    }
}

fn defuse(engine: &Engine, bomb: &Bomb) -> String {
    let Some(source) = (bomb.source)() else { return "refused: no text".to_owned() };
    let answer = match engine.compile(&source) {
        Ok(compiled) => match compiled.relaxed().first() {
            Some(widened) => format!("widened: {}: {}", widened.pointer, widened.what),
            None => "taken".to_owned(),
        },
        Err(error) => format!("refused: {error}"),
    };
    answer.replace('\n', " ").chars().take(110).collect()
}

fn sign_of_life(engine: &Engine) -> &'static str {
    assert!(std::thread::spawn(|| panic!("{PANIC}")).join().is_err());
    let mut matcher = engine.compile(&Source::Gbnf("root ::= \"a\"".to_owned())).unwrap().matcher();
    if matcher.accept(Token(97)).is_ok() && matcher.is_finished() { "alive" } else { "confused" }
}
