//! `plateau grammar`: the shipped grammars, and a check of one's own against a text, without a model.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::app::Failure;
use crate::grammar::catalogue::{self, SHIPPED};
use crate::grammar::gbnf::{self, Expr, Grammar, TokenName};
use crate::grammar::{Compiled, Engine, Matcher, Source, Vocabulary, thinking};
use crate::units::Token;

/// Characters that are named as what could come next.
const MAX_SHOWN: usize = 24;

#[derive(Debug, clap::Subcommand)]
pub enum GrammarCommand {
    /// List the grammars that come with the program
    List,
    /// Print a grammar that comes with the program
    Show {
        /// A name of `grammar list`
        name: String,
    },
    /// Check a grammar, and a text against it
    ///
    /// Exit code 2 when the grammar is wrong, with line and column, or when the text does not match, with the place. A file
    /// that ends in .json is a JSON schema, one that ends in .lark a Lark grammar, any other is GBNF.
    Check {
        /// The file, or a name of `grammar list`
        #[arg(value_name = "FILE|NAME")]
        grammar: PathBuf,
        /// Does the text of this file match?
        #[arg(long, value_name = "FILE")]
        text: Option<PathBuf>,
    },
}

/// What a command prints. A check that failed goes to standard error.
pub enum Report {
    Fine(String),
    Wrong(String),
}

pub fn run(command: &GrammarCommand) -> Result<Report, Failure> {
    match command {
        GrammarCommand::List => Ok(Report::Fine(list())),
        GrammarCommand::Show { name } => match catalogue::find(name) {
            Some(shipped) => Ok(Report::Fine(shipped.text.to_owned())),
            None => Err(Failure::Usage(format!("there is no grammar {name:?}; `plateau grammar list` names them"))),
        },
        GrammarCommand::Check { grammar, text } => check(grammar, text.as_deref()),
    }
}

fn list() -> String {
    let mut out = String::new();
    for shipped in SHIPPED {
        let longest = gbnf::parse(shipped.text).ok().and_then(|grammar| thinking::longest(&grammar));
        let _ = writeln!(out, "{:<12} {} {}", shipped.name, shipped.doc(), bound(longest));
    }
    out
}

fn bound(longest: Option<u64>) -> String {
    match longest {
        Some(n) => format!("At most {n} characters."),
        None => "Without a bound on its length.".to_owned(),
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    let bytes =
        std::fs::read(path).map_err(|e| Failure::Unavailable(format!("cannot read {}: {e}", path.display())))?;
    String::from_utf8(bytes).map_err(|_| Failure::Usage(format!("{} is not UTF-8 text", path.display())))
}

fn check(path: &Path, text: Option<&Path>) -> Result<Report, Failure> {
    let shipped = path.to_str().and_then(catalogue::find).filter(|_| !path.exists());
    let source = match shipped {
        Some(shipped) => shipped.text.to_owned(),
        None => read(path)?,
    };
    let wrong = |message: String| Ok(Report::Wrong(format!("{}: {message}\n", path.display())));
    let (source, about, names) = match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => match serde_json::from_str(&source) {
            Ok(schema) => (Source::JsonSchema(schema), "a JSON schema".to_owned(), Vec::new()),
            Err(error) => return wrong(error.to_string()),
        },
        Some("lark") => (Source::Lark(source), "a Lark grammar".to_owned(), Vec::new()),
        _ => match gbnf::parse(&source) {
            Ok(grammar) => {
                let about = format!("{} rules. {}", grammar.rules.len(), bound(thinking::longest(&grammar)));
                match token_names(&grammar) {
                    Some(names) => (Source::Gbnf(source), about, names),
                    None if text.is_none() => {
                        return Ok(Report::Fine(format!("ok: {about} Names tokens by number.\n")));
                    }
                    None => {
                        return Err(Failure::Usage(
                            "a text is not checked where tokens are named by number".to_owned(),
                        ));
                    }
                }
            }
            Err(error) => return wrong(error.to_string()),
        },
    };
    let engine = Engine::new(Vocabulary::bytes(&names)).map_err(|error| Failure::Internal(error.to_string()))?;
    let compiled = match engine.compile(&source) {
        Ok(compiled) => compiled,
        Err(error) => return wrong(error.to_string()),
    };
    let mut out = format!("ok: {about}\n");
    for relaxed in compiled.relaxed() {
        let _ = writeln!(out, "less strict at {}: {}; instead: {}", relaxed.pointer, relaxed.what, relaxed.to);
    }
    let Some(text_path) = text else { return Ok(Report::Fine(out)) };
    match mismatch(&compiled, &names, &read(text_path)?) {
        None => Ok(Report::Fine(out + "the text matches\n")),
        Some(mismatch) => Ok(Report::Wrong(format!("{}: {mismatch}\n", text_path.display()))),
    }
}

