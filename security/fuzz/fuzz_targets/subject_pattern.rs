//! Patterns of subjects in rules: none panics, and each matches the subject with the same text.

#![no_main]

use gridhaul_security::gridmap::{Gridmap, Subject, SubjectPattern};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, &str)| {
    let (pattern, subject) = input;
    let Ok(pattern) = SubjectPattern::new(pattern) else {
        return;
    };
    pattern.matches(&Subject::new(subject));
    // A pattern without special characters matches all subjects that the same line of a grid-mapfile maps.
    let (text, subject) = input;
    let is_plain = |text: &str| {
        let signs = ['*', '?', '[', ']', '{', '}', ',', '!', '\\', '"', '#', '\n', '\r'];
        text.is_ascii() && !text.contains(signs) && !text.contains(char::is_control)
    };
    if is_plain(text) && is_plain(subject) {
        let (map, _) = Gridmap::parse(format!("\"{text}\" someone").as_bytes());
        if !map.accounts(subject).is_empty() {
            assert!(pattern.matches(&Subject::new(subject)), "{text} misses {subject}");
        }
    }
});
