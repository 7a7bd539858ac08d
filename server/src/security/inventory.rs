//! When certificates and revocation lists end: the host's chain, the trusted authorities with their lists, and the delegated
//! credentials of sessions.
//!
//! The page of metrics and the administration read the last inventory, so a scrape opens no file. A task takes a new one at
//! intervals, from what already watches the files: the trust directory of this process and, for the host's chain, the
//! process that decides logins. Certificates are public, so they may be sent to this process; the key stays there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use gridhaul_security::certificate::Certificate;
use gridhaul_security::trust::TrustExpiryKind;

use super::Security;
use crate::status::CredentialState;
use crate::telemetry::ExpirySummary;

/// What ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CredentialKind {
    /// A certificate of the host's chain.
    Host,
    /// A trusted authority.
    Authority,
    /// A revocation list of an authority.
    RevocationList,
    /// The delegated credential of a session that ends first.
    Delegated,
}

/// A certificate or a list, and its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CredentialExpiry {
    pub(crate) kind: CredentialKind,
    /// The subject, or the issuer of a list, in one-line form; for delegated credentials their number.
    pub(crate) name: String,
    /// `None` for delegated credentials, which are in no file.
    pub(crate) file: Option<PathBuf>,
    pub(crate) expires: SystemTime,
}

impl CredentialKind {
    pub(crate) const ALL: [Self; 4] = [
        Self::Host,
        Self::Authority,
        Self::RevocationList,
        Self::Delegated,
    ];

    /// The label of metrics.
    fn label(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Authority => "authority",
            Self::RevocationList => "revocation_list",
            Self::Delegated => "delegated",
        }
    }

    /// In words, for administrators.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Host => "host certificate",
            Self::Authority => "authority",
            Self::RevocationList => "revocation list",
            Self::Delegated => "delegated",
        }
    }

    /// How long before the end it is too late for a routine renewal. Certificates are renewed weeks before their end,
    /// revocation lists are fetched several times a day, and proxies live for hours.
    fn soon(self) -> Duration {
        const HOUR: Duration = Duration::from_secs(3600);
        match self {
            Self::Host | Self::Authority => 14 * 24 * HOUR,
            Self::RevocationList => 2 * 24 * HOUR,
            Self::Delegated => HOUR / 2,
        }
    }
}

impl CredentialExpiry {
    pub(crate) fn state(&self, now: SystemTime) -> CredentialState {
        match self.expires.duration_since(now) {
            Err(_) => CredentialState::Expired,
            Ok(left) if left < self.kind.soon() => CredentialState::Soon,
            Ok(_) => CredentialState::Ok,
        }
    }
}

/// The last inventory, and the ends of the delegated credentials of sessions.
#[derive(Debug, Default)]
pub(crate) struct Inventory(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    files: Arc<[CredentialExpiry]>,
    /// The number of sessions by the end of their delegated credential. Whole seconds bound the number of entries.
    delegated: BTreeMap<SystemTime, usize>,
}

/// Counts the delegated credential of a session until it is dropped.
#[derive(Debug)]
pub(crate) struct DelegatedMark {
    inventory: Arc<Inventory>,
    expires: SystemTime,
}

impl Inventory {
    /// Takes a new inventory of files. `host` is the present chain of the host and its file. Blocks on the trust directory.
    pub(crate) fn refresh(&self, security: Option<&Security>, host: (&Path, &[Certificate])) {
        let (file, chain) = host;
        let host = chain.iter().map(|certificate| CredentialExpiry {
            kind: CredentialKind::Host,
            name: certificate.subject().one_line().to_owned(),
            file: Some(file.to_owned()),
            expires: certificate.validity().not_after,
        });
        let trusted = security.map(Security::expiries).unwrap_or_default();
        let files: Arc<[_]> = host.chain(trusted).collect();
        self.lock().files = files;
    }

    /// Counts a delegated credential.
    pub(crate) fn delegated(self: &Arc<Self>, expires: SystemTime) -> DelegatedMark {
        *self.lock().delegated.entry(expires).or_default() += 1;
        DelegatedMark {
            inventory: Arc::clone(self),
            expires,
        }
    }

    /// The kinds that there are, for the page of metrics.
    pub(crate) fn summaries(&self, now: SystemTime) -> Vec<ExpirySummary> {
        let entries = self.entries();
        let summaries = CredentialKind::ALL.into_iter().map(|kind| {
            let of_kind = entries.iter().filter(|entry| entry.kind == kind);
            summary(kind, of_kind, now)
        });
        summaries.collect()
    }

    /// Everything that ends. All delegated credentials are one entry with the soonest end.
    pub(crate) fn entries(&self) -> Vec<CredentialExpiry> {
        let state = self.lock();
        let delegated = state.delegated.first_key_value();
        let delegated = delegated.map(|(expires, _)| CredentialExpiry {
            kind: CredentialKind::Delegated,
            name: format!(
                "the first of {} delegated credentials",
                state.delegated.values().sum::<usize>()
            ),
            file: None,
            expires: *expires,
        });
        state.files.iter().cloned().chain(delegated).collect()
    }

