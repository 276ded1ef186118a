//! `plateau check grammar-eval` against a scripted server on loopback: what is sent, what is made of the answers, and that a
//! run that was stopped goes on.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "grammar/walk.rs"]
mod walk;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::mpsc::{Receiver, channel};

use plateau::check::grammar_eval::{Condition, Dialect, SHAPES};
use plateau::grammar::catalogue::SHIPPED;
use plateau::grammar::{Engine, Source, Vocabulary, gbnf};
use plateau::units::Token;
use proptest::prelude::*;
use rand_core::{RngCore, SeedableRng};
use serde_json::{Value, json};

/// What the server says to a chat request: a status and a body.
type Script = fn(&Value) -> (u16, Value);

struct Server {
    url: String,
    /// The chat requests, in the order of their coming.
    requests: Receiver<Value>,
}

/// A server that lives as long as the test's process.
fn serve(script: Script) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, requests) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let sender = sender.clone();
            std::thread::spawn(move || {
                let _ = talk(&stream, script, &|request| _ = sender.send(request));
            });
        }
    });
    Server { url, requests }
}

/// Answers one request and closes.
fn talk(stream: &TcpStream, script: Script, note: &dyn Fn(Value)) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    reader.read_line(&mut head)?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if line.trim().is_empty() {
            break;
        }
        if let Some(n) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = n.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let (status, answer) = match head.split(' ').nth(1).unwrap_or_default() {
        "/v1/models" => (200, json!({"data": [{"id": "scripted"}]})),
        "/tokenize" => {
            let body: Value = serde_json::from_slice(&body).unwrap();
            (200, json!({"tokens": body["content"].as_str().unwrap().split_whitespace().collect::<Vec<_>>()}))
        }
        "/v1/chat/completions" => {
            let body: Value = serde_json::from_slice(&body).unwrap();
            let answer = script(&body);
            note(body);
            answer
        }
        _ => (404, json!({"error": "no such route"})),
    };
    let text = answer.to_string();
    let mut out = stream;
    write!(
        out,
        "HTTP/1.1 {status} x\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    )?;
    out.write_all(text.as_bytes())
}

/// The problem that a request is about, by the name of its function.
fn asked(body: &Value) -> String {
    let messages = body["messages"].as_array().unwrap();
    let text = messages.last().unwrap()["content"].as_str().unwrap();
    let at = text.find("def ").unwrap() + 4;
    text[at..].split('(').next().unwrap().to_owned()
}

/// Says the right answer to `one`, a wrong one to `two`, thinks in the shape that is asked for.
fn good(body: &Value) -> (u16, Value) {
    let name = asked(body);
    let result = if name == "one" { "1" } else { "3" };
    let shaped = body.pointer("/thinking/grammar").is_some();
    let thinking = if shaped { "PLAN: return it\nVERDICT: done" } else { "I think about it for quite some time" };
    let content = format!("```python\ndef {name}():\n    return {result}\n```");
    let message = json!({"role": "assistant", "reasoning_content": thinking, "content": content});
    (200, json!({"choices": [{"message": message, "finish_reason": "stop"}], "usage": {"completion_tokens": 20}}))
}

/// Knows nothing of grammars, lets the tag into the answer, and has no words for the second problem.
fn bad(body: &Value) -> (u16, Value) {
    if asked(body) == "two" {
        return (400, json!({"error": {"message": "no such parameter"}}));
    }
    let message = json!({"content": "<think>hm</think></think> I do not know."});
    (200, json!({"choices": [{"message": message, "finish_reason": "length"}], "usage": {"completion_tokens": 9}}))
}

/// Gone: every request fails.
fn broken(_: &Value) -> (u16, Value) {
    (500, json!({"error": "broken"}))
}

struct Eval {
    folder: tempfile::TempDir,
}

impl Eval {
    fn new(n: usize) -> Eval {
        let folder = tempfile::tempdir().unwrap();
        let names = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];
        let problem = |(i, name): (usize, &&str)| {
            json!({"task_id": format!("t/{i}"), "prompt": format!("def {name}():\n    \"\"\" {name} \"\"\"\n"), "entry_point": name,
                "test": format!("def check(f):\n    assert f() == {}", i + 1), "canonical_solution": format!("    return {}\n", i + 1)})
            .to_string()
        };
        let lines: Vec<String> = names[..n].iter().enumerate().map(problem).collect();
        std::fs::write(folder.path().join("problems.jsonl"), lines.join("\n")).unwrap();
        Eval { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, url: &str, more: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plateau"));
        command.args(["check", "grammar-eval", "--url", url, "--problems"]).arg(self.path("problems.jsonl"));
        command.arg("--results").arg(self.path("results.jsonl")).arg("--json").arg(self.path("report.json"));
        command.args(more).output().unwrap()
    }

