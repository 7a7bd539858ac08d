//! Patterns as of a shell, which `LIST` and `NLST` understand in the last name of a path.
//!
//! A pattern comes from a client and is tried on every name of a directory, so what it costs is bounded:
//! it becomes a list of steps, at most one for each of its characters, and a name is read once while all
//! steps that can be reached are kept. No name takes more than its length times the number of steps.

use std::ffi::OsStr;
use std::iter::Peekable;
use std::os::unix::ffi::OsStrExt as _;
use std::str::Chars;

/// The longest pattern in bytes that is understood; a longer one is a name. No name is longer than 255.
const LONGEST_PATTERN: usize = 256;

/// How deep alternatives may stand in each other; deeper ones are a name.
const DEEPEST: usize = 8;

/// A pattern as of a shell in the last name of a path.
pub(super) struct Pattern {
    /// What stands before the last name, with its slash.
    pub(super) prefix: Vec<u8>,
    steps: Steps,
    /// Names that begin with a dot fit only if the pattern says the dot.
    hidden: bool,
}

impl Pattern {
    /// `None` if there is nothing special in the last name, or it cannot be a pattern.
    pub(super) fn new(given: &[u8]) -> Option<Self> {
        let start = given
            .iter()
            .rposition(|&byte| byte == b'/')
            .map_or(0, |slash| slash + 1);
        let (prefix, name) = given.split_at(start);
        if name.len() > LONGEST_PATTERN {
            return None;
        }
        let text = std::str::from_utf8(name).ok()?;
        if !text.contains(['*', '?', '[', '{']) {
            return None;
        }
        Some(Self {
            prefix: prefix.to_owned(),
            steps: Steps::parse(text)?,
            hidden: text.starts_with('.'),
        })
    }

    pub(super) fn fits(&self, name: &OsStr) -> bool {
        let name = name.as_bytes();
        (self.hidden || !name.starts_with(b".")) && self.steps.fit(name)
    }
}

/// What a name has to have.
#[derive(Debug)]
enum Step {
    /// This character.
    One(u32),
    /// Any character.
    Any,
    /// Any number of any characters.
    Some,
    /// A character in one of these ranges, ends included, or in none of them.
    Range {
        ranges: Vec<(u32, u32)>,
        negated: bool,
    },
    /// What begins at one of these places.
    Fork(Vec<usize>),
    /// What begins at this place.
    Jump(usize),
}

#[derive(Debug, Default)]
struct Steps(Vec<Step>);

impl Steps {
    /// `None` for what is no pattern: a bracket, brace or backslash with nothing that ends it, a range whose
    /// ends are the wrong way round, or braces too deep in each other.
    fn parse(text: &str) -> Option<Self> {
        let mut steps = Self::default();
        let mut text = text.chars().peekable();
        steps.sequence(&mut text, 0)?;
        // A comma or brace outside of alternatives is a character, so all is read.
        Some(steps)
    }

    /// Reads up to the end of the alternative that this is, or of the text.
    fn sequence(&mut self, text: &mut Peekable<Chars<'_>>, depth: usize) -> Option<()> {
        while let Some(&next) = text.peek() {
            if depth > 0 && matches!(next, ',' | '}') {
                return Some(());
            }
            text.next();
            let step = match next {
                '?' => Step::Any,
                '*' => Step::Some,
                '[' => range(text)?,
                '\\' => Step::One(text.next()?.into()),
                '{' => {
                    self.alternatives(text, depth + 1)?;
                    continue;
                }
                other => Step::One(other.into()),
            };
            self.0.push(step);
        }
        (depth == 0).then_some(())
    }

    /// Reads alternatives behind their brace: a fork, and for each of them its steps and a jump to the end.
    fn alternatives(&mut self, text: &mut Peekable<Chars<'_>>, depth: usize) -> Option<()> {
        if depth > DEEPEST {
            return None;
        }
        let fork = self.0.len();
        self.0.push(Step::Fork(Vec::new()));
        let (mut starts, mut ends) = (Vec::new(), Vec::new());
        loop {
            starts.push(self.0.len());
            self.sequence(text, depth)?;
            ends.push(self.0.len());
            self.0.push(Step::Jump(0));
            if text.next()? == '}' {
                break;
            }
        }
        let behind = self.0.len();
        for end in ends {
            self.0[end] = Step::Jump(behind);
        }
        self.0[fork] = Step::Fork(starts);
        Some(())
    }

