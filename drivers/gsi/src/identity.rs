//! Checks the identity of a peer.

use gridhaul_security::certificate::Certificate;
use gridhaul_security::credential::Credential;
use gridhaul_security::name::Name;
use gridhaul_security::trust::Peer;

/// Whether `peer` is `expected`, an identity in one-line form. A peer that must have our own identity (`DCAU A`) may be the
/// same host under another subject: both certificates then have host names, and share one (observed from
/// globus-gridftp-server 13.24).
pub(crate) fn is_expected(peer: &Peer, expected: &str, own: &Credential) -> bool {
    if peer.identity.is_written(expected) {
        return true;
    }
    own.identity().is_written(expected)
        && share_a_host(
            host_names(own.chain(), own.identity()),
            host_names(&peer.chain, &peer.identity),
        )
}

/// The host names of the certificate that a chain's identity comes from.
fn host_names<'a>(chain: &'a [Certificate], identity: &Name) -> &'a [String] {
    chain
        .iter()
        .find(|certificate| certificate.subject() == identity)
        .map_or(&[], Certificate::dns_names)
}

fn share_a_host(ours: &[String], theirs: &[String]) -> bool {
    ours.iter().any(|our| {
        theirs
            .iter()
            .any(|their| covers(our, their) || covers(their, our))
    })
}

/// RFC 2818 3.1: case does not matter, and `*` stands for the first label.
fn covers(pattern: &str, name: &str) -> bool {
    match pattern.strip_prefix("*.") {
        Some(domain) => name
            .split_once('.')
            .is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(domain)),
        None => pattern.eq_ignore_ascii_case(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_the_same_by_name_or_by_wildcard() {
        let share = |ours: &[&str], theirs: &[&str]| {
            let owned = |names: &[&str]| -> Vec<String> {
                names.iter().map(|&name| name.to_owned()).collect()
            };
            share_a_host(&owned(ours), &owned(theirs))
        };
        assert!(share(&["a.example", "b.example"], &["B.Example"]));
        assert!(share(&["*.example.org"], &["dtn1.example.org"]));
        assert!(share(&["dtn1.example.org"], &["*.EXAMPLE.org"]));
        assert!(share(&["*.example.org"], &["*.example.org"]));
        assert!(!share(&["*.example.org"], &["a.b.example.org"]));
        assert!(!share(&["*.example.org"], &["example.org"]));
        assert!(!share(&["a.example"], &["b.example"]));
        assert!(!share(&[], &[]));
        assert!(!share(&["a.example"], &[]));
    }
}
