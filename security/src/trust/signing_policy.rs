//! Signing policies: which subjects a certificate authority may issue.
//!
//! A file has entries such as this one. Line breaks are white space, and `#` begins a comment.
//!
//! ```text
//! access_id_CA  X509    '/DC=org/CN=Grid CA'
//! pos_rights    globus  CA:sign
//! cond_subjects globus  '"/DC=org/DC=users/*" "/DC=org/DC=hosts/*"'
//! ```

use std::iter::Peekable;

use crate::one_line;

/// Larger files are refused.
const MAX_BYTES: usize = 1 << 20;

/// The content of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SigningPolicy {
    entries: Vec<Entry>,
}

/// Authorities, and the conditions under which they may sign.
#[derive(Debug, Default, PartialEq, Eq)]
struct Entry {
    authorities: Vec<Authority>,
    /// One of these must be satisfied.
    rights: Vec<Conditions>,
}

/// The authority of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Authority {
    /// `access_id_ANYBODY`.
    Any,
    /// The name, in the normalized form.
    Named(String),
}

impl Authority {
    /// The authority with this one-line name.
    pub(super) fn named(name: &str) -> Self {
        Self::Named(compared(name))
    }
}

/// Conditions, which must all be satisfied. Each is a list of patterns, one of which must match.
type Conditions = Vec<Vec<String>>;

impl SigningPolicy {
    /// Parses the content of a file.
    ///
    /// # Errors
    ///
    /// The first syntax error. globus-gridftp-server ignores such a file as well.
    pub(super) fn parse(content: &[u8]) -> Result<Self, String> {
        if content.len() > MAX_BYTES {
            return Err(format!("it has more than {MAX_BYTES} bytes"));
        }
        let mut words = words(content)?.into_iter().peekable();
        let mut entries = Vec::new();
        while words.peek().is_some() {
            entries.push(Entry::parse(&mut words)?);
        }
        Ok(Self { entries })
    }

    /// The authorities of all entries.
    pub(super) fn authorities(&self) -> impl Iterator<Item = &Authority> {
        self.entries.iter().flat_map(|entry| &entry.authorities)
    }

    /// Whether the authority may issue the subject. Both are in the one-line form.
    pub(super) fn allows(&self, authority: &str, subject: &str) -> bool {
        let authority = Authority::named(authority);
        let subject = compared(subject);
        self.entries
            .iter()
            .filter(|entry| entry.is_about(&authority))
            .flat_map(|entry| &entry.rights)
            .any(|conditions| {
                conditions
                    .iter()
                    .all(|patterns| patterns.iter().any(|pattern| matches(pattern, &subject)))
            })
    }
}

impl Entry {
    fn parse(words: &mut Peekable<impl Iterator<Item = Vec<u8>>>) -> Result<Self, String> {
        let mut entry = Self::default();
        while let Some(word) = words.next_if(|word| word.starts_with(b"access_id_")) {
            match &*word {
                b"access_id_ANYBODY" => entry.authorities.push(Authority::Any),
                b"access_id_CA" => {
                    let name = one_line::read(&argument(words, &word)?);
                    entry.authorities.push(Authority::named(&name));
                }
                // Users, hosts and groups issue no certificates.
                _ => drop(argument(words, &word)?),
            }
        }
        let is_right = |word: &Vec<u8>| matches!(&**word, b"pos_rights" | b"neg_rights");
        if !words.peek().is_some_and(is_right) {
            let found = words.next().unwrap_or_default();
            return Err(match String::from_utf8_lossy(&found) {
                word if word.is_empty() => "'pos_rights' is missing at its end".to_owned(),
                word => format!("'{word}' was found, but access_id_CA or pos_rights is expected"),
            });
        }
        while words.peek().is_some_and(is_right) {
            entry.parse_rights(words, is_right)?;
        }
        Ok(entry)
    }

    /// Rights, and the conditions that they all have.
    fn parse_rights(
        &mut self,
        words: &mut Peekable<impl Iterator<Item = Vec<u8>>>,
        is_right: impl Fn(&Vec<u8>) -> bool,
    ) -> Result<(), String> {
        let mut may_sign = false;
        while let Some(word) = words.next_if(&is_right) {
            let right = argument(words, &word)?;
            // As in globus-gridftp-server, `neg_rights` has no effect: only granted rights are permitted.
            may_sign |= word == b"pos_rights" && right == b"CA:sign";
        }
        let mut conditions = Conditions::new();
        while let Some(word) = words.next_if(|word| word.starts_with(b"cond_")) {
            let value = argument(words, &word)?;
            conditions.push(match &*word {
                b"cond_subjects" => patterns(&value)?,
                // An unknown condition is never satisfied.
                _ => Vec::new(),
            });
        }
        if may_sign {
            self.rights.push(conditions);
        }
        Ok(())
    }

