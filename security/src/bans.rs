//! Ban lists: users, groups and virtual organizations that are refused.
//!
//! A line is a subject in the one-line form, or an attribute or virtual organization. `*` matches any text including slashes,
//! and `?` one character. `#` begins a comment. Subjects may be in quotes, and text after the closing quote is ignored, so
//! `ban_users.db` of LCAS and lists in the format of grid-mapfiles can be used. Subjects are compared as in grid-mapfiles.
//!
//! A list with a line that is none of these is refused as a whole: a line that was meant to ban must not be skipped.

use std::collections::HashMap;

use crate::gridmap::{Subject, SubjectPattern, compared};
use crate::one_line;
use crate::voms::{Fqan, Membership};

/// The maximum length of a line in bytes.
const MAX_LINE: usize = 16 << 10;

/// The maximum number of lines with wildcards. Each is compared with every client.
const MAX_PATTERNS: usize = 10_000;

/// A parsed ban list.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BanList {
    /// The lines of subjects without wildcards, by their normalized form.
    subjects: HashMap<String, usize>,
    patterns: Vec<(SubjectPattern, usize)>,
    attributes: Vec<(AttributePattern, usize)>,
}

/// A list that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct BanListError {
    /// The number of the line, from 1.
    pub line: usize,
    /// The cause and the remedy.
    pub reason: String,
}

impl BanList {
    /// Parses the content of a file.
    ///
    /// # Errors
    ///
    /// The first line that cannot be used.
    pub fn parse(content: &[u8]) -> Result<Self, BanListError> {
        let mut list = Self::default();
        for (index, line) in content.split(|&byte| byte == b'\n').enumerate() {
            let line_number = index + 1;
            list.add(line_number, line).map_err(|reason| BanListError {
                line: line_number,
                reason,
            })?;
        }
        Ok(list)
    }

    /// The number of the line that bans a client with one of these subjects (one-line form) or memberships, if there is one.
    pub fn line_about(&self, subjects: &[&str], memberships: &[Membership]) -> Option<usize> {
        let by_name = subjects
            .iter()
            .find_map(|subject| self.subjects.get(&compared(subject)).copied());
        by_name
            .or_else(|| self.pattern_about(subjects))
            .or_else(|| {
                let attributes = self.attributes.iter();
                let mut found = attributes.filter(|(pattern, _)| {
                    let mut memberships = memberships.iter();
                    memberships.any(|membership| pattern.matches(membership))
                });
                found.next().map(|(_, line)| *line)
            })
    }

    /// The number of lines that ban.
    pub fn len(&self) -> usize {
        self.subjects.len() + self.patterns.len() + self.attributes.len()
    }

    /// Whether nothing is banned.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a line bans by attribute or virtual organization.
    pub fn has_attributes(&self) -> bool {
        !self.attributes.is_empty()
    }

    fn pattern_about(&self, subjects: &[&str]) -> Option<usize> {
        if self.patterns.is_empty() {
            return None;
        }
        let subjects: Vec<Subject> = subjects.iter().copied().map(Subject::new).collect();
        let mut found = self.patterns.iter().filter(|(pattern, _)| {
            let mut subjects = subjects.iter();
            subjects.any(|subject| pattern.matches(subject))
        });
        found.next().map(|(_, line)| *line)
    }

    fn add(&mut self, number: usize, line: &[u8]) -> Result<(), String> {
        if line.len() > MAX_LINE {
            return Err(format!("it is longer than {MAX_LINE} bytes"));
        }
        let Some(entry) = entry(line)? else {
            return Ok(());
        };
        let kind = Kind::of(entry);
        if matches!(kind, Kind::Subject | Kind::Either) {
            let subject = one_line::read(entry);
            if !has_wildcard(entry) {
                self.subjects.entry(compared(&subject)).or_insert(number);
                return Ok(());
            }
            let pattern = SubjectPattern::of_wildcards(&subject);
            let pattern = pattern.map_err(|error| error.to_string())?;
            self.patterns.push((pattern, number));
        }
        match (kind, AttributePattern::new(entry)) {
            (Kind::Subject, _) | (Kind::Either, Err(_)) => {}
            (Kind::Attribute, Err(reason)) => return Err(reason),
            (Kind::Attribute | Kind::Either, Ok(pattern)) => {
                self.attributes.push((pattern, number));
            }
        }
        if self.patterns.len() + self.attributes.len() > MAX_PATTERNS {
            return Err(format!(
                "more than {MAX_PATTERNS} lines have wildcards or attributes: write subjects without wildcards"
            ));
        }
        Ok(())
    }
}

