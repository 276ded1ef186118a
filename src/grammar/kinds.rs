//! Which JSON types a parameter's schema admits: all that is needed to read a parameter's text, and to know how it will be
//! read.
//!
//! Deliberately absent: validation. A value that breaks the schema in any other way is passed on as
//! it is.

use serde_json::Value;

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

    /// The types of the parameter `key` of a tool with this schema; an undeclared one follows `additionalProperties`.
    pub fn of_parameter(parameters: &Value, key: &str) -> Kinds {
        let mut walk = Walk { root: parameters, budget: NODE_BUDGET };
        if let Some(kinds) = walk.declared(parameters, key) {
            return kinds;
        }
        let others = parameters.get("additionalProperties");
        others.map_or(Kinds::ANY, |schema| Walk { root: parameters, budget: NODE_BUDGET }.kinds(schema))
    }

    /// The types of both; any where they have none in common.
    fn and(self, other: Kinds) -> Kinds {
        let whole = |kinds: Kinds| if kinds.has(Kinds::NUMBER) { kinds.with(Kinds::INTEGER) } else { kinds };
        let both = Kinds(whole(self).0 & whole(other).0);
        if both == Kinds::NONE { Kinds::ANY } else { both }
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
    /// What the schemas for the whole say of one of its properties; nothing where none declares it.
    fn declared(&mut self, schema: &'a Value, key: &str) -> Option<Kinds> {
        if self.budget == 0 {
            return Some(Kinds::ANY);
        }
        self.budget -= 1;
        let part = |name: &str| schema.get(name);
        let own = part("properties").and_then(|all| all.get(key)).map(|schema| self.kinds(schema));
        let list = |name: &str| schema.get(name).and_then(Value::as_array).into_iter().flatten();
        let target = part("$ref").and_then(Value::as_str).and_then(|reference| self.target(reference));
        let dependent = ["dependentSchemas", "dependencies"].into_iter().filter_map(part).filter_map(Value::as_object);
        let joined = target
            .into_iter()
            .chain(list("allOf"))
            .chain(["then", "else"].into_iter().filter_map(part))
            .chain(dependent.flat_map(|map| map.values()));
        let mut all = own;
        for schema in joined {
            let inside = self.declared(schema, key);
            all = all.map_or(inside, |all| Some(inside.map_or(all, |inside| all.and(inside))));
        }
        for name in ["anyOf", "oneOf"] {
            let options: Vec<Kinds> = list(name).filter_map(|schema| self.declared(schema, key)).collect();
            let any = options.into_iter().reduce(Kinds::with);
            all = all.map_or(any, |all| Some(any.map_or(all, |any| all.and(any))));
        }
        all
    }

    fn target(&self, reference: &str) -> Option<&'a Value> {
        reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer))
    }

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
            return self.target(reference).map_or(Kinds::ANY, |target| self.kinds(target));
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
        Kinds::of_parameter(&parameters, "key")
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
        let typed = json!({"additionalProperties": {"type": "boolean"}});
        assert_eq!(Kinds::of_parameter(&typed, "x"), Kinds::BOOLEAN);
        assert_eq!(Kinds::of_parameter(&json!({"additionalProperties": false}), "x"), Kinds::ANY);
        assert_eq!(Kinds::of_parameter(&json!({}), "x"), Kinds::ANY);
    }

    #[test]
    fn schemas_for_the_whole_declare_parameters_too() {
        let declared = |schema: Value| Kinds::of_parameter(&schema, "key");
        let text = json!({"properties": {"key": {"type": "string"}}});
        let whole = json!({"properties": {"key": {"type": "integer"}}});
        for (schema, expected) in [
            (json!({"$ref": "#/$defs/p", "$defs": {"p": text}}), Kinds::STRING),
            (json!({"allOf": [{"properties": {"key": {"minLength": 1}}}, text]}), Kinds::STRING),
            (json!({"oneOf": [text, whole, {"properties": {"other": {}}}]}), Kinds::STRING.with(Kinds::INTEGER)),
            (json!({"properties": {"key": {"type": "number"}}, "anyOf": [whole]}), Kinds::INTEGER),
            (json!({"if": {}, "then": whole}), Kinds::INTEGER),
            (json!({"$ref": "#"}), Kinds::ANY),
        ] {
            assert_eq!(declared(schema.clone()), expected, "{schema}");
        }
    }
}
