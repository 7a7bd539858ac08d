//! Patterns for subjects in authorization rules.
//!
//! A pattern is compared with a subject as a line of a grid-mapfile is: independent of case, and of the spelling of
//! attributes and of slashes in values. Otherwise another spelling would evade a rule.

use std::fmt;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::one_line;

/// The maximum length of a pattern. Names have at most some thousand bytes.
const MAX_BYTES: usize = 16 << 10;

/// The maximum number of alternatives (`{a,b}`) in a pattern. They may be nested, and are parsed by recursion.
const MAX_CHOICES: usize = 64;

/// A pattern for subjects: `*` matches any text including slashes, `?` a character, `[a-z]` a character of a class, `{a,b}`
/// an alternative. A backslash matches itself, because subjects contain `\xHH`.
#[derive(Clone)]
pub struct SubjectPattern {
    text: String,
    /// The pattern as it was written, and in the normalized spelling.
    globs: GlobSet,
}

/// Why a text is not a valid pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// It is too long, or has too many alternatives.
    #[error("a pattern has at most {MAX_BYTES} bytes and {MAX_CHOICES} choices in braces")]
    TooLong,
    /// It is not well-formed.
    #[error("{0}")]
    Malformed(String),
}

/// A subject in all its spellings, for comparisons with patterns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    spellings: Vec<String>,
}

/// The pattern as it was written.
impl fmt::Display for SubjectPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl SubjectPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    ///
    /// When it is malformed or too long.
    pub fn new(text: &str) -> Result<Self, PatternError> {
        if text.len() > MAX_BYTES || text.matches('{').count() > MAX_CHOICES {
            return Err(PatternError::TooLong);
        }
        let malformed = |error: globset::Error| PatternError::Malformed(error.to_string());
        let mut globs = GlobSetBuilder::new();
        for text in [text, &one_line::spell(text)] {
            let glob = GlobBuilder::new(text)
                .literal_separator(false)
                .backslash_escape(false)
                .case_insensitive(true)
                .build();
            globs.add(glob.map_err(malformed)?);
        }
        Ok(Self {
            text: text.to_owned(),
            // Compiling a single glob would panic where this returns an error.
            globs: globs.build().map_err(malformed)?,
        })
    }

    /// Parses a pattern in which only `*` and `?` are wildcards.
    ///
    /// # Errors
    ///
    /// When it is too long.
    pub(crate) fn of_wildcards(text: &str) -> Result<Self, PatternError> {
        let mut pattern = String::with_capacity(text.len());
        for letter in text.chars() {
            // A class of one character matches this character.
            match letter {
                '[' | ']' | '{' | '}' => pattern.extend(['[', letter, ']']),
                _ => pattern.push(letter),
            }
        }
        Self::new(&pattern)
    }

    /// Whether the pattern matches this subject.
    pub fn matches(&self, subject: &Subject) -> bool {
        let mut spellings = subject.spellings.iter();
        spellings.any(|spelling| self.globs.is_match(spelling))
    }
}

impl PartialEq for SubjectPattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl fmt::Debug for SubjectPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SubjectPattern({:?})", self.text)
    }
}

impl Subject {
    /// A subject in the one-line form, as [`Name::one_line`](crate::name::Name::one_line) writes it.
    pub fn new(one_line: &str) -> Self {
        let spelled = one_line::spell(one_line);
        let mut spellings = Vec::new();
        for base in [one_line, &spelled] {
            for mail in ["/emailAddress=", "/Email=", "/E="] {
                for user in ["/UID=", "/USERID="] {
                    let text = replaced(base, "/emailAddress=", mail);
                    add(&mut spellings, replaced(&text, "/UID=", user));
                }
            }
        }
        // Administrators may write names that are not ASCII in UTF-8.
        for index in 0..spellings.len() {
            if let Some(text) = unescaped(&spellings[index]) {
                add(&mut spellings, text);
            }
        }
        Self { spellings }
    }
}

fn add(spellings: &mut Vec<String>, text: String) {
    if !spellings.contains(&text) {
        spellings.push(text);
    }
}

/// Replaces the name of an attribute, but not in a value.
fn replaced(text: &str, from: &str, to: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(from) {
        let (before, behind) = (&rest[..at], &rest[at + from.len()..]);
        result.push_str(before);
        result.push_str(if before.ends_with('\\') { from } else { to });
        rest = behind;
    }
    result.push_str(rest);
    result
}