/// The entry of a line without quotes and comments; `None` if there is none.
fn entry(line: &[u8]) -> Result<Option<&[u8]>, String> {
    let line = line.trim_ascii();
    let entry = match line.strip_prefix(b"\"") {
        None => without_comment(line),
        Some(quoted) => {
            let end = quoted.iter().position(|&byte| byte == b'"');
            let end =
                end.ok_or("the quote at the beginning is not closed: write \" after the subject")?;
            quoted[..end].trim_ascii()
        }
    };
    if entry.is_empty() && line.first() == Some(&b'"') {
        return Err("there is nothing in the quotes".to_owned());
    }
    Ok((!entry.is_empty()).then_some(entry))
}

/// A subject may contain `#`, so a comment begins at the line or behind a space.
fn without_comment(line: &[u8]) -> &[u8] {
    let comment = line
        .iter()
        .enumerate()
        .position(|(at, &byte)| byte == b'#' && (at == 0 || line[at - 1].is_ascii_whitespace()));
    line[..comment.unwrap_or(line.len())].trim_ascii_end()
}

/// What an entry is about.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Subject,
    Attribute,
    /// A wildcard in the first component leaves both open, as in `*` and `/*`.
    Either,
}

impl Kind {
    /// Subjects begin with an attribute and its value (`/DC=org`). Of the components of an FQAN only `Role` and `Capability` have
    /// a value, and they are never the first.
    fn of(entry: &[u8]) -> Self {
        let rest = entry.strip_prefix(b"/");
        let rest_or_all = rest.unwrap_or(entry);
        let first = rest_or_all.split(|&byte| byte == b'/').next();
        let first = first.unwrap_or_default();
        if rest.is_some() && first.contains(&b'=') {
            Self::Subject
        } else if has_wildcard(first) {
            Self::Either
        } else {
            Self::Attribute
        }
    }
}

fn has_wildcard(entry: &[u8]) -> bool {
    entry.contains(&b'*') || entry.contains(&b'?')
}

/// A pattern for virtual organizations and attributes. Case matters.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AttributePattern(Vec<u8>);

impl AttributePattern {
    fn new(entry: &[u8]) -> Result<Self, String> {
        let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"/=._-*?".contains(byte);
        let is_vo = !matches!(entry.first(), Some(b'/' | b'*' | b'?'));
        if !entry.iter().all(fits) || is_vo && entry.contains(&b'=') {
            return Err(
                "it is neither a subject, as in /DC=org/CN=Name, nor an attribute or virtual organization, as in \
                 /atlas/Role=pilot or atlas: correct it, or put # before it"
                    .to_owned(),
            );
        }
        Ok(Self(entry.to_owned()))
    }

    /// The pattern of a virtual organization, `atlas` or `/atlas`, matches all members. `/atlas/*` does too, as in LCMAPS, where
    /// every attribute ends with a role.
    fn matches(&self, membership: &Membership) -> bool {
        let vo = self.0.strip_prefix(b"/").unwrap_or(&self.0);
        wildcards_match(vo, membership.vo.as_bytes())
            || membership.attributes.iter().any(|fqan| self.is_about(fqan))
    }

    fn is_about(&self, fqan: &Fqan) -> bool {
        let mut full = fqan.as_str().to_owned();
        if wildcards_match(&self.0, full.as_bytes()) {
            return true;
        }
        if !full.contains("/Role=") {
            full.push_str("/Role=NULL");
            if wildcards_match(&self.0, full.as_bytes()) {
                return true;
            }
        }
        full.push_str("/Capability=NULL");
        wildcards_match(&self.0, full.as_bytes())
    }
}

