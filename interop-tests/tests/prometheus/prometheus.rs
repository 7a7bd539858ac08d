//! A Prometheus with the project's rules, and short waits in them.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_interop::Client;
use gridhaul_interop::support::prometheus::Prometheus as Scraping;

use crate::files;

/// What takes longer never happens, also on a busy machine.
const TIME_LIMIT: Duration = Duration::from_secs(180);

pub(crate) fn promtool(arguments: &[&str]) -> Client {
    Client::new("promtool").args(arguments.iter().copied())
}

pub(crate) struct Prometheus(Scraping);

impl Prometheus {
    /// It scrapes these pages of metrics.
    pub(crate) fn scraping(targets: &[SocketAddr]) -> Self {
        Self(Scraping::scraping(targets, &quick(&files::rules())).expect("started"))
    }

    /// The samples of a query, one a line.
    pub(crate) fn query(&self, expression: &str) -> Vec<String> {
        self.0.query(expression).expect("an answer")
    }

    /// The value of a query that has one sample; `None` before Prometheus has the numbers.
    pub(crate) fn query_number(&self, expression: &str) -> Option<f64> {
        let samples = self.query(expression);
        let (_, value) = samples.first()?.split_once("=> ")?;
        let (value, _) = value.split_once(" @")?;
        Some(value.parse().expect("a number"))
    }

    /// The alerts that fire, each as [`sample`] writes it.
    pub(crate) fn firing(&self) -> Vec<String> {
        let alerts = self.query("sum by (alertname, instance) (ALERTS{alertstate=\"firing\"})");
        let names = alerts.iter().filter_map(|alert| alert.split_once(" => "));
        names.map(|(name, _)| name.to_owned()).collect()
    }

    /// Whether an alert fires for a server.
    pub(crate) fn fires(&self, alert: &str, target: SocketAddr) -> bool {
        self.firing().contains(&sample(alert, target))
    }

    /// Repeats `meanwhile` until `is_so`.
    pub(crate) fn wait(&self, words: &str, is_so: impl Fn(&Self) -> bool, meanwhile: impl FnMut()) {
        let becomes_so = self.becomes(is_so, meanwhile);
        assert!(becomes_so, "{words}; firing: {:?}", self.firing());
    }

    /// Whether `is_so` in time, with `meanwhile` repeated until then.
    pub(crate) fn becomes(
        &self,
        mut is_so: impl FnMut(&Self) -> bool,
        mut meanwhile: impl FnMut(),
    ) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < TIME_LIMIT {
            meanwhile();
            if is_so(self) {
                return true;
            }
            // The time between two scrapes, not an order of events.
            thread::sleep(Duration::from_millis(250));
        }
        false
    }
}

/// The name of an alert for a server.
pub(crate) fn sample(alert: &str, target: SocketAddr) -> String {
    format!("{{alertname=\"{alert}\", instance=\"{target}\"}}")
}

/// The rules without waits, and with short windows. A rate is reached within a short time or never; a number of events takes longer
/// on a busy machine.
fn quick(rules: &str) -> String {
    let lines = rules.lines().map(|line| {
        let window = if line.contains("increase(") {
            "[1m]"
        } else {
            "[15s]"
        };
        if line.trim_start().starts_with("for: ") {
            "        for: 0s".to_owned()
        } else {
            line.replace("[10m]", window).replace("[15m]", window)
        }
    });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}
