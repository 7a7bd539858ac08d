//! The driver `rdma`, as `--rdma` and `rdma-memory` configure it: its users, its memory and its devices.

use gridhaul_stack::{Driver, Registry};

use super::report::Report;
use crate::config::Config;
use crate::machine;
use crate::validate::Validated;

const ABOUT: &str = "rdma";

/// The driver, if the program has it.
pub(super) fn driver(registry: &Registry) -> Option<&dyn Driver> {
    registry.driver(ABOUT)
}

/// Whether the configuration names RDMA beyond the defaults, or the machine has devices for it.
pub(super) fn is_asked_for(config: &Config, driver: &dyn Driver) -> bool {
    let data = &config.data;
    let may_have = |drivers: &[String]| drivers.iter().any(|driver| driver == ABOUT);
    is_default(config)
        || may_have(&data.anonymous_drivers)
        || may_have(&data.allowed_drivers) && driver.has_devices()
}

/// Whether RDMA is the default transport.
fn is_default(config: &Config) -> bool {
    config.data.stack.split([':', ',']).next() == Some(ABOUT)
}

/// Reports which users may have data channels over rdma.
fn check_users(report: &mut Report, config: &Config) {
    if is_default(config) {
        return report.ok(ABOUT, "data channels of all users run over rdma");
    }
    let has_users = config.passwords.is_some() || config.security.gsi.is_some();
    let groups = [
        (
            has_users,
            "users who have logged in",
            "allowed-drivers",
            &config.data.allowed_drivers,
        ),
        (
            config.anonymous.is_some(),
            "anonymous users",
            "anonymous-drivers",
            &config.data.anonymous_drivers,
        ),
    ];
    for (_, users, setting, drivers) in groups.into_iter().filter(|(are_there, ..)| *are_there) {
        if drivers.iter().any(|driver| driver == ABOUT) {
            report.ok(ABOUT, format!("{users} may have data channels over rdma"));
        } else {
            let text =
                format!("{users} may not have data channels over rdma: name it in {setting}");
            report.warning(ABOUT, text);
        }
    }
}

pub(super) fn check(report: &mut Report, validated: &Validated, driver: &dyn Driver) {
    let config = &validated.config;
    check_users(report, config);
    if !validated.is_wrong("rdma-memory") {
        check_memory(report, config);
    }
    driver.limit_memory(machine::ring_bytes(&config.limits));
    for finding in driver.check_devices() {
        report.finding(finding);
    }
}

/// Reports what each adapter is and how it is set up.
pub(super) fn examine(report: &mut Report, driver: &dyn Driver) {
    for finding in driver.examine_devices() {
        report.finding(finding);
    }
}

/// Rings and buffers may be full at the same time.
fn check_memory(report: &mut Report, config: &Config) {
    const ABOUT: &str = "rdma-memory";
    let rings = machine::ring_bytes(&config.limits);
    let buffers = machine::buffer_bytes(&config.limits);
    let mebibytes = |bytes: u64| format!("{} MiB", bytes >> 20);
    match machine::memory_limit() {
        Some(limit) if rings.saturating_add(buffers) > limit => report.error(
            ABOUT,
            format!(
                "{} and the {} of buffer-memory are more than the {} that the server may have: lower one of \
                 them",
                mebibytes(rings),
                mebibytes(buffers),
                mebibytes(limit)
            ),
        ),
        _ => report.ok(ABOUT, mebibytes(rings)),
    }
}
