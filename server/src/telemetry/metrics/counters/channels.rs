//! What drivers report of data channels: their choices, and the events that they count.

use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};

use gridhaul_stack::{Detail, DetailValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::family::{Labels, add_to, registered};

/// A label whose value a driver made, such as the name of a device.
type Choice = [(&'static str, Cow<'static, str>); 2];

#[derive(Debug)]
pub(super) struct Channels {
    choices: Family<Choice, Counter>,
    /// The number of `choices`.
    choice_count: Mutex<usize>,
    counts: Family<Labels<1>, Counter>,
    device_counts: Family<Labels<1>, Counter>,
}

impl Channels {
    pub(super) fn register(registry: &mut Registry) -> Self {
        Self {
            choices: registered(
                registry,
                "gridhaul_transfer_choices_total",
                "Transfers by what their driver chose for their channels: its provider, a device",
            ),
            choice_count: Mutex::new(0),
            counts: registered(
                registry,
                "gridhaul_channel_counts_total",
                "Counters of drivers for data channels, of running transfers too",
            ),
            device_counts: registered(
                registry,
                "gridhaul_device_counts_total",
                "Counters of devices while transfers used them, added when a transfer ends; simultaneous transfers each add them",
            ),
        }
    }

    /// Adds the details of a finished transfer, of which `counted` was added while it ran.
    pub(super) fn add_finished(&self, details: &[Detail], counted: &[Detail]) {
        for detail in details {
            match &detail.value {
                DetailValue::Text(text) => self.add_choice(detail.name, text.clone()),
                DetailValue::Count(_) => add_to(&self.counts, [("count", detail.name)], 0),
                DetailValue::Shared(_) => add_to(&self.device_counts, [("count", detail.name)], 0),
                DetailValue::Setting(_) | DetailValue::Holding(_) => {}
            }
        }
        self.add_events(&Detail::new_events(details, &mut counted.to_vec()));
    }

    /// Adds events that were not added before.
    pub(super) fn add_events(&self, events: &[Detail]) {
        for event in events {
            let labels = [("count", event.name)];
            match event.value {
                DetailValue::Count(count) => add_to(&self.counts, labels, count),
                DetailValue::Shared(count) => add_to(&self.device_counts, labels, count),
                _ => {}
            }
        }
    }

    fn add_choice(&self, choice: &'static str, value: Cow<'static, str>) {
        /// A bound on the time series. Machines have fewer devices, and drivers fewer other choices.
        const MOST: usize = 1000;

        let labels = [("choice", Cow::Borrowed(choice)), ("value", value)];
        // Under the lock, a new choice is counted once. A panic cannot leave a wrong count.
        let mut count = self
            .choice_count
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let is_known = self.choices.get(&labels).is_some();
        if !is_known && *count == MOST {
            return;
        }
        *count += usize::from(!is_known);
        self.choices.get_or_create(&labels).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::super::family::page;
    use super::*;

    #[test]
    fn choices_are_bounded() {
        let mut registry = Registry::default();
        let channels = Channels::register(&mut registry);
        for number in 0..1100 {
            channels.add_choice("device", format!("mlx5_{number}").into());
        }
        channels.add_choice("device", "mlx5_0".into());
        let text = page(&registry);
        let name = "gridhaul_transfer_choices_total{";
        assert_eq!(
            text.lines().filter(|line| line.starts_with(name)).count(),
            1000
        );
        assert!(
            text.contains("value=\"mlx5_0\"} 2\n"),
            "known choices count on"
        );
    }

    #[test]
    fn a_count_of_drivers_is_0_before_its_first_event() {
        let mut registry = Registry::default();
        let channels = Channels::register(&mut registry);
        channels.add_finished(
            &[Detail::count("stalls", 0), Detail::shared("retries", 0)],
            &[],
        );
        let text = page(&registry);
        for line in [
            "gridhaul_channel_counts_total{count=\"stalls\"} 0\n",
            "gridhaul_device_counts_total{count=\"retries\"} 0\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }

    #[test]
    fn events_of_a_running_transfer_are_not_added_again_at_its_end() {
        let mut registry = Registry::default();
        let channels = Channels::register(&mut registry);
        let counted = [Detail::count("stalls", 2)];
        channels.add_events(&counted);
        let line = |count| format!("gridhaul_channel_counts_total{{count=\"stalls\"}} {count}\n");
        assert!(page(&registry).contains(&line(2)));
        channels.add_finished(&[Detail::count("stalls", 5)], &counted);
        assert!(page(&registry).contains(&line(5)));
    }
}
