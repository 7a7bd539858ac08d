//! Metrics for Prometheus: counters from events, and present values from a [`Snapshot`].
//!
//! Label values are constants of the program and names of devices, never names or addresses that a client chose, so that the
//! number of time series is bounded.

mod counts;
mod page;
mod responder;
mod text;

use std::sync::{Mutex, MutexGuard, PoisonError};

use counts::{Counts, count_in_front};

pub(crate) use page::Snapshot;
pub(crate) use responder::respond;

use super::event::Event;
use super::front_counts::FrontCounts;

/// The counters of this process, from its start on.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    counts: Mutex<Counts>,
    front: FrontSide,
}

/// The counters that the front process and the serving process share.
#[derive(Debug, Default)]
enum FrontSide {
    /// There is no front process.
    #[default]
    None,
    /// This is the front process. It counts for the serving process.
    This(FrontCounts),
    /// This is the serving process. The front process counts here.
    Other(FrontCounts),
}

impl Metrics {
    pub(crate) fn with_front(front: Option<FrontCounts>) -> Self {
        Self {
            counts: Mutex::default(),
            front: front.map_or(FrontSide::None, FrontSide::Other),
        }
    }

    pub(crate) fn of_front(counts: FrontCounts) -> Self {
        Self {
            counts: Mutex::default(),
            front: FrontSide::This(counts),
        }
    }

    /// The counters of the front process, in the serving process.
    pub(crate) fn front(&self) -> Option<&FrontCounts> {
        match &self.front {
            FrontSide::Other(counts) => Some(counts),
            FrontSide::None | FrontSide::This(_) => None,
        }
    }

    /// Adds an event to the counters.
    pub(crate) fn count(&self, event: &Event<'_>) {
        if let FrontSide::This(counts) = &self.front {
            count_in_front(counts, event);
        }
        self.counts().add(event);
    }

    /// The page for a scraper: the counters, and the values of `now`.
    pub(crate) fn page(&self, now: &Snapshot) -> String {
        let counts = self.counts().clone();
        let counts = match self.front() {
            Some(front) => counts.with(front),
            None => counts,
        };
        page::page(&counts, now)
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        // A count that a panic left out is one too few.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
