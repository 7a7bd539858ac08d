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
pub(crate) struct Pattern {
    /// What stands before the last name, with its slash.
    pub(crate) prefix: Vec<u8>,
    steps: Steps,
    /// Names that begin with a dot fit only if the pattern says the dot.
    hidden: bool,
}

impl Pattern {
    /// `None` if there is nothing special in the last name, or it cannot be a pattern.
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

    pub(crate) fn fits(&self, name: &OsStr) -> bool {
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
mod tests;
