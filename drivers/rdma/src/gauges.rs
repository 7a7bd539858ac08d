//! The driver's gauges for monitoring.

use std::sync::atomic::{AtomicU64, Ordering};

use gridhaul_stack::{Gauge, GaugeValues};

use crate::memory::MemoryLoad;

/// Queue pairs that were connected since the start of the process.
static QUEUE_PAIRS: AtomicU64 = AtomicU64::new(0);

/// Counts the queue pairs of a channel that has opened.
pub(crate) fn note_opened(queue_pairs: usize) {
    QUEUE_PAIRS.fetch_add(queue_pairs as u64, Ordering::Relaxed);
}

/// The memory of rings, and the channels that use it or wait for it.
pub(crate) fn gauges(load: &MemoryLoad) -> Vec<Gauge> {
    let bytes = vec![("used", load.used_bytes), ("idle", load.idle_bytes)];
    vec![
        Gauge {
            name: "gridhaul_rdma_ring_bytes",
            help: "Memory of rings: of open channels, and kept for later ones",
            values: GaugeValues::ByLabel("state", bytes),
        },
        Gauge::single(
            "gridhaul_rdma_ring_bytes_limit",
            "Memory that rings may take together, in bytes",
            load.limit_bytes,
        ),
        Gauge::single(
            "gridhaul_rdma_pinned_bytes",
            "Memory of rings that is pinned for devices, in bytes",
            load.pinned_bytes,
        ),
        Gauge::single(
            "gridhaul_rdma_channels",
            "Data channels that have rings",
            load.channels,
        ),
        Gauge::single(
            "gridhaul_rdma_channels_waiting",
            "Data channels that wait for memory for their rings",
            load.waiting as u64,
        ),
        Gauge::count(
            "gridhaul_rdma_queue_pairs_total",
            "Queue pairs that were connected; data channels that serve several files need no new ones",
            QUEUE_PAIRS.load(Ordering::Relaxed),
        ),
    ]
}
