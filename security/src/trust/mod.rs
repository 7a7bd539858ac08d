//! Whom we trust: certificate authorities with their signing policies and revocation lists, and the
//! validation of chains against them.
//!
//! A chain is first put together (`search`), from what was sent and from the trust directory, until it
//! ends with an anchor; signatures are verified on the way. Then the rules are applied to it, from the
//! anchor down: those for authorities and users (`authorities`), and those for proxies (`proxies`).
//!
//! The verdict is that of globus-gridftp-server 13.24, with these differences: proxies with a policy language that is
//! not implemented are refused, whether it has a text or not (RFC 3820 3.8.2); revocation lists that
//! cannot be used close their authority (`lists`), and count only for what they are about; name constraints may
//! be critical, as RFC 5280 4.2.1.10 has it; and patterns of signing policies match slashes and addresses
//! of mail in each of their spellings. The reason for a refusal is a [`ChainError`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use crate::certificate::Certificate;
use crate::name::{CanonicalName, Name};
use crate::proxy::ProxyPolicy;

mod authorities;
mod builder;
mod constraints;
mod error;
mod file;
mod lists;
mod problem;
mod proxies;
mod revocation;
mod search;
mod signing_policy;
#[cfg(test)]
mod test_world;

pub use builder::{Built, LastGood, TrustBuilder};
pub use error::ChainError;
pub(crate) use file::{FileDefect, TrustFile, TrustFileKind};
pub use problem::TrustProblem;
pub use revocation::RevocationList;

use signing_policy::{Authority, SigningPolicy};

/// Certificate authorities, signing policies and revocation lists. It never changes; a directory that
/// changes gives another one ([`crate::files::TrustDirectory`]).
#[derive(Clone, Debug, Default)]
pub struct TrustStore {
    directory: Arc<Directory>,
    /// Trusted by byte equality, without a signing policy.
    extra_anchors: Arc<[Certificate]>,
}

/// What the files of a directory hold.
#[derive(Debug, Default)]
struct Directory {
    authorities: HashMap<CanonicalName, Vec<Certificate>>,
    /// Those of `HASH.signing_policy`, and the others.
    policies: [Policies; 2],
    revocation_lists: HashMap<CanonicalName, Vec<Arc<RevocationList>>>,
    /// Whose lists are there, and cannot be used.
    unusable: lists::Unusable,
}

/// Policies by the authority that they are about.
type Policies = HashMap<Authority, Vec<Arc<SigningPolicy>>>;

/// Who a chain turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The chain as it was verified: leaf first, the anchor last.
    pub chain: Vec<Certificate>,
    /// The subject of the first certificate that is neither a full nor a limited proxy.
    pub identity: Name,
    /// There is a limited proxy in the chain.
    pub limited: bool,
    /// When the first certificate of the chain ends.
    pub expires: SystemTime,
}

impl Peer {
    /// The subjects of the proxies, the lowest first, and of the user or host that the first of them
    /// comes from.
    pub fn subjects(&self) -> impl Iterator<Item = &Name> {
        let proxies = self.chain.iter().take_while(|one| one.proxy().is_some());
        let count = proxies.count();
        self.chain[..self.chain.len().min(count + 1)]
            .iter()
            .map(Certificate::subject)
    }

    /// The lowest proxy that is an identity of its own (RFC 3820 3.8.1), if there is one.
    pub fn independent_proxy(&self) -> Option<&Name> {
        let mut certificates = self.chain.iter();
        let is_independent = |certificate: &&Certificate| {
            let proxy = certificate.proxy();
            proxy.is_some_and(|proxy| proxy.policy == ProxyPolicy::Independent)
        };
        certificates.find(is_independent).map(Certificate::subject)
    }
}

impl TrustStore {
    /// Validates a chain as a peer sent it: leaf first, the rest in any order, with or without roots.
    ///
    /// # Errors
    ///
    /// The first rule that it breaks. If it can be put together in several ways, the first way counts.
    pub fn validate(&self, chain: &[Certificate], now: SystemTime) -> Result<Peer, ChainError> {
        search::validate(self, chain, now)
    }

