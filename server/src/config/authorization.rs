//! `[[authorize]]`: the rules of the configuration file for identities.

use std::fmt;
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use gridhaul_security::gridmap::{Subject, SubjectPattern};
use serde::Deserialize;
use serde::de::{Deserializer, Error};

use super::cover;
use super::examples::Example;
use super::one_line;
use super::shown::Shown;
use super::tables;

/// A rule: a condition on identities, and its outcome.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Table")]
pub struct Rule {
    identity: Option<SubjectPattern>,
    vo: Option<Pattern>,
    fqan: Option<Pattern>,
    outcome: Outcome,
}

/// The outcome of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The identity is refused.
    Deny,
    /// The identity may use an account.
    Grant {
        /// The account; `None` stands for the accounts of the identity in the grid-mapfile.
        account: Option<String>,
        /// The directory that the session sees as `/`; `None` is the server's root.
        root: Option<PathBuf>,
        /// Nothing may be changed.
        read_only: bool,
    },
}

/// An authenticated client, as rules see it.
#[derive(Debug, Clone, Copy)]
pub struct Claimant<'a> {
    /// The effective identity.
    pub identity: &'a Subject,
    /// The subjects of all proxies, and of the certificate that issued the first of them.
    pub subjects: &'a [Subject],
    /// The verified memberships.
    pub memberships: &'a [MemberOf<'a>],
}

/// A membership as rules see it: a virtual organization, and its attributes.
#[derive(Debug, Clone, Copy)]
pub struct MemberOf<'a> {
    /// The virtual organization's name.
    pub vo: &'a str,
    /// The attributes, as `/atlas/Role=production`.
    pub fqans: &'a [&'a str],
}

/// The table in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Table {
    #[serde(default, deserialize_with = "identity")]
    identity: Option<SubjectPattern>,
    #[serde(default, deserialize_with = "organization")]
    vo: Option<Pattern>,
    #[serde(default, deserialize_with = "attribute")]
    fqan: Option<Pattern>,
    account: Option<String>,
    #[serde(default)]
    map: bool,
    #[serde(default)]
    deny: bool,
    root: Option<PathBuf>,
    #[serde(default)]
    read_only: bool,
}

/// An invalid table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum RuleError {
    #[error("a rule needs one of identity, vo and fqan; for all users, say identity = \"*\"")]
    WithoutSubject,
    #[error("a rule needs exactly one of account = \"NAME\", map = true and deny = true")]
    Outcome,
    #[error("a rule with deny = true has neither root nor read-only")]
    DenyGrants,
    #[error("a rule's account must be the name of an account")]
    Account,
    #[error("a rule's root must be an absolute path, or begin with $HOME")]
    Root,
}

impl Rule {
    /// The rule of a server without rules: the grid-mapfile decides.
    pub fn gridmap() -> Self {
        Self {
            identity: None,
            vo: None,
            fqan: None,
            outcome: Outcome::Grant {
                account: None,
                root: None,
                read_only: false,
            },
        }
    }

    /// Whether the rule matches a claimant. `vo` and `fqan` must match the same membership.
    ///
    /// A rule that denies matches any of the subjects, so that an independent proxy does not get around it.
    pub fn is_about(&self, claimant: &Claimant<'_>) -> bool {
        let denies = self.outcome == Outcome::Deny;
        let named = self.identity.as_ref().is_none_or(|pattern| {
            let mut subjects = claimant.subjects.iter();
            pattern.matches(claimant.identity)
                || denies && subjects.any(|subject| pattern.matches(subject))
        });
        let member = |membership: &MemberOf<'_>| {
            let attribute = self.fqan.as_ref().is_none_or(|fqan| {
                let mut fqans = membership.fqans.iter();
                fqans.any(|text| fqan.matches(text))
            });
            attribute && matches(self.vo.as_ref(), membership.vo)
        };
        named && (!self.asks_for_attributes() || claimant.memberships.iter().any(member))
    }

    /// Whether a later rule is never reached, because this one matches every client that the later one matches, and decides.
    /// Patterns whose only wildcard is `*` are compared with those of the later rule; others only with equal ones.
    pub(crate) fn hides(&self, later: &Self, independent_proxies: bool) -> bool {
        // A client without an account in the grid-mapfile goes on to the next rule.
        if self.is_mapped() {
            return false;
        }
        // A rule that denies also looks at other subjects than the identity.
        let sees_more = later.outcome == Outcome::Deny && self.outcome != Outcome::Deny;
        let identity = self
            .identity
            .as_ref()
            .is_none_or(|pattern| match &later.identity {
                None => pattern.to_string() == "*",
                Some(later) if !covers_subject(pattern, later) => false,
                Some(later) => {
                    let (first, later) = (pattern.to_string(), later.to_string());
                    !sees_more
                        || cover::has_all_issuers(&first)
                        || !independent_proxies && cover::is_user(&later)
                }
            });
        let covers = |first: &Option<Pattern>, later: &Option<Pattern>| match (first, later) {
            (None, _) => true,
            (Some(first), Some(later)) => first.covers(later),
            (Some(_), None) => false,
        };
        identity && covers(&self.vo, &later.vo) && covers(&self.fqan, &later.fqan)
    }

    /// The outcome of the rule.
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// Whether it depends on VOMS attributes.
    pub fn asks_for_attributes(&self) -> bool {
        self.vo.is_some() || self.fqan.is_some()
    }

    /// Whether it depends on the grid-mapfile.
    pub fn is_mapped(&self) -> bool {
        matches!(self.outcome, Outcome::Grant { account: None, .. })
    }
}

