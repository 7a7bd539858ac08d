//! Sizes and times for people, and names that cannot control a terminal.

use crate::harmful::is_harmful;

/// The text with `?` for harmful characters.
pub(super) fn harmless(text: &str) -> String {
    text.replace(is_harmful, "?")
}

/// The text in so many columns: filled with spaces, or with its end cut off.
pub(super) fn fit(text: &str, columns: usize) -> String {
    let text = harmless(text);
    if text.chars().count() > columns {
        let kept: String = text.chars().take(columns.saturating_sub(1)).collect();
        return format!("{kept}~");
    }
    format!("{text:<columns$}")
}

/// The text, or its end in so many columns: paths differ at their ends.
pub(super) fn end_of(text: &str, columns: usize) -> String {
    let text = harmless(text);
    let length = text.chars().count();
    if length <= columns {
        return text;
    }
    let kept: String = text.chars().skip(length + 1 - columns).collect();
    format!("~{kept}")
}

/// The text in lines of so many columns, broken between words, the second one and the following ones indented.
pub(super) fn wrapped(text: &str, columns: usize) -> Vec<String> {
    const INDENT: &str = "    ";

    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        let length = line.chars().count() + 1 + word.chars().count();
        if !line.trim().is_empty() && length > columns {
            lines.push(std::mem::replace(&mut line, INDENT.to_owned()));
        } else if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

/// A number of bytes with three digits: `12.3M`, powers of 1024.
pub(super) fn size(bytes: f64) -> String {
    let mut value = bytes.max(0.0);
    for unit in ["", "K", "M", "G", "T"] {
        if value < 1000.0 {
            return match unit {
                "" => format!("{value:.0}"),
                _ if value < 10.0 => format!("{value:.2}{unit}"),
                _ if value < 100.0 => format!("{value:.1}{unit}"),
                _ => format!("{value:.0}{unit}"),
            };
        }
        value /= 1024.0;
    }
    format!("{value:.1}P")
}

/// A duration with its two largest units: `3d 4h`, `5m 6s`.
pub(super) fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_control_the_terminal() {
        let hostile = "a\u{1b}[2J\r\n\u{9b}1m\u{202e}b\u{2028}ü";
        assert_eq!(harmless(hostile), "a?[2J???1m?b?ü");
        assert_eq!(fit("abcdef", 4), "abc~");
        assert_eq!(fit("ü", 3), "ü  ");
        assert_eq!(fit("\n", 2), "? ");
        assert_eq!(end_of("/a/b/c.root", 7), "~c.root");
        assert_eq!(end_of("/a\n", 3), "/a?");
    }

    #[test]
    fn long_texts_are_broken_between_words() {
        assert_eq!(
            wrapped("one two three four", 9),
            ["one two", "    three", "    four"]
        );
        assert_eq!(wrapped("short", 80), ["short"]);
        assert_eq!(
            wrapped("longer-than-a-line x", 6),
            ["longer-than-a-line", "    x"]
        );
        assert_eq!(wrapped("", 5), [""]);
    }

    #[test]
    fn numbers_are_short() {
        for (bytes, expected) in [
            (0.0, "0"),
            (999.0, "999"),
            (1024.0, "1.00K"),
            (15_000.0, "14.6K"),
            (123_456_789.0, "118M"),
            (5e15, "4.4P"),
        ] {
            assert_eq!(size(bytes), expected);
        }
        for (seconds, expected) in [
            (59, "59s"),
            (61, "1m 1s"),
            (7260, "2h 1m"),
            (90_000, "1d 1h"),
        ] {
            assert_eq!(duration(seconds), expected);
        }
    }
}
