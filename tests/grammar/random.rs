//! Random JSON schemas: all keywords, in the spellings of four drafts.

use rand_core::{RngCore, SeedableRng};
use serde_json::{Map, Value, json};

const NAMES: [&str; 9] = ["a", "b", "kind", "n", "ab", "x y", "\u{e9}", "true", "a.b"];
const PATTERNS: [&str; 20] = [
    "^a",
    "b$",
    "^[a-c]+$",
    "a|^b",
    "^(x|y)z?$",
    "\\d{2}",
    "^\\w+$",
    "[^a]",
    "^.{2,4}$",
    "^$",
    "\\s",
    "^\\S+$",
    "(a)\\1",
    "^(?=x)y",
    "^a/b$",
    "(^a|b)$",
    "^\u{e9}+$",
    "\\.",
    "^[a-z]{1,3}-[0-9]$",
    "^(?:ab)*$",
];
const FORMATS: [&str; 13] = [
    "date-time",
    "time",
    "date",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
    "uri",
    "iri",
    "int32",
    "regex",
];
const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];

#[derive(Clone, Copy, PartialEq)]
pub enum Draft {
    Four,
    Seven,
    New,
}

pub struct Random {
    rng: rand_pcg::Pcg64,
    draft: Draft,
    n_defs: usize,
    /// Inside a definition only containers may lead to any other; a value must not be referred to without end.
    in_def: Option<usize>,
}

impl Random {
    pub fn new(seed: u64) -> Random {
        let mut rng = rand_pcg::Pcg64::seed_from_u64(seed);
        let draft = [Draft::Four, Draft::Seven, Draft::New, Draft::New, Draft::New][rng.next_u32() as usize % 5];
        let n_defs = rng.next_u32() as usize % 3;
        Random { rng, draft, n_defs, in_def: None }
    }

    fn below(&mut self, n: usize) -> usize {
        self.rng.next_u32() as usize % n
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn defs(&self) -> &'static str {
        if self.draft == Draft::New { "$defs" } else { "definitions" }
    }

    /// A whole schema; one for arguments of a call has objects.
    pub fn whole(&mut self, for_call: bool) -> Value {
        let mut schema = if for_call { self.arguments() } else { self.schema(3) };
        let n = self.n_defs;
        let mut defs = Map::new();
        for i in 0..n {
            self.in_def = Some(i);
            defs.insert(format!("d{i}"), if for_call && i == 0 { self.object(2) } else { self.schema(2) });
        }
        self.in_def = None;
        if let Value::Object(map) = &mut schema {
            if n > 0 {
                map.insert(self.defs().to_owned(), defs.into());
            }
            match self.draft {
                Draft::Four => _ = map.insert("$schema".into(), "http://json-schema.org/draft-04/schema#".into()),
                Draft::Seven => _ = map.insert("$schema".into(), "http://json-schema.org/draft-07/schema#".into()),
                Draft::New => {}
            }
        }
        schema
    }

    fn arguments(&mut self) -> Value {
        let n = self.n_defs;
        match self.below(6) {
            0 if n > 0 => json!({"$ref": format!("#/{}/d0", self.defs())}),
            1 => json!({"allOf": [self.object(2), self.object(2)]}),
            2 => json!({"type": "object", "anyOf": [self.object(2), self.object(2)]}),
            3 => json!({"oneOf": [self.object(2), self.object(2)]}),
            _ => self.object(2),
        }
    }

    fn reference(&mut self, in_container: bool) -> Option<Value> {
        let from = match self.in_def {
            Some(i) if !in_container => i + 1,
            _ => 0,
        };
        if from >= self.n_defs {
            return None;
        }
        let i = from + self.below(self.n_defs - from);
        Some(json!({"$ref": format!("#/{}/d{i}", self.defs())}))
    }

    fn part(&mut self, depth: usize) -> Value {
        if self.chance(15)
            && let Some(reference) = self.reference(true)
        {
            return reference;
        }
        if self.draft != Draft::Four && self.chance(6) {
            return json!(self.chance(70));
        }
        self.schema(depth.saturating_sub(1))
    }

    pub fn schema(&mut self, depth: usize) -> Value {
        if self.chance(8)
            && let Some(reference) = self.reference(false)
        {
            return reference;
        }
        let mut map = Map::new();
        let kind = if depth == 0 { self.below(5) } else { self.below(9) };
        match kind {
            0 => self.number(&mut map),
            1 | 2 => self.text(&mut map),
            3 => _ = map.insert("type".into(), self.pick(&["boolean", "null"]).into()),
            4 => self.values(&mut map),
            5 => self.array(&mut map, depth),
            6 | 7 => self.members(&mut map, depth),
            _ => {
                let n = 1 + self.below(3);
                let types: Vec<&str> = (0..n).map(|_| self.pick(&TYPES)).collect();
                let mut unique = types.clone();
                unique.sort_unstable();
                unique.dedup();
                map.insert("type".into(), json!(unique));
                self.number_words(&mut map);
                self.text_words(&mut map);
            }
        }
        if depth > 0 && self.chance(25) {
            self.applied(&mut map, depth - 1);
        }
        Value::Object(map)
    }