    fn is_about(&self, authority: &Authority) -> bool {
        self.authorities.contains(authority) || self.authorities.contains(&Authority::Any)
    }
}

/// The value of a keyword. The defining authority between them is ignored.
fn argument(words: &mut impl Iterator<Item = Vec<u8>>, keyword: &[u8]) -> Result<Vec<u8>, String> {
    let value = words.next().and_then(|_| words.next());
    value.ok_or_else(|| {
        let keyword = String::from_utf8_lossy(keyword);
        format!("there must be two words after '{keyword}'")
    })
}

/// Splits at white space. `'...'` is one word.
fn words(content: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let mut words = Vec::new();
    let mut rest = content.trim_ascii_start();
    while let Some(first) = rest.first() {
        let end = match first {
            b'#' => find(rest, |byte| byte == b'\n').unwrap_or(rest.len()),
            b'\'' => {
                let (word, end) = quoted(rest)?;
                words.push(word);
                end
            }
            _ => {
                let end = find(rest, |byte| byte.is_ascii_whitespace()).unwrap_or(rest.len());
                words.push(rest[..end].to_vec());
                end
            }
        };
        rest = rest[end..].trim_ascii_start();
    }
    Ok(words)
}

/// The text between apostrophes, and its end. A backslash escapes an apostrophe.
fn quoted(text: &[u8]) -> Result<(Vec<u8>, usize), String> {
    let mut word = Vec::new();
    let mut at = 1;
    loop {
        match text.get(at..) {
            Some([b'\\', b'\'', ..]) => {
                word.push(b'\'');
                at += 2;
            }
            Some([b'\'', ..]) => return Ok((word, at + 1)),
            Some([byte, ..]) => {
                word.push(*byte);
                at += 1;
            }
            _ => return Err("an apostrophe (') is not closed by another one".to_owned()),
        }
    }
}

/// `"pattern" "pattern"`, or one pattern without quotes.
fn patterns(value: &[u8]) -> Result<Vec<String>, String> {
    let mut patterns = Vec::new();
    let mut rest = value.trim_ascii();
    while !rest.is_empty() {
        let (pattern, behind) = match rest.strip_prefix(b"\"") {
            Some(text) => {
                let end = find(text, |byte| byte == b'"')
                    .ok_or("a quotation mark (\") in cond_subjects is not closed by another one")?;
                (&text[..end], &text[end + 1..])
            }
            None => (rest, &[][..]),
        };
        patterns.push(compared(&one_line::read(pattern)));
        rest = behind.trim_ascii_start();
    }
    match patterns.is_empty() {
        true => Err("cond_subjects has no pattern".to_owned()),
        false => Ok(patterns),
    }
}

/// The last `*` matches one or more characters.
fn matches(pattern: &str, subject: &str) -> bool {
    if pattern == subject {
        return true;
    }
    let Some((start, end)) = pattern.rsplit_once('*') else {
        return false;
    };
    subject.len() > start.len() + end.len()
        && subject.as_bytes().starts_with(start.as_bytes())
        && subject.as_bytes().ends_with(end.as_bytes())
}

/// The normalized form of names and patterns, independent of case and spelling.
fn compared(name: &str) -> String {
    one_line::spell(name).to_ascii_lowercase()
}