    fn fit(&self, name: &[u8]) -> bool {
        let mut reached = Reached::new(self.0.len());
        let mut next = Reached::new(self.0.len());
        reached.add(&self.0, 0);
        for character in characters(name) {
            for &place in &reached.places {
                let (fits, goes_on) = match &self.0[place] {
                    Step::One(one) => (*one == character, place + 1),
                    Step::Any => (true, place + 1),
                    Step::Some => (true, place),
                    Step::Range { ranges, negated } => {
                        let within =
                            |(first, last): &(u32, u32)| (*first..=*last).contains(&character);
                        (ranges.iter().any(within) != *negated, place + 1)
                    }
                    Step::Fork(_) | Step::Jump(_) => continue,
                };
                if fits {
                    next.add(&self.0, goes_on);
                }
            }
            std::mem::swap(&mut reached, &mut next);
            next.clear();
            if reached.places.is_empty() && !reached.end {
                return false;
            }
        }
        reached.end
    }
}

/// Reads a range behind its bracket.
fn range(text: &mut Peekable<Chars<'_>>) -> Option<Step> {
    let negated = text.next_if(|next| matches!(next, '!' | '^')).is_some();
    let mut ranges = Vec::new();
    loop {
        let first = match text.next()? {
            ']' if !ranges.is_empty() => return Some(Step::Range { ranges, negated }),
            '\\' => text.next()?,
            other => other,
        };
        let mut last = first;
        if text.next_if_eq(&'-').is_some() {
            last = match text.next()? {
                ']' => {
                    // The dash stands at the end, for itself.
                    ranges.extend([(first.into(), first.into()), ('-'.into(), '-'.into())]);
                    return Some(Step::Range { ranges, negated });
                }
                '\\' => text.next()?,
                other => other,
            };
        }
        if last < first {
            return None;
        }
        ranges.push((first.into(), last.into()));
    }
}

/// The characters of a name. A byte that belongs to none counts as one that no pattern can name.
fn characters(name: &[u8]) -> impl Iterator<Item = u32> {
    const BEHIND_UNICODE: u32 = 0x11_0000;
    name.utf8_chunks().flat_map(|chunk| {
        let characters = chunk.valid().chars().map(u32::from);
        let bytes = chunk.invalid().iter();
        characters.chain(bytes.map(|&byte| BEHIND_UNICODE + u32::from(byte)))
    })
}

/// The steps that a name can stand before, each of them once.
struct Reached {
    places: Vec<usize>,
    seen: Vec<bool>,
    /// All steps are done.
    end: bool,
}

impl Reached {
    fn new(steps: usize) -> Self {
        Self {
            places: Vec::with_capacity(steps),
            seen: vec![false; steps],
            end: false,
        }
    }

    /// Adds a place, and all that are reached from it without a character.
    fn add(&mut self, steps: &[Step], place: usize) {
        if place == steps.len() {
            self.end = true;
            return;
        }
        if std::mem::replace(&mut self.seen[place], true) {
            return;
        }
        self.places.push(place);
        match &steps[place] {
            Step::Some => self.add(steps, place + 1),
            Step::Jump(to) => self.add(steps, *to),
            Step::Fork(starts) => starts.iter().for_each(|&start| self.add(steps, start)),
            Step::One(_) | Step::Any | Step::Range { .. } => {}
        }
    }

