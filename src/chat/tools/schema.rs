//! Which JSON types a parameter's schema admits: all that is needed to read a parameter's text.
//!
//! Deliberately absent: validation. A value that breaks the schema in any other way is passed on as
//! it is.

use serde_json::Value;

use super::tool::Tool;

/// Nodes of a schema that are looked at for one parameter; past it the parameter counts as untyped.
const NODE_BUDGET: u32 = 256;

/// A set of JSON types. `ANY` says that the schema does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds(u8);

impl Kinds {
    pub const STRING: Kinds = Kinds(1);
    pub const NUMBER: Kinds = Kinds(2);
    pub const INTEGER: Kinds = Kinds(4);
    pub const BOOLEAN: Kinds = Kinds(8);
    pub const NULL: Kinds = Kinds(16);
    pub const OBJECT: Kinds = Kinds(32);
    pub const ARRAY: Kinds = Kinds(64);
    pub const ANY: Kinds = Kinds(127);
    const NONE: Kinds = Kinds(0);

    pub fn has(self, other: Kinds) -> bool {
        self.0 & other.0 == other.0
    }

    fn with(self, other: Kinds) -> Kinds {
        Kinds(self.0 | other.0)
    }

    /// The types of the parameter `key` of `tool`; an undeclared one follows
    /// `additionalProperties`.
    pub fn of_parameter(tool: &Tool, key: &str) -> Kinds {
        let root = &tool.parameters;
        let schema = root.get("properties").and_then(|all| all.get(key)).or_else(|| root.get("additionalProperties"));
        schema.map_or(Kinds::ANY, |schema| Walk { root, budget: NODE_BUDGET }.kinds(schema))
    }

    fn of_value(value: &Value) -> Kinds {
        match value {
            Value::Null => Kinds::NULL,
            Value::Bool(_) => Kinds::BOOLEAN,
            Value::Number(_) => Kinds::NUMBER,
            Value::String(_) => Kinds::STRING,
            Value::Array(_) => Kinds::ARRAY,
            Value::Object(_) => Kinds::OBJECT,
        }
    }
}

struct Walk<'a> {
    root: &'a Value,
    budget: u32,
}

impl<'a> Walk<'a> {
    fn kinds(&mut self, schema: &'a Value) -> Kinds {
        if self.budget == 0 {
            return Kinds::ANY;
        }
        self.budget -= 1;
        let nullable = schema.get("nullable") == Some(&Value::Bool(true));
        self.stated(schema).with(if nullable { Kinds::NULL } else { Kinds::NONE })
    }

    /// The first keyword that tells decides.
    fn stated(&mut self, schema: &'a Value) -> Kinds {
        let get = |key: &str| schema.get(key);
        if let Some(kinds) = get("type") {
            return named(kinds);
        }
        if let Some(values) = get("enum").and_then(Value::as_array) {
            return values.iter().map(Kinds::of_value).fold(Kinds::NONE, Kinds::with);
        }
        if let Some(value) = get("const") {
            return Kinds::of_value(value);
        }
        if let Some(reference) = get("$ref").and_then(Value::as_str) {
            let root = self.root;
            let target = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
            return target.map_or(Kinds::ANY, |target| self.kinds(target));
        }
        if let Some(branches) = get("anyOf").or_else(|| get("oneOf")).and_then(Value::as_array) {
            return branches.iter().map(|branch| self.kinds(branch)).fold(Kinds::NONE, Kinds::with);
        }
        if let Some(parts) = get("allOf").and_then(Value::as_array) {
            return parts.iter().map(|part| self.kinds(part)).find(|kinds| *kinds != Kinds::ANY).unwrap_or(Kinds::ANY);
        }
        match (get("properties"), get("items")) {
            (Some(_), _) => Kinds::OBJECT,
            (None, Some(_)) => Kinds::ARRAY,
            (None, None) => Kinds::ANY,
        }
    }
}

/// The value of `type`: a name or a list of names.
fn named(kinds: &Value) -> Kinds {
    let one = |name: &Value| match name.as_str() {
        Some("string") => Kinds::STRING,
        Some("number") => Kinds::NUMBER,
        Some("integer") => Kinds::INTEGER,
        Some("boolean") => Kinds::BOOLEAN,
        Some("null") => Kinds::NULL,
        Some("object") => Kinds::OBJECT,
        Some("array") => Kinds::ARRAY,
        _ => Kinds::ANY,
    };
    match kinds {
        Value::Array(names) => names.iter().map(one).fold(Kinds::NONE, Kinds::with),
        name => one(name),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kinds(schema: Value) -> Kinds {
        let parameters = json!({"properties": {"key": schema}, "$defs": {
            "text": {"type": "string"}, "loop": {"anyOf": [{"$ref": "#/$defs/loop"}, {"$ref": "#/$defs/loop"}]}}});
        let tool = Tool { name: "f".into(), description: None, parameters, strict: None, raw: Value::Null };
        Kinds::of_parameter(&tool, "key")
    }

    #[test]
    fn the_first_keyword_that_tells_decides() {
        let text_or_null = Kinds::STRING.with(Kinds::NULL);
        for (schema, expected) in [
            (json!({"type": "integer", "enum": ["a"]}), Kinds::INTEGER),
            (json!({"type": ["string", "null"]}), text_or_null),
            (json!({"type": "string", "nullable": true}), text_or_null),
            (json!({"anyOf": [{"type": "string"}, {"const": null}]}), text_or_null),
            (json!({"oneOf": [{"enum": ["a"]}, {"type": "null"}]}), text_or_null),
            (json!({"allOf": [{"title": "t"}, {"$ref": "#/$defs/text"}]}), Kinds::STRING),
            (json!({"enum": [1, 2.5]}), Kinds::NUMBER),
            (json!({"properties": {}}), Kinds::OBJECT),
            (json!({"items": {}}), Kinds::ARRAY),
            (json!({"anyOf": [{"type": "string"}, {}]}), Kinds::ANY),
            (json!({"$ref": "#/$defs/missing"}), Kinds::ANY),
            (json!({"$ref": "elsewhere.json"}), Kinds::ANY),
            (json!({"type": "text"}), Kinds::ANY),
            (json!(true), Kinds::ANY),
        ] {
            assert_eq!(kinds(schema.clone()), expected, "{schema}");
        }
    }

    #[test]
    fn a_schema_that_refers_to_itself_ends() {
        assert_eq!(kinds(json!({"$ref": "#/$defs/loop"})), Kinds::ANY);
    }

    #[test]
    fn undeclared_parameters_follow_additional_properties() {
        let tool =
            |parameters| Tool { name: "f".into(), description: None, parameters, strict: None, raw: Value::Null };
        let typed = tool(json!({"additionalProperties": {"type": "boolean"}}));
        assert_eq!(Kinds::of_parameter(&typed, "x"), Kinds::BOOLEAN);
        assert_eq!(Kinds::of_parameter(&tool(json!({"additionalProperties": false})), "x"), Kinds::ANY);
        assert_eq!(Kinds::of_parameter(&tool(json!({})), "x"), Kinds::ANY);
    }
}