    fn applied(&mut self, map: &mut Map<String, Value>, depth: usize) {
        let n = 1 + self.below(3);
        let list = |this: &mut Random| -> Value { (0..n).map(|_| this.schema(depth)).collect::<Vec<_>>().into() };
        match self.below(6) {
            0 => _ = map.insert("allOf".into(), list(self)),
            1 => _ = map.insert("anyOf".into(), list(self)),
            2 => _ = map.insert("oneOf".into(), list(self)),
            3 => _ = map.insert("not".into(), self.schema(depth)),
            4 if self.draft != Draft::Four => {
                map.insert("if".into(), self.schema(depth));
                if self.chance(80) {
                    map.insert("then".into(), self.schema(depth));
                }
                if self.chance(60) {
                    map.insert("else".into(), self.schema(depth));
                }
            }
            _ => {
                map.clear();
                let key = self.pick(&["anyOf", "oneOf", "allOf"]);
                map.insert(key.into(), list(self));
            }
        }
    }

    fn value(&mut self) -> Value {
        match self.below(12) {
            0 => json!(null),
            1 => json!(self.chance(50)),
            2 | 3 => json!(self.below(7) as i64 - 2),
            4 => json!(self.below(40) as f64 / 8.0),
            5..=8 => json!(self.pick(&["", "a", "b", "x y", "null", "12", "a\nb", "\u{e9}\"", "abc"])),
            9 => json!([self.below(3), "a"]),
            _ => json!({"a": self.below(3), "n": null}),
        }
    }

    fn values(&mut self, map: &mut Map<String, Value>) {
        if self.draft != Draft::Four && self.chance(40) {
            map.insert("const".into(), self.value());
            return;
        }
        let n = 1 + self.below(4);
        let mut values: Vec<Value> = Vec::new();
        for _ in 0..n {
            let value = self.value();
            if !values.contains(&value) {
                values.push(value);
            }
        }
        map.insert("enum".into(), values.into());
        if self.chance(30) {
            map.insert("type".into(), self.pick(&TYPES).into());
        }
    }

    fn number(&mut self, map: &mut Map<String, Value>) {
        if self.chance(85) {
            map.insert("type".into(), self.pick(&["integer", "number"]).into());
        }
        self.number_words(map);
    }

    fn number_words(&mut self, map: &mut Map<String, Value>) {
        let low = self.below(20) as i64 - 8;
        let high = low + self.below(30) as i64;
        let half = if self.chance(20) { 0.5 } else { 0.0 };
        let number = |n: i64| if half > 0.0 { json!(n as f64 + half) } else { json!(n) };
        for (key, open, value) in
            [("minimum", "exclusiveMinimum", number(low)), ("maximum", "exclusiveMaximum", number(high))]
        {
            match self.below(4) {
                0 => _ = map.insert(key.into(), value),
                1 if self.draft == Draft::Four => {
                    map.insert(key.into(), value);
                    map.insert(open.into(), json!(self.chance(50)));
                }
                1 => _ = map.insert(open.into(), value),
                _ => {}
            }
        }
        if self.chance(20) {
            map.insert(
                "multipleOf".into(),
                [json!(2), json!(3), json!(0.5), json!(7), json!(0.1), json!(10)][self.below(6)].clone(),
            );
        }
    }

    fn text(&mut self, map: &mut Map<String, Value>) {
        if self.chance(85) {
            map.insert("type".into(), "string".into());
        }
        self.text_words(map);
    }

    fn text_words(&mut self, map: &mut Map<String, Value>) {
        let min = self.below(4);
        if self.chance(25) {
            map.insert("minLength".into(), json!(min));
        }
        if self.chance(30) {
            map.insert("maxLength".into(), json!(min + self.below(6)));
        }
        if self.chance(25) {
            map.insert("pattern".into(), self.pick(&PATTERNS).into());
        }
        if self.chance(15) {
            map.insert("format".into(), self.pick(&FORMATS).into());
        }
    }

