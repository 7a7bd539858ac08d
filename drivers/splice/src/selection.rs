//! Routes of files for the driver `auto`: for what a measured choice between `read`/`write` and `sendfile`/`splice` is valid.
//!
//! Between two programs on one machine, pages that were sent with `sendfile` are in no CPU cache when the receiver copies
//! them: the receiver may pay what the sender saves. There the faster method is kept, if there is a clear difference.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use gridhaul_stack::measured::{Choice, Choices, Goal, Method, Rule};

/// The bytes that each method moves before the methods are compared.
const TRIAL_BYTES: u64 = 16 * 1024 * 1024;

/// The same between programs on one machine. There each method is timed as one run, which is long enough that socket
/// buffers of some mebibytes do not hide the speed of the receiver.
const LOCAL_TRIAL_BYTES: u64 = 256 * 1024 * 1024;

/// The smallest pieces that are measured; with smaller ones the time is mostly waiting.
const MEASURED_BYTES: u64 = 128 * 1024;

/// The direction of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Sending,
    Receiving,
}

impl Direction {
    /// The system call that moves bytes in this direction.
    pub(crate) fn call(self, method: Method) -> &'static str {
        match (method, self) {
            (Method::Copy, _) => "read",
            (Method::Bypass, Self::Sending) => "sendfile",
            (Method::Bypass, Self::Receiving) => "splice",
        }
    }
}

/// The properties of a connection that determine the cost of sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer {
    /// The peer is on this machine.
    pub(crate) is_local: bool,
    /// The kernel encrypts the connection (kernel TLS).
    pub(crate) is_protected: bool,
}

/// What a measurement is valid for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Route {
    /// The type of the file system (fstatfs(2)), or 0 if it is unknown.
    file_system: u64,
    direction: Direction,
    peer: Peer,
}

/// All measurements of this process.
static CHOICES: Choices<Route> = Choices::new();

/// The measurements of a route, shared by all channels.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    direction: Direction,
    choice: Arc<Choice>,
}

/// The record for moving this file in this direction, to or from this kind of peer.
pub(crate) fn record(file: BorrowedFd<'_>, direction: Direction, peer: Peer) -> Record {
    let kind = rustix::fs::fstatfs(file).map(|facts| facts.f_type);
    let route = Route {
        file_system: kind.map_or(0, i64::cast_unsigned),
        direction,
        peer,
    };
    Record {
        direction,
        choice: CHOICES.get(route, route.rule()),
    }
}

impl Record {
    pub(crate) fn choice(&self) -> &Choice {
        &self.choice
    }
}

/// The reason for the choice, for the log.
impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [bypass, copy] =
            [Method::Bypass, Method::Copy].map(|method| self.direction.call(method));
        f.write_str(&self.choice.describe(bypass, copy))
    }
}

impl Route {
    fn rule(self) -> Rule {
        let is_within_the_machine = self.peer.is_local && self.direction == Direction::Sending;
        let (goal, trial_bytes) = match is_within_the_machine {
            true => (Goal::Time, LOCAL_TRIAL_BYTES),
            false => (Goal::Processor, TRIAL_BYTES),
        };
        Rule {
            goal,
            trial_bytes,
            least_bytes: MEASURED_BYTES,
            usual: Method::Bypass,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_only_where_both_programs_share_a_machine() {
        for (is_local, direction, goal) in [
            (false, Direction::Sending, Goal::Processor),
            (false, Direction::Receiving, Goal::Processor),
            (true, Direction::Receiving, Goal::Processor),
            (true, Direction::Sending, Goal::Time),
        ] {
            let route = Route {
                file_system: 0,
                direction,
                peer: Peer {
                    is_local,
                    is_protected: false,
                },
            };
            assert_eq!(route.rule().goal, goal, "{route:?}");
        }
    }
}
