//! The last tokens of a sequence, as one slice. It does not count or compare them.

/// The last `limit` accepted tokens, or all.
#[derive(Clone)]
pub(super) struct History {
    tokens: Vec<u32>,
    limit: Option<usize>,
}

impl History {
    pub(super) fn new(limit: Option<u32>) -> History {
        History { tokens: Vec::new(), limit: limit.map(|n| n as usize) }
    }

    /// Adds a token; gives back the one that left the window.
    pub(super) fn push(&mut self, token: u32) -> Option<u32> {
        self.tokens.push(token);
        let limit = self.limit?;
        let outside = self.tokens.len().checked_sub(limit + 1)?;
        let gone = self.tokens[outside];
        // Cutting only when half is dead keeps the tokens in one slice at constant cost a token.
        if self.tokens.len() >= 2 * limit + 64 {
            self.tokens.drain(..=outside);
        }
        Some(gone)
    }

    /// Oldest first.
    pub(super) fn window(&self) -> &[u32] {
        let dead = self.limit.map_or(0, |limit| self.tokens.len().saturating_sub(limit));
        &self.tokens[dead..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_holds_the_last_tokens_and_names_the_one_that_left() {
        let mut history = History::new(Some(3));
        for token in 0..500 {
            let gone = history.push(token);
            assert_eq!(gone, token.checked_sub(3));
            let expected: Vec<u32> = (token.saturating_sub(2)..=token).collect();
            assert_eq!(history.window(), expected);
        }
        assert!(history.tokens.capacity() < 300, "dead tokens are cut away");
    }

    #[test]
    fn without_a_limit_nothing_leaves() {
        let mut history = History::new(None);
        assert!((0..1000).all(|token| history.push(token).is_none()));
        assert_eq!(history.window().len(), 1000);
    }
}
