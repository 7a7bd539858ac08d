//! grid-mapfiles, which map identities to accounts.
//!
//! A line is `"/O=Grid/CN=Alice Smith" alice,shared`: a subject in the one-line form, in quotes unless it has no space, and
//! accounts, the default one first. `.atlas` stands for an account of the pool `atlas`. `#` begins a comment. Subjects are compared as in globus-gridftp-server: independent of
//! case, with `E`, `Email` and `emailAddress` as one attribute, and `UID` and `USERID` as another. Unlike there, all lines
//! of a subject are used, not only the first.

mod line;
mod pattern;

use std::collections::HashMap;
use std::fmt;

use crate::one_line;

pub use pattern::{PatternError, Subject, SubjectPattern};

/// The maximum length of a line. Longer ones are problems.
const MAX_LINE: usize = 64 << 10;

/// The maximum number of accounts of a subject.
const MAX_ACCOUNTS: usize = 1000;

/// The maximum number of problems that are reported.
const MAX_PROBLEMS: usize = 100;

/// A parsed grid-mapfile.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gridmap {
    entries: Vec<Entry>,
    /// The position of the entry of a subject, in the normalized form.
    index: HashMap<String, usize>,
}

/// A subject and its accounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The number of its first line, from 1.
    pub line: usize,
    /// The subject in the one-line form, as it is written in that line.
    pub subject: String,
    /// The accounts, the default one first.
    pub accounts: Vec<String>,
}

/// An invalid line. The others are used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct GridmapProblem {
    /// Its number, from 1.
    pub line: usize,
    /// The cause and the remedy.
    pub reason: String,
}

impl Gridmap {
    /// Parses the content of a file. Invalid lines are skipped, and reported up to a hundred of them.
    pub fn parse(content: &[u8]) -> (Self, Vec<GridmapProblem>) {
        let mut map = Self::default();
        let mut problems = Vec::new();
        for (index, line) in content.split(|&byte| byte == b'\n').enumerate() {
            let number = index + 1;
            let added = if line.len() > MAX_LINE {
                Err(format!("it is longer than {MAX_LINE} bytes"))
            } else {
                line::parse(line).and_then(|parsed| match parsed {
                    Some((subject, accounts)) => map.add(number, subject, accounts),
                    None => Ok(()),
                })
            };
            if let Err(reason) = added {
                note(&mut problems, number, reason);
            }
        }
        (map, problems)
    }

    /// The accounts of an identity (one-line form), the default one first. Empty if it has none.
    pub fn accounts(&self, identity: &str) -> &[String] {
        match self.index.get(&compared(identity)) {
            Some(&entry) => &self.entries[entry].accounts,
            None => &[],
        }
    }

    /// All subjects, in the order of the file.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    fn add(&mut self, line: usize, subject: String, accounts: Vec<String>) -> Result<(), String> {
        let entry = *self.index.entry(compared(&subject)).or_insert_with(|| {
            self.entries.push(Entry {
                line,
                subject,
                accounts: Vec::new(),
            });
            self.entries.len() - 1
        });
        let known = &mut self.entries[entry].accounts;
        for account in accounts {
            if known.contains(&account) {
                continue;
            }
            if known.len() == MAX_ACCOUNTS {
                return Err(format!(
                    "the subject has more than {MAX_ACCOUNTS} accounts; the rest is left out"
                ));
            }
            known.push(account);
        }
        Ok(())
    }
}

/// The normalized form of a subject, for comparisons.
pub(crate) fn compared(subject: &str) -> String {
    one_line::spell(subject).to_ascii_lowercase()
}