fn find(text: &[u8], is_end: impl Fn(u8) -> bool) -> Option<usize> {
    text.iter().position(|byte| is_end(*byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CA: &str = "/DC=org/CN=Grid CA";

    fn policy(conditions: &str) -> SigningPolicy {
        let text = format!("access_id_CA X509 '{CA}'\npos_rights globus CA:sign\n{conditions}\n");
        SigningPolicy::parse(text.as_bytes()).expect("a policy")
    }

    fn refused(text: &str) -> String {
        SigningPolicy::parse(text.as_bytes()).expect_err(text)
    }

    #[test]
    fn subjects_match_one_of_several_patterns() {
        let policy = policy(r#"cond_subjects globus '"/DC=org/DC=users/*" "/DC=org/CN=one"'"#);
        assert!(policy.allows(CA, "/DC=org/DC=users/CN=Alice Smith"));
        assert!(policy.allows(CA, "/DC=org/CN=one"));
        assert!(!policy.allows(CA, "/DC=org/CN=one more"));
        assert!(!policy.allows(CA, "/DC=org/DC=users/"));
        assert!(!policy.allows(CA, "/DC=com/DC=org/DC=users/CN=Alice"));
        assert!(!policy.allows("/DC=org/CN=Other CA", "/DC=org/CN=one"));
    }

    #[test]
    fn a_single_pattern_needs_no_quotation_marks() {
        for value in [
            "/DC=org/*",
            "'/DC=org/*'",
            "\"/DC=org/*\"",
            "' \"/DC=org/*\" '",
        ] {
            let policy = policy(&format!("cond_subjects globus {value}"));
            assert!(policy.allows(CA, "/DC=org/CN=one"), "{value}");
            assert!(!policy.allows(CA, "/DC=com/CN=one"), "{value}");
        }
        let with_space = policy("cond_subjects globus '/O=My Grid/*'");
        assert!(with_space.allows(CA, "/O=My Grid/CN=a"));
    }

    #[test]
    fn only_the_last_star_is_a_wildcard() {
        let policy = policy("cond_subjects globus '/O=*/CN=*/OU=x'");
        assert!(policy.allows(CA, "/O=*/CN=a/b/OU=x"));
        assert!(!policy.allows(CA, "/O=a/CN=a/OU=x"));
        assert!(!policy.allows(CA, "/O=*/CN=/OU=x"));
    }

    #[test]
    fn case_and_spelling_do_not_count() {
        let policy = policy("cond_subjects globus '/o=grid/E=*'");
        assert!(policy.allows("/dc=ORG/cn=grid ca", "/O=Grid/emailAddress=A@b.org"));
    }

    #[test]
    fn slashes_in_values_may_be_written_in_both_ways() {
        let old = policy("cond_subjects globus '/O=Grid/CN=host/*'");
        let new = policy(r"cond_subjects globus '/O=Grid/CN=host\/*'");
        for policy in [old, new] {
            assert!(policy.allows(CA, r"/O=Grid/CN=host\/a.org"));
            assert!(!policy.allows(CA, "/O=Grid/CN=a.org"));
        }
    }

    #[test]
    fn bytes_that_are_not_ascii_match_their_escapes() {
        let policy = policy("cond_subjects globus '/C=CH/ST=Genève/*'");
        assert!(policy.allows(CA, r"/C=CH/ST=Gen\xC3\xA8ve/CN=a"));
    }

    #[test]
    fn without_conditions_every_subject_is_allowed() {
        assert!(policy("").allows(CA, "/CN=any name"));
    }

    #[test]
    fn comments_and_several_entries_are_read() {
        let text = "# first\naccess_id_CA X509 /CN=a # why\naccess_id_CA X509 /CN=b\n\
            pos_rights globus CA:sign\ncond_subjects globus /O=x/*\n\
            pos_rights globus CA:sign cond_subjects globus /O=y/*\n\
            access_id_ANYBODY\npos_rights globus CA:sign\ncond_subjects globus /O=z/*";
        let policy = SigningPolicy::parse(text.as_bytes()).expect("a policy");
        for (authority, subject, allowed) in [
            ("/CN=a", "/O=x/CN=1", true),
            ("/CN=b", "/O=y/CN=1", true),
            ("/CN=c", "/O=x/CN=1", false),
            ("/CN=c", "/O=z/CN=1", true),
        ] {
            assert_eq!(
                policy.allows(authority, subject),
                allowed,
                "{authority} {subject}"
            );
        }
    }

    #[test]
    fn other_rights_and_unknown_conditions_allow_nothing() {
        for text in [
            "access_id_CA X509 /CN=a\nneg_rights globus CA:sign",
            "access_id_CA X509 /CN=a\npos_rights globus file:read",
            "access_id_CA X509 /CN=a\npos_rights globus CA:sign\ncond_time globus 1-2",
            "access_id_USER X509 /CN=a\npos_rights globus CA:sign",
            "",
        ] {
            let policy = SigningPolicy::parse(text.as_bytes()).expect("a policy");
            assert!(!policy.allows("/CN=a", "/CN=a"), "{text}");
        }
    }

    #[test]
    fn syntax_errors_are_reported() {
        assert!(refused("access_id_CA X509").contains("access_id_CA"));
        assert!(refused("access_id_CA X509 '/CN=a").contains("apostrophe"));
        assert!(refused("access_id_CA X509 /CN=a").contains("pos_rights"));
        assert!(refused("TO Issuer self PERMIT").contains("'TO'"));
        let start = "access_id_CA X509 /CN=a pos_rights globus CA:sign ";
        assert!(refused(&format!("{start} cond_subjects globus ''")).contains("no pattern"));
        assert!(refused(&format!("{start} cond_subjects globus '\"/O=x'")).contains("quotation"));
        assert!(refused(&"#".repeat(MAX_BYTES + 1)).contains("bytes"));
    }

    proptest! {
        #[test]
        fn no_text_panics(
            parts in proptest::collection::vec(
                prop_oneof![
                    "[ -~\n]{0,8}",
                    Just("access_id_CA X509 ".to_owned()),
                    Just("pos_rights globus CA:sign ".to_owned()),
                    Just("cond_subjects globus ".to_owned()),
                    Just("'\"/O=*\"'".to_owned()),
                ],
                0..12,
            ),
            bytes in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let text = [parts.concat().as_bytes(), &bytes].concat();
            if let Ok(policy) = SigningPolicy::parse(&text) {
                policy.allows(CA, "/O=a");
            }
        }
    }
}
