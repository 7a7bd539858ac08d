//! Which member is best off.
//!
//! Members report their load some seconds late. What this cluster has placed there counts at once, so a burst of logins or
//! transfers spreads before the first report about it arrives.

use std::sync::Arc;

use gridhaul_transfer::{NodeLoad, WorkerLoad};

use super::member::Record;
use crate::told::MachineLoad;

/// How well a member is off; the least is best. Reported values are coarse, because small differences in late reports would send
/// everything to the same member until the next report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Standing {
    /// Busy workers and those awaited, of the busier direction, in 16ths of the limit; or the share of other traffic on the network
    /// card, if that is larger.
    busy: usize,
    /// What this cluster has there, and sessions of other control servers, relative to the limit of workers.
    own: usize,
    /// Buffers or RDMA rings, the scarcer ones, in 8ths of the limit.
    memory: usize,
    /// Bytes per second of this cluster there, or of the network cards: 0 below 64 MiB/s, then one more with each factor of 4.
    rate: u32,
}

/// `own` of one transfer on a member with 1,024 workers.
const OWN_UNITS: usize = 1024;

impl Standing {
    fn new(load: &NodeLoad, machine: &MachineLoad, own: usize, rate: u64) -> Self {
        let cards = machine.cards.iter();
        let rate = cards.fold(rate, |most, card| most.max(card.traffic.sum()));
        Self {
            busy: sixteenths(load.senders)
                .max(sixteenths(load.receivers))
                .max(foreign(machine)),
            own: own.saturating_mul(OWN_UNITS) / workers(load),
            memory: share(load.buffer_bytes, load.buffer_bytes_limit, 8).max(rings(machine)),
            rate: (rate >> 26).checked_ilog2().map_or(0, |log| log / 2 + 1),
        }
    }

    /// Whether a session may stay with this member although `best` is the best one: `slack` is the number of transfers, of those of
    /// this cluster, that it may have more.
    pub(super) fn is_near(&self, best: &Self, slack: usize, load: &NodeLoad) -> bool {
        let more = slack.saturating_mul(OWN_UNITS) / workers(load);
        self.busy <= best.busy
            && self.own <= best.own.saturating_add(more)
            && self.memory <= best.memory.saturating_add(1)
    }
}

/// The workers of a node in one direction.
fn workers(load: &NodeLoad) -> usize {
    /// With more than any machine has, what this cluster has there would count for nothing.
    const MOST: usize = 1 << 16;
    load.senders.limit.max(load.receivers.limit).clamp(1, MOST)
}

/// Memory of RDMA rings, in 8ths of the limit.
fn rings(machine: &MachineLoad) -> usize {
    let eighths = machine.ring_bytes.saturating_mul(8) / machine.ring_bytes_limit.max(1);
    usize::try_from(eighths).unwrap_or(usize::MAX)
}

/// Traffic of network cards that no transfer of the node causes, in 16ths of the link, in steps of a quarter. In a card whose speed is
/// not known no traffic counts here.
fn foreign(machine: &MachineLoad) -> usize {
    /// Headers, and what is sent twice.
    const OVERHEAD: u64 = 16;
    const QUARTERS: u64 = 4;
    let own = machine.transferred;
    let shares = machine.cards.iter().filter_map(|card| {
        let link = card.link.filter(|link| *link > 0)?;
        let share = |all: u64, own: u64| {
            let foreign = all.saturating_sub(own.saturating_add(own / OVERHEAD));
            foreign.saturating_mul(QUARTERS) / link
        };
        let received = share(card.traffic.received, own.received);
        Some(received.max(share(card.traffic.sent, own.sent)))
    });
    // More than the link carries is a wrong number.
    let most = shares.max().unwrap_or(0).min(QUARTERS);
    usize::try_from(most * QUARTERS).unwrap_or(usize::MAX)
}

fn sixteenths(load: WorkerLoad) -> usize {
    share(load.busy.saturating_add(load.awaited), load.limit, 16)
}

fn share(part: usize, whole: usize, units: usize) -> usize {
    part.saturating_mul(units) / whole.max(1)
}

/// What counts as this cluster's own on a member.
#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose {
    /// A session is to attach.
    Session,
    /// A transfer, or a data port.
    Transfer,
}

/// The usable ones of `members`, the best first. Of several that are equally well off the one whose `turn` it is comes first, so
/// that they alternate.
pub(super) fn rank(
    members: &[Arc<Record>],
    purpose: Purpose,
    turn: usize,
) -> Vec<(Standing, Arc<Record>)> {
    let usable = members.iter().filter(|member| member.is_usable());
    let mut ranked: Vec<_> = usable
        .map(|member| (standing(member, purpose), Arc::clone(member)))
        .collect();
    ranked.sort_by(|(one, a), (other, b)| one.cmp(other).then_with(|| a.name.cmp(&b.name)));
    if let Some((best, _)) = ranked.first() {
        let best = *best;
        let equal = ranked.partition_point(|(standing, _)| *standing == best);
        ranked[..equal].rotate_left(turn % equal);
    }
    ranked
}

