//! What a node tells of itself and of its machine, as values. Texts of a node are cut, and control characters replaced, because they are
//! written to logs and terminals.

use std::net::IpAddr;
use std::time::Duration;

use crate::generated as message;
use crate::wire;

/// The longest text, in characters.
const TEXT: usize = 256;

/// The longest name and version, in bytes.
const NAME: usize = 64;

/// The most drivers, cards and addresses of a node.
const MOST: usize = 32;

/// What a node tells when the connection is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFacts {
    /// The version of the program.
    pub version: String,
    /// The name of the machine.
    pub host: String,
    /// The driver stack of data channels.
    pub stack: String,
    /// The drivers that clients may name.
    pub drivers: Vec<String>,
    /// Where data channels listen.
    pub addresses: Vec<IpAddr>,
    /// How far the clock of the node is ahead of that of this machine, in milliseconds.
    pub clock_ahead_ms: i64,
}

impl NodeFacts {
    /// `clock_ahead` is in milliseconds.
    pub(crate) fn of(sent: &message::Description, clock_ahead: i64) -> Self {
        let addresses = sent.data_addresses.iter().take(MOST);
        Self {
            version: name(&sent.program),
            host: text(&sent.host),
            stack: text(&sent.stack),
            drivers: sent
                .drivers
                .iter()
                .take(MOST)
                .map(|one| name(one))
                .collect(),
            addresses: addresses.filter_map(|one| wire::to_ip(one).ok()).collect(),
            clock_ahead_ms: clock_ahead,
        }
    }
}

/// What a node tells again and again besides its [`gridhaul_transfer::NodeLoad`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MachineLoad {
    /// Sessions of all control servers.
    pub sessions: u64,
    /// Those of other control servers than this one.
    pub other_sessions: u64,
    /// Transfers of all control servers.
    pub transfers: u64,
    /// Memory of RDMA rings in use, in bytes.
    pub ring_bytes: u64,
    /// The limit of `ring_bytes`.
    pub ring_bytes_limit: u64,
    /// The network cards that have the data addresses.
    pub cards: Vec<CardLoad>,
    /// Bytes per second that the transfers of the node moved while the traffic of the cards was measured.
    pub transferred: Traffic,
}

/// The traffic of a network card.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CardLoad {
    /// The name of its interface.
    pub name: String,
    /// Bytes per second.
    pub traffic: Traffic,
    /// The speed of the link in each direction, in bytes per second, if it is known.
    pub link: Option<u64>,
}

/// Bytes in both directions, or bytes per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Received bytes.
    pub received: u64,
    /// Sent bytes.
    pub sent: u64,
}

impl Traffic {
    /// The sum.
    pub fn plus(self, other: Self) -> Self {
        Self {
            received: self.received.saturating_add(other.received),
            sent: self.sent.saturating_add(other.sent),
        }
    }

    /// What was added since; 0 for a counter that began anew.
    pub fn since(self, before: Self) -> Self {
        Self {
            received: self.received.saturating_sub(before.received),
            sent: self.sent.saturating_sub(before.sent),
        }
    }

    /// The rate of bytes that were moved in this time.
    pub fn per_second(self, passed: Duration) -> Self {
        let micros = u64::try_from(passed.as_micros()).unwrap_or(u64::MAX).max(1);
        let rate = |bytes: u64| bytes.saturating_mul(1_000_000) / micros;
        Self {
            received: rate(self.received),
            sent: rate(self.sent),
        }
    }

    /// Both directions together.
    pub fn sum(self) -> u64 {
        self.received.saturating_add(self.sent)
    }
}