fn note(problems: &mut Vec<GridmapProblem>, line: usize, reason: impl fmt::Display) {
    let reason = match problems.len() {
        0..MAX_PROBLEMS => reason.to_string(),
        MAX_PROBLEMS => {
            "this line is invalid, and perhaps further ones: correct the lines above".to_owned()
        }
        _ => return,
    };
    problems.push(GridmapProblem { line, reason });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts(content: &str, identity: &str) -> Vec<String> {
        let (map, problems) = Gridmap::parse(content.as_bytes());
        assert_eq!(problems, [], "{content}");
        map.accounts(identity).to_vec()
    }

    #[test]
    fn the_first_account_is_the_default() {
        let content = "# users\n\n\"/O=Grid/CN=Test User\" gridtest\n  \
                       \"/O=Grid/CN=Second User\"\tnobody,gridtest  # two\r\n/O=Grid/CN=third third";
        assert_eq!(accounts(content, "/O=Grid/CN=Test User"), ["gridtest"]);
        let second = accounts(content, "/O=Grid/CN=Second User");
        assert_eq!(second, ["nobody", "gridtest"]);
        assert_eq!(accounts(content, "/O=Grid/CN=third"), ["third"]);
        assert_eq!(accounts(content, "/O=Grid/CN=fourth"), [""; 0]);
    }

    #[test]
    fn a_subject_is_found_in_every_spelling() {
        let content = "\"/DC=org/UID=328453245/Email=John@Doe.com\" jdoe , john_doe,doeJohn";
        for identity in [
            "/DC=org/UID=328453245/Email=John@Doe.com",
            "/DC=org/USERID=328453245/emailAddress=john@doe.com",
            "/dc=ORG/uid=328453245/E=john@doe.com",
        ] {
            let found = accounts(content, identity);
            assert_eq!(found, ["jdoe", "john_doe", "doeJohn"], "{identity}");
        }
        for identity in [
            "/DC=org/UID=328453245",
            "/DC=org/UID=328453245/CN=John@Doe.com",
            "/DC=org/UID=328453245/Email=John@Doe.com/CN=proxy",
            "",
        ] {
            assert_eq!(accounts(content, identity), [""; 0], "{identity}");
        }
    }

    #[test]
    fn all_lines_of_a_subject_count() {
        let content = "\"/CN=a\" x,y\n\"/CN=b\" b\n\"/cn=A\" y,z\n";
        assert_eq!(accounts(content, "/CN=a"), ["x", "y", "z"]);
        let (map, _) = Gridmap::parse(content.as_bytes());
        let lines: Vec<_> = map.entries().iter().map(|entry| entry.line).collect();
        assert_eq!(lines, [1, 2]);
    }

    #[test]
    fn names_in_utf8_are_found_as_openssl_writes_them() {
        let identity = r"/CN=J\xC3\xBCrgen";
        for content in ["\"/CN=Jürgen\" j", r#""/CN=J\xc3\xbcrgen" j"#] {
            assert_eq!(accounts(content, identity), ["j"]);
        }
    }

    #[test]
    fn wrong_lines_are_named_and_the_others_work() {
        let (map, problems) = Gridmap::parse(b"\"/CN=a\" a\n\"/CN=b b\n\n\"/CN=c\"\n\"/CN=d\" d\n");
        let lines: Vec<_> = problems.iter().map(|problem| problem.line).collect();
        assert_eq!(lines, [2, 4]);
        assert_eq!(map.accounts("/CN=a"), ["a"]);
        assert_eq!(map.accounts("/CN=d"), ["d"]);
        assert_eq!(map.entries().len(), 2);
    }

    #[test]
    fn lines_accounts_and_problems_are_bounded() {
        let mut content = format!("\"/CN={}\" a\n", "x".repeat(MAX_LINE));
        for account in 0..=MAX_ACCOUNTS {
            content.push_str(&format!("/CN=many a{account}\n"));
        }
        content.push_str(&"wrong\n".repeat(2 * MAX_PROBLEMS));
        let (map, problems) = Gridmap::parse(content.as_bytes());
        assert_eq!(map.accounts("/CN=many").len(), MAX_ACCOUNTS);
        assert_eq!(problems.len(), MAX_PROBLEMS + 1);
        assert_eq!(problems[0].line, 1);
        assert_eq!(problems[1].line, MAX_ACCOUNTS + 2);
    }
}
