//! `plateau inspect-gguf`: what the checked header of a model file says. Reads no weights and starts no model.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::gguf::{Gguf, Value};
use crate::units::Bytes;

/// Longest text of a metadata value that is shown, in characters.
const MAX_VALUE_CHARS: usize = 72;

/// Container, metadata and tensors; every tensor by name when `all_tensors`.
pub fn report(gguf: &Gguf, all_tensors: bool) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "GGUF version {}, {} metadata keys, {} tensors, {}, data at byte {} aligned to {}",
        gguf.version,
        gguf.metadata.len(),
        gguf.tensors.len(),
        Bytes(gguf.file_bytes),
        gguf.data_offset,
        gguf.alignment,
    );
    out.push_str("\nmetadata\n");
    for (key, value) in &gguf.metadata {
        let _ = writeln!(out, "  {key:<42} {}", show(value));
    }
    out.push_str("\ntensors by type\n");
    let mut types: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
    for tensor in &gguf.tensors {
        let entry = types.entry(tensor.type_name).or_default();
        *entry = (entry.0 + 1, entry.1 + tensor.bytes);
    }
    for (name, (count, bytes)) in types {
        let _ = writeln!(out, "  {name:<10} {count:>5} {:>12}", Bytes(bytes).to_string());
    }
    if all_tensors {
        out.push_str("\ntensors\n");
        for tensor in &gguf.tensors {
            let dims: Vec<String> = tensor.dims.iter().map(u64::to_string).collect();
            let _ = writeln!(
                out,
                "  {:<44} {:<8} {:<24} {:>12} at {}",
                tensor.name,
                tensor.type_name,
                dims.join(" x "),
                tensor.bytes,
                tensor.offset
            );
        }
    }
    out
}

fn show(value: &Value) -> String {
    let text = match value {
        Value::U64(n) => n.to_string(),
        Value::I64(n) => n.to_string(),
        Value::F64(x) => x.to_string(),
        Value::Bool(b) => b.to_string(),
        Value::Str(s) => format!("{s:?}"),
        Value::Array(items) => {
            let first: Vec<String> = items.iter().take(6).map(show).collect();
            let more = if items.len() > 6 { ", ..." } else { "" };
            format!("[{}{more}] ({} elements)", first.join(", "), items.len())
        }
    };
    let mut shown: String = text.chars().take(MAX_VALUE_CHARS).collect();
    if text.chars().nth(MAX_VALUE_CHARS).is_some() {
        let _ = write!(shown, "... ({} characters)", text.chars().count());
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_cut_and_control_characters_escaped() {
        let shown = show(&Value::Str(format!("a\u{1b}[31m{}", "x".repeat(500))));
        assert!(shown.starts_with("\"a\\u{1b}[31m"), "{shown}");
        assert!(shown.contains("characters") && shown.len() < 120, "{shown}");
        assert_eq!(show(&Value::Array(vec![Value::U64(7); 9])), "[7, 7, 7, 7, 7, 7, ...] (9 elements)");
    }
}
