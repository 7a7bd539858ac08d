use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

fn matches(pattern: &str, name: &str) -> bool {
    let pattern = Pattern::new(pattern.as_bytes()).expect("a pattern");
    pattern.matches(OsStr::new(name))
}

#[test]
fn patterns_match_as_in_a_shell() {
    for (pattern, matching, other) in [
        ("*", &["a", "ü"][..], &[".a"][..]),
        ("*.dat", &["a.dat", "a.b.dat"], &["a.da", ".dat", "a.data"]),
        (".*", &[".a"], &["a"]),
        ("a?c", &["abc", "aüc"], &["ac", "abbc"]),
        ("[a-cx]", &["b", "x"], &["d", "-"]),
        ("[!a-c]", &["d"], &["b", ""]),
        ("[^a]", &["b"], &["a"]),
        ("[]]", &["]"], &["["]),
        ("[a-]", &["a", "-"], &["b"]),
        ("{a,bc}d", &["ad", "bcd"], &["bd", "d", "abcd"]),
        ("{a,{b,c*}}", &["a", "b", "cxy"], &["d", ""]),
        ("x{,y}", &["x", "xy"], &["xyy"]),
        ("{a}", &["a"], &["{a}"]),
        ("\\*?", &["*a"], &["aa"]),
        ("a,b}?", &["a,b}c"], &["a"]),
    ] {
        for name in matching {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for name in other {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }
    let any = Pattern::new(b"a?b").expect("a pattern");
    assert!(any.matches(OsStr::from_bytes(b"a\xffb")));
    let prefixed = Pattern::new(b"x*/y*").expect("a pattern");
    assert_eq!(prefixed.prefix, b"x*/");
}

#[test]
fn invalid_patterns_are_names() {
    let too_long = "*".repeat(LONGEST_PATTERN + 1);
    let too_deep = ["{".repeat(DEEPEST + 1), "}".repeat(DEEPEST + 1)].concat();
    for name in [
        "a", "a*/b", "[a", "[", "[]", "{a", "{a,", "a*\\", "[b-a]", "{[}", &too_long, &too_deep,
    ] {
        assert!(Pattern::new(name.as_bytes()).is_none(), "{name}");
    }
    assert!(Pattern::new(b"*\xff").is_none());
}

/// As a regular expression, three hundred braces did not compile, and a thread panicked.
#[test]
fn nested_braces_are_bounded() {
    for count in [DEEPEST, DEEPEST + 1, 100, 128, 300, 10_000] {
        let nested = ["{".repeat(count), "a".to_owned(), "}".repeat(count)].concat();
        let pattern = Pattern::new(nested.as_bytes());
        assert_eq!(pattern.is_some(), count <= DEEPEST);
        assert!(Pattern::new("{".repeat(count).as_bytes()).is_none());
    }
}

#[test]
fn matching_is_fast_for_every_pattern() {
    let patterns = [
        "*".repeat(LONGEST_PATTERN),
        "*a".repeat(LONGEST_PATTERN / 2),
        "{*,a}".repeat(LONGEST_PATTERN / 5),
        format!("{{{}}}", "*,".repeat(LONGEST_PATTERN / 2 - 1)),
        "{a*,*a}*".repeat(LONGEST_PATTERN / 8),
        "{{*,?}*,{a,*}}".repeat(LONGEST_PATTERN / 14),
    ];
    let name = format!("{}b", "a".repeat(254));
    for pattern in &patterns {
        let begun = Instant::now();
        for _ in 0..10 {
            let _ = matches(pattern, &name);
        }
        // Some milliseconds, in a build that is not optimized.
        assert!(begun.elapsed() < Duration::from_secs(5), "{pattern}");
    }
}

/// A simple implementation for patterns of few characters.
fn matches_simply(pattern: &[char], name: &[char]) -> bool {
    match pattern {
        [] => name.is_empty(),
        ['*', rest @ ..] => (0..=name.len()).any(|end| matches_simply(rest, &name[end..])),
        ['?', rest @ ..] => !name.is_empty() && matches_simply(rest, &name[1..]),
        ['{', rest @ ..] => {
            let (mut depth, mut cut, mut start) = (0, Vec::new(), 0);
            for (place, character) in rest.iter().enumerate() {
                match character {
                    '{' => depth += 1,
                    ',' if depth == 0 => {
                        cut.push(&rest[start..place]);
                        start = place + 1;
                    }
                    '}' if depth == 0 => {
                        cut.push(&rest[start..place]);
                        let behind = &rest[place + 1..];
                        return cut
                            .iter()
                            .any(|one| matches_simply(&[one, behind].concat(), name));
                    }
                    '}' => depth -= 1,
                    _ => {}
                }
            }
            unreachable!("braces are closed")
        }
        [one, rest @ ..] => name.first() == Some(one) && matches_simply(rest, &name[1..]),
    }
}

fn patterns() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec!["a", "b", "*", "?", ""]).prop_map(str::to_owned);
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(|parts| parts.concat()),
            prop::collection::vec(inner, 1..4).prop_map(|parts| format!("{{{}}}", parts.join(","))),
        ]
    })
}

proptest! {
    #[test]
    fn names_match_as_in_a_simple_implementation(pattern in patterns(), name in "[ab]{0,6}") {
        let Some(steps) = Steps::parse(&pattern) else {
            return Err(TestCaseError::fail("a pattern"));
        };
        let characters: Vec<char> = pattern.chars().collect();
        let expected = matches_simply(&characters, &name.chars().collect::<Vec<_>>());
        prop_assert_eq!(steps.matches(name.as_bytes()), expected, "{}", pattern);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(given: Vec<u8>, name: Vec<u8>) {
        if let Some(pattern) = Pattern::new(&given) {
            let _ = pattern.matches(OsStr::from_bytes(&name));
        }
    }

    #[test]
    fn pattern_like_text_does_not_panic(
        given in "[a{}*?,!^\\]\\[\\\\-]{0,40}",
        name in "[a,{}-]{0,10}",
    ) {
        if let Some(pattern) = Pattern::new(given.as_bytes()) {
            let _ = pattern.matches(OsStr::new(&name));
        }
    }
}
