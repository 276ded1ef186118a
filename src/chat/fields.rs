//! Request fields under the names that clients send, typed and not yet checked. What every
//! OpenAI-like body is made of; the checks (`conversation`, `options`, `thinking`, `constraint`)
//! take them.
//!
//! Absent and null are the same. Deliberately absent: defaults and ranges, and what only HTTP needs
//! (`api::wire`).

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::number::Int;

/// A group of optional fields that is read name by name out of one JSON object, so that several
/// groups share a body and every error keeps the path of its field.
pub trait Fields: Default {
    /// As they are written in a request.
    fn names() -> Vec<&'static str>;

    /// Takes the value behind `name` out of `map`; `false`: it is no name of this group, and
    /// nothing was taken.
    ///
    /// # Errors
    /// The value has another type.
    fn read<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error>;
}

/// An object of known members; others that are not null are named.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Members<T> {
    pub known: T,
    pub unknown: Vec<String>,
}

impl<'de, T: Fields> Deserialize<'de> for Members<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members<T>, D::Error> {
        struct Reader<T>(std::marker::PhantomData<T>);
        impl<'de, T: Fields> Visitor<'de> for Reader<T> {
            type Value = Members<T>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<T>, A::Error> {
                let mut members = Members { known: T::default(), unknown: Vec::new() };
                while let Some(name) = map.next_key::<String>()? {
                    if !members.known.read(&name, &mut map)? && !map.next_value::<Value>()?.is_null() {
                        members.unknown.push(name);
                    }
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(Reader(std::marker::PhantomData))
    }
}

/// Reads a body that holds fields of `T` alone.
///
/// # Errors
/// A field of another type, or one that is not of `T`.
pub fn read_body<'de, T: Fields, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    let Members { known, unknown } = Members::<T>::deserialize(deserializer)?;
    match unknown.first() {
        None => Ok(known),
        Some(name) => Err(serde::de::Error::custom(format!("unknown field `{name}`"))),
    }
}

/// The name of a field in a request: the member's own, or what `as` says.
macro_rules! wire_name {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $name:literal) => {
        $name
    };
}

