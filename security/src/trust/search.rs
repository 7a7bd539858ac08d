//! Puts chains together: from the leaf, from issuer to issuer, to an anchor.
//!
//! Certificates are linked by names, key identifiers and signatures. What was sent may hold several
//! authorities of one name (after a change of keys, or when two authorities vouch for a third), so that
//! there may be several ways, and they are tried in turn. The number of signatures that are verified for
//! one chain is limited.

use std::time::SystemTime;

use super::{ChainError, Peer, TrustStore, authorities, proxies};
use crate::certificate::Certificate;
use crate::credential::{MAX_CHAIN, identity};
use crate::proxy::ProxyPolicy;
use crate::signature::{self, SignatureError};

/// How many signatures are verified for one chain. A usual one has three to five, and the longest one
/// leaves some for ways that lead nowhere.
const MAX_SIGNATURES: usize = MAX_CHAIN + 8;

/// How many complete ways are tried.
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

/// How much a failure says: the first one of the most significant kind is reported.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Significance {
    /// A way led nowhere.
    NoIssuer,
    /// There was an issuer, and it has not signed.
    Link,
    /// A way to an anchor broke a rule.
    Rule,
    /// There was no end of ways.
    Limit,
}

impl<'a> Search<'a> {
    /// Goes on from the end of `path`, which is left as it was.
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

    /// What may have issued a certificate: authorities of the directory first.
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
mod tests {
    use proptest::prelude::*;

    use super::super::test_world::{World, certificates, policy, store};
    use super::*;
    use crate::test_pki::{CA, FULL, Issued, Request, USER, now};

    fn store_of(authorities: &[&Issued]) -> TrustStore {
        let files: Vec<_> = authorities
            .iter()
            .enumerate()
            .flat_map(|(number, one)| {
                [
                    (format!("{number}.pem"), one.pem()),
                    (
                        format!("{number}.signing_policy"),
                        policy(one, "/DC=test/*"),
                    ),
                ]
            })
            .collect();
        let files: Vec<_> = files
            .iter()
            .map(|(name, pem)| (&**name, pem.clone()))
            .collect();
        store(&files)
    }

    #[test]
    fn nothing_and_too_much_are_refused() {
        let world = World::new();
        assert_eq!(world.store().validate(&[], now()), Err(ChainError::Empty));
        let chain = vec![world.user.certificate.clone(); MAX_CHAIN + 1];
        let expected = ChainError::TooLong { limit: MAX_CHAIN };
        assert_eq!(world.store().validate(&chain, now()), Err(expected));
    }

    #[test]
    fn certificates_above_the_leaf_may_come_in_any_order() {
        let world = World::new();
        let between = world.pki.issue(&world.root, "/DC=test/CN=CA", CA);
        let user = world.pki.issue(&between, "/DC=test/CN=Bob", USER);
        let proxy = world.pki.proxy(&user, FULL);
        let store = store_of(&[&world.root, &between]);
        let sent = certificates(&[&proxy, &world.root, &world.user, &between, &user]);
        let peer = store.validate(&sent, now()).expect("accepted");
        assert_eq!(
            peer.chain,
            certificates(&[&proxy, &user, &between, &world.root])
        );
    }

    #[test]
    fn authorities_of_the_directory_need_not_be_sent() {
        let world = World::new();
        let between = world.pki.issue(&world.root, "/DC=test/CN=CA", CA);
        let user = world.pki.issue(&between, "/DC=test/CN=Bob", USER);
        let store = store_of(&[&world.root, &between]);
        store
            .validate(&certificates(&[&user]), now())
            .expect("accepted");
    }

    #[test]
    fn an_unknown_authority_is_named() {
        let world = World::new();
        let stranger = world.pki.root("/DC=test/CN=Stranger");
        let user = world.pki.issue(&stranger, "/DC=test/CN=Bob", USER);
        let expected = ChainError::UnknownIssuer {
            certificate: user.certificate.subject().clone(),
            issuer: stranger.certificate.subject().clone(),
        };
        assert_eq!(world.validate(&[&user]), Err(expected));
        let expected = ChainError::UntrustedRoot {
            certificate: stranger.certificate.subject().clone(),
        };
        assert_eq!(world.validate(&[&user, &stranger]), Err(expected));
    }

    #[test]
    fn an_authority_below_an_unknown_one_is_not_trusted_alone() {
        let world = World::new();
        for identifiers in ["", "subjectKeyIdentifier=none\nauthorityKeyIdentifier=none"] {
            let extensions = format!("{CA}\n{identifiers}");
            let between = world.pki.issue(&world.root, "/DC=test/CN=CA", &extensions);
            let user = world.pki.issue(&between, "/DC=test/CN=Bob", USER);
            let verdict = store_of(&[&between]).validate(&certificates(&[&user]), now());
            let expected = ChainError::UnknownIssuer {
                certificate: between.certificate.subject().clone(),
                issuer: world.root.certificate.subject().clone(),
            };
            assert_eq!(verdict, Err(expected));
        }
    }

    #[test]
    fn an_impostor_with_the_authoritys_name_is_refused() {
        let world = World::new();
        let impostor = world.pki.root("/DC=test/CN=Root");
        // With and without key identifiers, which tell before any signature is verified.
        for identifiers in ["", "subjectKeyIdentifier=none\nauthorityKeyIdentifier=none"] {
            let extensions = format!("{USER}\n{identifiers}");
            let user = world.pki.issue(&impostor, "/DC=test/CN=Alice", &extensions);
            for chain in [&[&user][..], &[&user, &impostor]] {
                let error = world.validate(chain).expect_err("not signed by the root");
                assert!(matches!(error, ChainError::Signature { .. }), "{error}");
            }
        }
    }

