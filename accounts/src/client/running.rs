//! A broker's process, as long as it runs: its sockets, and what it is at.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use super::talk::{self, Discarded};

/// How often a call is tried at a broker that does not answer.
const TRY_AGAIN: Duration = Duration::from_secs(10);

/// A process.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) pid: u32,
    pub(super) started: Instant,
    pub(super) used: Instant,
    pub(super) free: Vec<OwnedFd>,
    /// Sockets of calls whose answer did not come in time. They can be used again when it has come.
    pub(super) overdue: Vec<OwnedFd>,
    /// Since when calls fail at once: the last one that was tried had no answer in time.
    pub(super) silent: Option<Instant>,
    /// Calls that wait for an answer.
    pub(super) calls: usize,
    /// Listings under way.
    pub(super) listings: usize,
}

impl Running {
    /// One that was started now.
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

    /// Whether it has nothing to do.
    pub(super) fn is_idle(&self) -> bool {
        self.calls == 0 && self.listings == 0
    }

    /// Whether calls fail at once. From time to time one of them is tried.
    pub(super) fn is_silent(&mut self) -> bool {
        let Some(since) = self.silent else {
            return false;
        };
        let tries_one = since.elapsed() >= TRY_AGAIN;
        if tries_one {
            self.silent = Some(Instant::now());
        }
        !tries_one
    }

    /// Takes sockets back whose late answer has come.
    pub(super) fn collect_overdue(&mut self) {
        for socket in std::mem::take(&mut self.overdue) {
            match talk::discard(&socket) {
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
