//! The limits of descriptors and memory.

use gridhaul_stack::Registry;
use rustix::process::{Resource, getrlimit};

use super::report::Report;
use crate::config::Config;
use crate::drivers;
use crate::machine;
use crate::session::GSI;

pub(super) fn check(report: &mut Report, config: &Config, registry: &Registry) {
    check_descriptors(report, config);
    check_memory(report, config);
    check_drivers(report, config, registry);
}

/// A connection needs a descriptor, a transfer two (its file and a listener), a data channel one.
fn check_descriptors(report: &mut Report, config: &Config) {
    const ABOUT: &str = "descriptors";
    /// The log, descriptors of the runtime, directories.
    const OTHERS: usize = 100;

    let limits = &config.limits;
    let channels = limits.movers.saturating_mul(2);
    let needed = limits.connections + limits.transfers.saturating_mul(2) + channels + OTHERS;
    // The server raises its soft limit to the hard limit.
    match getrlimit(Resource::Nofile).maximum {
        Some(granted) if granted < needed as u64 => report.warning(
            ABOUT,
            format!(
                "the limit is {granted}, and {} connections with {} transfers may need {needed}: raise \
                 it (LimitNOFILE= of the service), or lower max-connections",
                limits.connections, limits.transfers
            ),
        ),
        Some(granted) => report.ok(ABOUT, format!("the limit is {granted}, {needed} suffice")),
        None => report.ok(ABOUT, "there is no limit"),
    }
}

fn check_memory(report: &mut Report, config: &Config) {
    const ABOUT: &str = "buffer-memory";
    let mebibytes = |bytes: u64| format!("{} MiB", bytes >> 20);
    let wanted = machine::buffer_bytes(&config.limits);
    match machine::memory_limit() {
        Some(limit) if wanted > limit => report.error(
            ABOUT,
            format!(
                "{} is more than the {} that the server may have: lower it",
                mebibytes(wanted),
                mebibytes(limit)
            ),
        ),
        Some(limit) if wanted > limit / 2 => report.warning(
            ABOUT,
            format!(
                "{} is more than half of the {} that the server may have: little is left for caches",
                mebibytes(wanted),
                mebibytes(limit)
            ),
        ),
        _ => report.ok(ABOUT, mebibytes(wanted)),
    }
}

fn check_drivers(report: &mut Report, config: &Config, registry: &Registry) {
    match drivers::configured_stack(config, registry) {
        Ok(_) => report.ok(
            "stack",
            format!(
                "data channels run over {}; this program has {}",
                config.data.stack,
                registry.names()
            ),
        ),
        Err(error) => report.error("stack", error),
    }
    if let Err(error) = drivers::check_client_options(config, registry) {
        report.error("client-options", error);
    }
    let data = &config.data;
    // Clients may always name the driver that DCAU needs.
    let may_have = |driver: &str| driver == GSI || data.may_be_asked_for(driver);
    let rules = data.client_options.iter();
    for rules in rules.filter(|rules| !may_have(rules.driver())) {
        report.warning(
            "client-options",
            format!(
                "'{rules}' is without effect: neither allowed-drivers nor anonymous-drivers lets clients have {}",
                rules.driver()
            ),
        );
    }
    for (setting, names) in [
        ("allowed-drivers", &data.allowed_drivers),
        ("anonymous-drivers", &data.anonymous_drivers),
    ] {
        for name in names {
            if !registry.drivers().any(|driver| driver.name() == name) {
                let drivers = registry.names();
                let text = format!("this program has no driver '{name}', only {drivers}");
                report.warning(setting, text);
            }
        }
    }
}
