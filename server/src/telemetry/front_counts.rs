//! The counters of the front process for the page of metrics, in memory that it shares with the serving process. A
//! compromised front process can falsify these numbers, and nothing else.

use super::shared_memory::{Counter, Counters, SharedMemory};

/// All counters. Zeros are valid.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Counts {
    /// Present connections, including those of clients that are being served.
    pub(crate) open: Counter,
    /// Present connections before login.
    pub(crate) before_login: Counter,
    pub(crate) sessions: Counter,
    pub(crate) connections_refused: Counter,
    /// By mechanism (GSSAPI, TLS, other) and result (success, failure).
    pub(crate) authentications: [[Counter; 2]; 3],
    pub(crate) logins_failed: Counter,
    pub(crate) commands_refused: Counter,
}

// SAFETY: it consists of counters.
unsafe impl Counters for Counts {}

impl Counts {
    /// The number of refused connections, handshakes, logins and commands.
    pub(crate) fn refusals(&self) -> u64 {
        let handshakes = self.authentications.iter().map(|[_, failed]| failed);
        let others = [
            &self.connections_refused,
            &self.logins_failed,
            &self.commands_refused,
        ];
        handshakes.chain(others).map(Counter::value).sum()
    }
}

/// The counters of a front process.
pub(crate) type FrontCounts = SharedMemory<Counts>;