fn standing(member: &Record, purpose: Purpose) -> Standing {
    let (load, machine) = (member.node.load(), member.state.machine());
    let own = match purpose {
        Purpose::Session => {
            let others = usize::try_from(machine.other_sessions).unwrap_or(usize::MAX);
            member.sessions().saturating_add(others)
        }
        // Those of other control servers keep workers busy.
        Purpose::Transfer => member.transfers(),
    };
    Standing::new(&load, &machine, own, member.meter.rate().sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::told::{CardLoad, Traffic};

    fn load(busy: usize, limit: usize, buffers: usize) -> NodeLoad {
        let workers = WorkerLoad {
            busy,
            limit,
            awaited: 0,
        };
        NodeLoad {
            senders: workers,
            receivers: WorkerLoad { busy: 0, ..workers },
            buffer_bytes: buffers,
            buffer_bytes_limit: 800,
            buffers_awaited: 0,
        }
    }

    fn standing(load: &NodeLoad, own: usize, rate: u64) -> Standing {
        Standing::new(load, &MachineLoad::default(), own, rate)
    }

    #[test]
    fn workers_count_before_own_transfers_before_memory_before_throughput() {
        let ordered = [
            standing(&load(3, 64, 0), 0, 0),
            standing(&load(0, 64, 0), 0, 70 << 20),
            standing(&load(0, 64, 0), 0, 300 << 20),
            standing(&load(0, 64, 200), 0, 0),
            // Half as many workers: each transfer weighs twice as much.
            standing(&load(0, 64, 0), 1, 0),
            standing(&load(0, 32, 0), 1, 0),
            standing(&load(4, 64, 0), 0, 0),
            standing(&load(64, 64, 0), 0, 0),
        ];
        assert!(ordered.is_sorted(), "{ordered:?}");
        assert!(ordered.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn limits_that_no_node_has_are_taken_for_others() {
        assert!(standing(&load(0, 0, 0), 3, 0).own > 0);
        assert!(standing(&load(0, usize::MAX, 0), 64, 0).own > 0);
        let absurd = MachineLoad {
            ring_bytes: u64::MAX,
            ..MachineLoad::default()
        };
        let standing = Standing::new(&load(0, 64, 0), &absurd, usize::MAX, u64::MAX);
        assert!(standing.is_near(&standing, usize::MAX, &load(0, 64, 0)));
    }

    #[test]
    fn rings_count_like_buffers() {
        let machine = |ring_bytes| MachineLoad {
            ring_bytes,
            ring_bytes_limit: 800,
            ..MachineLoad::default()
        };
        let with = |rings, buffers| Standing::new(&load(0, 64, buffers), &machine(rings), 0, 0);
        assert_eq!(with(0, 200), with(200, 0));
        assert_eq!(with(200, 200), with(200, 0));
        assert!(with(0, 0) < with(100, 0));
        assert!(with(100, 0) < with(100, 200));
    }

    /// A machine with a card of 10 Gbit/s, which receives and sends so many MB/s, of them so many for transfers.
    fn machine(card: [u64; 2], own: [u64; 2], link: Option<u64>) -> MachineLoad {
        const MB: u64 = 1_000_000;
        let traffic = |[received, sent]: [u64; 2]| Traffic {
            received: received * MB,
            sent: sent * MB,
        };
        let card = CardLoad {
            name: "eth0".to_owned(),
            traffic: traffic(card),
            link,
        };
        MachineLoad {
            cards: vec![CardLoad::default(), card],
            transferred: traffic(own),
            ..MachineLoad::default()
        }
    }

    #[test]
    fn a_card_that_is_busy_with_other_traffic_is_as_bad_as_busy_workers() {
        const LINK: Option<u64> = Some(1_250_000_000);
        for (card, own, sixteenths) in [
            ([0, 0], [0, 0], 0),
            ([300, 0], [0, 0], 0),
            ([320, 0], [0, 0], 4),
            ([0, 700], [0, 0], 8),
            ([1_250, 1_250], [0, 0], 16),
            // Its own transfers, with their headers.
            ([1_250, 0], [1_190, 0], 0),
            ([1_250, 700], [1_190, 0], 8),
            // They have ended, or the bytes are not seen by the kernel (RDMA).
            ([0, 0], [1_190, 1_190], 0),
            ([9_999_999, 0], [0, 0], 16),
        ] {
            let found = foreign(&machine(card, own, LINK));
            assert_eq!(found, sixteenths, "{card:?} {own:?}");
        }
        assert_eq!(foreign(&machine([1_250, 0], [0, 0], None)), 0);
        assert_eq!(foreign(&machine([1_250, 0], [0, 0], Some(0))), 0);
        let idle = load(0, 64, 0);
        let standing = |machine| Standing::new(&idle, &machine, 0, 0);
        let busy = standing(machine([0, 700], [0, 0], LINK));
        let with_own = Standing::new(&idle, &MachineLoad::default(), 20, 1 << 40);
        assert!(with_own < busy, "{with_own:?} {busy:?}");
        // Without the speed the traffic still tells two nodes apart that are equal otherwise.
        let unknown = machine([0, 700], [0, 0], None);
        assert!(standing(MachineLoad::default()) < standing(unknown));
    }
}
