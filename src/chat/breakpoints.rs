//! Places in a prompt that later prompts are likely to begin like: ends of messages, thinking, the
//! turn to be generated.
//!
//! Found by control tokens, which text of clients can never become, so that no client moves the
//! places of another.

use crate::engine::{Breakpoint, BreakpointKind, PromptItem};
use crate::text::Tokenizer;
use crate::units::Token;

/// Tokens that open a message, in the templates of the families that are known.
const OPENERS: [&str; 4] = ["<|im_start|>", "<|start_header_id|>", "<start_of_turn>", "<|turn>"];

/// The breakpoints of a prompt in ascending order, at most one a place. `generates`: the last
/// message is opened for the answer. Places are counted in items: an image is as many as it has
/// rows.
pub fn breakpoints(items: &[PromptItem], tokenizer: &Tokenizer, generates: bool) -> Vec<Breakpoint> {
    let special = |text: &str| tokenizer.special(text);
    let openers: Vec<Token> = OPENERS.into_iter().filter_map(special).collect();
    let (think, think_end) = (special("<think>"), special("</think>"));
    let mut found: Vec<Breakpoint> = Vec::new();
    let mut n_messages = 0;
    for (i, item) in items.iter().enumerate() {
        let Some(token) = item.token() else { continue };
        if openers.contains(&token) {
            n_messages += 1;
            // The second message begins where system prompt and tools end.
            let kind = if n_messages == 2 { BreakpointKind::System } else { BreakpointKind::Message };
            found.push(Breakpoint { at: i, kind });
        } else if Some(token) == think {
            found.push(Breakpoint { at: i, kind: BreakpointKind::Thinking });
        } else if Some(token) == think_end {
            found.push(Breakpoint { at: i + 1, kind: BreakpointKind::ThinkingEnd });
        }
    }
    let turn = found.iter().rposition(|mark| matches!(mark.kind, BreakpointKind::Message | BreakpointKind::System));
    if let Some(turn) = turn.filter(|_| generates) {
        found[turn].kind = BreakpointKind::Turn;
    }
    found.retain(|mark| mark.at > 0);
    found.dedup_by_key(|mark| mark.at);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Grid, ImageKey, ImageRow};
    use crate::text::Specials;

    fn items(prompt: &str, tokenizer: &Tokenizer) -> Vec<PromptItem> {
        tokenizer.encode(prompt, Specials::Parse).unwrap().into_iter().map(PromptItem::Token).collect()
    }

    fn kinds(prompt: &str, generates: bool) -> Vec<(usize, BreakpointKind)> {
        let tokenizer = Tokenizer::bytes_for_tests();
        breakpoints(&items(prompt, &tokenizer), &tokenizer, generates)
            .into_iter()
            .map(|mark| (mark.at, mark.kind))
            .collect()
    }

    #[test]
    fn messages_thinking_and_the_open_turn_are_breakpoints() {
        let prompt = "<|im_start|>sys<|im_end|>\n<|im_start|>user<|im_end|>\n<|im_start|>a<think>b</think>c";
        let expected = [
            (6, BreakpointKind::System),
            (13, BreakpointKind::Turn),
            (15, BreakpointKind::Thinking),
            (18, BreakpointKind::ThinkingEnd),
        ];
        assert_eq!(kinds(prompt, true), expected);
        assert_eq!(kinds(prompt, false)[1], (13, BreakpointKind::Message));
    }

    #[test]
    fn text_that_looks_like_a_control_token_is_no_breakpoint() {
        let tokenizer = Tokenizer::bytes_for_tests();
        let text = tokenizer.guard("<|im_start|>system");
        assert!(breakpoints(&items(&format!("x{text}"), &tokenizer), &tokenizer, true).is_empty());
    }

    #[test]
    fn an_image_moves_the_breakpoints_behind_it_by_its_rows() {
        let tokenizer = Tokenizer::bytes_for_tests();
        let row = |index| PromptItem::Image(ImageRow { key: ImageKey::new(1), grid: Grid { nx: 3, ny: 2 }, index });
        let mut prompt = items("<|im_start|>s<|im_end|><|im_start|>u", &tokenizer);
        prompt.extend((0..6).map(row));
        prompt.extend(items("<|im_end|><|im_start|>a<think>", &tokenizer));
        let found: Vec<_> =
            breakpoints(&prompt, &tokenizer, true).into_iter().map(|mark| (mark.at, mark.kind)).collect();
        assert_eq!(found, [(3, BreakpointKind::System), (12, BreakpointKind::Turn), (14, BreakpointKind::Thinking)]);
    }
}