    #[test]
    fn an_impostor_with_the_users_name_makes_no_proxies() {
        let world = World::new();
        let impostor = world.pki.root(&world.user.subject);
        let proxy = world.pki.proxy(&impostor, FULL);
        let error = world
            .validate(&[&proxy, &world.user])
            .expect_err("not signed by the user");
        assert!(matches!(error, ChainError::Signature { .. }), "{error}");
        assert!(world.validate(&[&proxy, &impostor, &world.user]).is_err());
    }

    #[test]
    fn names_link_without_regard_to_case_and_kinds_of_strings() {
        let world = World::new();
        // The same key with the name written in another way.
        let twin = Request {
            subject: "/DC=TEST/CN=root",
            extensions: CA,
            existing_key: Some(&world.root.key_file),
            ..Request::default()
        };
        let twin = world.pki.make(&twin, None);
        let user = world.pki.issue(&twin, "/DC=test/CN=Bob", USER);
        world
            .store()
            .validate(&certificates(&[&user]), now())
            .expect("accepted");
    }

    #[test]
    fn after_a_change_of_keys_both_roots_work() {
        let world = World::new();
        let other = world.pki.root("/DC=test/CN=Root");
        let bob = world.pki.issue(&other, "/DC=test/CN=Bob", USER);
        for roots in [[&world.root, &other], [&other, &world.root]] {
            let store = store_of(&roots);
            for user in [&world.user, &bob] {
                store
                    .validate(&certificates(&[user]), now())
                    .expect("accepted");
            }
        }
    }

    #[test]
    fn another_way_is_tried_when_the_first_breaks_a_rule() {
        let world = World::new();
        // One authority, vouched for by a root that nobody knows, and by one that we do.
        let stranger = world.pki.root("/DC=test/CN=Stranger");
        let request = Request {
            subject: "/DC=test/CN=CA",
            extensions: CA,
            ..Request::default()
        };
        let one = world.pki.make(&request, Some(&stranger));
        let existing_key = Some(&*one.key_file);
        let again = Request {
            existing_key,
            ..request
        };
        let other = world.pki.make(&again, Some(&world.root));
        let user = world.pki.issue(&one, "/DC=test/CN=Bob", USER);
        let files = [("ca.signing_policy", policy(&one, "/DC=test/*"))];
        let store = world.store_with(&files);
        for sent in [[&user, &one, &other], [&user, &other, &one]] {
            store
                .validate(&certificates(&sent), now())
                .expect("accepted");
        }
    }

    #[test]
    fn a_web_of_authorities_costs_a_limited_number_of_signatures() {
        let world = World::new();
        // Every one of them could have issued every other one.
        let mut authorities = vec![world.pki.root("/DC=test/CN=CA")];
        for _ in 0..20 {
            let request = Request {
                subject: "/DC=test/CN=CA",
                extensions: CA,
                existing_key: Some(&authorities[0].key_file),
                ..Request::default()
            };
            let again = world.pki.make(&request, Some(&authorities[0]));
            authorities.push(again);
        }
        let user = world.pki.issue(&authorities[0], "/DC=test/CN=Bob", USER);
        let mut sent = vec![&user];
        sent.extend(&authorities);
        let verdict = world.store().validate(&certificates(&sent), now());
        let certificate = user.certificate.subject().clone();
        assert_eq!(verdict, Err(ChainError::TooManyPaths { certificate }));
    }

    #[test]
    fn a_session_may_trust_what_it_brings() {
        let world = World::new();
        let client = Request {
            subject: "/C=US/CN=Globus DCSC Cert",
            key: &["rsa:2048"],
            signing: &["-md5"],
            ..Request::default()
        };
        let client = world.pki.make(&client, None);
        let chain = certificates(&[&client]);
        assert!(world.store().validate(&chain, now()).is_err());
        let store = world.store().with_anchors(&chain);
        let peer = store.validate(&chain, now()).expect("it brought it");
        assert_eq!(peer.identity, *client.certificate.subject());
        // What the directory holds is trusted still.
        store
            .validate(&certificates(&[&world.user]), now())
            .expect("accepted");
    }

    #[test]
    fn what_a_session_brings_needs_no_signing_policy() {
        let world = World::new();
        let root = world.pki.root("/DC=elsewhere/CN=Root");
        let user = world.pki.issue(&root, "/DC=elsewhere/CN=Bob", USER);
        let proxy = world.pki.proxy(&user, FULL);
        let chain = certificates(&[&proxy, &user, &root]);
        assert!(world.store().validate(&chain, now()).is_err());
        for brought in [&[&proxy, &user, &root][..], &[&proxy, &user], &[&root]] {
            let store = world.store().with_anchors(&certificates(brought));
            let peer = store.validate(&chain[..2], now()).expect("accepted");
            assert_eq!(peer.identity, *user.certificate.subject());
        }
        // A proxy is never trusted without its user.
        let store = world.store().with_anchors(&chain[..1]);
        assert!(store.validate(&chain[..2], now()).is_err());
        assert!(store.validate(&chain[..1], now()).is_err());
    }

    #[test]
    fn changed_chains_are_refused_without_panic() {
        let world = World::new();
        let proxy = world.pki.proxy(&world.user, FULL);
        let chain = certificates(&[&proxy, &world.user]);
        let store = world.store();
        proptest!(|(which in 0..2_usize, at in any::<prop::sample::Index>(), flip in 1..=u8::MAX)| {
            let mut der = chain[which].der().to_vec();
            let at = at.index(der.len());
            der[at] ^= flip;
            if let Ok(changed) = Certificate::from_der(&der) {
                let mut chain = chain.clone();
                chain[which] = changed;
                prop_assert!(store.validate(&chain, now()).is_err());
            }
        });
    }
}
