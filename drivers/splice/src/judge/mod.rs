//! Which way is better: through memory or past it. That depends on the machine, so `auto` measures.
//!
//! Past memory there is no copy, but work for each page; which costs more is decided by the size of the
//! caches, the file system's pages and the network. Both ways are tried on some mebibytes of a transfer that is
//! long enough, the cheaper one in processor time is kept, unless it is much slower, and the others who
//! move files between the same file system and the same kind of peer begin with it. Now and then the trial
//! is repeated.
//!
//! Between two programs of one machine, pages that were sent past memory are in no cache when the receiver copies
//! them: what the sender spares, the receiver may pay. There the quicker way is kept, if one is.

mod cost;

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use cost::Tally;
pub(crate) use cost::{Cost, Watch};

/// So much is moved in each way before they are compared.
const TRIAL_BYTES: u64 = 16 * 1024 * 1024;

/// The same between programs of one machine, where each way has its turn as a whole, and the sockets, which hold
/// some mebibytes, show how fast the receiver is.
const LOCAL_TRIAL_BYTES: u64 = 256 * 1024 * 1024;

/// After so much the trial is repeated.
const KEPT_BYTES: u64 = 4 * 1024 * 1024 * 1024;

/// Pieces from this size are measured; smaller ones say more about waiting than about moving.
pub(crate) const MEASURED_BYTES: u64 = 128 * 1024;

/// As many file systems, directions and kinds of peers are told apart; more than any server has.
const MOST_RECORDS: usize = 64;

/// How much cheaper memory must be, since its copies also take caches and bandwidth from others; and how much
/// slower the cheaper way may be.
const CLEARLY_CHEAPER: f64 = 0.9;
const MUCH_SLOWER: f64 = 1.5;

/// How much less time the other way must take between programs of one machine.
const CLEARLY_QUICKER: f64 = 0.95;

/// A way of moving a range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// By reading and writing.
    Memory,
    /// By `sendfile` or `splice`.
    Kernel,
}

/// Where bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Sending,
    Receiving,
}

impl Direction {
    /// The system call that moves bytes in this direction.
    pub(crate) fn call(self, way: Way) -> &'static str {
        match (way, self) {
            (Way::Memory, _) => "read",
            (Way::Kernel, Self::Sending) => "sendfile",
            (Way::Kernel, Self::Receiving) => "splice",
        }
    }
}

/// What a judgement is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Route {
    /// The kind of file system, as fstatfs(2) numbers them; 0 where it does not.
    file_system: u64,
    direction: Direction,
    peer: Peer,
}

/// What is at the other end of a socket, as far as it decides what sending costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer {
    /// It is on this machine.
    pub(crate) is_local: bool,
    /// The kernel has TLS on the connection.
    pub(crate) is_protected: bool,
}

/// What is known about a route; shared by all channels.
#[derive(Debug)]
pub(crate) struct Record {
    route: Route,
    phase: Mutex<Phase>,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// Nothing is known, or it is old.
    Trial { memory: Tally, kernel: Tally },
    /// Decided, for so many bytes.
    Settled {
        memory: Tally,
        kernel: Tally,
        left: u64,
    },
    /// The kernel cannot do it, and is not asked again for so many bytes.
    Refused { errno: Errno, left: u64 },
}

/// Everything that was measured in this process.
static RECORDS: Mutex<Vec<Arc<Record>>> = Mutex::new(Vec::new());

/// What is known about moving this file in this direction, between here and this kind of peer.
pub(crate) fn record(file: BorrowedFd<'_>, direction: Direction, peer: Peer) -> Arc<Record> {
    let kind = rustix::fs::fstatfs(file).map(|facts| facts.f_type);
    let route = Route {
        file_system: kind.map_or(0, i64::cast_unsigned),
        direction,
        peer,
    };
    let mut records = RECORDS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(record) = records.iter().find(|record| record.route == route) {
        return Arc::clone(record);
    }
    if records.len() == MOST_RECORDS {
        records.remove(0);
    }
    let record = Arc::new(Record {
        route,
        phase: Mutex::new(Phase::trial()),
    });
    records.push(Arc::clone(&record));
    record
}

