//! Metrics of a registry, and counters that labels tell apart.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Metric, Registry};

/// Names and values of `N` labels.
pub(super) type Labels<const N: usize> = [(&'static str, &'static str); N];

/// A new metric of `registry`.
pub(super) fn registered<M: Metric + Clone + Default>(
    registry: &mut Registry,
    name: &str,
    help: &str,
) -> M {
    register(registry, name, help, M::default())
}

/// Adds a metric to `registry`.
pub(super) fn register<M: Metric + Clone>(
    registry: &mut Registry,
    name: &str,
    help: &str,
    metric: M,
) -> M {
    // The encoder appends the suffix of counters.
    let name = name.strip_suffix("_total").unwrap_or(name);
    registry.register(name, help, metric.clone());
    metric
}

/// Adds to one counter of a family. Adding 0 begins its time series, so that a scraper sees the increase to the first event.
pub(super) fn add_to<const N: usize>(
    family: &Family<Labels<N>, Counter>,
    labels: Labels<N>,
    count: u64,
) {
    family.get_or_create(&labels).inc_by(count);
}

#[cfg(test)]
pub(super) fn page(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::prometheus_text::encode(&mut text, registry)
        .expect("a String takes all");
    text
}