/// Replaces `\xHH` by bytes. `None` if the text has none, or the result is not UTF-8.
fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("\\x") {
        bytes.extend(&rest.as_bytes()[..at]);
        let digits = rest.get(at + 2..at + 4);
        match digits.map(|digits| u8::from_str_radix(digits, 16)) {
            Some(Ok(byte)) => {
                bytes.push(byte);
                rest = &rest[at + 4..];
            }
            _ => {
                bytes.extend(b"\\x");
                rest = &rest[at + 2..];
            }
        }
    }
    if bytes.is_empty() {
        return None;
    }
    bytes.extend(rest.as_bytes());
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::gridmap::Gridmap;

    fn matches(pattern: &str, subject: &str) -> bool {
        let pattern = SubjectPattern::new(pattern).expect(pattern);
        pattern.matches(&Subject::new(subject))
    }

    #[test]
    fn a_subject_is_matched_as_a_whole_and_a_star_takes_slashes() {
        const ALICE: &str = "/DC=org/DC=example/CN=Alice Smith";
        for (pattern, expected) in [
            (ALICE, true),
            ("*", true),
            ("/DC=org/*", true),
            ("/DC=org/DC=example/CN=Alice*", true),
            ("/DC=org/DC=example/CN=?lice Smith", true),
            ("/DC=org/DC={example,test}/*", true),
            ("/dc=ORG/*/cn=[a-c]lice smith", true),
            ("/DC=org", false),
            ("*/CN=Alice", false),
            ("/DC=org/*/CN=[!A]lice Smith", false),
        ] {
            assert_eq!(matches(pattern, ALICE), expected, "{pattern}");
        }
    }

    #[test]
    fn every_spelling_of_a_subject_is_matched() {
        let subject = r"/DC=org/UID=7/CN=host\/J\xC3\xB6rg/emailAddress=a@b.org";
        for pattern in [
            r"/DC=org/UID=7/CN=host\/J\xC3\xB6rg/emailAddress=a@b.org",
            r"/DC=org/USERID=7/CN=host/J\xc3\xb6rg/E=a@b.org",
            "/DC=org/uid=7/CN=host/Jörg/Email=A@B.org",
            "/DC=org/*/CN=host/Jö*/{E,Email}=*",
            "/DC=org/{USERID,UID}=*/E=a@b.org",
        ] {
            assert!(matches(pattern, subject), "{pattern}");
        }
        for pattern in ["/DC=org/UID=7", "/DC=org/CN=7/*", "*/CN=a@b.org"] {
            assert!(!matches(pattern, subject), "{pattern}");
        }
    }

    #[test]
    fn an_attribute_in_a_value_is_no_attribute() {
        assert!(!matches("/CN=a/E=b", r"/CN=a\/emailAddress=b"));
        assert!(!matches("/CN=a/UID=b", r"/CN=a\/UID=b"));
        assert!(matches(r"/CN=a\/UID=b", r"/CN=a\/UID=b"));
    }

    #[test]
    fn malformed_patterns_are_refused_without_a_panic() {
        for (text, words) in [
            ("[".to_owned(), "unclosed character class"),
            ("{".repeat(300), "at most"),
            ("x".repeat(MAX_BYTES + 1), "at most"),
            (format!("{}{}", "{".repeat(64), "}".repeat(63)), "unclosed"),
        ] {
            let error = SubjectPattern::new(&text).expect_err(&text);
            assert!(error.to_string().contains(words), "{error}");
        }
        let nested = format!("{}a{}", "{".repeat(MAX_CHOICES), "}".repeat(MAX_CHOICES));
        assert!(matches(&nested, "a"));
    }

    proptest! {
        /// A pattern without special characters matches all subjects that the same line of a grid-mapfile maps.
        #[test]
        fn a_plain_pattern_means_what_a_line_of_a_grid_mapfile_means(
            subject in r"(/(CN|E|Email|emailAddress|UID|USERID)=[a-bA-B ]{0,3}){1,4}",
            line in r"(/(CN|E|Email|emailAddress|UID|USERID)=[a-bA-B ]{0,3}){1,4}",
        ) {
            let (map, problems) = Gridmap::parse(format!("\"{line}\" account").as_bytes());
            prop_assert_eq!(problems, []);
            if !map.accounts(&subject).is_empty() {
                prop_assert!(matches(&line, &subject));
            }
            prop_assert!(matches(&subject, &subject));
        }

        #[test]
        fn arbitrary_texts_do_no_harm(pattern in "[{}a,*\\[\\]!\\\\/E=x?-]{0,40}", subject in "\\PC{0,40}") {
            if let Ok(pattern) = SubjectPattern::new(&pattern) {
                pattern.matches(&Subject::new(&subject));
            }
        }
    }
}
