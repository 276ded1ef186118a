//! Outputs in the shapes that models give, and what has to be read from them.

use plateau::chat::{OutputFormat, Thinking, Tool};
use serde_json::{Value, json};

/// How the output is to be read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Read {
    /// Tools, thinking switched off.
    Tools,
    /// Tools, the prompt ends in `<think>`.
    Open,
    /// Tools, the model may think.
    Possible,
    /// No tools, the model may think.
    Chat,
    /// No tools, no thinking.
    Plain,
    /// `Open`, but calls do not end thinking.
    Thinker,
    /// `Tools`, one call only.
    Single,
}

pub struct Case {
    pub name: &'static str,
    pub read: Read,
    pub text: &'static str,
    pub reasoning: &'static str,
    pub content: &'static str,
    /// Name and arguments.
    pub calls: &'static [(&'static str, &'static str)],
}

fn tool(name: &str, properties: Value) -> Tool {
    let parameters = json!({"type": "object", "properties": properties, "$defs": {"Spot": {"type": "object"}}});
    Tool { name: name.to_owned(), description: None, parameters, strict: None, raw: Value::Null }
}

pub fn tools() -> Vec<Tool> {
    vec![
        tool(
            "edit",
            json!({
                "path": {"type": "string"},
                "new": {"type": "string"},
                "old": {"type": "string"},
                "line": {"type": "integer"},
                "ratio": {"type": "number"},
                "all": {"type": "boolean"},
                "none": {"type": "null"},
                "opts": {"type": "object"},
                "list": {"type": "array", "items": {"type": "string"}},
                "either": {"anyOf": [{"type": "object"}, {"type": "string"}]},
                "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "mixed": {"type": ["string", "integer", "array"]},
                "untyped": {"description": "anything"},
                "spot": {"$ref": "#/$defs/Spot"},
                "mode": {"enum": ["fast", "slow"]},
            }),
        ),
        tool("edit_all", json!({"path": {"type": "string"}})),
        tool("now", json!({})),
    ]
}

pub fn format(read: Read) -> OutputFormat {
    let thinking = match read {
        Read::Open | Read::Thinker => Thinking::Open,
        Read::Possible | Read::Chat => Thinking::Possible,
        Read::Tools | Read::Plain | Read::Single => Thinking::Off,
    };
    let tools = if matches!(read, Read::Chat | Read::Plain) { Vec::new() } else { tools() };
    OutputFormat { thinking, tools, parallel: read != Read::Single, calls_end_thinking: read != Read::Thinker }
}

const NONE: Case = Case { name: "", read: Read::Tools, text: "", reasoning: "", content: "", calls: &[] };

/// One call of `edit` with one parameter.
macro_rules! one {
    ($name:literal, $key:literal, $value:literal, $json:literal) => {
        Case {
            name: $name,
            text: concat!(
                "<tool_call>\n<function=edit>\n<parameter=",
                $key,
                ">\n",
                $value,
                "\n</parameter>\n</function>\n</tool_call>"
            ),
            calls: &[("edit", concat!("{\"", $key, "\":", $json, "}"))],
            ..NONE
        }
    };
}

const CALL: &str = "<tool_call>\n<function=now>\n</function>\n</tool_call>";