impl tables::Table for Rule {
    const KEYS: &'static [(&'static str, Example)] = &[
        ("identity", Example::own(SUBJECT, "\"/DC=org/*\"")),
        (
            "vo",
            Example::own("a virtual organization in quotes", "\"atlas\""),
        ),
        (
            "fqan",
            Example::own("a VOMS attribute in quotes", "\"/atlas/Role=production\""),
        ),
        (
            "account",
            Example::plain("the name of an account in quotes", "\"grid\""),
        ),
        ("map", Example::plain("true or false", "true")),
        ("deny", Example::plain("true or false", "true")),
        (
            "root",
            Example::plain("a directory in quotes", "\"/srv/data\""),
        ),
        ("read-only", Example::plain("true or false", "true")),
    ];

    type Parts = Table;
}

/// What `identity` must be.
pub(super) const SUBJECT: &str = "a subject in quotes, in which * stands for any text";

/// A missing condition matches.
fn matches(pattern: Option<&Pattern>, text: &str) -> bool {
    pattern.is_none_or(|pattern| pattern.matches(text))
}

impl TryFrom<Table> for Rule {
    type Error = RuleError;

    fn try_from(table: Table) -> Result<Self, RuleError> {
        if table.identity.is_none() && table.vo.is_none() && table.fqan.is_none() {
            return Err(RuleError::WithoutSubject);
        }
        let outcome = match (table.account, table.map, table.deny) {
            (None, false, true) if table.root.is_some() || table.read_only => {
                return Err(RuleError::DenyGrants);
            }
            (None, false, true) => Outcome::Deny,
            (Some(account), false, false) if !is_account(&account) => {
                return Err(RuleError::Account);
            }
            (account @ Some(_), false, false) | (account @ None, true, false) => Outcome::Grant {
                account,
                root: table.root,
                read_only: table.read_only,
            },
            _ => return Err(RuleError::Outcome),
        };
        if let Outcome::Grant {
            root: Some(root), ..
        } = &outcome
            && !is_root(root)
        {
            return Err(RuleError::Root);
        }
        Ok(Self {
            identity: table.identity,
            vo: table.vo,
            fqan: table.fqan,
            outcome,
        })
    }
}

/// The conditions and the outcome.
impl Shown for Rule {
    fn shown(&self) -> String {
        let mut text = String::new();
        if let Some(identity) = &self.identity {
            text.push_str(&format!("identity={identity} "));
        }
        for (name, pattern) in [("vo", &self.vo), ("fqan", &self.fqan)] {
            if let Some(pattern) = pattern {
                text.push_str(&format!("{name}={pattern} "));
            }
        }
        text.push_str(match &self.outcome {
            Outcome::Deny => "deny",
            Outcome::Grant { account: None, .. } => "map",
            Outcome::Grant {
                account: Some(account),
                ..
            } => account,
        });
        if let Outcome::Grant {
            root, read_only, ..
        } = &self.outcome
        {
            if let Some(root) = root {
                text.push_str(&format!(" root={}", root.display()));
            }
            if *read_only {
                text.push_str(" read-only");
            }
        }
        text
    }
}

/// Whether a pattern matches all subjects of a later one.
fn covers_subject(first: &SubjectPattern, later: &SubjectPattern) -> bool {
    let text = later.to_string();
    first == later
        || cover::are_comparable(&first.to_string(), &text) && first.matches(&Subject::new(&text))
}

fn is_account(name: &str) -> bool {
    let fits = |letter: char| !letter.is_whitespace() && !letter.is_control();
    !name.is_empty() && name.chars().all(fits) && !name.contains(['/', ':'])
}

fn is_root(path: &Path) -> bool {
    path.is_absolute() || path.starts_with("$HOME")
}

