//! The limits of descriptors and memory.

use gridhaul_stack::Registry;
use rustix::process::{Resource, getrlimit};

use super::report::Report;
use crate::config::Config;
use crate::machine;
use crate::validate::Validated;

pub(super) fn check(report: &mut Report, validated: &Validated, registry: &Registry) {
    let config = &validated.config;
    check_descriptors(report, config);
    if !validated.is_wrong("buffer-memory") {
        check_memory(report, config);
    }
    if !validated.is_wrong("stack") {
        report.ok(
            "stack",
            format!(
                "data channels run over {}; this program has {}",
                config.data.stack,
                registry.names()
            ),
        );
    }
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