#[rustfmt::skip]
pub const THINKING: &[Case] = &[
    Case { name: "thinking as Qwen prints it", read: Read::Open, text: "Hm, 2+2.\n</think>\n\nIt is 4.\n", reasoning: "Hm, 2+2.", content: "It is 4.\n", ..NONE },
    Case { name: "thinking opened by the model", read: Read::Possible, text: "<think>\nHm.\n</think>\n\nYes.", reasoning: "Hm.", content: "Yes.", ..NONE },
    Case { name: "blanks before the opening tag", read: Read::Chat, text: "\n <think>Hm.</think>Yes.", reasoning: "Hm.", content: "Yes.", ..NONE },
    Case { name: "opening tag repeated after a prompt that ends in it", read: Read::Open, text: "<think>\nHm.\n</think>\n\nYes.", reasoning: "Hm.", content: "Yes.", ..NONE },
    Case { name: "empty think block", read: Read::Possible, text: "<think>\n\n</think>\n\nYes.", content: "Yes.", ..NONE },
    Case { name: "only one newline of each kind is the template's", read: Read::Possible, text: "<think>\n\n a \n\n</think>\n\n\n Yes.", reasoning: "\n a \n", content: "\n Yes.", ..NONE },
    Case { name: "thinking never closed", read: Read::Open, text: "I wonder\nwhether </thin\n", reasoning: "I wonder\nwhether </thin\n", ..NONE },
    Case { name: "model does not think", read: Read::Possible, text: "\nYes, <think> is a tag.</think>", content: "\nYes, <think> is a tag.</think>", ..NONE },
    Case { name: "thinking off", read: Read::Plain, text: "<think>a</think>b <tool_call>\n", content: "<think>a</think>b <tool_call>\n", ..NONE },
    Case { name: "closed twice", read: Read::Open, text: "Cut\n</think>\n\n</think>\n\nAnswer.", reasoning: "Cut", content: "Answer.", ..NONE },
    Case { name: "closed three times", read: Read::Open, text: "Cut</think></think></think>", reasoning: "Cut", content: "</think>", ..NONE },
    Case { name: "closing tag later in the content", read: Read::Open, text: "a</think>\n\nb </think> c", reasoning: "a", content: "b </think> c", ..NONE },
    Case { name: "opened again", read: Read::Open, text: "a\n</think>\n\n<think>\nb\n</think>\n\nc", reasoning: "a\nb", content: "c", ..NONE },
    Case { name: "emoji everywhere", read: Read::Open, text: "😸<\n</think>\n\n<😸>\n", reasoning: "😸<", content: "<😸>\n", ..NONE },
    Case { name: "call in unclosed thinking", read: Read::Open, text: "plan\n<tool_call>\n<function=now>\n</function>\n</tool_call>", reasoning: "plan", calls: &[("now", "{}")], ..NONE },
    Case { name: "call in unclosed thinking, closed late", read: Read::Open, text: "plan\n<tool_call>\n<function=now>\n</function>\n</tool_call>\n</think>\n\nDone.", reasoning: "plan", content: "Done.", calls: &[("now", "{}")] },
    Case { name: "JSON call in unclosed thinking", read: Read::Open, text: "plan\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>", reasoning: "plan", calls: &[("now", "{}")], ..NONE },
    Case { name: "undeclared call in thinking", read: Read::Open, text: "use <tool_call>\n<function=rm>\n</function></tool_call>\n</think>\n\nNo.", reasoning: "use <tool_call>\n<function=rm>\n</function></tool_call>", content: "No.", ..NONE },
    Case { name: "broken JSON call in thinking", read: Read::Open, text: "or\n<tool_call>{\"name\": \"now\", oh no\n</think>\n\nNo.", reasoning: "or\n<tool_call>{\"name\": \"now\", oh no", content: "No.", ..NONE },
    Case { name: "name of a tag in thinking", read: Read::Open, text: "the <tool_call> tag, <function=now> too\n</think>\n\nOk.", reasoning: "the <tool_call> tag, <function=now> too", content: "Ok.", ..NONE },
    Case { name: "calls do not end thinking", read: Read::Thinker, text: "plan\n<tool_call>\n<function=now>\n</function>\n</tool_call>\n</think>\n\nOk.", reasoning: "plan\n<tool_call>\n<function=now>\n</function>\n</tool_call>", content: "Ok.", ..NONE },
    Case { name: "call right after thinking", read: Read::Open, text: "plan\n</think>\n\n\n\n<tool_call>\n<function=now>\n</function>\n</tool_call>\n", reasoning: "plan", calls: &[("now", "{}")], ..NONE },
];

