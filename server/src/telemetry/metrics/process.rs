//! The gauges of the process, under the names that Prometheus' own libraries use.

use std::time::SystemTime;

use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::machine::ProcessFacts;

/// Adds what is known.
pub(super) fn register(registry: &mut Registry, facts: &ProcessFacts) {
    if let Some(time) = facts.processor_time {
        // The encoder appends `_total`.
        registry.register(
            "process_cpu_seconds",
            "Processor time of the serving process, in user mode and in the kernel",
            ConstCounter::new(time.as_secs_f64()),
        );
    }
    if let Some(started) = facts.started {
        let since = started.duration_since(SystemTime::UNIX_EPOCH);
        registry.register(
            "process_start_time_seconds",
            "When the process started, in seconds since 1970",
            ConstGauge::new(since.unwrap_or_default().as_secs_f64()),
        );
    }
    for (name, help, value) in [
        (
            "process_resident_memory_bytes",
            "Memory of the serving process",
            facts.resident_bytes,
        ),
        (
            "process_virtual_memory_bytes",
            "Address space of the serving process",
            facts.virtual_bytes,
        ),
        (
            "process_threads",
            "Threads of the serving process",
            facts.threads,
        ),
        (
            "process_open_fds",
            "Open descriptors of the serving process",
            facts.open_descriptors,
        ),
        (
            "process_max_fds",
            "Descriptors that the serving process may have open",
            facts.descriptor_limit,
        ),
    ] {
        if let Some(value) = value {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            registry.register(name, help, ConstGauge::new(value));
        }
    }
}
