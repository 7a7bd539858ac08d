//! The files in `packaging/`: their syntax, their unit tests, and the names in them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gridhaul_interop::Client;

use crate::faults::ask_for_big;
use crate::hosts::{Clustered, Host};
use crate::prometheus::promtool;
use crate::site::{Site, page};

pub(crate) fn packaging(path: &str) -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent()
        .expect("a workspace")
        .join("packaging")
        .join(path)
}

fn text(path: &str) -> String {
    fs::read_to_string(packaging(path)).expect("it is there")
}

pub(crate) fn rules() -> String {
    text("prometheus/gridhaul.rules.yml")
}

/// The queries of the dashboard, with values in place of its variables.
pub(crate) fn queries() -> Vec<String> {
    let dashboard = text("grafana/gridhaul.json");
    let queries = dashboard.lines().filter_map(|line| {
        let text = line.trim().strip_prefix("\"expr\": \"")?;
        let text = text.trim_end_matches(',').strip_suffix('"')?;
        let text = text.replace("\\\"", "\"");
        Some(
            text.replace("$__rate_interval", "30s")
                .replace("$instance", ".*"),
        )
    });
    queries.collect()
}

/// The names of metrics in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !is_part(c));
    words
        .filter(|word| word.starts_with("gridhaul_") || word.starts_with("process_"))
        .collect()
}

#[test]
fn the_rules_are_valid_and_each_fires_when_it_should() {
    let directory = packaging("prometheus");
    promtool(&["check", "rules", "gridhaul.rules.yml"])
        .directory(&directory)
        .run()
        .map(|done| assert!(done.status.success(), "{done}"))
        .expect("it runs");
    let done = promtool(&["test", "rules", "gridhaul.rules_test.yml"])
        .directory(&directory)
        .run()
        .expect("it runs");
    assert!(done.status.success(), "{done}");
}

#[test]
fn every_rule_has_a_test_and_words_for_who_reads_it() {
    let (rules, tests) = (rules(), text("prometheus/gridhaul.rules_test.yml"));
    let alerts: Vec<_> = rules.split("- alert: ").skip(1).collect();
    assert!(alerts.len() >= 20, "{}", alerts.len());
    for alert in alerts {
        let name = alert.lines().next().expect("a name").trim();
        let test = format!("  - name: {name}\n");
        assert!(tests.contains(&test), "no test of {name}");
        for key in ["severity: ", "summary: ", "description: ", "runbook: "] {
            assert!(alert.contains(key), "{name} lacks {key}");
        }
        assert!(!alert.contains("://"), "{name} has a link");
    }
}

#[test]
fn the_page_is_good_for_prometheus_and_has_every_metric_of_rules_and_dashboard() {
    let site = Site::new();
    site.transfer();
    let clustered = Clustered::new();
    let page = site.whole_page();
    let of_nodes = self::page(clustered.host.metrics);
    for page in [&page, &of_nodes] {
        let checked = promtool(&["check", "metrics"])
            .input(page.clone())
            .run()
            .expect("it runs");
        assert!(checked.status.success(), "{checked}\n{page}");
        assert!(checked.output().trim().is_empty(), "{checked}");
    }
    let present: BTreeSet<&str> = page
        .lines()
        .chain(of_nodes.lines())
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    let (rules, queries) = (rules(), queries().join("\n"));
    assert!(queries.len() > 1000, "{queries}");
    for name in names(&rules).union(&names(&queries)) {
        // Only transfers over RDMA have counters of devices.
        if *name == "gridhaul_device_counts_total" {
            continue;
        }
        let family = name.strip_suffix("_bucket").unwrap_or(name);
        assert!(present.contains(family), "the page has no {name}");
    }
}

#[test]
fn drivers_count_while_a_transfer_runs() {
    let host = Host::new(&[]);
    let _held = ask_for_big(host.session());
    let begun = Instant::now();
    let name = "gridhaul_channel_counts_total{count=\"busy-us\"} ";
    loop {
        let page = page(host.metrics);
        let line = page.lines().find_map(|line| line.strip_prefix(name));
        if line.is_some_and(|count| count != "0") {
            assert!(page.contains("gridhaul_transfers_running 1\n"), "{page}");
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{page}");
        std::thread::yield_now();
    }
}

#[test]
fn the_dashboard_is_json() {
    let parse = [
        "-c",
        "import json, sys; print(len(json.load(sys.stdin)['panels']))",
    ];
    let done = Client::new("python3")
        .args(parse)
        .input(text("grafana/gridhaul.json"))
        .run()
        .expect("it runs");
    assert!(done.status.success(), "{done}");
    let panels: usize = done.output().trim().parse().expect("a number");
    assert!(panels >= 20, "{panels}");
}