#[rustfmt::skip]
pub const XML: &[Case] = &[
    Case { name: "call without parameters", text: CALL, calls: &[("now", "{}")], ..NONE },
    Case { name: "prose before a call", text: "I will look.\n\n<tool_call>\n<function=now>\n</function>\n</tool_call>", content: "I will look.", calls: &[("now", "{}")], ..NONE },
    Case { name: "prose after a call", text: "A<tool_call><function=now></function></tool_call>\n\nB \n", content: "A\n\nB \n", calls: &[("now", "{}")], ..NONE },
    Case { name: "two calls", text: "<tool_call>\n<function=now>\n</function>\n</tool_call>\n<tool_call>\n<function=edit>\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call>\n", calls: &[("now", "{}"), ("edit", "{\"path\":\"a\"}")], ..NONE },
    Case { name: "two functions in one wrapper", text: "<tool_call>\n<function=now>\n</function>\n<function=edit_all>\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call>", calls: &[("now", "{}"), ("edit_all", "{\"path\":\"a\"}")], ..NONE },
    Case { name: "only one call wanted", read: Read::Single, text: "<tool_call>\n<function=edit>\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call> end", content: " end", calls: &[("edit", "{\"path\":\"a\"}")], ..NONE },
    Case { name: "no wrapper", text: "Look:\n<function=edit>\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call>\n", content: "Look:", calls: &[("edit", "{\"path\":\"a\"}")], ..NONE },
    Case { name: "no wrapper, in the middle of a line", text: "say <function=now></function>", content: "say <function=now></function>", ..NONE },
    Case { name: "any order", text: "<tool_call>\n<function=edit>\n<parameter=new>\nb\n</parameter>\n<parameter=line>\n3\n</parameter>\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call>", calls: &[("edit", "{\"new\":\"b\",\"line\":3,\"path\":\"a\"}")], ..NONE },
    Case { name: "parameter given twice", text: "<tool_call>\n<function=edit>\n<parameter=path>\na\n</parameter>\n<parameter=path>\nb\n</parameter>\n</function>\n</tool_call>", calls: &[("edit", "{\"path\":\"a\"}")], ..NONE },
    Case { name: "all on one line", text: "<tool_call><function=edit><parameter=path>a</parameter><parameter=all>true</parameter></function></tool_call>", calls: &[("edit", "{\"path\":\"a\",\"all\":true}")], ..NONE },
    Case { name: "unknown function", text: "A\n<tool_call>\n<function=edit_>\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call>\n", content: "A\n<tool_call>\n<function=edit_>\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call>\n", ..NONE },
    Case { name: "no tools declared", read: Read::Chat, text: CALL, content: CALL, ..NONE },
    Case { name: "text between parameters is the value's", text: "<tool_call>\n<function=edit>\n<parameter=path>\na\n</parameter>\nand < so\n</parameter>\n<parameter=new>\nb\n</parameter>\n</function>\n</tool_call>", calls: &[("edit", "{\"path\":\"a\\n</parameter>\\nand < so\",\"new\":\"b\"}")], ..NONE },
    Case { name: "parameter without a name", text: "<tool_call>\n<function=edit>\n<parameter=>\nx < y\n</parameter>\n<parameter=new>\nb\n</parameter>\n</function>\n</tool_call>", content: "\n<parameter=>\nx < y\n</parameter>", calls: &[("edit", "{\"new\":\"b\"}")], ..NONE },
    Case { name: "function never closed", text: "<tool_call>\n<function=edit>\n<parameter=path>\na\n</parameter>\n</tool_call>\nok", content: "\nok", calls: &[("edit", "{\"path\":\"a\"}")], ..NONE },
    Case { name: "function not closed before the next call", text: "<tool_call>\n<function=edit>\n<parameter=path>\na\n</parameter>\n<tool_call>\n<function=now>\n</function>\n</tool_call>", content: "", calls: &[("edit", "{\"path\":\"a\"}"), ("now", "{}")], ..NONE },
    Case { name: "parameter never closed", text: "<tool_call>\n<function=edit>\n<parameter=path>\na\n</function>\n</tool_call>\n", calls: &[("edit", "{\"path\":\"a\"}")], ..NONE },
    Case { name: "parameter not closed before the next call", text: "<tool_call>\n<function=edit>\n<parameter=path>\na\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>", calls: &[("edit", "{\"path\":\"a\"}"), ("now", "{}")], ..NONE },
    Case { name: "cut inside a value", text: "<tool_call>\n<function=edit>\n<parameter=path>\nsrc/a\"", calls: &[("edit", "{\"path\":\"src/a\\\"\"}")], ..NONE },
    Case { name: "cut inside a key", text: "<tool_call>\n<function=edit>\n<parameter=pa", calls: &[("edit", "{}")], ..NONE },
    Case { name: "cut inside the name", text: "Go.\n<tool_call>\n<function=edi", content: "Go.\n<tool_call>\n<function=edi", ..NONE },
    Case { name: "cut inside the wrapper's end", text: "<tool_call>\n<function=now>\n</function>\n</tool_", calls: &[("now", "{}")], ..NONE },
    Case { name: "lone tags", text: "</tool_call> </function> <parameter=a> <tool_call> x", content: "</tool_call> </function> <parameter=a> <tool_call> x", ..NONE },
    Case { name: "content of blanks only", text: " \n ", content: " \n ", ..NONE },
];