impl Record {
    /// The way for the next piece of so many bytes, and whether it is to be measured. A transfer that is not
    /// known to be long takes part in no trial.
    pub(crate) fn choose(&self, bytes: u64, is_long: bool) -> (Way, bool) {
        let mut phase = self.phase();
        let (way, left) = match &mut *phase {
            Phase::Trial { memory, kernel } => {
                let may_measure = is_long && bytes >= MEASURED_BYTES;
                let is_memorys_turn = match self.route.is_within_the_machine() {
                    true => memory.bytes < LOCAL_TRIAL_BYTES,
                    false => memory.bytes < kernel.bytes,
                };
                return if may_measure && is_memorys_turn {
                    (Way::Memory, true)
                } else {
                    (Way::Kernel, may_measure)
                };
            }
            Phase::Settled {
                memory,
                kernel,
                left,
            } => {
                let way = self.route.better(memory, kernel);
                let left = left.checked_sub(bytes).map(|rest| *left = rest);
                (way, left)
            }
            Phase::Refused { left, .. } => {
                let left = left.checked_sub(bytes).map(|rest| *left = rest);
                (Way::Memory, left)
            }
        };
        if left.is_none() {
            *phase = Phase::trial();
        }
        (way, false)
    }

    /// Takes a measurement into account.
    pub(crate) fn note(&self, way: Way, cost: Cost) {
        let mut phase = self.phase();
        // Another channel may have ended the trial.
        if let Phase::Trial { memory, kernel } = &mut *phase {
            match way {
                Way::Memory => memory.note(cost),
                Way::Kernel => kernel.note(cost),
            }
            if memory.bytes.min(kernel.bytes) >= self.route.trial_bytes() {
                *phase = Phase::Settled {
                    memory: *memory,
                    kernel: *kernel,
                    left: KEPT_BYTES,
                };
            }
        }
    }

    /// The kernel said that it cannot move such files.
    pub(crate) fn refuse(&self, errno: Errno) {
        *self.phase() = Phase::Refused {
            errno,
            left: KEPT_BYTES,
        };
    }

    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a way was chosen, for the log.
impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = self.route.direction;
        let name = direction.call(Way::Kernel);
        match *self.phase() {
            Phase::Trial { .. } => write!(f, "{name} and read are being measured"),
            Phase::Settled { memory, kernel, .. } => write!(
                f,
                "CPU seconds per GB: {name} {:.3}, read {:.3}; seconds per GB: {name} {:.3}, read {:.3}",
                kernel.busy(),
                memory.busy(),
                self.route.elapsed(&kernel),
                self.route.elapsed(&memory)
            ),
            Phase::Refused { errno, .. } => {
                write!(f, "{name} failed: {}", io::Error::from(errno))
            }
        }
    }
}

impl Route {
    fn is_within_the_machine(self) -> bool {
        self.peer.is_local && self.direction == Direction::Sending
    }

    fn trial_bytes(self) -> u64 {
        match self.is_within_the_machine() {
            true => LOCAL_TRIAL_BYTES,
            false => TRIAL_BYTES,
        }
    }

    /// The seconds per gigabyte that count.
    fn elapsed(self, tally: &Tally) -> f64 {
        match self.is_within_the_machine() {
            true => tally.elapsed(),
            false => tally.fastest(),
        }
    }

    fn better(self, memory: &Tally, kernel: &Tally) -> Way {
        let is_cheaper = memory.busy() < kernel.busy() * CLEARLY_CHEAPER;
        let [memory, kernel] = [memory, kernel].map(|tally| self.elapsed(tally));
        let tolerated = match self.is_within_the_machine() {
            true => 1.0 / CLEARLY_QUICKER,
            false => MUCH_SLOWER,
        };
        let is_quick_enough = memory <= kernel * tolerated;
        if is_cheaper && is_quick_enough || kernel > memory * tolerated {
            return Way::Memory;
        }
        Way::Kernel
    }
}

