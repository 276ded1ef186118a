//! The binary as people meet it: output, errors and exit codes. Nothing here loads a model.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Command, Output};

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/vendor/demo-model/plateau-demo-q8_0.gguf");

/// Runs the binary without any variable of ours.
fn plateau(args: &[&str]) -> Output {
    with_env(args, &[])
}

fn with_env(args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plateau"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PLATEAU_") {
            command.env_remove(name);
        }
    }
    command.args(args).envs(env.iter().copied()).output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

/// What is done to the bytes of a file.
type Change = fn(&mut Vec<u8>);

/// The demo model's file with a change, in a folder that lives as long as the test.
fn mutated(change: Change) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mutated.gguf");
    let mut bytes = std::fs::read(DEMO).unwrap();
    change(&mut bytes);
    std::fs::write(&path, bytes).unwrap();
    let path = path.display().to_string();
    (folder, path)
}

#[test]
fn version_names_the_build() {
    let output = plateau(&["--version"]);
    assert_eq!(code(&output), 0);
    assert!(out(&output).starts_with(&format!("plateau {} (", env!("CARGO_PKG_VERSION"))), "{}", out(&output));
}

#[test]
fn help_is_no_error_and_a_wrong_flag_is_64() {
    assert_eq!(code(&plateau(&["serve", "--help"])), 0);
    for args in [&["serve", "--no-such-flag"][..], &["frobnicate"], &[]] {
        let output = plateau(args);
        assert_eq!(code(&output), 64, "{args:?}: {}", err(&output));
    }
}

#[test]
fn profile_list_has_every_profile_with_its_description() {
    let text = out(&plateau(&["profile", "list"]));
    for name in plateau::config::builtin::names() {
        assert!(text.lines().any(|line| line.starts_with(name) && line.len() > 30), "{name} in\n{text}");
    }
}

#[test]
fn profile_show_tells_where_each_value_comes_from() {
    let env = [("PLATEAU_ENGINE_PARALLEL", "1")];
    let text = out(&with_env(&["profile", "show", "agent", "--port", "9000"], &env));
    let line = |start: &str| text.lines().find(|l| l.starts_with(start)).unwrap_or_default().to_owned();
    assert!(line("ctx_tokens = 204800").contains("# configs/agent.toml:"), "{text}");
    assert!(line("parallel = 1").ends_with("# PLATEAU_ENGINE_PARALLEL"), "{text}");
    assert!(line("port = 9000").ends_with("# --server-port"), "{text}");
    assert!(line("host = ").ends_with("# default"), "{text}");
}

/// What `show` prints is itself a profile file with the same values.
#[test]
fn profile_show_prints_a_valid_profile() {
    for name in plateau::config::builtin::names() {
        let shown = out(&plateau(&["profile", "show", name]));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("again.toml");
        std::fs::write(&path, &shown).unwrap();
        let again = out(&plateau(&["profile", "show", path.to_str().unwrap()]));
        let values = |text: &str| -> Vec<String> {
            text.lines().map(|line| line.split(" # ").next().unwrap_or_default().trim().to_owned()).collect()
        };
        assert_eq!(values(&shown), values(&again));
    }
}

#[test]
fn profile_show_keeps_the_key_to_itself() {
    let text = out(&plateau(&["profile", "show", "--api-key", "secret-42"]));
    assert!(!text.contains("secret-42"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("api_key") && line.ends_with("--server-api-key")), "{text}");
}

#[test]
fn profile_check_names_key_place_and_fix() {
    assert_eq!(code(&plateau(&["profile", "check", "agent"])), 0);
    let output = plateau(&["profile", "check", "--parallel", "99"]);
    assert_eq!(code(&output), 64);
    for part in ["engine.parallel", "--engine-parallel", "99", "1..=8"] {
        assert!(err(&output).contains(part), "no `{part}` in {}", err(&output));
    }
}

#[test]
fn a_misspelt_variable_stops_the_start() {
    let output = with_env(&["profile", "check"], &[("PLATEAU_ENGINE_CTX", "4096")]);
    assert_eq!(code(&output), 64);
    assert!(err(&output).contains("PLATEAU_ENGINE_CTX"), "{}", err(&output));
}

