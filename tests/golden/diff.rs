//! Two lines that differ, cut down to the place where they do.

/// Characters shown before the difference and from it on.
const BEFORE: usize = 80;
const AFTER: usize = 160;

/// `-` is the old one, `+` the new one.
pub fn short(old: &impl ToString, new: &impl ToString) -> String {
    let (old, new): (Vec<char>, Vec<char>) = (old.to_string().chars().collect(), new.to_string().chars().collect());
    let at = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let cut = |text: &[char]| -> String {
        let (from, to) = (at.saturating_sub(BEFORE), text.len().min(at + AFTER));
        let dots = |is_cut: bool| if is_cut { "..." } else { "" };
        format!("{}{}{}", dots(from > 0), text[from..to].iter().collect::<String>(), dots(to < text.len()))
    };
    format!("- {}\n+ {}", cut(&old), cut(&new))
}