#[rustfmt::skip]
pub const VALUES: &[Case] = &[
    one!("indent and last newline", "new", "    if x:\n        return 1\n", "\"    if x:\\n        return 1\\n\""),
    one!("empty string", "new", "", "\"\""),
    one!("newlines only", "new", "\n\n", "\"\\n\\n\""),
    one!("quotes and backslashes", "new", "He said \"x\"\n\\d \u{1} \t", "\"He said \\\"x\\\"\\n\\\\d \\u0001 \\t\""),
    one!("emoji in a value", "new", "😸 <b>é</b> 😸", "\"😸 <b>é</b> 😸\""),
    one!("call tags in a value", "new", "<tool_call>\n</tool_call> <function=now></function>", "\"<tool_call>\\n</tool_call> <function=now></function>\""),
    one!("closing tag of a parameter in a value", "new", "a </parameter> b\n</parameter>\nc", "\"a </parameter> b\\n</parameter>\\nc\""),
    one!("closing tags of a call in a value", "new", "a\n</function>\n</tool_call>\nb", "\"a\\n</function>\\n</tool_call>\\nb\""),
    one!("think tags in a value", "new", "<think>\n</think>", "\"<think>\\n</think>\""),
    one!("number for a string", "path", "42", "\"42\""),
    one!("integer", "line", "42", "42"),
    one!("integer that is none", "line", "about 42", "\"about 42\""),
    one!("fraction for an integer", "line", "4.5", "\"4.5\""),
    one!("integer past 64 bits", "line", "123456789012345678901234567890", "123456789012345678901234567890"),
    one!("number", "ratio", " -1.50e3 ", "-1.50e3"),
    one!("boolean", "all", "false", "false"),
    one!("boolean as Python prints it", "all", "True", "true"),
    one!("null as Python prints it", "none", "None", "null"),
    one!("object", "opts", "{\"a\": [1, {\"b\": \"</parameter>\"}]}", "{\"a\": [1, {\"b\": \"</parameter>\"}]}"),
    one!("object that is none", "opts", "{a: 1}", "\"{a: 1}\""),
    one!("object in a string", "opts", "\"{\\\"a\\\": 1}\"", "{\"a\": 1}"),
    one!("array", "list", "[\n  \"a\"\n]", "[\n  \"a\"\n]"),
    one!("object or string: object", "either", "{\"a\": 1}", "{\"a\": 1}"),
    one!("object or string: string", "either", "plain 1", "\"plain 1\""),
    one!("object or string: array", "either", "[1]", "\"[1]\""),
    one!("string or null: null", "maybe", "null", "null"),
    one!("string or null: string", "maybe", "nullable", "\"nullable\""),
    one!("string or others: number stays text", "mixed", "5", "\"5\""),
    one!("string or others: array", "mixed", "[5]", "[5]"),
    one!("no type: number", "untyped", "5", "5"),
    one!("no type: boolean", "untyped", "true", "true"),
    one!("no type: quoted text stays as it is", "untyped", "\"5\"", "\"\\\"5\\\"\""),
    one!("no type: text", "untyped", "5 apples", "\"5 apples\""),
    one!("parameter that is not declared", "extra", "{\"a\": null}", "{\"a\": null}"),
    one!("reference to a definition", "spot", "{\"x\": 1}", "{\"x\": 1}"),
    one!("enum of strings", "mode", "fast", "\"fast\""),
];

