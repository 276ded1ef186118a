//! A call in Qwen's XML: the parameters in tags of their own.

use std::collections::HashMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::shape::CallShape;
use super::value::Values;
use super::writer::{Writer, quoted, regex, repaired};
use crate::grammar::kinds::Kinds;
use crate::grammar::schema::{Arguments, Form, Others, StateId, has_text};

/// Up to so many parameters of a tool may come in any order; the grammar has a rule for each set of them that is given. More
/// come in the order in which they are declared.
const MAX_FREE_ORDER: usize = 4;
/// Bytes of a name that readers of calls take.
const MAX_NAME_BYTES: usize = 128;
/// What names that are not declared look like; and what they may look like where a schema asks for others.
const NAMES: [&str; 2] = ["[A-Za-z_][A-Za-z0-9_.\\-]{0,63}", "[^<>\\n\\x00-\\x1F]{1,60}"];
/// A name that is no one's.
const UNDECLARED: &str = "\u{0}";

pub(super) fn call(writer: &mut Writer, i: usize, shape: &CallShape, free: bool) {
    let open = json!({"type": "object"});
    let read = repaired(writer, &shape.schema, &shape.path, Arguments::read);
    let (schema, arguments) = match read {
        Some(arguments) => (&shape.schema, Some(arguments)),
        None => (&open, Arguments::read(&open).ok()),
    };
    // `open` is no schema that could fail.
    let Some(mut arguments) = arguments else { return };
    let forms = arguments.forms();
    let values = Values::new(arguments, &shape.path, free);
    let mut tool = Tool { writer, values, i, schema, path: &shape.path, rules: HashMap::new(), parameters: 0 };
    let bodies: Vec<String> = forms.iter().enumerate().filter_map(|(f, form)| tool.form(f, form)).collect();
    let head = quoted(&format!("<function={}>\n", shape.name));
    if bodies.is_empty() {
        writer.note(&shape.path, String::new(), "no arguments can be written as XML".to_owned(), "a call without any");
        let _ = writeln!(writer.out, "call_{i}: {head} \"</function>\"");
        return;
    }
    let _ = writeln!(writer.out, "call_{i}: {head} ({})", bodies.join(" | "));
}

struct Tool<'a> {
    writer: &'a mut Writer,
    values: Values<'a>,
    i: usize,
    schema: &'a Value,
    path: &'a str,
    /// Rules of parameters, which forms share.
    rules: HashMap<(String, StateId), String>,
    parameters: usize,
}

impl Tool<'_> {
    /// Writes the rules of one form; its body. Nothing where it cannot be written.
    fn form(&mut self, f: usize, form: &Form) -> Option<String> {
        let mut parts: Vec<(String, bool)> = Vec::new();
        for given in &form.given {
            if !self.can_be_said(&given.name) {
                if given.required {
                    return None;
                }
                continue;
            }
            let rule = self.parameter(&given.name, given.value);
            parts.push((rule, given.required));
        }
        self.writer.tell(self.path, form.notes.clone());
        let others = self.others(f, form, parts.is_empty())?;
        let i = self.i;
        if parts.len() > MAX_FREE_ORDER {
            let parts: Vec<String> =
                parts.iter().map(|(rule, required)| format!("{rule}{}", if *required { "" } else { "?" })).collect();
            return Some(format!("{}{others} \"</function>\"", parts.join(" ")));
        }
        self.any_order(f, &parts, &others);
        Some(format!("s_{i}_{f}_0"))
    }

    /// A rule for every set of parameters that are given already.
    fn any_order(&mut self, f: usize, parts: &[(String, bool)], others: &str) {
        let i = self.i;
        for set in 0..1_usize << parts.len() {
            let given = |k: usize| set >> k & 1 == 1;
            let mut options: Vec<String> = (0..parts.len())
                .filter(|k| !given(*k))
                .map(|k| format!("{} s_{i}_{f}_{}", parts[k].0, set | 1 << k))
                .collect();
            if parts.iter().enumerate().all(|(k, (_, required))| given(k) || !required) {
                options.push(format!("{others} \"</function>\"").trim_start().to_owned());
            }
            let _ = writeln!(self.writer.out, "s_{i}_{f}_{set}: {}", options.join(" | "));
        }
    }

    /// A name that cannot stand in a tag cannot be given.
    fn can_be_said(&mut self, name: &str) -> bool {
        let fits = !name.is_empty() && name.len() <= MAX_NAME_BYTES && !name.contains(['>', '<', '\n']);
        if !fits {
            let what = format!("the name {name:?} cannot be written in a call");
            self.writer.note(self.path, format!("/properties/{name}"), what, "calls without it");
        }
        fits
    }

    fn parameter(&mut self, name: &str, state: StateId) -> String {
        let key = (name.to_owned(), state);
        if let Some(rule) = self.rules.get(&key) {
            return rule.clone();
        }
        let rule = self.next_rule();
        let kinds = Kinds::of_parameter(self.schema, name);
        let value = self.values.write(self.writer, &rule, state, kinds);
        let opening = quoted(&format!("<parameter={name}>\n"));
        let _ = writeln!(self.writer.out, "{rule}: {opening} {value}");
        self.rules.insert(key, rule.clone());
        rule
    }

    fn next_rule(&mut self) -> String {
        self.parameters += 1;
        format!("p_{}_{}", self.i, self.parameters)
    }

    /// Parameters that are not declared: where none are, or where the schema asks for so many. Nothing where they are needed
    /// and cannot be written.
    fn others(&mut self, f: usize, form: &Form, none_declared: bool) -> Option<String> {
        let wanted = form.others_min > 0 || (none_declared && form.others_max != Some(0));
        let classes: Vec<&Others> = form.others.iter().filter(|_| wanted).collect();
        let rules: Vec<String> = classes.into_iter().filter_map(|others| self.class(others)).collect();
        if rules.is_empty() {
            return (form.others_min == 0).then(String::new);
        }
        let all = format!("other_{}_{f}", self.i);
        let _ = writeln!(self.writer.out, "{all}: {}", rules.join(" | "));
        Some(match (form.others_min, form.others_max) {
            (0, None) => format!(" {all}*"),
            (1, None) => format!(" {all}+"),
            (min, max) => format!(" {all}{{{min},{}}}", max.map_or(String::new(), |max| max.to_string())),
        })
    }

    fn class(&mut self, others: &Others) -> Option<String> {
        let fits = |names: &&'static str| {
            let all = others.matching.iter().map(String::as_str).chain([*names]);
            has_text(all, others.but.iter().map(String::as_str))
        };
        let names = NAMES.into_iter().find(fits)?;
        let rule = self.next_rule();
        let matching = others.matching.iter().map(|expression| regex(expression));
        let but = others.but.iter().map(|expression| format!("~{}", regex(expression)));
        let name: Vec<String> = [regex(names)].into_iter().chain(matching).chain(but).collect();
        let kinds = Kinds::of_parameter(self.schema, UNDECLARED);
        let value = self.values.write(self.writer, &rule, others.value, kinds);
        let terminal = format!("NAME_{}", rule.to_uppercase());
        let _ = writeln!(self.writer.out, "{terminal}: {}", name.join(" & "));
        let _ = writeln!(self.writer.out, "{rule}: \"<parameter=\" {terminal} \">\\n\" {value}");
        Some(rule)
    }
}
