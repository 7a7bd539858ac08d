//! Characters that control a terminal or the layout of text. Clients choose names and paths, and files may contain anything.

/// Control characters, line separators, and characters that change the direction of text (Unicode Standard Annex 9).
pub(crate) fn is_harmful(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{61c}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_separators_and_marks_of_direction_are_harmful() {
        assert!("\0\n\t\u{1b}\u{7f}\u{9b}\u{61c}".chars().all(is_harmful));
        assert!(
            "\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202e}"
                .chars()
                .all(is_harmful)
        );
        assert!("\u{2066}\u{2069}".chars().all(is_harmful));
        assert!(!"a ~\u{a0}üשل\u{2027}".chars().any(is_harmful));
    }
}
