//! The shapes of the shipped thinking grammars, told by hand: an enforced grammar is not judged by the code that enforces it.

/// Characters of a line after its label.
const MAX_LINE: usize = 240;
/// Words of a tag, and characters of a word.
const MAX_WORDS: usize = 5;
const MAX_WORD: usize = 19;

const TASKS: [&str; 9] = ["solve", "prove", "route", "debug", "patch", "code", "calc", "compare", "explain"];
const METHODS: [&str; 8] = ["case", "enum", "check", "derive", "edit", "test", "trace", "rank"];
const VERDICTS: [&str; 6] = ["ok", "fail", "done", "blocked", "candidate", "verify"];

/// A shipped grammar.
#[derive(Debug, PartialEq, Eq)]
pub struct Shape {
    pub name: &'static str,
    /// GBNF, whose root is the whole thinking.
    grammar: &'static str,
    form: Form,
}

#[derive(Debug, PartialEq, Eq)]
enum Form {
    /// Labels, and how many lines in a row may have one of them. No label is in two neighbours.
    Lines(&'static [(&'static [&'static str], usize, usize)]),
    Tags,
}

pub const SHAPES: &[Shape] = &[
    Shape {
        name: "scratchpad",
        grammar: include_str!("../../../grammars/scratchpad.gbnf"),
        form: Form::Lines(&[(&["PLAN"], 1, 1), (&["NOTE"], 0, 15), (&["VERDICT"], 1, 1)]),
    },
    Shape {
        name: "goal",
        grammar: include_str!("../../../grammars/goal.gbnf"),
        form: Form::Lines(&[(&["GOAL"], 1, 1), (&["APPROACH"], 1, 1), (&["EDGE"], 1, 1)]),
    },
    Shape {
        name: "goal-code",
        grammar: include_str!("../../../grammars/goal-code.gbnf"),
        form: Form::Lines(&[
            (&["GOAL"], 1, 1),
            (&["STATE"], 1, 1),
            (&["ALGO"], 1, 1),
            (&["EDGE"], 1, 1),
            (&["VERIFY"], 1, 1),
        ]),
    },
    Shape { name: "tagline", grammar: include_str!("../../../grammars/tagline.gbnf"), form: Form::Tags },
    Shape {
        name: "check",
        grammar: include_str!("../../../grammars/check.gbnf"),
        form: Form::Lines(&[
            (&["PLAN"], 1, 1),
            (&["STATE"], 0, 3),
            (&["NOTE", "CASE"], 0, 12),
            (&["CHECK"], 1, 1),
            (&["VERDICT"], 1, 1),
        ]),
    },
];

impl Shape {
    /// Does the thinking have the shape? Blanks and line ends around it are not looked at: servers cut them.
    pub fn fits(&self, thinking: &str) -> bool {
        let text = thinking.trim_matches([' ', '\t', '\r', '\n']);
        match self.form {
            Form::Lines(groups) => fits_lines(groups, text),
            Form::Tags => fits_tags(text),
        }
    }

    /// The grammar for servers that have one for the whole output: thinking, its end, and any text.
    pub fn whole_output(&self) -> String {
        let thinking = self.grammar.lines().map(|line| match line.strip_prefix("root") {
            Some(rest) => format!("thinking{rest}\n"),
            None => format!("{line}\n"),
        });
        let thinking: String = thinking.collect();
        format!(
            "root ::= thinking \"</think>\\n\\n\" answer\nanswer ::= [^\\x00-\\x08\\x0B\\x0C\\x0E-\\x1F\\x7F]+\n{thinking}"
        )
    }
}

fn fits_lines(groups: &[(&[&str], usize, usize)], text: &str) -> bool {
    let mut lines = text.split('\n').peekable();
    for (labels, least, most) in groups {
        let mut count = 0;
        while count < *most && lines.next_if(|line| labels.iter().any(|label| is_line(label, line))).is_some() {
            count += 1;
        }
        if count < *least {
            return false;
        }
    }
    lines.next().is_none()
}

fn is_line(label: &str, line: &str) -> bool {
    let Some(rest) = line.strip_prefix(label).and_then(|rest| rest.strip_prefix(": ")) else { return false };
    let is_printed = |c: char| c == '\t' || !(c < ' ' || c == '\u{7F}');
    !rest.is_empty()
        && !rest.starts_with([' ', '\t'])
        && rest.chars().all(is_printed)
        && rest.chars().count() <= MAX_LINE
}

fn fits_tags(text: &str) -> bool {
    let parts: Vec<&str> = text.split(' ').collect();
    let [task, method, keys, results, verdict] = parts[..] else { return false };
    let one_of =
        |part: &str, tag: &str, known: &[&str]| part.strip_prefix(tag).is_some_and(|word| known.contains(&word));
    one_of(task, "Q=", &TASKS)
        && one_of(method, "M=", &METHODS)
        && one_of(verdict, "V=", &VERDICTS)
        && keys.strip_prefix("K=").is_some_and(are_words)
        && results.strip_prefix("R=").is_some_and(are_words)
}

fn are_words(list: &str) -> bool {
    let is_word = |word: &str| {
        let inside = |c: char| c.is_ascii_alphanumeric() || "_.!-".contains(c);
        word.starts_with(|c: char| c.is_ascii_alphabetic()) && word.len() <= MAX_WORD && word.chars().all(inside)
    };
    list.split(',').count() <= MAX_WORDS && list.split(',').all(is_word)
}