#[test]
fn inspect_shows_metadata_and_tensors() {
    let output = plateau(&["inspect-gguf", DEMO, "--tensors"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    for part in ["qwen35.block_count", "q8_0", "token_embd.weight", "qwen35.nextn_predict_layers"] {
        assert!(out(&output).contains(part), "no `{part}` in\n{}", out(&output));
    }
}

/// Crafted files must never reach a C++ parser.
#[test]
fn inspect_refuses_a_crafted_file_with_65_and_the_offset() {
    let crafted: [(&str, Change); 3] = [
        ("magic", |bytes| bytes[0] = b'X'),
        ("number of metadata keys", |bytes| bytes[16..24].copy_from_slice(&(1u64 << 60).to_le_bytes())),
        ("cut off", |bytes| bytes.truncate(100)),
    ];
    for (what, change) in crafted {
        let (_folder, path) = mutated(change);
        let output = plateau(&["inspect-gguf", &path]);
        assert_eq!(code(&output), 65, "{what}: {}", err(&output));
        assert!(err(&output).contains("at byte "), "{what}: {}", err(&output));
    }
}

/// Opening a named pipe waits for somebody who writes to it.
#[test]
fn a_named_pipe_as_a_model_is_refused_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe.gguf");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let pipe = pipe.to_str().unwrap();
    for args in [["inspect-gguf", pipe].as_slice(), &["doctor", "--model", pipe]] {
        let output = plateau(args);
        assert_eq!(code(&output), 69, "{args:?}: {}", err(&output));
        assert!(err(&output).contains("not a regular file"), "{args:?}: {}", err(&output));
    }
}

#[test]
fn a_missing_model_is_69_and_a_malformed_one_65() {
    let missing = plateau(&["doctor", "--model", "no/such/file.gguf"]);
    assert_eq!(code(&missing), 69, "{}", err(&missing));
    assert!(err(&missing).contains("no/such/file.gguf"), "{}", err(&missing));
    let (_folder, path) = mutated(|bytes| bytes.truncate(100));
    for command in ["doctor", "serve"] {
        let output = plateau(&[command, "--model", &path]);
        assert_eq!(code(&output), 65, "{command}: {}", err(&output));
    }
}

#[test]
fn doctor_reports_machine_model_and_plan_of_the_embedded_model() {
    let output = plateau(&["doctor"]);
    assert_eq!(code(&output), 0, "{}{}", out(&output), err(&output));
    let text = out(&output);
    let parts = [
        "machine\n",
        "qwen35",
        "8 (2 with attention, 6 recurrent), 1 MTP",
        "32768 tokens",
        "pre-tokenizer qwen35",
        "KV cache",
        "recurrent state",
        "rollback states",
        "fits at full context",
    ];
    for part in parts {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
}

/// Users saw servers boot and die when the context filled: what cannot fill is refused before anything is loaded.
#[test]
fn what_cannot_fit_is_refused_with_the_plan_and_what_would_fit() {
    for command in ["doctor", "serve"] {
        let output = plateau(&[command, "--ctx", "16777216", "--cache-type-k", "f32", "--cache-type-v", "f32"]);
        let text = out(&output) + &err(&output);
        assert_eq!(code(&output), 69, "{command}: {text}");
        for part in ["KV cache", "does not fit", "short on the host", "--ctx "] {
            assert!(text.contains(part), "{command}: no `{part}` in\n{text}");
        }
    }
}

#[test]
fn a_cache_type_that_the_model_cannot_have_is_refused() {
    let output = plateau(&["profile", "check", "--cache-type-v", "q4_0", "--flash-attention", "off"]);
    assert_eq!(code(&output), 64);
    assert!(err(&output).contains("engine.cache_type_v"), "{}", err(&output));
}

#[cfg(not(feature = "native"))]
#[test]
fn a_build_without_a_runtime_says_so() {
    for args in [&["serve"][..], &["run", "hello"]] {
        let output = plateau(args);
        assert_eq!(code(&output), 69, "{}", err(&output));
        assert!(err(&output).contains("no model runtime"), "{}", err(&output));
    }
}

#[test]
fn an_empty_message_is_refused_before_a_model_is_loaded() {
    let output = plateau(&["run", "  "]);
    assert_eq!(code(&output), 64);
    assert!(err(&output).contains("empty"), "{}", err(&output));
    let output = plateau(&["run", "--file", "no/such/file.txt", "summarise"]);
    assert_eq!(code(&output), 69);
    assert!(err(&output).contains("no/such/file.txt"), "{}", err(&output));
}

#[test]
fn the_embedded_model_leaves_no_file_behind() {
    let folder = tempfile::tempdir().unwrap();
    let tmp = folder.path().to_str().unwrap();
    assert_eq!(code(&with_env(&["doctor"], &[("TMPDIR", tmp)])), 0);
    assert_eq!(std::fs::read_dir(Path::new(tmp)).unwrap().count(), 0);
}

#[test]
fn grammar_list_names_what_is_shipped_and_show_prints_it() {
    let output = plateau(&["grammar", "list"]);
    assert_eq!(code(&output), 0);
    assert!(out(&output).contains("scratchpad   A plan, up to fifteen notes"), "{}", out(&output));
    let output = plateau(&["grammar", "show", "tagline"]);
    assert!(out(&output).contains("root   ::= \"Q=\""), "{}", out(&output));
    assert_eq!(code(&plateau(&["grammar", "show", "nope"])), 64);
}

#[test]
fn grammar_check_names_the_place_of_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let good = file("good.gbnf", "root ::= <think> line_text \"\\n\"\nline_text ::= [a-z]{1,3}");
    let output = plateau(&["grammar", "check", &good]);
    assert_eq!((code(&output), out(&output).as_str()), (0, "ok: 2 rules. At most 5 characters.\n"));
    let bad = file("bad.gbnf", "root ::= x\nx ::= \"a");
    let output = plateau(&["grammar", "check", &bad]);
    assert_eq!(
        (code(&output), err(&output)),
        (65, format!("{bad}: line 2, column 7: this text is not closed; add a `\"`\n"))
    );
    for (text, expected) in [
        ("<think>abc\n", None),
        ("<think>ab1\n", Some("line 1, column 10: `1` does not match")),
        ("<think>ab", Some("line 1, column 10: the text ends too early; next could be `\\n` `a`")),
        ("<think>a\n\n", Some("line 2, column 1: `\\n` does not match; here could be the end")),
        ("abc\n", Some("line 1, column 1: `a` does not match; here could be <think>")),
    ] {
        let text = file("text", text);
        let output = plateau(&["grammar", "check", &good, "--text", &text]);
        match expected {
            None => assert!(out(&output).ends_with("the text matches\n"), "{}", err(&output)),
            Some(expected) => assert!(err(&output).contains(expected) && code(&output) == 65, "{}", err(&output)),
        }
    }
    let schema = file("a.json", "{\"type\": \"array\", \"uniqueItems\": true}");
    let output = plateau(&["grammar", "check", &schema]);
    assert!(out(&output).contains("less strict at /uniqueItems"), "{}", out(&output));
    assert_eq!(code(&plateau(&["grammar", "check", "scratchpad"])), 0);
    assert_eq!(code(&plateau(&["grammar", "check", "missing.gbnf"])), 69);
}

#[test]
fn a_folder_of_saved_states_is_listed_verified_and_cleared_without_a_server() {
    use plateau::engine::prefix::Fingerprint;
    use plateau::engine::prefix::disk::{file, index};
    use plateau::engine::{BreakpointKind, PromptItem};
    use plateau::units::Token;
    let dir = tempfile::tempdir().unwrap();
    let (root, mine) = (dir.path().display().to_string(), Fingerprint(0xab));
    let folder = dir.path().join(mine.folder());
    std::fs::create_dir_all(&folder).unwrap();
    file::write(&folder, mine, 1, b"state").unwrap();
    let record = index::Record {
        key: 2,
        parent: 0,
        kind: BreakpointKind::Turn,
        hits: 0,
        point: Some(index::PartEntry { id: 1, len: 5 }),
        rows: None,
        edge: vec![PromptItem::Token(Token(7)); 12],
    };
    index::Index::open(&folder).unwrap().change(&[record], &[]).unwrap();
    let listed = out(&plateau(&["cache", "ls", "--dir", &root]));
    assert!(listed.contains("00000000000000ab: 1 places") && listed.contains("12 tokens"), "{listed}");
    assert_eq!(code(&plateau(&["cache", "verify", &root])), 0);
    std::fs::write(file::path(&folder, 1), b"torn").unwrap();
    let verified = plateau(&["cache", "verify", &root]);
    assert_eq!(code(&verified), 65);
    assert!(out(&verified).contains("1 files read, 1 wrong"), "{}", out(&verified));
    assert_eq!(code(&plateau(&["cache", "clear", "--dir", &root])), 0);
    assert!(!folder.exists());
    assert_eq!(code(&plateau(&["cache", "verify", &format!("{root}/none")])), 69);
}

#[test]
fn commands_that_ask_a_server_say_what_is_wrong_with_its_address() {
    let https = plateau(&["cache", "explain", "--url", "https://127.0.0.1:1"]);
    assert_eq!(code(&https), 64);
    assert!(err(&https).contains("http://HOST"), "{}", err(&https));
    // Nothing listens at port 1 of this machine.
    for args in
        [&["cache", "ls", "--url", "http://127.0.0.1:1"][..], &["check", "cache", "--url", "http://127.0.0.1:1"]]
    {
        assert_eq!(code(&plateau(args)), 69, "{args:?}");
    }
}