impl Phase {
    fn trial() -> Self {
        Self::Trial {
            memory: Tally::none(),
            kernel: Tally::none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn record(is_local: bool) -> Record {
        Record {
            route: Route {
                file_system: 0,
                direction: Direction::Sending,
                peer: Peer {
                    is_local,
                    is_protected: false,
                },
            },
            phase: Mutex::new(Phase::trial()),
        }
    }

    /// Moves bytes of a long transfer as a channel does; returns how many went through memory.
    fn run(record: &Record, bytes: u64, cost: impl Fn(Way) -> (u64, u64)) -> u64 {
        const PIECE: u64 = 1 << 20;
        let mut through_memory = 0;
        for _ in 0..bytes / PIECE {
            let (way, is_measured) = record.choose(PIECE, true);
            if way == Way::Memory {
                through_memory += PIECE;
            }
            if is_measured {
                let (busy, elapsed) = cost(way);
                record.note(
                    way,
                    Cost {
                        bytes: PIECE,
                        busy: Duration::from_micros(busy),
                        elapsed: Duration::from_micros(elapsed),
                    },
                );
            }
        }
        through_memory
    }

    #[test]
    fn the_cheaper_way_is_kept_once_both_were_tried() {
        let memory_wins = |way| match way {
            Way::Memory => (100, 200),
            Way::Kernel => (300, 250),
        };
        let one = record(false);
        run(&one, 2 * TRIAL_BYTES, memory_wins);
        assert_eq!(run(&one, 1 << 30, memory_wins), 1 << 30);
        let kernel_wins = |way| match way {
            Way::Memory => (300, 200),
            Way::Kernel => (100, 250),
        };
        let other = record(false);
        let tried = run(&other, 2 * TRIAL_BYTES, kernel_wins);
        assert_eq!(tried, TRIAL_BYTES);
        assert_eq!(run(&other, 1 << 30, kernel_wins), 0);
        assert_eq!(
            other.to_string(),
            "CPU seconds per GB: sendfile 0.095, read 0.286; seconds per GB: sendfile 0.238, read 0.191"
        );
    }

    #[test]
    fn a_way_that_is_cheap_but_much_slower_is_not_kept() {
        for (slow, through_memory) in [(Way::Kernel, 1 << 20), (Way::Memory, 0)] {
            let record = record(false);
            run(&record, 2 * TRIAL_BYTES, |way| {
                if way == slow { (100, 1000) } else { (200, 300) }
            });
            assert_eq!(run(&record, 1 << 20, |_| (0, 0)), through_memory);
        }
    }

    #[test]
    fn within_a_machine_the_way_that_is_quicker_for_both_ends_is_kept() {
        for (quick, through_memory) in [(Way::Memory, 1 << 20), (Way::Kernel, 0)] {
            let record = record(true);
            let tried = run(&record, 2 * LOCAL_TRIAL_BYTES, |way| {
                if way == quick { (300, 400) } else { (100, 500) }
            });
            assert_eq!(tried, LOCAL_TRIAL_BYTES);
            assert_eq!(run(&record, 1 << 20, |_| (0, 0)), through_memory);
        }
    }

    #[test]
    fn within_a_machine_the_cheaper_of_two_ways_that_are_as_quick_is_kept() {
        let record = record(true);
        run(&record, 2 * LOCAL_TRIAL_BYTES, |way| match way {
            Way::Memory => (300, 400),
            Way::Kernel => (100, 420),
        });
        assert_eq!(run(&record, 1 << 20, |_| (0, 0)), 0);
    }

    #[test]
    fn the_trial_is_repeated() {
        let record = record(false);
        run(&record, 2 * TRIAL_BYTES + KEPT_BYTES, |way| match way {
            Way::Memory => (300, 300),
            Way::Kernel => (100, 100),
        });
        let tried = run(&record, 3 * TRIAL_BYTES, |way| match way {
            Way::Memory => (100, 100),
            Way::Kernel => (300, 300),
        });
        assert!(tried >= TRIAL_BYTES, "{tried}");
        assert_eq!(run(&record, 1 << 20, |_| (0, 0)), 1 << 20);
    }

    #[test]
    fn what_is_short_is_not_measured_and_what_was_refused_is_not_tried_again() {
        let record = record(false);
        assert_eq!(record.choose(1 << 30, false), (Way::Kernel, false));
        assert_eq!(
            record.choose(MEASURED_BYTES - 1, true),
            (Way::Kernel, false)
        );
        record.refuse(Errno::INVAL);
        assert_eq!(record.choose(1 << 30, true), (Way::Memory, false));
        assert_eq!(
            record.to_string(),
            "sendfile failed: Invalid argument (os error 22)"
        );
    }
}
