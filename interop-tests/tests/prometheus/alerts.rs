//! A real Prometheus scrapes real servers, and every alert fires when its fault is made.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::expiries;
use crate::faults::{FAULTS, Fault, NOT_PROVOKED};
use crate::files::{queries, rules};
use crate::hosts::Clustered;
use crate::prometheus::{Prometheus, sample};
use crate::site::{Site, page};
use crate::world::World;

/// Queries of the dashboard that have no data on this server: nothing uses RDMA.
fn may_be_empty(query: &str) -> bool {
    query.contains("gridhaul_device_counts")
}

#[test]
fn every_query_of_the_dashboard_has_data() {
    let (site, clustered) = (Site::new(), Clustered::new());
    let prometheus = Prometheus::scraping(&[site.metrics, clustered.host.metrics]);
    let mut empty = queries();
    let are_answered = |prometheus: &Prometheus| {
        empty.retain(|query| !may_be_empty(query) && prometheus.query(query).is_empty());
        empty.is_empty()
    };
    let answered = prometheus.becomes(are_answered, || {
        site.guess_passwords();
        site.transfer();
    });
    assert!(answered, "no data for {empty:?}");
}

/// The faults that are made together, before their alerts are awaited.
fn rounds() -> impl Iterator<Item = &'static [Fault]> {
    expiries::ROUNDS.into_iter().chain(FAULTS.chunks(1))
}

/// Whether the alert of a fault that was made fires.
fn fires_in_time(fault: &Fault, world: &mut World, prometheus: &Prometheus) -> bool {
    let target = (fault.target)(world);
    let fires = |prometheus: &Prometheus| prometheus.fires(fault.alert, target);
    let fired = prometheus.becomes(fires, || (fault.again)(world, prometheus));
    println!("{}: {}: {fired}", fault.alert, fault.words);
    if !fired {
        // The alert follows from these numbers, or Prometheus did not get them.
        let scraped = prometheus.query(&format!("up{{instance=\"{target}\"}}"));
        println!("{scraped:?}\n{}", page(target));
    }
    fired
}

/// The rules are those of the file with `for` of 0 s, and with windows of 15 s for rates and a minute for numbers of events in place
/// of 10 and 15 minutes.
#[test]
fn every_alert_fires_when_its_fault_is_made() {
    let mut world = World::new();
    let prometheus = Prometheus::scraping(&world.targets());
    let up = format!("count(gridhaul_build_info) == {}", world.targets().len());
    let is_up = |prometheus: &Prometheus| !prometheus.query(&up).is_empty();
    prometheus.wait("it scrapes all servers", is_up, || {});
    let lists = "count(gridhaul_certificates{kind=\"revocation_list\",state=\"ok\"} > 0) == 4";
    let has_inventory = |prometheus: &Prometheus| !prometheus.query(lists).is_empty();
    prometheus.wait("the lists are counted", has_inventory, || {});
    // A busy machine answers a scrape late, and the server is down until the next one: the rule as shipped waits for two minutes.
    let is_quiet = |prometheus: &Prometheus| {
        let firing = prometheus.firing();
        let fires = |fault: &&Fault| firing.contains(&sample(fault.alert, (fault.target)(&world)));
        let firing: Vec<_> = rounds().flatten().filter(fires).collect();
        for fault in &firing {
            assert_eq!(fault.alert, "GridhaulDown", "it fires without a fault");
        }
        firing.is_empty()
    };
    prometheus.wait("no alert fires without a fault", is_quiet, || {});
    let mut silent = Vec::new();
    for round in rounds() {
        for fault in round {
            (fault.once)(&mut world);
        }
        for fault in round {
            if !fires_in_time(fault, &mut world, &prometheus) {
                silent.push(fault.alert);
            }
        }
    }
    assert!(silent.is_empty(), "did not fire: {silent:?}");
}

#[test]
fn every_alert_has_a_fault_or_a_reason_and_a_line_in_the_documentation() {
    let rules = rules();
    let alerts: BTreeSet<&str> = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
        .collect();
    let provoked = rounds().flatten().map(|fault| (fault.alert, fault.words));
    let all: Vec<_> = provoked.chain(NOT_PROVOKED).collect();
    let covered: BTreeSet<&str> = all.iter().map(|(alert, _)| *alert).collect();
    assert_eq!(alerts, covered);
    assert_eq!(covered.len(), all.len(), "an alert is there twice");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operators/monitoring.md");
    let page = fs::read_to_string(page).expect("it is there");
    for (alert, words) in all {
        let row = format!("| `{alert}` | {words} |");
        assert!(page.contains(&row), "the page lacks {row}");
    }
}