    fn report(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.path("report.json")).unwrap()).unwrap()
    }

    fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("results.jsonl")).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn conditions_are_asked_judged_and_held_against_free_thinking() {
    let (server, eval) = (serve(good), Eval::new(2));
    let args = ["--condition", "free", "--condition", "scratchpad", "--budget-tokens", "99", "--max-tokens", "512"];
    let output = eval.run(&format!("{}/v1/", server.url), &args);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let bodies: Vec<Value> = server.requests.try_iter().collect();
    assert_eq!(bodies.len(), 4);
    for body in &bodies {
        assert_eq!(
            (&body["model"], &body["max_tokens"], &body["temperature"]),
            (&json!("scripted"), &json!(512), &json!(0.0))
        );
        assert_eq!(body["chat_template_kwargs"], json!({"enable_thinking": true}));
    }
    let thinking: Vec<Option<&Value>> = bodies.iter().map(|body| body.get("thinking")).collect();
    let asked_for = json!({"grammar": "scratchpad", "budget_tokens": 99});
    assert_eq!(thinking, [None, Some(&asked_for), None, Some(&asked_for)]);
    let report = eval.report();
    let free = &report["rows"][0];
    assert_eq!((&free["condition"], &free["passed"], &free["answered"]), (&json!("free"), &json!(1), &json!(2)));
    assert_eq!(free["thinking_tokens"]["median"], 8);
    assert_eq!(free["counted"], json!(["tokenize"]));
    let shaped = &report["rows"][1];
    assert_eq!((&shaped["shape_violations"], &shaped["leaks"]), (&json!(0), &json!(0)));
    assert_eq!(
        shaped["against_free"],
        json!({"both_answered": 2, "won": 0, "lost": 0, "p": 1.0, "times_fewer_tokens": 8.0 / 5.0})
    );
    assert_eq!(report["faults"], json!([]));
    let text = String::from_utf8(output.stdout).unwrap();
    for part in
        ["| free | 50.0 % (1) |", "no difference to free thinking is shown", "## What this does not prove", "No fault"]
    {
        assert!(text.contains(part), "{part} in\n{text}");
    }
}

#[test]
fn a_grammar_that_does_not_hold_a_leak_and_a_refusal_are_faults() {
    let (server, eval) = (serve(bad), Eval::new(2));
    let output = eval.run(&server.url, &["--condition", "goal"]);
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    let report = eval.report();
    let row = &report["rows"][0];
    let figures =
        ["answered", "errors", "shape_violations", "leaks", "cut", "no_code"].map(|key| row[key].as_u64().unwrap());
    assert_eq!(figures, [1, 1, 1, 1, 1, 1]);
    assert_eq!(report["faults"].as_array().unwrap().len(), 3);
    assert!(report["verdict"][1].as_str().unwrap().starts_with("No answer passes"), "{report}");
    assert!(err(&output).contains("status 400") && err(&output).contains("no such parameter"), "{}", err(&output));
    // The refused one is asked again, the answered one is not.
    assert_eq!(server.requests.try_iter().count(), 2);
    eval.run(&server.url, &["--condition", "goal"]);
    assert_eq!(server.requests.try_iter().map(|body| asked(&body)).collect::<Vec<_>>(), ["two"]);
}

#[test]
fn a_run_that_was_killed_goes_on_and_one_of_other_settings_does_not() {
    let (server, eval) = (serve(good), Eval::new(3));
    let args = ["--condition", "free", "--concurrency", "2"];
    eval.run(&server.url, &args);
    let whole = eval.lines();
    assert_eq!((whole.len(), server.requests.try_iter().count()), (4, 3));
    // Killed while it wrote the last line.
    let cut = whole[..3].join("\n") + "\n" + &whole[3][..40];
    std::fs::write(eval.path("results.jsonl"), cut).unwrap();
    let output = eval.run(&server.url, &args);
    assert!(err(&output).contains("2 results are there, 1 to do"), "{}", err(&output));
    assert_eq!((eval.lines().len(), server.requests.try_iter().count()), (4, 1));
    assert_eq!(eval.report()["rows"][0]["answered"], 3);
    let other = eval.run(&server.url, &["--condition", "free", "--max-tokens", "7", "--limit", "2"]);
    assert_eq!(other.status.code(), Some(65));
    assert!(err(&other).contains("other settings (max-tokens, problems or limit)"), "{}", err(&other));
    assert_eq!(eval.lines().len(), 4);
}

