//! `plateau cache`: what is saved, why a request processed what it did, are the files whole, and forgetting it all. Asks a
//! running server, or looks into the folder of the disk tier.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::app::{self, Failure};
use crate::check::client::{Client, LONG_TIMEOUT};
use crate::engine::PromptItem;
use crate::engine::prefix::disk::offline;
use crate::units::Bytes;

/// Which cache.
#[derive(Clone, Debug, clap::Args)]
pub struct Where {
    /// Ask the server at this address
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8020", conflicts_with = "dir")]
    url: String,
    /// The server's key
    #[arg(long, value_name = "KEY", conflicts_with = "dir")]
    key: Option<String>,
    /// Look into this folder (`cache.disk_dir`) instead, while no server uses it
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
pub enum CacheCommand {
    /// List the saved states as a tree
    Ls(Where),
    /// Tell of the last requests what each began from, and why it processed the rest
    Explain {
        /// Ask the server at this address
        #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8020")]
        url: String,
        /// The server's key
        #[arg(long, value_name = "KEY")]
        key: Option<String>,
    },
    /// Read every file of a folder and compare checksums
    ///
    /// Exit code 65 when one is incomplete, altered or missing; the server drops such a file by itself when it needs it.
    Verify {
        /// The folder (`cache.disk_dir`)
        dir: PathBuf,
    },
    /// Forget all saved states
    Clear(Where),
}

/// What a command prints, and whether all is well.
pub struct Report {
    pub text: String,
    pub fine: bool,
}

pub fn run(command: &CacheCommand) -> Result<Report, Failure> {
    let fine = |text| Ok(Report { text, fine: true });
    match command {
        CacheCommand::Ls(Where { dir: Some(dir), .. }) => fine(folder(dir)?),
        CacheCommand::Ls(at) => fine(tree(&get(&at.url, at.key.as_ref())?)),
        CacheCommand::Explain { url, key } => fine(stories(&get(url, key.as_ref())?)),
        CacheCommand::Verify { dir } => verify(dir),
        CacheCommand::Clear(Where { dir: Some(dir), .. }) => {
            let n = offline::clear(dir).map_err(|error| unavailable(dir, &error))?;
            fine(format!("{n} files removed\n"))
        }
        CacheCommand::Clear(at) => {
            let client = client(&at.url, at.key.as_ref())?;
            let (path, body) = ("/cache/clear", json!({}));
            app::runtime()?.block_on(client.post(path, &body, LONG_TIMEOUT)).map_err(not_answered)?;
            fine("the server forgets all saved states\n".to_owned())
        }
    }
}

fn client(url: &str, key: Option<&String>) -> Result<Client, Failure> {
    Client::new(url, key.cloned()).map_err(|error| Failure::Usage(error.to_string()))
}

fn get(url: &str, key: Option<&String>) -> Result<Value, Failure> {
    app::runtime()?.block_on(client(url, key)?.get("/cache", LONG_TIMEOUT)).map_err(not_answered)
}

fn not_answered(error: crate::check::client::ClientError) -> Failure {
    Failure::Unavailable(error.to_string())
}

fn unavailable(dir: &std::path::Path, error: &std::io::Error) -> Failure {
    Failure::Unavailable(format!("{}: {error}", dir.display()))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn tree(cache: &Value) -> String {
    let bytes = |value: &Value| Bytes(number(value));
    let mut out = format!(
        "memory {} of {}, disk {} of {}, {} places\n",
        bytes(&cache["ram"]["bytes"]),
        bytes(&cache["ram"]["budget"]),
        bytes(&cache["disk"]["bytes"]),
        bytes(&cache["disk"]["budget"]),
        cache["states"]["nodes"]
    );
    let nodes = cache["nodes"].as_array().map_or(&[][..], Vec::as_slice);
    let mut open: Vec<(&Value, usize)> = roots(nodes).rev().map(|node| (node, 0)).collect();
    while let Some((node, depth)) = open.pop() {
        let place = if node["restorable"] == true { node["kind"].as_str().unwrap_or("?") } else { "(rows only)" };
        let _ = writeln!(
            out,
            "{:indent$}{} {place}, {} uses, memory {}, disk {}, after {:?}",
            "",
            node["tokens"],
            node["hits"],
            bytes(&node["ram_bytes"]),
            bytes(&node["disk_bytes"]),
            node["tail"].as_str().unwrap_or_default(),
            indent = 2 * depth
        );
        let below = nodes.iter().rev().filter(|child| child["parent"] == node["key"]);
        open.extend(below.map(|child| (child, depth + 1)));
    }
    out
}

/// Nodes whose parent is not in the list.
fn roots(nodes: &[Value]) -> impl DoubleEndedIterator<Item = &Value> {
    nodes.iter().filter(|node| nodes.iter().all(|other| other["key"] != node["parent"]))
}

fn stories(cache: &Value) -> String {
    let mut out = String::new();
    for story in cache["recent"].as_array().into_iter().flatten() {
        let _ = writeln!(
            out,
            "{}: {} tokens, {} from {} in {:.1} ms, {} processed: {}",
            story["id"].as_str().unwrap_or("?"),
            story["prompt_tokens"],
            story["restored_from"],
            story["tier"].as_str().unwrap_or("?"),
            story["restore_ms"].as_f64().unwrap_or(0.0),
            story["prefilled"],
            story["reason"].as_str().unwrap_or("?")
        );
    }
    if out.is_empty() { "no request yet\n".to_owned() } else { out }
}

fn folder(dir: &std::path::Path) -> Result<String, Failure> {
    let mut out = String::new();
    for listing in offline::list(dir).map_err(|error| unavailable(dir, &error))? {
        let _ = writeln!(
            out,
            "{}: {} places, {}",
            listing.fingerprint.folder(),
            listing.records.len(),
            Bytes(listing.bytes())
        );
        if let Some(problem) = &listing.problem {
            let _ = writeln!(out, "  {problem} (a server that runs has it open: leave --dir out to ask it)");
        }
        let mut ends = std::collections::HashMap::from([(0, 0)]);
        for record in &listing.records {
            let start = ends.get(&record.parent).copied().unwrap_or(0);
            let end: usize = start + record.edge.iter().map(PromptItem::n_tokens).sum::<usize>();
            ends.insert(record.key, end);
            let bytes: u64 = record.parts().map(|part| part.len as u64).sum();
            let _ = writeln!(out, "  {end} tokens, {} new, {}", end - start, Bytes(bytes));
        }
    }
    Ok(if out.is_empty() { "nothing is saved here\n".to_owned() } else { out })
}

fn verify(dir: &std::path::Path) -> Result<Report, Failure> {
    let (n_read, faults) = offline::verify(dir).map_err(|error| unavailable(dir, &error))?;
    let mut text = format!("{n_read} files read, {} wrong\n", faults.len());
    for fault in &faults {
        let _ = writeln!(text, "{}: {}", fault.file, fault.problem);
    }
    Ok(Report { text, fine: faults.is_empty() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_shown_below_what_they_stand_on() {
        let node = |key: u64, parent: u64, tokens: u64| {
            json!({ "key": key, "parent": parent, "tokens": tokens, "kind": "turn", "hits": 1, "restorable": tokens != 90,
                    "ram_bytes": 1 << 20, "disk_bytes": 0, "tail": "x\n" })
        };
        let cache = json!({ "ram": {}, "disk": {}, "states": { "nodes": 3 },
                            "nodes": [node(5, 3, 120), node(3, 0, 90), node(7, 3, 110)] });
        let text = tree(&cache);
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert!(lines[0].starts_with("90 (rows only)"), "{text}");
        assert!(
            lines[1].starts_with("  120 turn, 1 uses, memory 1.0 MiB") && lines[2].starts_with("  110 turn"),
            "{text}"
        );
    }

    #[test]
    fn every_story_is_a_line() {
        let story = json!({ "id": "a", "prompt_tokens": 10, "restored_from": 9, "tier": "ram", "restore_ms": 1.5,
                            "prefilled": 1, "why": "new", "reason": "new from token 9" });
        assert_eq!(
            stories(&json!({ "recent": [story] })),
            "a: 10 tokens, 9 from ram in 1.5 ms, 1 processed: new from token 9\n"
        );
        assert_eq!(stories(&json!({})), "no request yet\n");
    }
}