    /// Every change under the lock is complete, so a panic elsewhere leaves no partial state.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An authority that has expired long ago must not hide the next one that ends, so those are only counted.
fn summary<'a>(
    kind: CredentialKind,
    entries: impl Iterator<Item = &'a CredentialExpiry>,
    now: SystemTime,
) -> ExpirySummary {
    let counts_expired = matches!(kind, CredentialKind::Host | CredentialKind::Delegated);
    let mut summary = ExpirySummary {
        kind: kind.label(),
        ..ExpirySummary::default()
    };
    for entry in entries {
        let state = entry.state(now);
        *match state {
            CredentialState::Ok => &mut summary.ok,
            CredentialState::Soon => &mut summary.soon,
            CredentialState::Expired => &mut summary.expired,
        } += 1;
        if counts_expired || state != CredentialState::Expired {
            let soonest = summary.soonest.get_or_insert(entry.expires);
            *soonest = entry.expires.min(*soonest);
        }
    }
    summary
}

impl Drop for DelegatedMark {
    fn drop(&mut self) {
        let mut state = self.inventory.lock();
        if let Some(count) = state.delegated.get_mut(&self.expires) {
            *count -= 1;
            if *count == 0 {
                state.delegated.remove(&self.expires);
            }
        }
    }
}

impl Security {
    /// The ends of the trusted authorities and their lists. Blocks on files.
    fn expiries(&self) -> Vec<CredentialExpiry> {
        let gsi = self.gsi.as_ref();
        let Some(trust) = gsi.and_then(|gsi| gsi.trust.as_ref()) else {
            return Vec::new();
        };
        let found = trust.expiries();
        let entries = found.iter().map(|one| CredentialExpiry {
            kind: match one.kind {
                TrustExpiryKind::Authority => CredentialKind::Authority,
                TrustExpiryKind::RevocationList => CredentialKind::RevocationList,
            },
            name: one.name.clone(),
            file: Some(trust.path().join(&one.file)),
            expires: one.expires,
        });
        entries.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(hours: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 * 3600 + hours * 3600)
    }

    #[test]
    fn delegated_credentials_count_by_the_soonest_end_while_their_sessions_last() {
        let inventory = Arc::new(Inventory::default());
        assert_eq!(inventory.entries(), []);
        let first = inventory.delegated(after(1));
        let same = inventory.delegated(after(1));
        let later = inventory.delegated(after(5));
        let soonest = || inventory.entries().first().map(|entry| entry.expires);
        assert_eq!(soonest(), Some(after(1)));
        assert_eq!(inventory.entries().len(), 1);
        drop(first);
        assert_eq!(soonest(), Some(after(1)));
        drop(same);
        assert_eq!(soonest(), Some(after(5)));
        drop(later);
        assert_eq!(soonest(), None);
    }

    #[test]
    fn an_expired_authority_does_not_hide_the_next_one_that_ends() {
        let now = after(10);
        let entry = |kind, hours| CredentialExpiry {
            kind,
            name: String::new(),
            file: None,
            expires: after(hours),
        };
        let inventory = Inventory::default();
        inventory.lock().files = [
            entry(CredentialKind::Authority, 1),
            entry(CredentialKind::Authority, 30),
            entry(CredentialKind::Authority, 10_000),
            entry(CredentialKind::Host, 2),
            entry(CredentialKind::Host, 10_000),
        ]
        .into();
        let found = inventory.summaries(now);
        let found = |kind: &str| {
            let one = found.iter().find(|one| one.kind == kind).expect("listed");
            (one.soonest, [one.ok, one.soon, one.expired])
        };
        assert_eq!(found("authority"), (Some(after(30)), [1, 1, 1]));
        assert_eq!(found("host"), (Some(after(2)), [1, 0, 1]));
        assert_eq!(found("revocation_list"), (None, [0, 0, 0]));
    }

    #[test]
    fn what_is_soon_depends_on_how_often_it_is_renewed() {
        let now = after(0);
        for (kind, hours, state) in [
            (CredentialKind::Host, 24 * 15, CredentialState::Ok),
            (CredentialKind::Host, 24 * 13, CredentialState::Soon),
            (CredentialKind::RevocationList, 49, CredentialState::Ok),
            (CredentialKind::RevocationList, 47, CredentialState::Soon),
            (CredentialKind::Delegated, 1, CredentialState::Ok),
        ] {
            let entry = CredentialExpiry {
                kind,
                name: String::new(),
                file: None,
                expires: after(hours),
            };
            assert_eq!(entry.state(now), state, "{kind:?} {hours}");
            assert_eq!(entry.state(after(hours + 1)), CredentialState::Expired);
        }
    }
}
