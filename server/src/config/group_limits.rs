//! `[[limit]]`: limits that the transfers of a group of users share.

use std::net::IpAddr;

use gridhaul_security::gridmap::{Subject, SubjectPattern};
use gridhaul_security::voms::Fqan;
use serde::Deserialize;

use super::authorization::{Pattern, SUBJECT, attribute, identity, organization};
use super::error::ConfigError;
use super::examples::Example;
use super::shown::Shown;
use super::tables;
use super::texts::list;
use super::values::{Bytes, ExemptBlock};

/// A group of sessions, and what its transfers may use together.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Table")]
pub struct GroupLimit {
    /// The name, by which a reload recognizes the limit.
    pub name: String,
    identity: Option<SubjectPattern>,
    vo: Option<Pattern>,
    fqan: Option<Pattern>,
    user: Option<Pattern>,
    network: Vec<ExemptBlock>,
    /// Bytes per second, in both directions together.
    pub bandwidth: Option<u64>,
    /// Transfers at a time.
    pub transfers: Option<usize>,
    /// Sessions at a time.
    pub connections: Option<usize>,
}

/// A session after login, as limits see it.
#[derive(Debug, Clone, Copy)]
pub struct Member<'a> {
    /// The effective identity, if the client proved one.
    pub identity: Option<&'a str>,
    /// The verified VOMS attributes.
    pub attributes: &'a [Fqan],
    /// The local account, or the name that the user logged in with.
    pub user: &'a str,
    /// The host of the control connection.
    pub peer: IpAddr,
}

/// The table in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Table {
    name: Option<String>,
    #[serde(default, deserialize_with = "identity")]
    identity: Option<SubjectPattern>,
    #[serde(default, deserialize_with = "organization")]
    vo: Option<Pattern>,
    #[serde(default, deserialize_with = "attribute")]
    fqan: Option<Pattern>,
    user: Option<Pattern>,
    #[serde(default, deserialize_with = "list")]
    network: Option<Vec<ExemptBlock>>,
    bandwidth: Option<Bytes>,
    max_transfers: Option<usize>,
    max_connections: Option<usize>,
}

/// An invalid table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum LimitError {
    #[error("a limit needs a name; write it like name = \"atlas\"")]
    NoName,
    #[error("a limit's network is empty; leave it out for all networks")]
    NoNetwork,
    #[error("a limit's name must have 1 to 64 characters, without control characters")]
    Name,
    #[error(
        "a limit needs at least one of bandwidth = BYTES, max-transfers = COUNT and max-connections = COUNT"
    )]
    Nothing,
    #[error("a limit's bandwidth must be at least 16K bytes per second")]
    Bandwidth,
    #[error("a limit's max-transfers and max-connections must be at least 1")]
    Zero,
}

/// The lowest limit of bandwidth: less than a piece per second would look like a transfer that hangs.
const LEAST_BANDWIDTH: u64 = 16 * 1024;

impl GroupLimit {
    /// Whether only clients with certificates can belong to the group.
    pub(crate) fn needs_certificates(&self) -> bool {
        self.identity.is_some() || self.vo.is_some() || self.fqan.is_some()
    }

    /// Whether one of these users can belong to the group.
    pub(crate) fn may_be_about(&self, users: &[String]) -> bool {
        users.iter().any(|user| matches(self.user.as_ref(), user))
    }

    /// Whether a session belongs to the group: all conditions match. `vo` and `fqan` must match the same attribute.
    pub fn is_about(&self, member: &Member<'_>) -> bool {
        let named = self.identity.as_ref().is_none_or(|pattern| {
            let identity = member.identity.map(Subject::new);
            identity.is_some_and(|identity| pattern.matches(&identity))
        });
        let user = matches(self.user.as_ref(), member.user);
        let network = self.network.is_empty() || {
            let mut blocks = self.network.iter();
            blocks.any(|ExemptBlock(block)| block.contains(member.peer))
        };
        let attribute = self.vo.is_none() && self.fqan.is_none() || {
            let mut attributes = member.attributes.iter().map(Fqan::as_str);
            attributes.any(|fqan| {
                matches(self.fqan.as_ref(), fqan) && matches(self.vo.as_ref(), vo_of(fqan))
            })
        };
        named && user && network && attribute
    }
}

/// The first group of an attribute, which is the name of the virtual organization: `atlas` of `/atlas/Role=production`.
fn vo_of(fqan: &str) -> &str {
    fqan.trim_start_matches('/').split('/').next().unwrap_or("")
}

impl tables::Table for GroupLimit {
    const KEYS: &'static [(&'static str, Example)] = &[
        ("name", Example::plain("a name in quotes", "\"atlas\"")),
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
            "user",
            Example::own(
                "a user in quotes, in which * stands for any text",
                "\"atlas*\"",
            ),
        ),
        (
            "network",
            Example::own("a list of addresses in quotes", "[\"192.0.2.0/24\"]"),
        ),
        ("bandwidth", Example::own("a number of bytes", "\"100M\"")),
        ("max-transfers", Example::plain("a whole number", "10")),
        ("max-connections", Example::plain("a whole number", "10")),
    ];

    type Parts = Table;
}

