//! A real Prometheus scrapes a real server, and alerts fire when faults are made.

use crate::files::queries;
use crate::prometheus::Prometheus;
use crate::site::Site;

/// Queries of the dashboard that have no data on this server: nothing uses RDMA, and no session has a delegated credential.
fn may_be_empty(query: &str) -> bool {
    ["gridhaul_channel_counts", "gridhaul_device_counts"]
        .iter()
        .any(|name| query.contains(name))
}

#[test]
fn alerts_fire_when_faults_are_made_and_the_dashboard_has_data() {
    let mut site = Site::new();
    let prometheus = Prometheus::scraping(site.metrics);
    let is_up = |prometheus: &Prometheus| !prometheus.query("gridhaul_build_info").is_empty();
    prometheus.wait("it scrapes the server", is_up, || {});
    let has_inventory = |prometheus: &Prometheus| {
        let expired = "gridhaul_certificates{kind=\"revocation_list\",state=\"ok\"} > 0";
        !prometheus.query(expired).is_empty()
    };
    prometheus.wait("the lists are counted", has_inventory, || {});
    for alert in [
        "GridhaulDown",
        "GridhaulRevocationListExpired",
        "GridhaulPortsExhausted",
        "GridhaulReloadFailed",
        "GridhaulRefusalsHigh",
    ] {
        assert!(!prometheus.fires(alert), "{alert}: {}", site.log());
    }

    for query in queries() {
        let has_data =
            |prometheus: &Prometheus| !prometheus.query(&query).is_empty() || may_be_empty(&query);
        prometheus.wait(&query, has_data, || {
            if query.contains("logins") {
                site.guess_passwords();
            }
            if query.contains("transfer") {
                site.transfer();
            }
        });
    }

    let fires = |alert: &'static str| move |prometheus: &Prometheus| prometheus.fires(alert);
    site.let_lists_expire();
    let alert = "GridhaulRevocationListExpired";
    prometheus.wait(alert, fires(alert), || {});
    site.reload_nonsense();
    let alert = "GridhaulReloadFailed";
    prometheus.wait(alert, fires(alert), || {});
    let alert = "GridhaulPortsExhausted";
    prometheus.wait(alert, fires(alert), || site.exhaust_ports());
    let alert = "GridhaulRefusalsHigh";
    prometheus.wait(alert, fires(alert), || site.guess_passwords());
    assert!(!prometheus.fires("GridhaulDown"));
    site.kill();
    let alert = "GridhaulDown";
    prometheus.wait(alert, fires(alert), || {});
}
