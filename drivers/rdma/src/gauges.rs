//! The driver's gauges for monitoring.

use gridhaul_stack::{Gauge, GaugeValues};

use crate::memory::MemoryLoad;

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
    ]
}
