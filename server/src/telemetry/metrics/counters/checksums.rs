//! Counters of checksums.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use gridhaul_storage::{ChecksumAlgorithm, ChecksumSource, FoundChecksum};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::family::{Labels, add_to, registered};
use crate::telemetry::event::source_name;

type Seconds = Counter<f64, AtomicU64>;

/// The source of a checksum that was computed while the file arrived.
const ON_ARRIVAL: &str = "arrival";

#[derive(Debug)]
pub(super) struct Checksums {
    all: Family<Labels<2>, Counter>,
    bytes: Family<Labels<1>, Counter>,
    seconds: Family<Labels<1>, Seconds>,
}

impl Checksums {
    pub(super) fn register(registry: &mut Registry) -> Self {
        Self {
            all: registered(
                registry,
                "gridhaul_checksums_total",
                "Checksums by source: computed on arrival of the file, from memory, from its attribute, from its content",
            ),
            bytes: registered(
                registry,
                "gridhaul_checksum_bytes_total",
                "Bytes that were read for checksums",
            ),
            seconds: registered(
                registry,
                "gridhaul_checksum_seconds_total",
                "Time to read and compute checksums, without the time in the queue",
            ),
        }
    }

    /// Adds a checksum that a command asked for.
    pub(super) fn add(&self, algorithm: ChecksumAlgorithm, found: &FoundChecksum, took: Duration) {
        let name = algorithm.name();
        let source = source_name(found.source);
        let labels = [("algorithm", name), ("source", source)];
        add_to(&self.all, labels, 1);
        if found.source == ChecksumSource::Content {
            let labels = [("algorithm", name)];
            let bytes = self.bytes.get_or_create(&labels);
            bytes.inc_by(found.read_bytes);
            let seconds = self.seconds.get_or_create(&labels);
            seconds.inc_by(took.as_secs_f64());
        }
    }

    /// Adds a checksum that was computed while the file arrived.
    pub(super) fn add_on_arrival(&self, algorithm: ChecksumAlgorithm) {
        let labels = [("algorithm", algorithm.name()), ("source", ON_ARRIVAL)];
        add_to(&self.all, labels, 1);
    }
}