/// Whether a text matches a pattern with `*` and `?`. Takes at most the product of both lengths.
fn wildcards_match(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut next) = (0, 0);
    // Where the last `*` was, and the text that it has matched so far.
    let mut star: Option<(usize, usize)> = None;
    while next < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, next));
                at += 1;
            }
            Some(&byte) if byte == b'?' || byte == text[next] => {
                at += 1;
                next += 1;
            }
            _ => match star {
                Some((position, matched)) => {
                    star = Some((position, matched + 1));
                    at = position + 1;
                    next = matched + 1;
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use proptest::prelude::*;

    use super::*;

    fn membership(vo: &str, attributes: &[&str]) -> Membership {
        let attributes = attributes.iter();
        Membership {
            vo: vo.to_owned(),
            attributes: attributes
                .map(|text| Fqan::new(text).expect("valid"))
                .collect(),
            expires: SystemTime::UNIX_EPOCH,
        }
    }

    fn bans(list: &str, subject: &str) -> bool {
        let list = BanList::parse(list.as_bytes()).expect(list);
        list.line_about(&[subject], &[]).is_some()
    }

    #[test]
    fn a_subject_is_banned_in_every_spelling() {
        for line in [
            "/DC=org/CN=Al Smith/emailAddress=al@x.org",
            "\"/DC=org/CN=Al Smith/Email=al@x.org\"",
            "\"/DC=org/CN=Al Smith/E=al@x.org\" .banned   # since May",
            "/dc=ORG/cn=al smith/E=AL@x.org   # a comment",
            "/DC=org/CN=Al*",
            "*/CN=Al Smith/*",
            "/DC=org/CN=?l Smith/*",
            "/DC=org/CN=Al*",
            "/D*Al*",
        ] {
            let list = format!("# banned\n\n{line}\r\n");
            assert!(
                bans(&list, "/DC=org/CN=Al Smith/emailAddress=al@x.org"),
                "{line}"
            );
            assert!(!bans(&list, "/DC=org/CN=Bo Smith"), "{line}");
        }
    }

    #[test]
    fn a_wildcard_alone_bans_everybody() {
        for line in ["*", "/*", "\"*\""] {
            assert!(bans(line, "/DC=org/CN=Al Smith"), "{line}");
        }
    }

    #[test]
    fn only_stars_and_question_marks_are_wildcards() {
        let list = "/DC=org/CN=[ab] {c,d}*\n/DC=org/CN=x#y";
        assert!(bans(list, "/DC=org/CN=[ab] {c,d} e"));
        assert!(!bans(list, "/DC=org/CN=a c"));
        assert!(bans(list, "/DC=org/CN=x#y"));
    }

    #[test]
    fn an_attribute_bans_its_holders_and_a_vo_its_members() {
        let pilot = membership("atlas", &["/atlas", "/atlas/Role=pilot"]);
        let member = membership("atlas", &["/atlas"]);
        let group = membership("atlas", &["/atlas", "/atlas/de"]);
        let other = membership("atlasx", &["/atlasx/Role=pilot"]);
        for (line, expected) in [
            ("/atlas/Role=pilot", [true, false, false, false]),
            (
                "/atlas/Role=pilot/Capability=NULL",
                [true, false, false, false],
            ),
            ("/atlas/*", [true, true, true, false]),
            ("/atlas", [true, true, true, false]),
            ("atlas", [true, true, true, false]),
            ("/atlas/de*", [false, false, true, false]),
            ("*/Role=pilot", [true, false, false, true]),
        ] {
            let list = BanList::parse(line.as_bytes()).expect(line);
            let found = [&pilot, &member, &group, &other]
                .map(|one| list.line_about(&[], std::slice::from_ref(one)).is_some());
            assert_eq!(found, expected, "{line}");
        }
    }

    #[test]
    fn a_wrong_line_makes_the_list_unusable() {
        for (list, line, words) in [
            ("/CN=a\nCN=b,O=Grid\n", 2, "neither a subject"),
            ("/CN=a\n\n\"/CN=b", 3, "not closed"),
            ("\"\"", 1, "nothing in the quotes"),
            ("Al Smith", 1, "neither a subject"),
        ] {
            let error = BanList::parse(list.as_bytes()).expect_err(list);
            assert_eq!(error.line, line, "{list}");
            assert!(error.reason.contains(words), "{list}: {error}");
        }
        let long = format!("/CN={}", "x".repeat(MAX_LINE));
        BanList::parse(long.as_bytes()).expect_err("too long");
        BanList::parse("/CN=a*\n".repeat(MAX_PATTERNS + 1).as_bytes()).expect_err("too many");
        let list = BanList::parse(b"# nobody\n\n").expect("comments");
        assert!(list.is_empty() && !list.has_attributes());
    }

    proptest! {
        #[test]
        fn arbitrary_lists_do_no_harm(content in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(list) = BanList::parse(&content) {
                list.line_about(&["/CN=a"], &[]);
            }
        }

        #[test]
        fn every_subject_can_be_banned(name in "/CN=[!-~][ -~]{0,40}[!-~]") {
            prop_assume!(!name.contains(['"', '#', '\\']));
            prop_assert!(bans(&name, &name));
            let quoted = format!("\"{name}\"");
            prop_assert!(bans(&quoted, &name));
        }
    }
}
