//! Which member is best off.
//!
//! Members report their load some seconds late. What this cluster has placed there counts at once, so a burst of logins or
//! transfers spreads before the first report about it arrives.

use std::sync::Arc;

use gridhaul_transfer::{NodeLoad, WorkerLoad};

use super::member::Record;

/// How well a member is off; the least is best. Reported values are coarse, because small differences in late reports would send
/// everything to the same member until the next report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Standing {
    /// Busy workers and those awaited, of the busier direction, in 16ths of the limit.
    busy: usize,
    /// What this cluster has there, relative to the limit.
    own: usize,
    /// Buffers, in 8ths of the limit.
    memory: usize,
    /// Bytes per second: 0 below 64 MiB/s, then one more with each factor of 4.
    rate: u32,
}

/// `own` of one transfer on a member with 1,024 workers.
const OWN_UNITS: usize = 1024;

impl Standing {
    fn new(load: &NodeLoad, own: usize, rate: u64) -> Self {
        let workers = load.senders.limit.max(load.receivers.limit).max(1);
        Self {
            busy: sixteenths(load.senders).max(sixteenths(load.receivers)),
            own: own.saturating_mul(OWN_UNITS) / workers,
            memory: share(load.buffer_bytes, load.buffer_bytes_limit, 8),
            rate: (rate >> 26).checked_ilog2().map_or(0, |log| log / 2 + 1),
        }
    }

    /// Whether a session may stay with this member although `best` is the best one: `slack` is the number of transfers, of those of
    /// this cluster, that it may have more.
    pub(super) fn is_near(&self, best: &Self, slack: usize, load: &NodeLoad) -> bool {
        let workers = load.senders.limit.max(load.receivers.limit).max(1);
        let more = slack.saturating_mul(OWN_UNITS) / workers;
        self.busy <= best.busy && self.own <= best.own + more && self.memory <= best.memory + 1
    }
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
    let own = match purpose {
        Purpose::Session => member.sessions(),
        Purpose::Transfer => member.transfers(),
    };
    Standing::new(&member.node.load(), own, member.meter.rate())
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn workers_count_before_own_transfers_before_memory_before_throughput() {
        let ordered = [
            Standing::new(&load(3, 64, 0), 0, 0),
            Standing::new(&load(0, 64, 0), 0, 70 << 20),
            Standing::new(&load(0, 64, 0), 0, 300 << 20),
            Standing::new(&load(0, 64, 200), 0, 0),
            // Half as many workers: each transfer weighs twice as much.
            Standing::new(&load(0, 64, 0), 1, 0),
            Standing::new(&load(0, 32, 0), 1, 0),
            Standing::new(&load(4, 64, 0), 0, 0),
            Standing::new(&load(64, 64, 0), 0, 0),
        ];
        assert!(ordered.is_sorted(), "{ordered:?}");
        assert!(ordered.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn a_node_without_limits_is_not_divided_by() {
        let standing = Standing::new(&load(0, 0, 0), 3, 0);
        assert!(standing.own > 0);
    }
}