/// The tokens that are named, or nothing where one is named by its number, which only a model can tell.
fn token_names(grammar: &Grammar) -> Option<Vec<String>> {
    let (mut names, mut numbered) = (Vec::new(), false);
    for rule in &grammar.rules {
        rule.expr.walk(&mut |expr| {
            if let Expr::Token(token) = expr {
                match &token.name {
                    TokenName::Named(name) => names.push(name.clone()),
                    TokenName::Id(_) => numbered = true,
                }
            }
        });
    }
    names.sort_unstable();
    names.dedup();
    (!numbered).then_some(names)
}

/// Where and why the text is none of the grammar. A name of a token in the text is taken as that token where one may stand.
fn mismatch(compiled: &Compiled, names: &[String], text: &str) -> Option<String> {
    let mut matcher = compiled.matcher();
    let mut at = 0;
    while at < text.len() {
        let named = names.iter().position(|name| text[at..].starts_with(name.as_str()));
        if let Some(index) = named
            && matcher.accept(Token(256 + index as u32)).is_ok()
        {
            at += names[index].len();
            continue;
        }
        let next = text[at..].chars().next().map_or(1, char::len_utf8);
        let bytes = text[at..at + next].bytes();
        let accepted = bytes.take_while(|byte| matcher.accept(Token((*byte).into())).is_ok()).count();
        if accepted < next {
            let expected = match matcher.rollback(accepted) {
                Ok(()) => expected(&mut matcher, names),
                Err(error) => error.to_string(),
            };
            let found: String = text[at..].chars().take(1).flat_map(char::escape_debug).collect();
            return Some(format!("{}: `{found}` does not match; here could be {expected}", place(text, at)));
        }
        at += next;
    }
    if matcher.is_accepting() {
        return None;
    }
    let expected = expected(&mut matcher, names);
    Some(format!("{}: the text ends too early; next could be {expected}", place(text, at)))
}

fn place(text: &str, at: usize) -> String {
    let before = &text[..at];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("line {line}, column {column}")
}

/// What may come next, shortened.
fn expected(matcher: &mut Matcher, names: &[String]) -> String {
    let may_end = matcher.is_accepting();
    let Ok(mask) = matcher.mask() else { return "nothing".to_owned() };
    let is_set = |id: usize| mask.get(id / 32).is_some_and(|word| word >> (id % 32) & 1 == 1);
    let ascii = (0..128_usize).filter(|&id| is_set(id));
    let mut shown: Vec<String> = ascii.map(|id| format!("`{}`", (id as u8 as char).escape_debug())).collect();
    let more = shown.len() > MAX_SHOWN || (128..256).any(is_set);
    shown.truncate(MAX_SHOWN);
    shown.extend(names.iter().enumerate().filter(|(index, _)| is_set(256 + index)).map(|(_, name)| name.clone()));
    shown.extend(more.then(|| "others".to_owned()));
    shown.extend(may_end.then(|| "the end".to_owned()));
    shown.join(" ")
}
