//! The running process of a broker: its sockets, and the calls and listings that occupy it.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use super::exchange::{self, Discarded};

/// The interval at which a broker that does not answer is tried with a call.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// A running process.
#[derive(Debug)]
pub(super) struct BrokerProcess {
    pub(super) pid: u32,
    pub(super) started: Instant,
    pub(super) used: Instant,
    pub(super) free: Vec<OwnedFd>,
    /// Sockets of calls that exceeded their time limit. A socket is reusable once its late answer has arrived.
    pub(super) overdue: Vec<OwnedFd>,
    /// Set while calls fail at once: the time of the last call that exceeded its limit.
    pub(super) silent: Option<Instant>,
    /// Calls without an answer yet.
    pub(super) calls: usize,
    /// Listings under way.
    pub(super) listings: usize,
}

impl BrokerProcess {
    /// A process that was just started.
    pub(super) fn new(pid: u32, sockets: Vec<OwnedFd>) -> Self {
        let now = Instant::now();
        Self {
            pid,
            started: now,
            used: now,
            free: sockets,
            overdue: Vec::new(),
            silent: None,
            calls: 0,
            listings: 0,
        }
    }

    /// Whether no call or listing is in progress.
    pub(super) fn is_idle(&self) -> bool {
        self.calls == 0 && self.listings == 0
    }

    /// Whether this call fails at once. Every [`RETRY_INTERVAL`] one call is tried.
    pub(super) fn is_silent(&mut self) -> bool {
        let Some(since) = self.silent else {
            return false;
        };
        let is_retry = since.elapsed() >= RETRY_INTERVAL;
        if is_retry {
            self.silent = Some(Instant::now());
        }
        !is_retry
    }

    /// Reclaims sockets whose late answer has arrived.
    pub(super) fn collect_overdue(&mut self) {
        for socket in std::mem::take(&mut self.overdue) {
            match exchange::discard(&socket) {
                Discarded::NotYet => self.overdue.push(socket),
                Discarded::Answer => {
                    self.silent = None;
                    self.calls -= 1;
                    self.free.push(socket);
                }
                Discarded::End => self.calls -= 1,
            }
        }
    }
}
