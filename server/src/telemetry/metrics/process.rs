//! The gauges of the process, under the names that Prometheus' own libraries use.

use std::sync::atomic::AtomicU64;
use std::time::SystemTime;

use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

use crate::machine::{ProcessFacts, Usage};

/// Adds what each process of the server takes.
pub(super) fn register_usage(registry: &mut Registry, usage: &[(String, Usage)]) {
    let times = Family::<[(&str, String); 1], Counter<f64, AtomicU64>>::default();
    let memory = Family::<[(&str, String); 1], Gauge<i64>>::default();
    for (role, usage) in usage {
        let role = [("role", role.clone())];
        times
            .get_or_create(&role)
            .inc_by(usage.processor_time.as_secs_f64());
        let bytes = i64::try_from(usage.resident_bytes).unwrap_or(i64::MAX);
        // The kernel does not tell.
        if bytes > 0 {
            memory.get_or_create(&role).set(bytes);
        }
    }
    registry.register(
        // The encoder appends the suffix.
        "gridhaul_process_cpu_seconds_total".trim_end_matches("_total"),
        "Processor time of the processes of the server, in user mode and in the kernel; brokers together, with those that have ended",
        times,
    );
    registry.register(
        "gridhaul_process_resident_memory_bytes",
        "Memory of the processes of the server; brokers together",
        memory,
    );
}

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
