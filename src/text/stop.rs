//! Stop strings over streamed text: a prefix of a stop string is held back until it is decided.

/// Matches stop strings; nothing of a stop string is ever released.
#[derive(Clone, Debug, Default)]
pub struct StopMatcher {
    stops: Vec<String>,
    held: String,
}

impl StopMatcher {
    /// Empty strings are ignored.
    pub fn new(stops: Vec<String>) -> StopMatcher {
        StopMatcher { stops: stops.into_iter().filter(|s| !s.is_empty()).collect(), held: String::new() }
    }
    /// Feeds text; appends what may be shown to `out`. Returns the stop string that matched (the earliest in the text, the
    /// longest at one place); after that nothing more is released.
    pub fn push(&mut self, text: &str, out: &mut String) -> Option<&str> {
        let _ = (text, out, &self.stops, &mut self.held);
        unimplemented!()
    }
    /// The generation ended without a match: releases what was held.
    pub fn finish(&mut self, out: &mut String) {
        let _ = out;
        unimplemented!()
    }
}
