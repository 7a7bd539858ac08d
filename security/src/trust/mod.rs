//! Trust: certificate authorities with their signing policies and revocation lists, and the validation of chains.
//!
//! ```text
//! files of a trust directory ──> builder ──> TrustStore
//!                                  └ file, lists    │
//! chain ──> search ──> authorities, proxies <───────┘
//!                        └ constraints, revocation, signing_policy
//! ```
//!
//! A chain is first completed to an anchor (`search`) from the certificates that were sent and those of the trust directory;
//! signatures are verified on the way. Then the rules are applied from the anchor down: those for authorities and users
//! (`authorities`), and those for proxies (`proxies`).
//!
//! The result is that of globus-gridftp-server 13.24, with these differences:
//!
//! - Proxies with an unsupported policy language are refused, with or without a policy text (RFC 3820 3.8.2).
//! - An authority whose revocation list is unusable is not accepted (`lists`), and a list applies only to its scope.
//! - Name constraints may be critical, as RFC 5280 4.2.1.10 requires.
//! - Patterns of signing policies match all spellings of slashes and e-mail addresses.
//!
//! The reason for a refusal is a [`ChainError`].

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
mod expiry;
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
pub use expiry::{TrustExpiry, TrustExpiryKind};
pub(crate) use file::{FileDefect, TrustFile, TrustFileKind};
pub use problem::TrustProblem;
pub use revocation::RevocationList;

use signing_policy::{Authority, SigningPolicy};

/// Certificate authorities, signing policies and revocation lists. It is immutable: when the directory changes, a new one is
/// built ([`crate::files::TrustDirectory`]).
#[derive(Clone, Debug, Default)]
pub struct TrustStore {
    directory: Arc<Directory>,
    /// Trusted by byte equality, without a signing policy.
    extra_anchors: Arc<[Certificate]>,
    /// Whether the authorities of the directory are not trusted; its revocation lists hold nevertheless.
    has_only_extra_anchors: bool,
}

/// The content of the files of a directory.
#[derive(Debug, Default)]
struct Directory {
    authorities: HashMap<CanonicalName, Vec<Certificate>>,
    /// The policies of `HASH.signing_policy` files, and those of other names.
    policies: [Policies; 2],
    revocation_lists: HashMap<CanonicalName, Vec<Arc<RevocationList>>>,
    /// The authorities whose revocation lists are unusable.
    unusable: lists::Unusable,
}

/// Policies by authority.
type Policies = HashMap<Authority, Vec<Arc<SigningPolicy>>>;

/// The result of a validation: the identity of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The verified chain: leaf first, anchor last.
    pub chain: Vec<Certificate>,
    /// The subject of the first certificate that is neither a full nor a limited proxy.
    pub identity: Name,
    /// Whether the chain contains a limited proxy.
    pub limited: bool,
    /// The earliest end of validity in the chain.
    pub expires: SystemTime,
}

impl Peer {
    /// The subjects of the proxies, the lowest first, and that of the user or host who issued the first proxy.
    pub fn subjects(&self) -> impl Iterator<Item = &Name> {
        let proxies = self.chain.iter().take_while(|one| one.proxy().is_some());
        let count = proxies.count();
        self.chain[..self.chain.len().min(count + 1)]
            .iter()
            .map(Certificate::subject)
    }

    /// The lowest independent proxy (RFC 3820 3.8.1), if there is one.
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
    /// Validates a chain as sent by a peer: leaf first, the rest in any order, with or without roots.
    ///
    /// # Errors
    ///
    /// The first violated rule. If several paths to an anchor exist, that of the first path.
    pub fn validate(&self, chain: &[Certificate], now: SystemTime) -> Result<Peer, ChainError> {
        search::validate(self, chain, now)
    }

    /// This store with additional anchors, which need no signing policy: for the data channels of a session after `DCSC P`.
    /// Proxies among them are ignored: they are trusted if their user is.
    #[must_use]
    pub fn with_anchors(&self, anchors: &[Certificate]) -> Self {
        let anchors = anchors.iter().filter(|anchor| anchor.proxy().is_none());
        let extra_anchors = self.extra_anchors.iter().chain(anchors).cloned().collect();
        Self {
            extra_anchors,
            ..self.clone()
        }
    }

    /// These anchors instead of the authorities of the directory, with the revocation lists of the directory and without
    /// signing policies: for the certificates of administrators. The other rules are those of all chains, also for the
    /// anchors themselves: validity, key usage and the size of keys.
    #[must_use]
    pub fn with_only_anchors(&self, anchors: &[Certificate]) -> Self {
        Self {
            directory: Arc::clone(&self.directory),
            extra_anchors: anchors.into(),
            has_only_extra_anchors: true,
        }
    }

    /// The certificates of the directory, in arbitrary order.
    pub fn authorities(&self) -> impl Iterator<Item = &Certificate> {
        self.directory.authorities.values().flatten()
    }

    /// The revocation lists of the directory, in arbitrary order.
    pub fn revocation_lists(&self) -> impl Iterator<Item = &RevocationList> {
        let lists = self.directory.revocation_lists.values().flatten();
        lists.map(|list| &**list)
    }

    /// Whether the directory has a signing policy for an authority.
    pub fn has_signing_policy(&self, authority: &Name) -> bool {
        !self.signing_policies(authority).is_empty()
    }

    /// The earliest end of a revocation list.
    pub fn next_update(&self) -> Option<SystemTime> {
        let ends = self.revocation_lists().map(RevocationList::next_update);
        ends.flatten().min()
    }

    /// Whether certificates of this authority need a signing policy that allows them.
    fn needs_signing_policy(&self, authority: &Certificate) -> bool {
        !self.has_only_extra_anchors && !self.is_extra_anchor(authority)
    }

    fn is_extra_anchor(&self, certificate: &Certificate) -> bool {
        self.extra_anchors.contains(certificate)
    }

    /// Whether this is a root of the directory, with which a chain may end. The issuer of an intermediate authority must be
    /// trusted as well.
    fn is_directory_anchor(&self, certificate: &Certificate) -> bool {
        certificate.is_self_issued()
            && certificate.may_be_signed_with_key_of(certificate)
            && self
                .authorities_named(certificate.subject())
                .contains(certificate)
    }

    /// The trusted authorities of the directory.
    fn authorities_named(&self, name: &Name) -> &[Certificate] {
        if self.has_only_extra_anchors {
            return &[];
        }
        let found = self.directory.authorities.get(name.canonical());
        found.map_or(&[], Vec::as_slice)
    }

    /// The file with the unusable revocation list of an authority, if it has one.
    fn unusable_list_of(&self, authority: &Name) -> Option<&str> {
        let has_list = !self.revocation_lists_of(authority).is_empty();
        self.directory.unusable.file_of(authority, has_list)
    }

    fn revocation_lists_of(&self, issuer: &Name) -> &[Arc<RevocationList>] {
        let found = self.directory.revocation_lists.get(issuer.canonical());
        found.map_or(&[], Vec::as_slice)
    }

    /// The policies for an authority: those of `HASH.signing_policy` files, or else the others. globus-gridftp-server reads
    /// only `HASH.signing_policy`.
    fn signing_policies(&self, authority: &Name) -> Vec<&SigningPolicy> {
        let keys = [Authority::named(authority.one_line()), Authority::Any];
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