    /// This store and `anchors`, which need no signing policy: for the data channels of a session that
    /// said `DCSC P`. Proxies among them are left out: they are trusted when their user is.
    #[must_use]
    pub fn with_anchors(&self, anchors: &[Certificate]) -> Self {
        let anchors = anchors.iter().filter(|anchor| anchor.proxy().is_none());
        let extra_anchors = self.extra_anchors.iter().chain(anchors).cloned().collect();
        Self {
            directory: Arc::clone(&self.directory),
            extra_anchors,
        }
    }

    /// The certificates of the directory, in no order.
    pub fn authorities(&self) -> impl Iterator<Item = &Certificate> {
        self.directory.authorities.values().flatten()
    }

    /// The revocation lists of the directory, in no order.
    pub fn revocation_lists(&self) -> impl Iterator<Item = &RevocationList> {
        let lists = self.directory.revocation_lists.values().flatten();
        lists.map(|list| &**list)
    }

    /// Whether a signing policy of the directory says anything about an authority.
    pub fn has_signing_policy(&self, authority: &Name) -> bool {
        !self.signing_policies(authority).is_empty()
    }

    /// When the first revocation list ends.
    pub fn next_update(&self) -> Option<SystemTime> {
        let ends = self.revocation_lists().map(RevocationList::next_update);
        ends.flatten().min()
    }

    fn is_extra_anchor(&self, certificate: &Certificate) -> bool {
        self.extra_anchors.contains(certificate)
    }

    /// Whether a chain may end with this certificate of the directory. An authority that another one
    /// issued is not the end: that one must be trusted too.
    fn is_directory_anchor(&self, certificate: &Certificate) -> bool {
        certificate.is_self_issued()
            && certificate.may_be_signed_with_key_of(certificate)
            && self
                .authorities_named(certificate.subject())
                .contains(certificate)
    }

    fn authorities_named(&self, name: &Name) -> &[Certificate] {
        let found = self.directory.authorities.get(name.canonical());
        found.map_or(&[], Vec::as_slice)
    }

    /// The file that should hold a revocation list of an authority and does not, if there is one.
    fn unusable_list_of(&self, authority: &Name) -> Option<&str> {
        let has_list = !self.revocation_lists_of(authority).is_empty();
        self.directory.unusable.file_of(authority, has_list)
    }

    fn revocation_lists_of(&self, issuer: &Name) -> &[Arc<RevocationList>] {
        let found = self.directory.revocation_lists.get(issuer.canonical());
        found.map_or(&[], Vec::as_slice)
    }

    /// What counts for an authority: `HASH.signing_policy` alone if there is one, which is the only one
    /// that globus-gridftp-server reads.
    fn signing_policies(&self, authority: &Name) -> Vec<&SigningPolicy> {
        let keys = [Authority::named(authority.one_line()), Authority::Anybody];
        let mut found = Vec::new();
        for policies in &self.directory.policies {
            if found.is_empty() {
                let about = keys.iter().filter_map(|key| policies.get(key)).flatten();
                found.extend(about.map(|policy| &**policy));
            }
        }
        found
    }
}

impl Directory {
    fn add_authority(&mut self, certificate: &Certificate) {
        let name = Arc::clone(certificate.subject().canonical());
        let same_name = self.authorities.entry(name).or_default();
        if !same_name.contains(certificate) {
            same_name.push(certificate.clone());
        }
    }

    fn add_policy(&mut self, policy: &Arc<SigningPolicy>, is_hashed: bool) {
        let [hashed, plain] = &mut self.policies;
        let policies = if is_hashed { hashed } else { plain };
        for authority in policy.authorities() {
            let same_authority = policies.entry(authority.clone()).or_default();
            if !same_authority.contains(policy) {
                same_authority.push(Arc::clone(policy));
            }
        }
    }
}
