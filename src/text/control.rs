//! Finds the texts of control tokens, and marks client text so that they are not found in it.
//!
//! A rendered prompt is one string in which the template's `<|im_start|>` must become a token and the client's must not.
//! `guard` writes `GUARD` into client text before it is rendered; `split` does not recognise a control text with a `GUARD`
//! in it. What holds: however client strings are put between pieces of a template, no control token is recognised whose
//! text covers a character of a client string. That includes texts that begin or end outside the client string. What
//! cannot hold: a template that deletes from the inside of a client string or cuts it (`replace`, a slice, `split` and
//! join) may move two halves together that `guard` saw apart.

use aho_corasick::{AhoCorasick, MatchKind};

use crate::units::Token;

/// Marks a spot where a special token's text must be read as plain text. `guard` puts it into client text, `encode` takes
/// it out again. A noncharacter of Unicode, removed from client text first, so that nobody can forge it.
pub const GUARD: char = '\u{FDD0}';

/// Longer texts are not looked for: nothing real comes near, and a hostile file would make the tables explode.
const MAX_TEXT_BYTES: usize = 256;

/// A part of a rendered prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    Text(&'a str),
    Control(Token),
}

/// The control tokens of a vocabulary by text.
pub struct ControlTexts {
    texts: Vec<String>,
    ids: Vec<Token>,
    /// Leftmost-longest, for splitting. `None`: no control tokens.
    splitter: Option<AhoCorasick>,
    /// Every occurrence, overlapping ones too, for guarding.
    finder: Option<AhoCorasick>,
    /// Indices into `texts`, sorted by text.
    sorted: Vec<u32>,
    /// Every proper suffix of every text as (index into `texts`, byte offset), sorted by text.
    suffixes: Vec<(u32, u16)>,
    longest: usize,
}