/// The name, the conditions and the limits.
impl Shown for GroupLimit {
    fn shown(&self) -> String {
        let identity = self.identity.as_ref().map(ToString::to_string);
        let pattern = |pattern: &Option<Pattern>| pattern.as_ref().map(ToString::to_string);
        let number = |count: Option<usize>| count.map(|count| count.to_string());
        let network = (!self.network.is_empty()).then(|| self.network.shown());
        let parts = [
            ("identity", identity),
            ("vo", pattern(&self.vo)),
            ("fqan", pattern(&self.fqan)),
            ("user", pattern(&self.user)),
            ("network", network),
            ("bandwidth", self.bandwidth.map(|bytes| bytes.to_string())),
            ("max-transfers", number(self.transfers)),
            ("max-connections", number(self.connections)),
        ];
        let parts = parts.into_iter();
        let parts = parts.filter_map(|(name, value)| Some(format!(" {name}={}", value?)));
        format!("{}:{}", self.name, parts.collect::<String>())
    }
}

/// A missing condition matches.
fn matches(pattern: Option<&Pattern>, text: &str) -> bool {
    pattern.is_none_or(|pattern| pattern.matches(text))
}

/// The limits of a configuration, whose names must differ.
pub(super) fn resolve(
    errors: &mut Vec<ConfigError>,
    limits: Option<Vec<GroupLimit>>,
) -> Vec<GroupLimit> {
    let limits = limits.unwrap_or_default();
    for (index, limit) in limits.iter().enumerate() {
        if limits[..index].iter().any(|other| other.name == limit.name) {
            let name = limit.name.clone();
            errors.push(ConfigError::LimitTwice { name, index });
        }
    }
    limits
}

impl TryFrom<Table> for GroupLimit {
    type Error = LimitError;

    fn try_from(table: Table) -> Result<Self, LimitError> {
        let name = table.name.ok_or(LimitError::NoName)?;
        let length = name.chars().count();
        if !(1..=64).contains(&length) || name.chars().any(char::is_control) {
            return Err(LimitError::Name);
        }
        if table.network.as_ref().is_some_and(Vec::is_empty) {
            return Err(LimitError::NoNetwork);
        }
        let counts = [table.max_transfers, table.max_connections];
        if table.bandwidth.is_none() && counts == [None, None] {
            return Err(LimitError::Nothing);
        }
        let bandwidth = table.bandwidth.map(|Bytes(bytes)| bytes);
        if bandwidth.is_some_and(|bytes| bytes < LEAST_BANDWIDTH) {
            return Err(LimitError::Bandwidth);
        }
        if counts.contains(&Some(0)) {
            return Err(LimitError::Zero);
        }
        Ok(Self {
            name,
            identity: table.identity,
            vo: table.vo,
            fqan: table.fqan,
            user: table.user,
            network: table.network.unwrap_or_default(),
            bandwidth,
            transfers: table.max_transfers,
            connections: table.max_connections,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(text: &str) -> GroupLimit {
        toml::from_str(&format!("name = 'x'\nmax-transfers = 1\n{text}")).expect(text)
    }

    #[test]
    fn all_conditions_must_match() {
        let attributes = ["/atlas", "/atlas/Role=production", "/cms/higgs"];
        let attributes = attributes.map(|fqan| Fqan::new(fqan).expect("an attribute"));
        let member = Member {
            identity: Some("/DC=org/CN=Ann"),
            attributes: &attributes,
            user: "atlas01",
            peer: "192.0.2.7".parse().expect("an address"),
        };
        for (text, expected) in [
            ("", true),
            ("vo = 'atlas'", true),
            ("vo = 'atl'", false),
            ("vo = 'a*'", true),
            ("fqan = '/atlas/Role=*'", true),
            ("vo = 'cms'\nfqan = '/atlas/Role=*'", false),
            ("identity = '/dc=org/*'", true),
            ("identity = '/DC=com/*'", false),
            ("user = 'atlas*'", true),
            ("user = 'cms*'", false),
            ("network = ['192.0.2.0/24']", true),
            ("network = ['198.51.100.0/24', '192.0.2.7']", true),
            ("network = ['198.51.100.0/24']", false),
            ("vo = 'atlas'\nnetwork = ['198.51.100.0/24']", false),
        ] {
            assert_eq!(limit(text).is_about(&member), expected, "{text}");
        }
        let anonymous = Member {
            identity: None,
            attributes: &[],
            user: "anonymous",
            ..member
        };
        assert!(limit("user = 'anon*'").is_about(&anonymous));
        for text in ["vo = '*'", "fqan = '*'", "identity = '*'"] {
            assert!(!limit(text).is_about(&anonymous), "{text}");
        }
    }

    #[test]
    fn wrong_tables_are_refused_with_the_reason() {
        for (text, words) in [
            ("max-transfers = 1", "a limit needs a name"),
            (
                "name = 'x'\nmax-transfers = 1\nnetwork = []",
                "leave it out",
            ),
            ("name = ''\nmax-transfers = 1", "1 to 64 characters"),
            ("name = 'x'", "at least one of bandwidth"),
            ("name = 'x'\nmax-connections = 0", "at least 1"),
            ("name = 'x'\nmax-transfers = 0", "at least 1"),
            ("name = 'x'\nbandwidth = '1K'", "at least 16K"),
            (
                "name = 'x'\nbandwidth = 'fast'",
                "'fast' is not a number of bytes",
            ),
            (
                "name = 'x'\nmax-transfers = 1\nnetwork = ['x']",
                "'x' is not an address",
            ),
        ] {
            let error = toml::from_str::<GroupLimit>(text)
                .expect_err(text)
                .to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
        let mut errors = Vec::new();
        resolve(&mut errors, Some(vec![limit(""), limit("")]));
        let twice: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert!(
            matches!(&twice[..], [one] if one.contains("'x'")),
            "{twice:?}"
        );
    }
}