/// Declares a group: every member is an `Option` of the given type.
macro_rules! fields {
    (
        $(#[$meta:meta])*
        pub struct $group:ident { $($(#[$doc:meta])* $field:ident $(as $name:literal)?: $type:ty,)* }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $group { $($(#[$doc])* pub $field: Option<$type>,)* }

        impl $crate::chat::fields::Fields for $group {
            fn names() -> Vec<&'static str> {
                vec![$($crate::chat::fields::wire_name!($field $($name)?)),*]
            }

            fn read<'de, A: serde::de::MapAccess<'de>>(
                &mut self,
                name: &str,
                map: &mut A,
            ) -> Result<bool, A::Error> {
                match name {
                    $(name if name == $crate::chat::fields::wire_name!($field $($name)?) => {
                        self.$field = map.next_value()?;
                    })*
                    _ => return Ok(false),
                }
                Ok(true)
            }
        }
    };
}

/// Declares a body: a group of groups, and nothing else in it.
macro_rules! groups {
    (
        $(#[$meta:meta])*
        pub struct $body:ident { $($(#[$doc:meta])* $group:ident: $type:ty,)* }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $body { $($(#[$doc])* pub $group: $type,)* }

        impl $crate::chat::fields::Fields for $body {
            fn names() -> Vec<&'static str> {
                [$(<$type as $crate::chat::fields::Fields>::names()),*].concat()
            }

            fn read<'de, A: serde::de::MapAccess<'de>>(
                &mut self,
                name: &str,
                map: &mut A,
            ) -> Result<bool, A::Error> {
                Ok($($crate::chat::fields::Fields::read(&mut self.$group, name, map)?)||*)
            }
        }

        impl<'de> serde::Deserialize<'de> for $body {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$body, D::Error> {
                $crate::chat::fields::read_body(deserializer)
            }
        }
    };
}

pub(crate) use {fields, groups, wire_name};

/// A value with the name of the request field that carried it, where several fields say the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FieldValue<T> {
    pub param: &'static str,
    pub value: T,
}

/// The first of several names for one thing that has a value.
pub fn first<T, const N: usize>(spellings: [(&'static str, Option<T>); N]) -> Option<FieldValue<T>> {
    spellings.into_iter().find_map(|(param, value)| value.map(|value| FieldValue { param, value }))
}

fields! {
    /// How messages are rendered.
    pub struct TemplateFields {
        add_generation_prompt: bool,
        continue_final_message: bool,
        chat_template_kwargs: Map<String, Value>,
    }
}

fields! {
    /// What the model may call.
    pub struct ToolFields {
        tools: Value,
        tool_choice: Value,
        parallel_tool_calls: Value,
    }
}

fields! {
    /// Every spelling of "think" and "do not think", and of bounds on it.
    pub struct ThinkingFields {
        enable_thinking: bool,
        /// `{"type": "enabled" | "adaptive" | "auto" | "disabled"}` or a boolean.
        thinking: Value,
        /// "none" is off; "minimal", "low", "medium", "high", "xhigh" and "max" are on.
        reasoning_effort: String,
        /// `{"enabled": bool, "effort": string, "max_tokens": integer}`.
        reasoning: Map<String, Value>,
        /// Most tokens of the thinking; -1: no bound. So are the next three.
        thinking_budget: Int,
        thinking_budget_tokens: Int,
        reasoning_budget: Int,
        reasoning_budget_tokens: Int,
        /// What is written at the end of thinking that is closed at its bound.
        reasoning_budget_message: String,
    }
}

fields! {
    /// How long, how often, until where.
    pub struct GenerationFields {
        n: Int,
        max_tokens: Int,
        max_completion_tokens: Int,
        n_predict: Int,
        /// A string or a list of strings.
        stop: Value,
        ignore_eos: bool,
        n_probs: Int,
        cache_prompt: bool,
        cache: CacheMembers,
        speculative: Members<SpeculativeFields>,
        /// llama-server's spellings; the members of `speculative` win over them.
        speculative_n_max as "speculative.n_max": Int,
        speculative_n_min as "speculative.n_min": Int,
        speculative_p_min as "speculative.p_min": f64,
    }
}

impl GenerationFields {
    /// Members of its objects that say nothing here, by path.
    pub fn unknown_members(&self) -> impl Iterator<Item = String> + '_ {
        self.speculative.iter().flat_map(|object| &object.unknown).map(|name| format!("speculative.{name}"))
    }
}

/// What of the prefix cache a request uses; absent: as `cache_prompt` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CacheMembers {
    pub read: Option<bool>,
    pub write: Option<bool>,
}

fields! {
    /// Drafting: how fast the answer comes, never which one.
    pub struct SpeculativeFields {
        n_max: Int,
        n_min: Int,
        p_min: f64,
        lookup: bool,
        adaptive: bool,
    }
}

fields! {
    /// The sampling chain's parameters.
    pub struct SamplingFields {
        temperature: f64,
        top_k: Int,
        top_p: f64,
        min_p: f64,
        typical_p: f64,
        xtc_probability: f64,
        xtc_threshold: f64,
        dry_multiplier: f64,
        dry_base: f64,
        dry_allowed_length: Int,
        dry_penalty_last_n: Int,
        dry_sequence_breakers: Vec<String>,
        repeat_penalty: f64,
        /// Another name; `repeat_penalty` wins.
        repetition_penalty: f64,
        repeat_last_n: Int,
        presence_penalty: f64,
        frequency_penalty: f64,
        /// `{"id": bias}` or `[[id or text, bias or false], ...]`.
        logit_bias: Value,
        seed: Int,
    }
}

fields! {
    /// Every spelling of "the answer must look like this".
    pub struct ConstraintFields {
        /// `{"type": "text" | "json_object" | "json_schema" | "grammar" | "regex", ...}`.
        response_format: Value,
        /// A schema.
        json_schema: Value,
        /// GBNF or Lark.
        grammar: String,
        ebnf: String,
        regex: String,
        guided_json: Value,
        guided_regex: String,
        guided_choice: Vec<String>,
        guided_grammar: String,
        /// One of `json`, `json_object`, `regex`, `choice`, `grammar`.
        structured_outputs: Map<String, Value>,
        /// "answer" or "whole".
        constraint_scope: String,
    }
}