#[rustfmt::skip]
pub const HERMES: &[Case] = &[
    Case { name: "name first", text: "Hi.\n<tool_call>\n{\"name\": \"edit\", \"arguments\": {\"path\": \"a<b>\", \"line\": 1.0}}\n</tool_call>\n", content: "Hi.", calls: &[("edit", "{\"path\": \"a<b>\", \"line\": 1.0}")], ..NONE },
    Case { name: "name last", text: "<tool_call>{\"arguments\": {\"name\": \"x\", \"arguments\": {\"a\": [\"}\"]}}, \"name\": \"edit\"}</tool_call>", calls: &[("edit", "{\"name\": \"x\", \"arguments\": {\"a\": [\"}\"]}}")], ..NONE },
    Case { name: "arguments in a string", text: "<tool_call>\n{\"name\": \"edit\", \"arguments\": \"{\\\"path\\\": \\\"a\\\\nb\\\"}\"}\n</tool_call>", calls: &[("edit", "{\"path\": \"a\\nb\"}")], ..NONE },
    Case { name: "no arguments", text: "<tool_call>\n{\"name\": \"now\"}\n</tool_call>", calls: &[("now", "{}")], ..NONE },
    Case { name: "several JSON calls", text: "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": null}\n</tool_call>", calls: &[("now", "{}"), ("now", "{}")], ..NONE },
    Case { name: "JSON and XML", text: "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>", calls: &[("now", "{}"), ("now", "{}")], ..NONE },
    Case { name: "last brace forgotten", text: "<tool_call>\n{\"name\": \"edit\", \"arguments\": {\"path\": \"a\"}\n</tool_call>", calls: &[("edit", "{\"path\": \"a\"}")], ..NONE },
    Case { name: "wrapper never closed", text: "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}", calls: &[("now", "{}")], ..NONE },
    Case { name: "quote not escaped", text: "<tool_call>\n{\"name\": \"edit\", \"arguments\": {\"new\": \"print(\"x\")\"}}\n</tool_call>", content: "<tool_call>\n{\"name\": \"edit\", \"arguments\": {\"new\": \"print(\"x\")\"}}\n</tool_call>", ..NONE },
    Case { name: "JSON cut off", text: "A <tool_call>\n{\"name\": \"edit\", \"arguments\": {\"new\": \"pri", content: "A <tool_call>\n{\"name\": \"edit\", \"arguments\": {\"new\": \"pri", ..NONE },
    Case { name: "JSON of an unknown tool", text: "<tool_call>\n{\"name\": \"rm\", \"arguments\": {}}\n</tool_call>", content: "<tool_call>\n{\"name\": \"rm\", \"arguments\": {}}\n</tool_call>", ..NONE },
    Case { name: "arguments that are no object", text: "<tool_call>{\"name\": \"now\", \"arguments\": [1]}</tool_call>", content: "<tool_call>{\"name\": \"now\", \"arguments\": [1]}</tool_call>", ..NONE },
    Case { name: "half a surrogate pair", text: "<tool_call>{\"name\": \"edit\", \"arguments\": {\"new\": \"\\ud83d\"}}</tool_call>", content: "<tool_call>{\"name\": \"edit\", \"arguments\": {\"new\": \"\\ud83d\"}}</tool_call>", ..NONE },
];

pub fn all() -> impl Iterator<Item = &'static Case> {
    [THINKING, XML, VALUES, HERMES].into_iter().flatten()
}