    fn array(&mut self, map: &mut Map<String, Value>, depth: usize) {
        if self.chance(85) {
            map.insert("type".into(), "array".into());
        }
        let is_tuple = self.chance(30);
        let tuple: Vec<Value> = (0..1 + self.below(3)).map(|_| self.part(depth)).collect();
        match (is_tuple, self.draft == Draft::New) {
            (true, true) => {
                map.insert("prefixItems".into(), tuple.into());
                if self.chance(50) {
                    map.insert("items".into(), self.part(depth));
                }
            }
            (true, false) => {
                map.insert("items".into(), tuple.into());
                if self.chance(50) {
                    let rest = self.part(depth);
                    map.insert("additionalItems".into(), if self.chance(40) { json!(false) } else { rest });
                }
            }
            _ if self.chance(70) => _ = map.insert("items".into(), self.part(depth)),
            _ => {}
        }
        let min = self.below(3);
        if self.chance(40) {
            map.insert("minItems".into(), json!(min));
        }
        if self.chance(40) {
            map.insert("maxItems".into(), json!(min + self.below(3)));
        }
        if self.chance(10) {
            map.insert("uniqueItems".into(), json!(self.chance(80)));
        }
        if self.draft != Draft::Four && self.chance(10) {
            map.insert("contains".into(), self.part(depth));
            if self.draft == Draft::New && self.chance(30) {
                map.insert("minContains".into(), json!(self.below(3)));
            }
        }
        if self.draft == Draft::New && self.chance(6) {
            map.insert("unevaluatedItems".into(), json!(false));
        }
    }

    fn object(&mut self, depth: usize) -> Value {
        let mut map = Map::new();
        self.members(&mut map, depth);
        if self.chance(15) {
            self.applied_to_object(&mut map);
        }
        Value::Object(map)
    }

    fn applied_to_object(&mut self, map: &mut Map<String, Value>) {
        let required = |this: &mut Random| json!({"required": [this.pick(&NAMES)]});
        match self.below(4) {
            0 => _ = map.insert("anyOf".into(), json!([required(self), required(self)])),
            1 => _ = map.insert("oneOf".into(), json!([required(self), required(self)])),
            2 => _ = map.insert("not".into(), required(self)),
            _ => _ = map.insert("allOf".into(), json!([self.object(1)])),
        }
    }

    fn members(&mut self, map: &mut Map<String, Value>, depth: usize) {
        if self.chance(85) {
            map.insert("type".into(), "object".into());
        }
        let mut names: Vec<&str> = Vec::new();
        if self.chance(85) {
            let mut properties = Map::new();
            for _ in 0..self.below(5) {
                let name = self.pick(&NAMES);
                names.push(name);
                properties.insert(name.into(), self.part(depth));
            }
            map.insert("properties".into(), properties.into());
        }
        if self.chance(50) {
            let mut required: Vec<&str> =
                names.iter().copied().filter(|_| self.rng.next_u32().is_multiple_of(2)).collect();
            if self.chance(10) {
                required.push(self.pick(&NAMES));
            }
            required.sort_unstable();
            required.dedup();
            if !required.is_empty() {
                map.insert("required".into(), json!(required));
            }
        }
        match self.below(6) {
            0 => _ = map.insert("additionalProperties".into(), json!(false)),
            1 => _ = map.insert("additionalProperties".into(), self.part(depth)),
            _ => {}
        }
        if self.chance(15) {
            let mut patterns = Map::new();
            for _ in 0..1 + self.below(2) {
                patterns.insert(self.pick(&PATTERNS).into(), self.part(depth));
            }
            map.insert("patternProperties".into(), patterns.into());
        }
        let min = self.below(4);
        if self.chance(12) {
            map.insert("minProperties".into(), json!(min));
        }
        if self.chance(12) {
            map.insert("maxProperties".into(), json!(min + self.below(3)));
        }
        self.dependent(map, depth);
    }

    fn dependent(&mut self, map: &mut Map<String, Value>, depth: usize) {
        let (name, other) = (self.pick(&NAMES), self.pick(&NAMES));
        let is_new = self.draft == Draft::New;
        if self.chance(8) {
            let key = if is_new { "dependentRequired" } else { "dependencies" };
            map.insert(key.into(), json!({name: [other]}));
        } else if self.chance(6) {
            let key = if is_new { "dependentSchemas" } else { "dependencies" };
            map.insert(key.into(), json!({name: self.object(depth.saturating_sub(1))}));
        }
        if self.draft != Draft::Four && self.chance(8) {
            let names = match self.below(3) {
                0 => json!({"enum": ["a", "b", "kind", "zz"]}),
                1 => json!({"maxLength": 1 + self.below(4)}),
                _ => json!({"pattern": self.pick(&PATTERNS)}),
            };
            map.insert("propertyNames".into(), names);
        }
        if is_new && self.chance(6) {
            let rest = self.part(depth);
            map.insert("unevaluatedProperties".into(), if self.chance(60) { json!(false) } else { rest });
        }
    }
}
