//! Stop strings over streamed text: a prefix of a stop string is held back until it is decided.
//!
//! An automaton over bytes walks the text once, so a stop string may be cut anywhere by tokens and nothing is read again.

use std::collections::VecDeque;
use std::sync::Arc;

/// Matches stop strings; nothing of a stop string is ever released.
#[derive(Clone, Debug, Default)]
pub struct StopMatcher {
    automaton: Arc<Automaton>,
    /// Length of the longest end of the text that begins a stop string is the depth of this state.
    state: usize,
    /// Text that is not decided: at most one byte less than the longest stop string.
    held: String,
    /// Index of the stop string that matched.
    matched: Option<usize>,
}

impl StopMatcher {
    /// Empty strings are ignored.
    pub fn new(stops: Vec<String>) -> StopMatcher {
        let automaton = Automaton::new(stops.into_iter().filter(|stop| !stop.is_empty()).collect());
        StopMatcher { automaton: Arc::new(automaton), ..StopMatcher::default() }
    }

    /// Feeds text; appends what may be shown to `out`. Returns the stop string that matched: the one that is complete
    /// first, and the longest of several that are complete at the same byte, so that cutting the text differently changes
    /// nothing. After that nothing more is released and every call returns the same.
    pub fn push(&mut self, text: &str, out: &mut String) -> Option<&str> {
        if self.matched.is_some() {
            return self.matched();
        }
        let offset = self.held.len();
        self.held.push_str(text);
        for (at, byte) in text.bytes().enumerate() {
            self.state = self.automaton.step(self.state, byte);
            if let Some(stop) = self.automaton.nodes[self.state].stop {
                let start = offset + at + 1 - self.automaton.stops[stop].len();
                out.push_str(&self.held[..start]);
                self.held.clear();
                self.matched = Some(stop);
                return self.matched();
            }
        }
        // What is held begins a stop string, so it begins at a character.
        let decided = self.held.len() - self.automaton.nodes[self.state].depth;
        out.push_str(&self.held[..decided]);
        self.held.drain(..decided);
        None
    }

    /// The generation ended without a match: releases what was held.
    pub fn finish(&mut self, out: &mut String) {
        out.push_str(&self.held);
        self.held.clear();
        self.state = 0;
    }

    /// The stop string that matched.
    pub fn matched(&self) -> Option<&str> {
        self.matched.map(|stop| self.automaton.stops[stop].as_str())
    }

    /// Text held back so far.
    pub fn held(&self) -> &str {
        &self.held
    }
}

/// Aho and Corasick's automaton. The crate of that name hides the depth of a state, which is what tells how much to hold.
#[derive(Debug)]
struct Automaton {
    stops: Vec<String>,
    nodes: Vec<Node>,
}

#[derive(Debug, Default)]
struct Node {
    /// Children by byte; few, so a list is fast enough.
    next: Vec<(u8, usize)>,
    /// State of the longest proper suffix that begins a stop string.
    fail: usize,
    depth: usize,
    /// Longest stop string that ends here.
    stop: Option<usize>,
}

impl Default for Automaton {
    fn default() -> Automaton {
        Automaton { stops: Vec::new(), nodes: vec![Node::default()] }
    }
}

impl Automaton {
    fn new(stops: Vec<String>) -> Automaton {
        let mut automaton = Automaton { stops, ..Automaton::default() };
        for stop in 0..automaton.stops.len() {
            automaton.insert(stop);
        }
        automaton.link();
        automaton
    }

    fn insert(&mut self, stop: usize) {
        let mut node = 0;
        for at in 0..self.stops[stop].len() {
            let byte = self.stops[stop].as_bytes()[at];
            node = match self.child(node, byte) {
                Some(next) => next,
                None => {
                    let next = self.nodes.len();
                    self.nodes.push(Node { depth: at + 1, ..Node::default() });
                    self.nodes[node].next.push((byte, next));
                    next
                }
            };
        }
        self.nodes[node].stop.get_or_insert(stop);
    }

    /// Breadth first, so that a node's suffix (which is shorter) is linked before it.
    fn link(&mut self) {
        let mut queue: VecDeque<usize> = self.nodes[0].next.iter().map(|&(_, node)| node).collect();
        while let Some(node) = queue.pop_front() {
            let fail = self.nodes[node].fail;
            if self.nodes[node].stop.is_none() {
                self.nodes[node].stop = self.nodes[fail].stop;
            }
            for (byte, child) in self.nodes[node].next.clone() {
                self.nodes[child].fail = self.step(fail, byte);
                queue.push_back(child);
            }
        }
    }