impl MachineLoad {
    /// `own` is the number of sessions that this control server has there.
    pub(crate) fn of(sent: &message::Load, own: u64) -> Self {
        let cards = sent.cards.iter().take(MOST);
        Self {
            sessions: sent.sessions,
            other_sessions: sent.sessions.saturating_sub(own),
            transfers: sent.transfers,
            ring_bytes: sent.ring_bytes,
            ring_bytes_limit: sent.ring_bytes_limit,
            cards: cards
                .map(|card| CardLoad {
                    name: name(&card.name),
                    traffic: to_traffic(card.traffic),
                    link: (card.link > 0).then_some(card.link),
                })
                .collect(),
            transferred: to_traffic(sent.transferred),
        }
    }

    /// Adds what this value has to a message.
    pub(crate) fn fill(&self, load: &mut message::Load) {
        load.sessions = self.sessions;
        load.transfers = self.transfers;
        load.ring_bytes = self.ring_bytes;
        load.ring_bytes_limit = self.ring_bytes_limit;
        let cards = self.cards.iter().map(|card| message::CardLoad {
            name: card.name.clone(),
            traffic: Some(traffic(card.traffic)),
            link: card.link.unwrap_or(0),
        });
        load.cards = cards.collect();
        load.transferred = Some(traffic(self.transferred));
    }
}

fn traffic(value: Traffic) -> message::Traffic {
    message::Traffic {
        received: value.received,
        sent: value.sent,
    }
}

fn to_traffic(sent: Option<message::Traffic>) -> Traffic {
    let sent = sent.unwrap_or_default();
    Traffic {
        received: sent.received,
        sent: sent.sent,
    }
}

/// A name or a version of a node, in ASCII.
fn name(sent: &str) -> String {
    let kept = sent.chars().take(NAME);
    kept.map(|c| if c.is_ascii_graphic() { c } else { '?' })
        .collect()
}

/// A text of a node, of bounded length and on one line.
pub(crate) fn text(sent: &str) -> String {
    let kept = sent.chars().take(TEXT);
    kept.map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_node_tells_is_bounded_and_harmless() {
        let long = "x".repeat(100_000);
        let sent = message::Description {
            program: "1.2\n\u{1b}[2J\u{202e}".to_owned(),
            host: long.clone(),
            drivers: vec![long; 1000],
            data_addresses: vec![message::IpAddress { octets: vec![1; 3] }; 1000],
            ..message::Description::default()
        };
        let facts = NodeFacts::of(&sent, i64::MIN);
        assert_eq!(facts.version, "1.2??[2J?");
        assert_eq!((facts.host.len(), facts.drivers.len()), (TEXT, MOST));
        assert_eq!(facts.drivers[0].len(), NAME);
        assert!(facts.addresses.is_empty());
        assert_eq!(facts.clock_ahead_ms, i64::MIN);
    }

    #[test]
    fn the_load_of_a_machine_crosses_the_network_unchanged() {
        let load = MachineLoad {
            sessions: 9,
            other_sessions: 7,
            transfers: 2,
            ring_bytes: 3,
            ring_bytes_limit: 4,
            cards: vec![
                CardLoad {
                    name: "eth0".to_owned(),
                    traffic: Traffic {
                        received: 5,
                        sent: 6,
                    },
                    link: Some(7),
                },
                CardLoad::default(),
            ],
            transferred: Traffic {
                received: 8,
                sent: u64::MAX,
            },
        };
        let mut sent = message::Load::default();
        load.fill(&mut sent);
        assert_eq!(MachineLoad::of(&sent, 2), load);
        // A session of this control server that has begun since.
        assert_eq!(MachineLoad::of(&sent, 10).other_sessions, 0);
        // Of a node that does not know of cards.
        let older = MachineLoad::of(&message::Load::default(), 0);
        assert_eq!(older, MachineLoad::default());
    }

    #[test]
    fn rates_are_of_the_time_that_has_passed() {
        let traffic = Traffic {
            received: 1_000,
            sent: u64::MAX,
        };
        let rate = traffic.per_second(Duration::from_millis(500));
        assert_eq!(rate.received, 2_000);
        assert_eq!(traffic.per_second(Duration::ZERO).received, 1_000_000_000);
        assert_eq!(Traffic::default().since(traffic), Traffic::default());
    }
}
