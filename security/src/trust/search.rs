//! Searches a path from the leaf over its issuers to an anchor.
//!
//! Certificates are linked by names, key identifiers and signatures. The peer may send several authorities of one name (after
//! a key rollover, or with cross-certificates), so that several paths are possible, which are tried in turn. The number of
//! signatures that are verified for a chain is limited.

use std::time::SystemTime;

use super::{ChainError, Peer, TrustStore, authorities, proxies};
use crate::certificate::Certificate;
use crate::credential::{MAX_CHAIN, identity};
use crate::proxy::ProxyPolicy;
use crate::signature::{self, SignatureError};

/// The maximum number of signatures that are verified for a chain. Most chains have three to five; the longest permitted one
/// leaves some for dead ends.
const MAX_SIGNATURES: usize = MAX_CHAIN + 8;

/// The maximum number of complete paths that are tried.
const MAX_PATHS: usize = 8;

pub(super) fn validate(
    store: &TrustStore,
    sent: &[Certificate],
    now: SystemTime,
) -> Result<Peer, ChainError> {
    let leaf = sent.first().ok_or(ChainError::Empty)?;
    if sent.len() > MAX_CHAIN {
        return Err(ChainError::TooLong { limit: MAX_CHAIN });
    }
    let mut search = Search {
        store,
        sent,
        now,
        signatures_left: MAX_SIGNATURES,
        paths_left: MAX_PATHS,
        failure: None,
    };
    match search.extend(&mut vec![leaf]) {
        Some(peer) => Ok(peer),
        None => Err(search.failure.map_or(ChainError::Empty, |(_, error)| error)),
    }
}

struct Search<'a> {
    store: &'a TrustStore,
    sent: &'a [Certificate],
    now: SystemTime,
    signatures_left: usize,
    paths_left: usize,
    failure: Option<(Significance, ChainError)>,
}

/// The significance of a failure. The first one of the highest significance is reported.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Significance {
    /// A path ended without an issuer.
    NoIssuer,
    /// The signature of an issuer was wrong.
    Link,
    /// A path to an anchor violated a rule.
    Rule,
    /// A limit of the search was reached.
    Limit,
}

impl<'a> Search<'a> {
    /// Extends `path` to an anchor. Leaves `path` unchanged.
    fn extend(&mut self, path: &mut Vec<&'a Certificate>) -> Option<Peer> {
        let certificate = *path.last()?;
        let store = self.store;
        if store.is_directory_anchor(certificate) || store.is_extra_anchor(certificate) {
            match self.finish(path) {
                Ok(peer) => return Some(peer),
                Err(error) => self.note(Significance::Rule, error),
            }
        }
        let mut has_issuer = false;
        for issuer in self.candidates(certificate) {
            if path.contains(&issuer) {
                continue;
            }
            has_issuer = true;
            if !self.may_go_on(path) {
                return None;
            }
            if let Err(error) = verify(certificate, issuer) {
                self.note(Significance::Link, error);
                continue;
            }
            path.push(issuer);
            let found = self.extend(path);
            path.pop();
            if found.is_some() {
                return found;
            }
        }
        if !has_issuer {
            self.note(Significance::NoIssuer, no_issuer(certificate));
        }
        None
    }

    /// The possible issuers of a certificate, authorities of the directory first.
    fn candidates(&self, certificate: &Certificate) -> Vec<&'a Certificate> {
        let known = self.store.authorities_named(certificate.issuer()).iter();
        let extra = self.store.extra_anchors.iter();
        let mut candidates: Vec<&Certificate> = Vec::new();
        for issuer in known.chain(extra).chain(self.sent) {
            if issuer.subject().matches(certificate.issuer()) && !candidates.contains(&issuer) {
                candidates.push(issuer);
            }
        }
        candidates
    }

    fn may_go_on(&mut self, path: &[&Certificate]) -> bool {
        if path.len() == MAX_CHAIN {
            self.note(
                Significance::Limit,
                ChainError::TooLong { limit: MAX_CHAIN },
            );
            return false;
        }
        let Some(left) = self.signatures_left.checked_sub(1) else {
            self.note(Significance::Limit, too_many_paths(path));
            return false;
        };
        self.signatures_left = left;
        true
    }

    /// Applies the rules to a complete path.
    fn finish(&mut self, path: &[&Certificate]) -> Result<Peer, ChainError> {
        let Some(left) = self.paths_left.checked_sub(1) else {
            return Err(too_many_paths(path));
        };
        self.paths_left = left;
        let user = proxies::count(path);
        authorities::check(self.store, &path[user..], self.now)?;
        proxies::check(&path[..=user], self.now)?;
        for proxy in &path[..user] {
            authorities::check_name_constraints(&path[user + 1..], proxy)?;
        }
        let chain: Vec<_> = path.iter().copied().cloned().collect();
        let leaf = path[0];
        let ends = chain.iter().map(|one| one.validity().not_after);
        Ok(Peer {
            identity: identity(&chain).unwrap_or_else(|| leaf.subject()).clone(),
            limited: chain.iter().any(is_limited),
            expires: ends.fold(leaf.validity().not_after, SystemTime::min),
            chain,
        })
    }

    fn note(&mut self, significance: Significance, error: ChainError) {
        let known = self.failure.as_ref().map(|(known, _)| *known);
        if known.is_none_or(|known| known < significance) {
            self.failure = Some((significance, error));
        }
    }
}

fn verify(certificate: &Certificate, issuer: &Certificate) -> Result<(), ChainError> {
    let verified = match certificate.may_be_signed_with_key_of(issuer) {
        true => signature::verify(
            issuer.public_key_info(),
            certificate.signature_algorithm(),
            certificate.signed(),
            certificate.signature(),
        ),
        false => Err(SignatureError::Wrong),
    };
    verified.map_err(|error| {
        let certificate = certificate.subject().clone();
        match error {
            SignatureError::Broken(algorithm) => ChainError::BrokenAlgorithm {
                certificate,
                algorithm,
            },
            SignatureError::Unknown => ChainError::UnknownAlgorithm { certificate },
            SignatureError::Wrong => ChainError::Signature {
                certificate,
                issuer: issuer.subject().clone(),
            },
        }
    })
}

fn no_issuer(certificate: &Certificate) -> ChainError {
    let (subject, issuer) = (certificate.subject().clone(), certificate.issuer().clone());
    match certificate.is_self_issued() {
        true => ChainError::UntrustedRoot {
            certificate: subject,
        },
        false => ChainError::UnknownIssuer {
            certificate: subject,
            issuer,
        },
    }
}

fn too_many_paths(path: &[&Certificate]) -> ChainError {
    ChainError::TooManyPaths {
        certificate: path[0].subject().clone(),
    }
}

fn is_limited(certificate: &Certificate) -> bool {
    certificate
        .proxy()
        .is_some_and(|proxy| proxy.policy == ProxyPolicy::Limited)
}

#[cfg(test)]
mod tests;
