//! Generated text in arbitrary pieces: never a panic, the same deltas as in one piece, arguments that are JSON objects.
//!
//! The first byte picks how the text is read; a byte 0xFF in the input marks a cut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plateau::chat::{Collected, OutputFormat, OutputParser, Thinking, Tool};
use serde_json::{Map, Value, json};

fn tools() -> Vec<Tool> {
    let properties =
        json!({"s": {"type": "string"}, "i": {"type": "integer"}, "o": {"type": ["string", "object", "null"]}});
    let parameters = json!({"type": "object", "properties": properties});
    ["f", "fg"]
        .map(|name| Tool {
            name: name.into(),
            description: None,
            parameters: parameters.clone(),
            strict: None,
            raw: json!({}),
        })
        .into()
}

fn format(bits: u8) -> OutputFormat {
    let thinking = [Thinking::Open, Thinking::Possible, Thinking::Off][usize::from(bits % 3)];
    let tools = if bits & 64 == 0 { tools() } else { Vec::new() };
    OutputFormat { thinking, tools, parallel: bits & 32 == 0, calls_end_thinking: bits & 16 == 0 }
}

fn parse<'a>(format: OutputFormat, pieces: impl Iterator<Item = &'a str>) -> Collected {
    let mut parser = OutputParser::with_ids(format, Box::new(|| "id".to_owned()));
    let mut deltas = Vec::new();
    pieces.for_each(|piece| parser.push(piece, &mut deltas));
    parser.finish(&mut deltas);
    let mut collected = Collected::default();
    deltas.into_iter().for_each(|delta| collected.add(delta));
    collected
}

fuzz_target!(|data: &[u8]| {
    let Some((&bits, rest)) = data.split_first() else { return };
    let pieces: Vec<_> = rest.split(|byte| *byte == 0xFF).map(String::from_utf8_lossy).collect();
    let cut = parse(format(bits), pieces.iter().map(AsRef::as_ref));
    let whole = parse(format(bits), [pieces.concat()].iter().map(String::as_str));
    assert_eq!(cut, whole);
    for call in &whole.calls {
        assert!(serde_json::from_str::<Map<String, Value>>(&call.arguments).is_ok(), "{:?}", call.arguments);
    }
});
