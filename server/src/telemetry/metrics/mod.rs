//! Metrics for Prometheus: counters from events, and present values from a [`Snapshot`].
//!
//! `prometheus-client` counts and writes the text. Label values are constants of the program and names of devices, never names or
//! addresses that a client chose, so that the number of time series is bounded.

mod counters;
mod front;
mod present;
mod responder;

use prometheus_client::encoding::prometheus_text::encode;
use prometheus_client::registry::Registry;

use counters::Counters;
use front::FrontSide;

pub(crate) use present::Snapshot;
pub(crate) use responder::respond;

use super::event::Event;
use super::front_counts::FrontCounts;

/// The counters of this process, from its start on.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    counters: Counters,
    front: FrontSide,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new(FrontSide::None)
    }
}

impl Metrics {
    /// The metrics of the serving process, with the counters of the front process if there is one.
    pub(crate) fn with_front(front: Option<FrontCounts>) -> Self {
        Self::new(front.map_or(FrontSide::None, FrontSide::other))
    }

    /// The metrics of the front process.
    pub(crate) fn of_front(counts: FrontCounts) -> Self {
        Self::new(FrontSide::This(counts))
    }

    fn new(front: FrontSide) -> Self {
        let mut registry = Registry::default();
        let counters = Counters::register(&mut registry);
        Self {
            registry,
            counters,
            front,
        }
    }

    /// The counters of the front process, in the serving process.
    pub(crate) fn front(&self) -> Option<&FrontCounts> {
        self.front.counts()
    }

    /// Adds an event to the counters.
    pub(crate) fn count(&self, event: &Event<'_>) {
        match &self.front {
            FrontSide::This(counts) => front::count(counts, event),
            FrontSide::None | FrontSide::Other { .. } => self.counters.add(event),
        }
    }

    /// The page for a scraper: the counters, and the values of `now`.
    pub(crate) fn page(&self, now: &Snapshot) -> String {
        self.front.add_to(&self.counters);
        let mut text = String::new();
        for registry in [&self.registry, &present::registry(now)] {
            encode(&mut text, registry).expect("a String takes every line");
        }
        text
    }
}
