//! What rules cost: decoding under a schema, a call grammar and penalties against free decoding of the same answers, with drafts
//! on, and the tokens a step of each.
//!
//! `scripts/bench.sh constraints` starts the server; alone: `cargo bench --no-default-features --bench constraints -- HOST:PORT`.

#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

mod paired;

use paired::{Row, compare, post};
use serde_json::{Value, json};

/// Rounds of a kind's questions in one measurement: short answers alone would measure the clock.
const REPEATS: usize = 4;

/// Name, age, city.
const PEOPLE: [(&str, u32, &str); 8] = [
    ("Mia", 34, "Oslo"),
    ("Tom", 51, "Berlin"),
    ("Ana", 27, "Madrid"),
    ("Leo", 45, "Rome"),
    ("Eva", 38, "Paris"),
    ("Max", 62, "Vienna"),
    ("Zoe", 29, "Athens"),
    ("Ben", 41, "Dublin"),
];

/// Questions whose free answer already has the shape that the rules ask for: so both ways write about the same tokens.
struct Kind {
    name: &'static str,
    /// The body without its rules.
    ask: fn(usize) -> Value,
    /// What makes it a body with rules.
    rules: fn() -> Value,
}

const KINDS: [Kind; 3] = [
    Kind { name: "JSON schema", ask: list, rules: schema },
    Kind { name: "forced call", ask: weather, rules: || json!({ "tool_choice": "required" }) },
    Kind { name: "penalties", ask: story, rules: || json!({ "presence_penalty": 0.1, "repeat_penalty": 1.02 }) },
];

/// Four people from the `i`th on.
fn list(i: usize) -> Value {
    let people = (0..4).map(|k| PEOPLE[(i + k) % PEOPLE.len()]);
    let facts: Vec<String> = people.map(|(name, age, ..)| format!("{name} is {age}.")).collect();
    let text = format!("Return a JSON list of the names and ages: {}", facts.join(" "));
    json!({ "messages": [{ "role": "user", "content": text }] })
}

fn schema() -> Value {
    let properties = json!({ "name": { "type": "string" }, "age": { "type": "integer" } });
    let person = json!({ "type": "object", "properties": properties, "required": ["name", "age"] });
    let schema = json!({ "type": "array", "items": person });
    json!({ "response_format": { "type": "json_schema", "json_schema": { "name": "people", "schema": schema } } })
}

fn weather(i: usize) -> Value {
    let properties = json!({ "city": { "type": "string" } });
    let parameters = json!({ "type": "object", "properties": properties, "required": ["city"] });
    let function = json!({ "name": "get_weather", "description": "Weather of a city.", "parameters": parameters });
    let text = format!("What is the weather in {}?", PEOPLE[i].2);
    json!({ "messages": [{ "role": "user", "content": text }], "tools": [{ "type": "function", "function": function }] })
}

fn story(i: usize) -> Value {
    json!({ "messages": [{ "role": "user", "content": format!("Tell a story about {} and a dog.", PEOPLE[i].0) }] })
}

/// Counts of the answers to a kind's questions.
#[derive(Default)]
struct Totals {
    n_tokens: f64,
    ms: f64,
    n_accepted: f64,
}

impl Totals {
    fn tokens_per_second(&self) -> f64 {
        self.n_tokens / self.ms * 1000.0
    }

    fn tokens_per_step(&self) -> f64 {
        self.n_tokens / (self.n_tokens - self.n_accepted).max(1.0)
    }
}

fn add(body: &mut Value, fields: &Value) {
    for (name, value) in fields.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
}

fn run(address: &str, kind: &Kind, with_rules: bool, drafting: &Value) -> Result<Totals, String> {
    let mut totals = Totals::default();
    for i in 0..REPEATS * PEOPLE.len() {
        let mut body = (kind.ask)(i % PEOPLE.len());
        let more = json!({ "temperature": 0, "max_tokens": 200, "cache_prompt": false, "reasoning_effort": "none" });
        add(&mut body, &more);
        add(&mut body, drafting);
        if with_rules {
            add(&mut body, &(kind.rules)());
        }
        let answer = post(address, "/v1/chat/completions", &body)?;
        let timing = |key: &str| answer["timings"][key].as_f64().unwrap_or(0.0);
        totals.n_tokens += timing("predicted_n");
        totals.ms += timing("predicted_ms");
        totals.n_accepted += timing("draft_n_accepted");
    }
    Ok(totals)
}

fn main() -> Result<(), String> {
    // cargo passes `--bench` to every bench binary.
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let [address] = args.as_slice() else {
        println!("constraints bench skipped: give HOST:PORT, or run `make bench ARGS=constraints`");
        return Ok(());
    };
    println!("rules on the demo model, with drafts, by the server's own times");
    for kind in &KINDS {
        let measure =
            |which: &str, _: usize| run(address, kind, which == "rules", &Value::Null).map(|t| t.tokens_per_second());
        let row = Row { what: kind.name, unit: "tok/s", more_is_better: true, measure: &measure };
        compare(&row, [("with", "rules"), ("without", "free")])?;
        // What the head is worth does not depend on what pays on this machine.
        let always = json!({ "speculative": { "n_max": 3, "lookup": false, "adaptive": false } });
        let (with, without) = (run(address, kind, true, &always)?, run(address, kind, false, &always)?);
        println!(
            "  {:<20} with {:.2} tokens a step, without {:.2}, ratio {:.2}; {} and {} tokens",
            "",
            with.tokens_per_step(),
            without.tokens_per_step(),
            with.tokens_per_step() / without.tokens_per_step(),
            with.n_tokens,
            without.n_tokens,
        );
    }
    Ok(())
}
