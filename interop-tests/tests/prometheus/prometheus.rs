//! A Prometheus with the project's rules, and short waits in them.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_interop::Client;
use gridhaul_interop::support::prometheus::Prometheus as Scraping;

use crate::files;

/// What takes longer never happens.
const TIME_LIMIT: Duration = Duration::from_secs(60);

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

    /// The names of the alerts that fire.
    fn firing(&self) -> String {
        self.query("sum by (alertname, instance) (ALERTS{alertstate=\"firing\"})")
            .join("\n")
    }

    /// Whether an alert fires for a server.
    pub(crate) fn fires(&self, alert: &str, target: SocketAddr) -> bool {
        let query =
            format!("ALERTS{{alertstate=\"firing\",alertname=\"{alert}\",instance=\"{target}\"}}");
        !self.query(&query).is_empty()
    }

    /// Repeats `meanwhile` until `is_so`.
    pub(crate) fn wait(&self, words: &str, is_so: impl Fn(&Self) -> bool, meanwhile: impl FnMut()) {
        let becomes_so = self.becomes(is_so, meanwhile);
        assert!(becomes_so, "{words}; firing: {}", self.firing());
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

/// The rules with short waits and short windows.
fn quick(rules: &str) -> String {
    let lines = rules.lines().map(|line| {
        if line.trim_start().starts_with("for: ") {
            "        for: 0s".to_owned()
        } else {
            line.replace("[10m]", "[15s]").replace("[15m]", "[15s]")
        }
    });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}