#[test]
fn a_server_that_is_gone_ends_the_run_and_keeps_what_is_done() {
    let (server, eval) = (serve(broken), Eval::new(10));
    let output = eval.run(&server.url, &["--condition", "free"]);
    assert_eq!(output.status.code(), Some(69));
    assert!(err(&output).contains("8 requests in a row failed"), "{}", err(&output));
    assert_eq!(eval.lines().len(), 9);
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = Eval::new(1).run(&format!("http://{nobody}"), &["--condition", "free"]);
    assert_eq!(output.status.code(), Some(69), "{}", err(&output));
    let output = Eval::new(1).run("https://localhost", &["--condition", "free"]);
    assert_eq!(output.status.code(), Some(64), "{}", err(&output));
}

#[test]
fn the_solutions_of_the_file_pass_without_a_server() {
    let eval = Eval::new(3);
    let output = eval.run("http://127.0.0.1:9", &["--condition", "reference"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(eval.report()["rows"][0]["pass_at_1"], 1.0);
}

/// (condition, dialect, members of the request)
#[test]
fn grammars_for_the_whole_output_are_those_of_the_shapes() {
    let sent = |args: &[&str]| {
        let (server, eval) = (serve(good), Eval::new(1));
        let output = eval.run(&server.url, args);
        server.requests.try_iter().next().ok_or_else(|| err(&output))
    };
    let body = sent(&["--condition", "check", "--grammar-as", "grammar", "--budget-tokens", "50"]).unwrap();
    let grammar = body["grammar"].as_str().unwrap();
    assert!(gbnf::parse(grammar).is_ok() && grammar.contains("\"</think>\\n\\n\""), "{grammar}");
    assert_eq!((&body["thinking_budget_tokens"], body.get("thinking")), (&json!(50), None));
    let body = sent(&["--condition", "goal", "--grammar-as", "structured-outputs"]).unwrap();
    assert!(gbnf::parse(body["structured_outputs"]["grammar"].as_str().unwrap()).is_ok());
    let body = sent(&["--condition", "off"]).unwrap();
    assert_eq!(body["chat_template_kwargs"], json!({"enable_thinking": false}));
    let body = sent(&["--condition", "terse"]).unwrap();
    assert_eq!(body["messages"][0]["role"], "system");
    let body = sent(&["--condition", "budget", "--budget-tokens", "5"]).unwrap();
    assert_eq!(body["thinking"], json!({"budget_tokens": 5}));
    assert!(sent(&["--condition", "budget"]).unwrap_err().contains("needs --budget-tokens"));
    let refused = sent(&["--condition", "goal", "--grammar-as", "structured-outputs", "--budget-tokens", "5"]);
    assert!(refused.unwrap_err().contains("no field"));
}

#[test]
fn the_shapes_are_those_of_the_shipped_grammars() {
    let names: Vec<&str> = SHAPES.iter().map(|shape| shape.name).collect();
    assert_eq!(names, SHIPPED.iter().map(|shipped| shipped.name).collect::<Vec<_>>());
    let standard: Vec<&str> = Condition::standard().into_iter().map(Condition::name).collect();
    assert_eq!(standard[..3], ["free", "terse", "off"]);
    assert_eq!(standard[3..], names);
    assert!(Condition::find("goal").is_some() && Condition::find("Goal").is_none());
    assert_eq!(Dialect::Thinking.name(), "thinking");
    assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join("grammars").is_dir());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// A text of a grammar, changed at some places: the hand-written shape says what the matcher says.
    #[test]
    fn shapes_and_grammars_agree(which in 0..SHAPES.len(), seed in any::<u64>(), changes in 0..3_u32) {
        let engine = Engine::new(Vocabulary::bytes(&[])).unwrap();
        let compiled = engine.compile(&Source::Gbnf(SHIPPED[which].text.to_owned())).unwrap();
        let mut text: Vec<char> = walk::generate(&mut compiled.matcher(), seed).chars().collect();
        let mut rng = rand_pcg::Pcg64::seed_from_u64(seed);
        let others: Vec<char> = "\n: ANPLV=,.aB\t\u{7F}\u{E9}5".chars().collect();
        for _ in 0..changes {
            let (at, other) = (rng.next_u32() as usize % text.len(), others[rng.next_u32() as usize % others.len()]);
            match rng.next_u32() % 3 {
                0 => text[at] = other,
                1 => text.insert(at, other),
                _ => _ = text.remove(at),
            }
        }
        let text: String = text.into_iter().collect();
        let text = text.trim_matches([' ', '\t', '\r', '\n']);
        let mut matcher = compiled.matcher();
        let fits = format!("{text}\n").bytes().all(|byte| matcher.accept(Token(byte.into())).is_ok()) && matcher.is_finished();
        prop_assert_eq!(SHAPES[which].fits(text), fits, "{:?} under {}", text, SHAPES[which].name);
    }
}