pub(super) fn identity<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SubjectPattern>, D::Error> {
    let text = String::deserialize(deserializer)?;
    one_line::check_subject_pattern(&text).map_err(D::Error::custom)?;
    let pattern = SubjectPattern::new(&text).map_err(D::Error::custom)?;
    Ok(Some(pattern))
}

pub(super) fn organization<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Pattern>, D::Error> {
    let pattern = Pattern::deserialize(deserializer)?;
    one_line::check_organization_pattern(&pattern.text).map_err(D::Error::custom)?;
    Ok(Some(pattern))
}

pub(super) fn attribute<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Pattern>, D::Error> {
    let pattern = Pattern::deserialize(deserializer)?;
    one_line::check_attribute_pattern(&pattern.text).map_err(D::Error::custom)?;
    Ok(Some(pattern))
}

/// A case-sensitive pattern for virtual organizations and attributes, with the wildcards of a [`SubjectPattern`].
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    text: String,
    matcher: GlobSet,
}

/// The pattern as it was written.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Pattern {
    pub(super) fn matches(&self, text: &str) -> bool {
        self.matcher.is_match(text)
    }

    /// Whether it matches all texts of a later pattern.
    fn covers(&self, later: &Self) -> bool {
        self == later || cover::are_comparable(&self.text, &later.text) && self.matches(&later.text)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let glob = GlobBuilder::new(&text)
            .literal_separator(false)
            .backslash_escape(false)
            .build()
            .map_err(D::Error::custom)?;
        // Compiling a single glob panics where this returns an error.
        let matcher = GlobSetBuilder::new().add(glob).build();
        Ok(Self {
            matcher: matcher.map_err(D::Error::custom)?,
            text,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: &str = "/DC=org/DC=example/CN=Alice Smith";

    fn rule(text: &str) -> Rule {
        toml::from_str(text).expect(text)
    }

    fn error(text: &str) -> String {
        toml::from_str::<Rule>(text).expect_err(text).to_string()
    }

    /// Whether a rule is about an identity without proxies of its own.
    fn is_about(rule: &Rule, identity: &str, memberships: &[MemberOf<'_>]) -> bool {
        let identity = Subject::new(identity);
        rule.is_about(&Claimant {
            identity: &identity,
            subjects: std::slice::from_ref(&identity),
            memberships,
        })
    }

    #[test]
    fn identities_are_matched_as_grid_mapfiles_do() {
        for (pattern, expected) in [
            (ALICE, true),
            ("*", true),
            ("/DC=org/*", true),
            ("/dc=org/*", true),
            ("/DC=org", false),
            ("/DC=com/*", false),
        ] {
            let rule = rule(&format!("identity = '{pattern}'\nmap = true"));
            assert_eq!(is_about(&rule, ALICE, &[]), expected, "{pattern}");
        }
    }

    #[test]
    fn only_rules_that_deny_look_at_all_subjects() {
        let subjects =
            [format!("{ALICE}/CN=777"), ALICE.to_owned()].map(|name| Subject::new(&name));
        for (pattern, outcome, expected) in [
            (ALICE, "deny", true),
            ("*/CN=alice smith", "deny", true),
            ("*/CN=777", "deny", true),
            ("*/CN=Bob", "deny", false),
            (ALICE, "map", false),
            ("*/CN=777", "map", true),
        ] {
            let rule = rule(&format!("identity = '{pattern}'\n{outcome} = true"));
            let claimant = Claimant {
                identity: &subjects[0],
                subjects: &subjects,
                memberships: &[],
            };
            assert_eq!(rule.is_about(&claimant), expected, "{pattern} {outcome}");
        }
    }

    #[test]
    fn a_backslash_in_a_pattern_is_the_one_in_the_name() {
        let rule = rule(
            r"identity = '/CN=J\xC3\xB6rg'
            map = true",
        );
        assert!(is_about(&rule, r"/CN=J\xC3\xB6rg", &[]));
        assert!(!is_about(&rule, "/CN=JxC3xB6rg", &[]));
    }

    #[test]
    fn a_vo_and_its_attribute_must_be_of_one_membership() {
        let atlas = MemberOf {
            vo: "atlas",
            fqans: &["/atlas", "/atlas/Role=production"],
        };
        let cms = MemberOf {
            vo: "cms",
            fqans: &["/cms"],
        };
        for (text, memberships, expected) in [
            ("vo = 'atlas'", &[atlas][..], true),
            ("vo = 'atlas'", &[cms], false),
            ("vo = 'atlas'", &[], false),
            ("fqan = '/atlas/Role=*'", &[cms, atlas], true),
            ("vo = 'cms'\nfqan = '/atlas/Role=*'", &[cms, atlas], false),
            ("vo = 'atlas'\nfqan = '/atlas/Role=*'", &[cms, atlas], true),
            ("identity = '/CN=Bob'\nvo = 'atlas'", &[atlas], false),
            ("identity = '*'", &[], true),
        ] {
            let rule = rule(&format!("{text}\naccount = 'grid'"));
            assert_eq!(is_about(&rule, ALICE, memberships), expected, "{text}");
        }
    }

    #[test]
    fn a_rule_says_whom_it_is_about_and_what_they_get() {
        for (text, words) in [
            (
                "account = 'grid'",
                "a rule needs one of identity, vo and fqan",
            ),
            ("identity = '*'", "exactly one of account"),
            (
                "identity = '*'\naccount = 'a'\nmap = true",
                "exactly one of account",
            ),
            (
                "identity = '*'\nmap = true\ndeny = true",
                "exactly one of account",
            ),
            (
                "identity = '*'\ndeny = true\nread-only = true",
                "neither root nor read-only",
            ),
            (
                "identity = '*'\ndeny = true\nroot = '/srv'",
                "neither root nor read-only",
            ),
            ("identity = '*'\naccount = ''", "the name of an account"),
            (
                "identity = '*'\naccount = '../root'",
                "the name of an account",
            ),
            (
                "identity = '*'\nmap = true\nroot = 'srv'",
                "an absolute path",
            ),
            (
                "identity = '*'\nmap = true\nroot = '$HOMES'",
                "an absolute path",
            ),
            ("identity = '['\nmap = true", "unclosed character class"),
            ("vo = '['\naccount = 'a'", "unclosed character class"),
        ] {
            let error = error(text);
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn a_rule_hides_those_that_are_never_reached() {
        let all = "identity = '*'\naccount = 'grid'";
        let cms = "vo = 'cms'\naccount = 'grid'";
        for (first, later, expected) in [
            (all, "vo = 'atlas'\naccount = 'atlas'", true),
            (all, "identity = '/CN=Bob'\ndeny = true", true),
            ("identity = '*'\ndeny = true", all, true),
            (cms, "vo = 'cms'\naccount = 'other'", true),
            (cms, "identity = '/CN=Bob'\nvo = 'cms'\nmap = true", true),
            (cms, "vo = 'atlas'\naccount = 'other'", false),
            (cms, all, false),
            // The grid-mapfile may have no account.
            ("identity = '*'\nmap = true", all, false),
            (
                "identity = '/O=Grid/CN=*'\naccount = 'grid'",
                "identity = '/o=grid/CN=Bob'\ndeny = true",
                true,
            ),
            (
                "identity = '/O=Grid/*'\naccount = 'grid'",
                "identity = '/O=Grid/OU=x/*'\ndeny = true",
                true,
            ),
            (
                "identity = '/O=Grid/CN=*'\naccount = 'grid'",
                "identity = '/O=Other/CN=Bob'\ndeny = true",
                false,
            ),
            // The identity of a proxy with this subject is another one.
            (
                "identity = '*/CN=777'\naccount = 'grid'",
                "identity = '/CN=Bob/CN=777'\ndeny = true",
                false,
            ),
            (
                "identity = '/O=Grid/CN=*'\nvo = 'atlas'\naccount = 'grid'",
                "identity = '/O=Grid/CN=Bob'\ndeny = true",
                false,
            ),
            (
                "fqan = '/atlas/*'\naccount = 'grid'",
                "fqan = '/atlas/Role=production'\naccount = 'production'",
                true,
            ),
            (
                "fqan = '/atlas/Role=*'\naccount = 'grid'",
                "fqan = '/atlas/*'\naccount = 'production'",
                false,
            ),
            (
                "identity = '/CN=Bob'\naccount = 'bob'",
                "identity = '/CN=Bob'\nmap = true",
                true,
            ),
        ] {
            assert_eq!(
                rule(first).hides(&rule(later), false),
                expected,
                "{first} / {later}"
            );
        }
        // Clients whose user is Bob, under the name of an independent proxy.
        let (bob, deny) = (
            rule("identity = '/CN=Bob'\naccount = 'bob'"),
            rule("identity = '/CN=Bob'\ndeny = true"),
        );
        assert!(bob.hides(&deny, false));
        assert!(!bob.hides(&deny, true));
    }

    #[test]
    fn a_root_may_be_the_accounts_own() {
        let rule = rule("vo = 'atlas'\naccount = 'atlas'\nroot = '$HOME/data'\nread-only = true");
        let expected = Outcome::Grant {
            account: Some("atlas".to_owned()),
            root: Some("$HOME/data".into()),
            read_only: true,
        };
        assert_eq!(*rule.outcome(), expected);
    }
}