/// The tables of control tokens could not be built.
#[derive(Debug, thiserror::Error)]
#[error("cannot index the control tokens: {0}")]
pub struct ControlError(#[from] aho_corasick::BuildError);

impl ControlTexts {
    /// Empty texts and texts that hold `GUARD` are left out: they can be in no prompt.
    pub fn new(tokens: impl IntoIterator<Item = (String, Token)>) -> Result<ControlTexts, ControlError> {
        let (texts, ids): (Vec<String>, Vec<Token>) = tokens
            .into_iter()
            .filter(|(text, _)| !text.is_empty() && text.len() <= MAX_TEXT_BYTES && !text.contains(GUARD))
            .unzip();
        let build = |kind| AhoCorasick::builder().match_kind(kind).build(&texts);
        let (splitter, finder) = match texts.is_empty() {
            true => (None, None),
            false => (Some(build(MatchKind::LeftmostLongest)?), Some(build(MatchKind::Standard)?)),
        };
        let mut sorted: Vec<u32> = (0..texts.len() as u32).collect();
        sorted.sort_unstable_by(|&a, &b| texts[a as usize].cmp(&texts[b as usize]));
        let mut suffixes: Vec<(u32, u16)> = Vec::new();
        for (index, text) in texts.iter().enumerate() {
            suffixes.extend(text.char_indices().skip(1).map(|(at, _)| (index as u32, at as u16)));
        }
        suffixes.sort_unstable_by(|&a, &b| suffix(&texts, a).cmp(suffix(&texts, b)));
        suffixes.dedup_by(|a, b| suffix(&texts, *a) == suffix(&texts, *b));
        let longest = texts.iter().map(String::len).max().unwrap_or(0);
        Ok(ControlTexts { texts, ids, splitter, finder, sorted, suffixes, longest })
    }

    /// Cuts a rendered prompt at its unguarded control texts: leftmost, longest at one place. `GUARD`s stay in the text.
    pub fn split<'a>(&self, text: &'a str, mut part: impl FnMut(Part<'a>)) {
        let mut done = 0;
        for found in self.splitter.iter().flat_map(|splitter| splitter.find_iter(text)) {
            if is_guarded_character(&text[found.range()], &text[found.end()..]) {
                continue;
            }
            if found.start() > done {
                part(Part::Text(&text[done..found.start()]));
            }
            part(Part::Control(self.ids[found.pattern().as_usize()]));
            done = found.end();
        }
        if done < text.len() {
            part(Part::Text(&text[done..]));
        }
    }

    /// Client text with its own `GUARD`s removed and ours put in: after the first character of every control text (twice
    /// where the text is that character alone) and of a control text's beginning at the end, and in front of everything
    /// where the client text could go on with a control text that the template began.
    pub fn guard(&self, text: &str) -> String {
        let clean: String = if text.contains(GUARD) { text.replace(GUARD, "") } else { text.to_owned() };
        if self.texts.is_empty() || clean.is_empty() {
            return clean;
        }
        // (where a control text starts, how many GUARDs follow its first character)
        let mut starts: Vec<(usize, usize)> = Vec::new();
        for found in self.finder.iter().flat_map(|finder| finder.find_overlapping_iter(clean.as_str())) {
            let one_character = clean[found.range()].chars().nth(1).is_none();
            starts.push((found.start(), if one_character { 2 } else { 1 }));
        }
        starts.extend(self.unfinished(&clean).map(|start| (start, 1)));
        let leading = self.continues(&clean);
        if starts.is_empty() && !leading {
            return clean;
        }
        starts.sort_unstable();
        write_guards(&clean, leading, &starts)
    }

    /// Where text that could become a control text begins at the end of `text`.
    fn unfinished<'a>(&'a self, text: &'a str) -> impl Iterator<Item = usize> + 'a {
        let from = text.len().saturating_sub(self.longest);
        let starts = (from..text.len()).filter(|&at| text.is_char_boundary(at));
        starts.filter(move |&at| self.begins_a_text(&text[at..]))
    }

    fn begins_a_text(&self, head: &str) -> bool {
        let at = self.sorted.partition_point(|&index| self.texts[index as usize].as_str() < head);
        self.sorted.get(at).is_some_and(|&index| self.texts[index as usize].starts_with(head))
    }

    /// Could `text` be the middle or the end of a control text whose beginning stands before it?
    fn continues(&self, text: &str) -> bool {
        let at = self.suffixes.partition_point(|&entry| suffix(&self.texts, entry) < text);
        if self.suffixes.get(at).is_some_and(|&entry| suffix(&self.texts, entry).starts_with(text)) {
            return true;
        }
        let heads =
            (1..=self.longest.min(text.len())).filter(|&end| text.is_char_boundary(end)).map(|end| &text[..end]);
        heads
            .into_iter()
            .any(|head| self.suffixes.binary_search_by(|&entry| suffix(&self.texts, entry).cmp(head)).is_ok())
    }
}

fn suffix(texts: &[String], (index, at): (u32, u16)) -> &str {
    &texts[index as usize][at as usize..]
}

/// A control text of one character has no inside: two `GUARD`s behind it guard it. One may belong to what follows.
fn is_guarded_character(text: &str, behind: &str) -> bool {
    let mut behind = behind.chars();
    text.chars().nth(1).is_none() && behind.next() == Some(GUARD) && behind.next() == Some(GUARD)
}

fn write_guards(text: &str, leading: bool, starts: &[(usize, usize)]) -> String {
    let mut out = String::with_capacity(text.len() + (starts.len() + 1) * GUARD.len_utf8());
    if leading {
        out.push(GUARD);
    }
    let mut done = 0;
    let mut starts = starts.iter().copied().peekable();
    while let Some((start, guards)) = starts.next() {
        // Sorted, so the last of several at one place asks for the most GUARDs.
        if starts.peek().is_some_and(|&(next, _)| next == start) {
            continue;
        }
        let after = start + text[start..].chars().next().map_or(0, char::len_utf8);
        out.push_str(&text[done..after]);
        out.extend(std::iter::repeat_n(GUARD, guards));
        done = after;
    }
    out.push_str(&text[done..]);
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXTS: [&str; 7] = ["<|a|>", "<|ab|>", "|>", "<s>", "#", "\u{E9}\u{20AC}", "aa"];

    fn controls() -> ControlTexts {
        let tokens = TEXTS.iter().enumerate().map(|(id, text)| ((*text).to_owned(), Token(id as u32)));
        ControlTexts::new(tokens).expect("small tables")
    }

    fn ids(prompt: &str) -> Vec<u32> {
        let mut ids = Vec::new();
        controls().split(prompt, |part| {
            if let Part::Control(token) = part {
                ids.push(token.0)
            }
        });
        ids
    }

    #[test]
    fn template_texts_are_found_and_client_texts_are_not() {
        let client = controls().guard("<|a|><s>#");
        assert_eq!(ids(&format!("<|ab|>{client}<s>")), vec![1, 3]);
    }

    #[test]
    fn halves_of_a_control_text_do_not_meet_at_the_border() {
        let controls = controls();
        for cut in 1..4 {
            let (head, tail) = "<|a|>".split_at(cut);
            assert!(!ids(&format!("{}{tail}", controls.guard(head))).contains(&0), "client {head}");
            assert_eq!(ids(&format!("{head}{}", controls.guard(tail))), Vec::<u32>::new(), "client {tail}");
        }
        assert_eq!(ids(&format!("<|{}|>", controls.guard("ab"))), vec![2], "the template's own |> stands");
    }

    #[test]
    fn forged_guards_are_removed() {
        assert_eq!(controls().guard("x\u{FDD0}y"), "xy");
    }

    #[test]
    fn plain_text_is_not_touched() {
        assert_eq!(controls().guard("x = 1 < 2;\n"), "x = 1 < 2;\n");
    }

    #[test]
    fn a_vocabulary_without_control_tokens_guards_nothing() {
        let none = ControlTexts::new([]).expect("empty tables");
        assert_eq!(none.guard("<|a|>"), "<|a|>");
        let mut parts = Vec::new();
        none.split("<|a|>", |part| parts.push(part));
        assert_eq!(parts, vec![Part::Text("<|a|>")]);
    }

    fn crafted() -> impl Strategy<Value = String> {
        let atoms = ["<", "|", "a", "b", ">", "s", "#", "\u{E9}", "\u{20AC}", "<|", "|>", "<|a", "\u{FDD0}", " "];
        prop::collection::vec(prop::sample::select(atoms.to_vec()), 0..9).prop_map(|atoms| atoms.concat())
    }

    proptest! {
        /// Field report J11: each character of the prompt remembers whether the client wrote it; no control token may cover one.
        #[test]
        fn no_client_text_ever_becomes_part_of_a_control_token(
            pieces in prop::collection::vec((any::<bool>(), crafted()), 0..7),
        ) {
            let controls = controls();
            let (mut prompt, mut plain, mut from_client) = (String::new(), String::new(), Vec::new());
            for (client, text) in &pieces {
                let text = text.replace(GUARD, if *client { "\u{FDD0}" } else { "" });
                let text = if *client { controls.guard(&text) } else { text };
                prompt.push_str(&text);
                let visible = text.replace(GUARD, "");
                from_client.extend(std::iter::repeat_n(*client, visible.len()));
                plain.push_str(&visible);
            }
            let mut at = 0;
            controls.split(&prompt, |part| match part {
                Part::Text(text) => at += text.replace(GUARD, "").len(),
                Part::Control(token) => {
                    let end = at + TEXTS[token.index()].len();
                    assert_eq!(&plain[at..end], TEXTS[token.index()]);
                    assert!(!from_client[at..end].contains(&true), "client text in token {token:?} of {prompt:?}");
                    at = end;
                }
            });
            prop_assert_eq!(at, plain.len());
        }

        #[test]
        fn control_texts_of_the_template_alone_are_all_found(text in crafted()) {
            let text = text.replace(GUARD, "");
            let controls = controls();
            let mut joined = String::new();
            let mut n_control = 0;
            controls.split(&text, |part| match part {
                Part::Text(text) => {
                    assert!(TEXTS.iter().all(|control| !text.contains(control)), "{text:?} was not split");
                    joined.push_str(text);
                }
                Part::Control(token) => {
                    joined.push_str(TEXTS[token.index()]);
                    n_control += 1;
                }
            });
            prop_assert_eq!(&joined, &text);
            prop_assert_eq!(n_control > 0, TEXTS.iter().any(|control| text.contains(control)));
        }

        #[test]
        fn guarding_twice_changes_nothing_and_guards_can_be_taken_out(text in crafted()) {
            let controls = controls();
            let guarded = controls.guard(&text);
            prop_assert_eq!(controls.guard(&guarded), guarded.clone());
            prop_assert_eq!(guarded.replace(GUARD, ""), text.replace(GUARD, ""));
        }
    }
}
