//! Routes: what a measurement is valid for, and how two methods compare on it.

use super::cost::Tally;

/// The bytes that each method moves before the methods are compared.
pub(super) const TRIAL_BYTES: u64 = 16 * 1024 * 1024;

/// The same between programs on one machine. There each method is timed as one run, which is long enough that socket
/// buffers of some mebibytes do not hide the speed of the receiver.
pub(super) const LOCAL_TRIAL_BYTES: u64 = 256 * 1024 * 1024;

/// Copying is chosen only if its cost is below this part of the other method's, since copies also take caches and memory
/// bandwidth from other threads.
const CLEARLY_CHEAPER: f64 = 0.9;

/// The cheaper method is chosen only if it takes at most this many times as long.
const MUCH_SLOWER: f64 = 1.5;

/// Between programs on one machine, the other method is chosen only if it takes at most this part of the time.
const CLEARLY_FASTER: f64 = 0.95;

/// A method of moving a range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    /// `read` and `write`.
    Memory,
    /// `sendfile` or `splice`.
    Kernel,
}

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
            (Method::Memory, _) => "read",
            (Method::Kernel, Self::Sending) => "sendfile",
            (Method::Kernel, Self::Receiving) => "splice",
        }
    }
}

/// What a measurement is valid for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Route {
    /// The type of the file system (fstatfs(2)), or 0 if it is unknown.
    pub(super) file_system: u64,
    pub(super) direction: Direction,
    pub(super) peer: Peer,
}

/// The properties of a connection that determine the cost of sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer {
    /// The peer is on this machine.
    pub(crate) is_local: bool,
    /// The kernel encrypts the connection (kernel TLS).
    pub(crate) is_protected: bool,
}

impl Route {
    pub(super) fn is_within_the_machine(self) -> bool {
        self.peer.is_local && self.direction == Direction::Sending
    }

    pub(super) fn trial_bytes(self) -> u64 {
        match self.is_within_the_machine() {
            true => LOCAL_TRIAL_BYTES,
            false => TRIAL_BYTES,
        }
    }

    /// The seconds per gigabyte that are compared.
    pub(super) fn elapsed(self, tally: &Tally) -> f64 {
        match self.is_within_the_machine() {
            true => tally.elapsed(),
            false => tally.fastest(),
        }
    }

    pub(super) fn better(self, memory: &Tally, kernel: &Tally) -> Method {
        let is_cheaper = memory.cpu() < kernel.cpu() * CLEARLY_CHEAPER;
        let [memory, kernel] = [memory, kernel].map(|tally| self.elapsed(tally));
        let tolerated = match self.is_within_the_machine() {
            true => 1.0 / CLEARLY_FASTER,
            false => MUCH_SLOWER,
        };
        let is_fast_enough = memory <= kernel * tolerated;
        if is_cheaper && is_fast_enough || kernel > memory * tolerated {
            return Method::Memory;
        }
        Method::Kernel
    }
}
