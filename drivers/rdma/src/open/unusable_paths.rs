//! Paths that were found to be unusable a short while ago, so that the next channels need not test them again.
//!
//! A test takes seconds where nothing arrives. Both ends of a channel know its result, and each remembers it.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gridhaul_stack::Party;

use super::opening::Opening;
use crate::clock;
use crate::provider::{Gids, PortRecord};

/// How long a path is remembered: the longest time for which channels do without one that works again.
const KEPT: Duration = Duration::from_secs(60);

/// The most paths that are remembered.
const MOST: usize = 64;

/// A path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PathId {
    /// On whose behalf it was tested: a client that fails tests on purpose does not affect others of its host.
    party: Option<Party>,
    peer: IpAddr,
    /// A peer may claim any GID, and so its address counts as well.
    gids: Gids,
}

/// The path of a rail.
#[derive(Debug)]
pub(super) struct RailPath {
    id: PathId,
    /// Why it is not tested, if it is remembered.
    pub(super) unusable: Option<String>,
}

impl RailPath {
    /// The path is given up for this reason, which is remembered if it is new. Returns the first reason.
    pub(super) fn give_up(self, reason: String) -> String {
        self.unusable.unwrap_or_else(|| {
            UnusablePaths::of_process().remember(self.id, reason.clone());
            reason
        })
    }
}

/// The remembered paths, the oldest first.
#[derive(Debug)]
struct UnusablePaths(Mutex<VecDeque<Entry>>);

#[derive(Debug)]
struct Entry {
    path: PathId,
    reason: String,
    since: Duration,
}

impl UnusablePaths {
    const fn new() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }

    /// Those of this process.
    fn of_process() -> &'static Self {
        static PATHS: UnusablePaths = UnusablePaths::new();
        &PATHS
    }

    /// Why a path is unusable, if it is remembered.
    fn reason(&self, path: PathId) -> Option<String> {
        self.reason_at(path, clock::now())
    }

    /// A test has shown that a path is unusable.
    fn remember(&self, path: PathId, reason: String) {
        self.remember_at(path, reason, clock::now());
    }

    /// The next channels test the paths to a peer again.
    fn forget(&self, party: Option<Party>, peer: IpAddr) {
        self.change(|entries| {
            entries.retain(|entry| (entry.path.party, entry.path.peer) != (party, peer));
        });
    }

    fn reason_at(&self, path: PathId, now: Duration) -> Option<String> {
        self.change(|entries| {
            entries.retain(|entry| now < entry.since + KEPT);
            let found = entries.iter().find(|entry| entry.path == path)?;
            let seconds = now.saturating_sub(found.since).as_secs();
            Some(format!("{} (tested {seconds} s ago)", found.reason))
        })
    }

    fn remember_at(&self, path: PathId, reason: String, now: Duration) {
        let since = now;
        self.change(|entries| {
            entries.retain(|entry| entry.path != path);
            if entries.len() >= MOST {
                entries.pop_front();
            }
            entries.push_back(Entry {
                path,
                reason,
                since,
            });
        });
    }

    fn change<T>(&self, change: impl FnOnce(&mut VecDeque<Entry>) -> T) -> T {
        // Every change leaves a list of entries.
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut entries)
    }
}

impl Opening<'_> {
    /// The paths between these ports, with what is remembered of them. If all of them were unusable and nothing else carried the
    /// data, they are tested again.
    pub(super) fn paths(
        &self,
        ports: &[PortRecord],
        peer_ports: &[PortRecord],
        has_alternative: bool,
    ) -> Vec<RailPath> {
        let ports = ports.iter().zip(peer_ports);
        let mut paths: Vec<_> = ports
            .map(|(port, peer)| {
                let id = PathId {
                    party: self.settings.party,
                    peer: self.peer.ip().to_canonical(),
                    gids: Gids {
                        local: port.gid,
                        peer: peer.gid,
                    },
                };
                let unusable = UnusablePaths::of_process().reason(id);
                RailPath { id, unusable }
            })
            .collect();
        if !has_alternative && paths.iter().all(|path| path.unusable.is_some()) {
            for path in &mut paths {
                path.unusable = None;
            }
        }
        paths
    }

    /// The next channels to the peer test its paths again.
    pub(super) fn forget_unusable_paths(&self) {
        let peer = self.peer.ip().to_canonical();
        UnusablePaths::of_process().forget(self.settings.party, peer);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn path(peer: u8) -> PathId {
        PathId {
            party: None,
            peer: Ipv4Addr::new(192, 0, 2, peer).into(),
            gids: Gids {
                local: [1; 16],
                peer: [peer; 16],
            },
        }
    }

    #[test]
    fn a_path_is_remembered_for_a_minute() {
        let paths = UnusablePaths::new();
        let now = Duration::from_secs(1000);
        assert_eq!(paths.reason_at(path(1), now), None);
        paths.remember_at(path(1), "nothing arrives".to_owned(), now);
        let later = now + KEPT - Duration::from_secs(1);
        let reason = paths.reason_at(path(1), later);
        assert_eq!(reason.as_deref(), Some("nothing arrives (tested 59 s ago)"));
        // Asking does not make it younger.
        assert_eq!(paths.reason_at(path(1), now + KEPT), None);
    }

    #[test]
    fn a_path_is_that_of_one_peer_port_and_party() {
        let paths = UnusablePaths::new();
        let now = Duration::from_secs(1000);
        paths.remember_at(path(1), String::new(), now);
        let elsewhere = PathId {
            peer: path(2).peer,
            ..path(1)
        };
        let of_another = PathId {
            party: Some(Party(7)),
            ..path(1)
        };
        let other_port = PathId {
            gids: Gids {
                local: [2; 16],
                ..path(1).gids
            },
            ..path(1)
        };
        for other in [path(2), elsewhere, of_another, other_port] {
            assert_eq!(paths.reason_at(other, now), None, "{other:?}");
        }
        paths.forget(of_another.party, path(1).peer);
        paths.forget(None, path(2).peer);
        assert!(paths.reason_at(path(1), now).is_some());
        paths.forget(None, path(1).peer);
        assert_eq!(paths.reason_at(path(1), now), None);
    }

    #[test]
    fn the_oldest_path_is_forgotten_first() {
        let paths = UnusablePaths::new();
        let now = Duration::from_secs(1000);
        for peer in 0..=MOST {
            let peer = u8::try_from(peer).unwrap();
            paths.remember_at(path(peer), String::new(), now);
            paths.remember_at(path(0), String::new(), now);
        }
        assert!(
            paths.reason_at(path(0), now).is_some(),
            "tested again since"
        );
        assert_eq!(paths.reason_at(path(1), now), None);
        assert!(paths.reason_at(path(2), now).is_some());
    }
}