    fn child(&self, node: usize, byte: u8) -> Option<usize> {
        self.nodes[node].next.iter().find(|&&(label, _)| label == byte).map(|&(_, next)| next)
    }

    fn step(&self, mut node: usize, byte: u8) -> usize {
        loop {
            if let Some(next) = self.child(node, byte) {
                return next;
            }
            if node == 0 {
                return 0;
            }
            node = self.nodes[node].fail;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run<'a>(stops: &[&str], pieces: impl IntoIterator<Item = &'a str>) -> (String, Option<String>) {
        let mut matcher = StopMatcher::new(stops.iter().map(|stop| (*stop).to_owned()).collect());
        let mut out = String::new();
        for piece in pieces {
            matcher.push(piece, &mut out);
        }
        if matcher.matched().is_none() {
            matcher.finish(&mut out);
        }
        (out, matcher.matched().map(str::to_owned))
    }

    #[test]
    fn stop_string_over_three_tokens_is_not_leaked() {
        let (out, stop) = run(&["beta gamma"], ["alpha ", "beta", " ga", "mma", " delta"]);
        assert_eq!((out.as_str(), stop.as_deref()), ("alpha ", Some("beta gamma")));
    }

    #[test]
    fn held_text_is_released_once_when_it_is_disproved_or_the_text_ends() {
        assert_eq!(run(&["beta gamma"], ["beta", " delta"]), ("beta delta".to_owned(), None));
        assert_eq!(run(&["beta gamma"], ["x beta ", "gamm"]), ("x beta gamm".to_owned(), None));
    }

    #[test]
    fn text_that_begins_no_stop_string_is_released_at_once() {
        let mut matcher = StopMatcher::new(vec!["###".to_owned()]);
        let mut out = String::new();
        assert_eq!(matcher.push("a#b##", &mut out), None);
        assert_eq!((out.as_str(), matcher.held()), ("a#b", "##"));
        assert_eq!(matcher.push("#c", &mut out), Some("###"));
        assert_eq!(matcher.push("more", &mut out), Some("###"));
        matcher.finish(&mut out);
        assert_eq!(out, "a#b");
    }

    #[test]
    fn the_first_to_be_complete_wins_and_the_longest_at_one_byte() {
        assert_eq!(run(&["abcd", "bc"], ["abcd"]), ("a".to_owned(), Some("bc".to_owned())));
        assert_eq!(run(&["bc", "abc"], ["xabcd"]), ("x".to_owned(), Some("abc".to_owned())));
    }

    #[test]
    fn empty_stop_strings_match_nothing() {
        assert_eq!(run(&["", ""], ["text"]), ("text".to_owned(), None));
    }

    /// The contract, written slowly: try every end of the text, and every stop string there.
    fn reference(stops: &[String], text: &str) -> (String, Option<String>) {
        for end in 1..=text.len() {
            let complete = stops.iter().filter(|s| !s.is_empty() && text.as_bytes()[..end].ends_with(s.as_bytes()));
            if let Some(stop) = complete.max_by_key(|stop| stop.len()) {
                return (text[..end - stop.len()].to_owned(), Some(stop.clone()));
            }
        }
        (text.to_owned(), None)
    }

    fn small_text(most: usize) -> impl Strategy<Value = String> {
        prop::collection::vec(prop::sample::select(vec!["a", "b", "\u{E9}", "\u{1F638}"]), 0..most)
            .prop_map(|s| s.concat())
    }

    proptest! {
        #[test]
        fn any_cutting_gives_what_the_whole_text_gives(
            stops in prop::collection::vec(small_text(4), 0..4),
            pieces in prop::collection::vec(small_text(4), 0..8),
        ) {
            let names: Vec<&str> = stops.iter().map(String::as_str).collect();
            let cut = run(&names, pieces.iter().map(String::as_str));
            prop_assert_eq!(cut, reference(&stops, &pieces.concat()));
        }

        #[test]
        fn no_more_is_held_than_could_still_match(
            stops in prop::collection::vec(small_text(4), 1..4),
            pieces in prop::collection::vec(small_text(4), 0..8),
        ) {
            let mut matcher = StopMatcher::new(stops.clone());
            let mut out = String::new();
            for piece in &pieces {
                if matcher.push(piece, &mut out).is_some() {
                    break;
                }
                let held = matcher.held();
                prop_assert!(held.is_empty() || stops.iter().any(|stop| stop.starts_with(held) && stop != held));
            }
        }
    }
}