    fn clear(&mut self) {
        for place in self.places.drain(..) {
            self.seen[place] = false;
        }
        self.end = false;
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;

    fn fits(pattern: &str, name: &str) -> bool {
        let pattern = Pattern::new(pattern.as_bytes()).expect("a pattern");
        pattern.fits(OsStr::new(name))
    }

    #[test]
    fn patterns_are_those_of_a_shell() {
        for (pattern, fit, other) in [
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
            for name in fit {
                assert!(fits(pattern, name), "{pattern} {name}");
            }
            for name in other {
                assert!(!fits(pattern, name), "{pattern} {name}");
            }
        }
        let any = Pattern::new(b"a?b").expect("a pattern");
        assert!(any.fits(OsStr::from_bytes(b"a\xffb")));
        let prefixed = Pattern::new(b"x*/y*").expect("a pattern");
        assert_eq!(prefixed.prefix, b"x*/");
    }

    #[test]
    fn what_is_no_pattern_is_a_name() {
        let too_long = "*".repeat(LONGEST_PATTERN + 1);
        let too_deep = ["{".repeat(DEEPEST + 1), "}".repeat(DEEPEST + 1)].concat();
        for name in [
            "a", "a*/b", "[a", "[", "[]", "{a", "{a,", "a*\\", "[b-a]", "{[}", &too_long, &too_deep,
        ] {
            assert!(Pattern::new(name.as_bytes()).is_none(), "{name}");
        }
        assert!(Pattern::new(b"*\xff").is_none());
    }

    /// Three hundred braces made a regular expression that could not be compiled, and a thread panic.
    #[test]
    fn braces_may_be_many_but_not_deep() {
        for count in [DEEPEST, DEEPEST + 1, 100, 128, 300, 10_000] {
            let nested = ["{".repeat(count), "a".to_owned(), "}".repeat(count)].concat();
            let pattern = Pattern::new(nested.as_bytes());
            assert_eq!(pattern.is_some(), count <= DEEPEST);
            assert!(Pattern::new("{".repeat(count).as_bytes()).is_none());
        }
    }

    #[test]
    fn no_pattern_takes_long() {
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
                let _ = fits(pattern, &name);
            }
            // Some milliseconds, in a build that is not optimized.
            assert!(begun.elapsed() < Duration::from_secs(5), "{pattern}");
        }
    }

    /// All names that a pattern of few characters fits, in the plainest way.
    fn fits_plainly(pattern: &[char], name: &[char]) -> bool {
        match pattern {
            [] => name.is_empty(),
            ['*', rest @ ..] => (0..=name.len()).any(|end| fits_plainly(rest, &name[end..])),
            ['?', rest @ ..] => !name.is_empty() && fits_plainly(rest, &name[1..]),
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
                                .any(|one| fits_plainly(&[one, behind].concat(), name));
                        }
                        '}' => depth -= 1,
                        _ => {}
                    }
                }
                unreachable!("braces are closed")
            }
            [one, rest @ ..] => name.first() == Some(one) && fits_plainly(rest, &name[1..]),
        }
    }

    fn patterns() -> impl Strategy<Value = String> {
        let leaf = prop::sample::select(vec!["a", "b", "*", "?", ""]).prop_map(str::to_owned);
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 1..4).prop_map(|parts| parts.concat()),
                prop::collection::vec(inner, 1..4)
                    .prop_map(|parts| format!("{{{}}}", parts.join(","))),
            ]
        })
    }

    proptest! {
        #[test]
        fn names_fit_as_they_do_in_the_plainest_way(pattern in patterns(), name in "[ab]{0,6}") {
            let Some(steps) = Steps::parse(&pattern) else {
                return Err(TestCaseError::fail("a pattern"));
            };
            let characters: Vec<char> = pattern.chars().collect();
            let plainly = fits_plainly(&characters, &name.chars().collect::<Vec<_>>());
            prop_assert_eq!(steps.fit(name.as_bytes()), plainly, "{}", pattern);
        }

        #[test]
        fn anything_is_a_pattern_or_a_name(given: Vec<u8>, name: Vec<u8>) {
            if let Some(pattern) = Pattern::new(&given) {
                let _ = pattern.fits(OsStr::from_bytes(&name));
            }
        }

        #[test]
        fn what_looks_like_patterns_is_taken_without_a_panic(
            given in "[a{}*?,!^\\]\\[\\\\-]{0,40}",
            name in "[a,{}-]{0,10}",
        ) {
            if let Some(pattern) = Pattern::new(given.as_bytes()) {
                let _ = pattern.fits(OsStr::new(&name));
            }
        }
    }
}
