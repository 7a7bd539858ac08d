//! Names of hosts, and whether a certificate is that of a host.
//!
//! The rules are those of RFC 9525 for alternative names, and those of GSI for older certificates, which have the name in their
//! CN only: `NAME`, or `host/NAME` as `grid-cert-request -host` of the Globus Toolkit writes it.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::certificate::Certificate;

/// RFC 1035 2.3.4
const MAX_BYTES: usize = 253;

/// The names of a certificate that messages list.
const MOST_SHOWN: usize = 4;

/// A host as it was dialled, or as a setting names it: a DNS name in lower case, or an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HostName {
    /// `dtn1.example.org`
    Name(String),
    /// `192.0.2.1`, `2001:db8::1`
    Address(IpAddr),
}

/// A text that is no name of a host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no name of a host, like dtn1.example.org, and no address")]
pub struct HostNameError(String);

impl HostName {
    /// Whether the first certificate of a verified chain is that of this host.
    ///
    /// The CN counts only without alternative names of hosts (RFC 9525 6.3), and not beneath an authority with name
    /// constraints, which do not cover `host/NAME`.
    pub fn is_certified_by(&self, chain: &[Certificate]) -> bool {
        let Some((leaf, authorities)) = chain.split_first() else {
            return false;
        };
        match self {
            Self::Address(address) => leaf.addresses().contains(address),
            Self::Name(name) => {
                let alternative = leaf.dns_names();
                if !alternative.is_empty() || !leaf.addresses().is_empty() {
                    return alternative.iter().any(|pattern| covers(pattern, name));
                }
                let constrained = authorities.iter().any(Certificate::has_name_constraints);
                !constrained && hosts_of_subject(leaf).any(|host| host.eq_ignore_ascii_case(name))
            }
        }
    }
}

/// The hosts that a certificate is for, as messages show them: alternative names, else the CN.
pub fn hosts_of(certificate: &Certificate) -> Vec<String> {
    let names = certificate.dns_names().iter().cloned();
    let addresses = certificate.addresses();
    let mut hosts: Vec<String> = names
        .chain(addresses.iter().map(IpAddr::to_string))
        .collect();
    if hosts.is_empty() {
        hosts.extend(hosts_of_subject(certificate));
    }
    hosts.truncate(MOST_SHOWN);
    hosts
}

/// The CNs with the syntax of a host's name, without the service `host`.
fn hosts_of_subject(certificate: &Certificate) -> impl Iterator<Item = String> {
    let names = certificate.subject().common_names().into_iter();
    names.filter_map(|name| {
        let name = name.strip_prefix("host/").unwrap_or(&name);
        is_name(name).then(|| name.to_owned())
    })
}

/// Whether an alternative name covers a name, which is in lower case. A star is the whole first label, and at least two labels
/// follow it (RFC 9525 6.3).
fn covers(pattern: &str, name: &str) -> bool {
    let pattern = pattern.strip_suffix('.').unwrap_or(pattern);
    match pattern.strip_prefix("*.") {
        Some(domain) => name
            .split_once('.')
            .is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(domain) && rest.contains('.')),
        None => pattern.eq_ignore_ascii_case(name),
    }
}

/// Labels of letters, digits, hyphens and underscores, separated by dots. The last one is not a number, which would be an
/// address.
fn is_name(text: &str) -> bool {
    let is_label = |label: &str| {
        let mut letters = label.bytes();
        let is_letter = |letter: u8| letter.is_ascii_alphanumeric() || b"-_".contains(&letter);
        (1..=63).contains(&label.len()) && letters.all(is_letter)
    };
    let last = text.rsplit('.').next().unwrap_or_default();
    text.len() <= MAX_BYTES
        && text.split('.').all(is_label)
        && !last.bytes().all(|letter| letter.is_ascii_digit())
}

impl FromStr for HostName {
    type Err = HostNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Address(address.to_canonical()));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        match is_name(name) {
            true => Ok(Self::Name(name.to_ascii_lowercase())),
            false => Err(HostNameError(text.chars().take(MAX_BYTES).collect())),
        }
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_pki::{CA, Pki, Request, USER};

    fn host(text: &str) -> HostName {
        text.parse().expect(text)
    }

    #[test]
    fn names_are_in_lower_case_without_the_last_dot() {
        assert_eq!(
            host("DTN1.example.org."),
            HostName::Name("dtn1.example.org".into())
        );
        assert_eq!(host("::ffff:192.0.2.1"), host("192.0.2.1"));
        assert_eq!(host("2001:db8::1").to_string(), "2001:db8::1");
        let long = format!("{}.org", "a.".repeat(130));
        for text in [
            "",
            ".",
            "a..b",
            "a b",
            "*.example.org",
            "a/b",
            "10.1",
            "é",
            &long,
        ] {
            assert!(text.parse::<HostName>().is_err(), "{text}");
        }
    }

    #[test]
    fn alternative_names_count_and_without_them_the_common_name() {
        let pki = Pki::new();
        let root = pki.root("/DC=test/CN=Root");
        let names = |names: &str| match names {
            "" => USER.to_owned(),
            names => format!("{USER}\nsubjectAltName={names}"),
        };
        for (subject, alternative, matching, others) in [
            (
                "/DC=test/CN=other.test",
                "DNS:dtn1.test.org,DNS:*.b.org,DNS:*.org",
                &["dtn1.test.org", "DTN1.Test.org", "x.b.org"][..],
                &["other.test", "b.org", "x.y.b.org", "c.org", "192.0.2.1"][..],
            ),
            (
                "/DC=test/CN=dtn1.test",
                "IP:192.0.2.1,IP:2001:db8::1",
                &["192.0.2.1", "2001:db8::1"],
                &["dtn1.test", "192.0.2.2"],
            ),
            (
                r"/DC=test/CN=host\/dtn1.test",
                "",
                &["dtn1.test"],
                &["host", "dtn2.test"],
            ),
            (
                "/DC=test/CN=Dtn1.test",
                "email:a@b.org",
                &["dtn1.test"],
                &["b.org"],
            ),
            ("/DC=test/CN=*.b.org", "", &[], &["x.b.org"]),
            (r"/DC=test/CN=ftp\/dtn1.test", "", &[], &["dtn1.test"]),
            ("/DC=test/CN=192.0.2.1", "", &[], &["192.0.2.1"]),
        ] {
            let issued = pki.issue(&root, subject, &names(alternative));
            let chain = [issued.certificate, root.certificate.clone()];
            let is = |name: &&&str| host(name).is_certified_by(&chain);
            assert_eq!(
                matching.iter().find(|name| !is(name)),
                None,
                "{subject} {alternative}"
            );
            assert_eq!(others.iter().find(is), None, "{subject} {alternative}");
        }
    }

    #[test]
    fn common_names_beneath_name_constraints_do_not_count() {
        let pki = Pki::new();
        let request = Request {
            subject: "/DC=test/CN=Root",
            extensions: &format!("{CA}\nnameConstraints=critical,permitted;DNS:test.org"),
            ..Request::default()
        };
        let root = pki.make(&request, None);
        let issued = pki.issue(&root, r"/DC=test/CN=host\/dtn1.evil.org", USER);
        let chain = [issued.certificate, root.certificate.clone()];
        assert!(!host("dtn1.evil.org").is_certified_by(&chain));
        assert_eq!(hosts_of(&chain[0]), ["dtn1.evil.org"]);
    }
}
