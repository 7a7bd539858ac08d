//! Addresses and ports.

use super::in_use;
use super::report::Report;
use crate::config::{Config, PortRange};
use crate::validate::Validated;

pub(super) fn check(report: &mut Report, validated: &Validated) {
    let config = &validated.config;
    in_use::check(report, validated);
    for (key, address) in validated.listeners() {
        let mut in_use = validated.in_use.iter();
        let is_in_use = in_use.any(|one| (one.key, one.address) == (key, Some(address)));
        if is_in_use || validated.is_wrong(key) {
            continue;
        }
        if validated.is_passed(key, address) {
            report.ok(
                key,
                format!("the program was started with a socket in place of {address}"),
            );
        } else {
            report.ok(key, format!("{address} is free"));
        }
    }
    if config
        .listen
        .iter()
        .all(|address| address.ip().is_loopback())
    {
        report.warning(
            "listen",
            "only this machine can connect: give --listen 2811 for all addresses",
        );
    }
    if config.admin.listen.is_some() {
        tell_administrators(report, config);
    }
    match config.data.port_range {
        None => report.ok(
            "port-range",
            "data connections come to any port: a firewall must let all of them in",
        ),
        Some(range) => check_range(report, config, range),
    }
}

/// Tells who may use the administration interface.
fn tell_administrators(report: &mut Report, config: &Config) {
    let admin = &config.admin;
    let text = if admin.token.is_some() {
        "administrators show the secret of admin-token"
    } else if admin.clients.is_some() {
        "administrators have certificates of admin-clients"
    } else {
        "administrators are root and the account that starts the server, on this machine"
    };
    report.ok("admin-listen", text);
}

/// Each transfer may listen at its own port.
fn check_range(report: &mut Report, config: &Config, range: PortRange) {
    let ports = usize::from(range.last - range.first) + 1;
    let transfers = config.limits.transfers;
    if ports < transfers {
        report.warning(
            "port-range",
            format!(
                "{range} has {ports} ports, and there may be {transfers} transfers at a time: widen it, \
                 or lower max-transfers"
            ),
        );
    } else {
        report.ok(
            "port-range",
            format!("{range} has {ports} ports: a firewall must let them in"),
        );
    }
    for address in &config.listen {
        if (range.first..=range.last).contains(&address.port()) {
            report.warning(
                "port-range",
                format!("{range} has the port of {address} in it: keep them apart"),
            );
        }
    }
}
