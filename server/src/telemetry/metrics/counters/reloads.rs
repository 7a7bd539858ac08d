//! Counters of reloads.

use std::time::SystemTime;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::family::{Labels, add_to, registered};
use super::{FAILURE, SUCCESS, seconds_since_1970};

#[derive(Debug)]
pub(super) struct Reloads {
    all: Family<Labels<1>, Counter>,
    last_successful: Gauge,
    last_success: Gauge,
}

impl Reloads {
    /// The start has read the configuration at the time `now`.
    pub(super) fn register(registry: &mut Registry, now: SystemTime) -> Self {
        let reloads = Self {
            all: registered(
                registry,
                "gridhaul_reloads_total",
                "Reloads of the configuration",
            ),
            last_successful: registered(
                registry,
                "gridhaul_last_reload_successful",
                "Whether the last reload succeeded; 1 at the start",
            ),
            last_success: registered(
                registry,
                "gridhaul_last_successful_reload_timestamp_seconds",
                "When the configuration was read successfully the last time, in seconds since 1970",
            ),
        };
        for result in [SUCCESS, FAILURE] {
            add_to(&reloads.all, [("result", result)], 0);
        }
        reloads.note(true, now);
        reloads
    }

    pub(super) fn add(&self, is_good: bool, now: SystemTime) {
        let result = if is_good { SUCCESS } else { FAILURE };
        add_to(&self.all, [("result", result)], 1);
        self.note(is_good, now);
    }

    fn note(&self, is_good: bool, now: SystemTime) {
        self.last_successful.set(i64::from(is_good));
        if is_good {
            self.last_success.set(seconds_since_1970(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::family::page;
    use super::*;

    #[test]
    fn a_failed_reload_keeps_the_time_of_the_last_good_one() {
        let mut registry = Registry::default();
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let reloads = Reloads::register(&mut registry, at(500));
        reloads.add(true, at(1000));
        reloads.add(false, at(2000));
        let text = page(&registry);
        for line in [
            "gridhaul_reloads_total{result=\"success\"} 1\n",
            "gridhaul_reloads_total{result=\"failure\"} 1\n",
            "gridhaul_last_reload_successful 0\n",
            "gridhaul_last_successful_reload_timestamp_seconds 1000\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
