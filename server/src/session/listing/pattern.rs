//! Shell patterns, which `LIST` and `NLST` accept in the last name of a path.
//!
//! A pattern comes from a client and is matched against every name of a directory, so its cost is bounded. It is compiled
//! to a nondeterministic automaton with at most one step for each character. A name is read once, with the set of all
//! reachable steps. So the cost is at most the length of the name times the number of steps.

use std::ffi::OsStr;
use std::iter::Peekable;
use std::os::unix::ffi::OsStrExt as _;
use std::str::Chars;

/// The longest pattern in bytes; a longer one is taken for a name. No name is longer than 255.
const LONGEST_PATTERN: usize = 256;

/// How deep alternatives may be nested; a pattern with deeper ones is taken for a name.
const DEEPEST: usize = 8;

/// A shell pattern in the last name of a path.
pub(crate) struct Pattern {
    /// The path before the last name, with its slash.
    pub(crate) prefix: Vec<u8>,
    steps: Steps,
    /// The pattern begins with a dot, so it also matches names that do.
    hidden: bool,
}

impl Pattern {
    /// `None` if the last name has no special character, or is not a valid pattern.
    pub(crate) fn new(given: &[u8]) -> Option<Self> {
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

    pub(crate) fn matches(&self, name: &OsStr) -> bool {
        let name = name.as_bytes();
        (self.hidden || !name.starts_with(b".")) && self.steps.matches(name)
    }
}

/// One step of the automaton.
#[derive(Debug)]
enum Step {
    /// This character.
    Character(u32),
    /// Any character.
    AnyCharacter,
    /// Any number of any characters.
    AnyText,
    /// A character in one of these ranges, ends included, or in none of them.
    Range {
        ranges: Vec<(u32, u32)>,
        negated: bool,
    },
    /// Continue at each of these steps.
    Fork(Vec<usize>),
    /// Continue at this step.
    Jump(usize),
}

#[derive(Debug, Default)]
struct Steps(Vec<Step>);

impl Steps {
    /// `None` if the text is not a valid pattern: an unterminated bracket, brace or backslash, a range in the wrong order, or
    /// braces that are nested too deep.
    fn parse(text: &str) -> Option<Self> {
        let mut steps = Self::default();
        let mut text = text.chars().peekable();
        steps.sequence(&mut text, 0)?;
        // A comma or brace outside of alternatives is an ordinary character, so the whole text was read.
        Some(steps)
    }

    /// Reads up to the end of the current alternative, or of the text.
    fn sequence(&mut self, text: &mut Peekable<Chars<'_>>, depth: usize) -> Option<()> {
        while let Some(&next) = text.peek() {
            if depth > 0 && matches!(next, ',' | '}') {
                return Some(());
            }
            text.next();
            let step = match next {
                '?' => Step::AnyCharacter,
                '*' => Step::AnyText,
                '[' => range(text)?,
                '\\' => Step::Character(text.next()?.into()),
                '{' => {
                    self.alternatives(text, depth + 1)?;
                    continue;
                }
                other => Step::Character(other.into()),
            };
            self.0.push(step);
        }
        (depth == 0).then_some(())
    }

    /// Reads alternatives after their opening brace: a fork, and for each alternative its steps and a jump to the end.
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

    fn matches(&self, name: &[u8]) -> bool {
        let mut reached = Reached::new(self.0.len());
        let mut next = Reached::new(self.0.len());
        reached.add(&self.0, 0);
        for character in characters(name) {
            for &place in &reached.places {
                let (matches, goes_on) = match &self.0[place] {
                    Step::Character(one) => (*one == character, place + 1),
                    Step::AnyCharacter => (true, place + 1),
                    Step::AnyText => (true, place),
                    Step::Range { ranges, negated } => {
                        let within =
                            |(first, last): &(u32, u32)| (*first..=*last).contains(&character);
                        (ranges.iter().any(within) != *negated, place + 1)
                    }
                    Step::Fork(_) | Step::Jump(_) => continue,
                };
                if matches {
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

/// Reads a range after its opening bracket.
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
                    // A dash at the end is an ordinary character.
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

/// The characters of a name. A byte that is not valid UTF-8 becomes a number above all of Unicode, so that only wildcards and
/// negated ranges match it.
fn characters(name: &[u8]) -> impl Iterator<Item = u32> {
    const BEHIND_UNICODE: u32 = 0x11_0000;
    name.utf8_chunks().flat_map(|chunk| {
        let characters = chunk.valid().chars().map(u32::from);
        let bytes = chunk.invalid().iter();
        characters.chain(bytes.map(|&byte| BEHIND_UNICODE + u32::from(byte)))
    })
}

/// The set of steps that are reachable after a part of a name.
struct Reached {
    places: Vec<usize>,
    seen: Vec<bool>,
    /// The end of the pattern is reachable.
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

    /// Adds a step, and all steps that are reachable from it without a character.
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
            Step::AnyText => self.add(steps, place + 1),
            Step::Jump(to) => self.add(steps, *to),
            Step::Fork(starts) => starts.iter().for_each(|&start| self.add(steps, start)),
            Step::Character(_) | Step::AnyCharacter | Step::Range { .. } => {}
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
mod tests;
