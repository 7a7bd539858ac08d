//! Addresses and ports.

use std::io;
use std::net::SocketAddr;

use super::report::Report;
use crate::config::{Config, PortRange};
use crate::server::{StartError, listen};
use crate::validate::Validated;

pub(super) fn check(report: &mut Report, validated: &Validated) {
    let config = &validated.config;
    if !validated.is_wrong("listen") {
        for address in &config.listen {
            check_listen(report, *address);
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
    match config.data.port_range {
        None => report.ok(
            "port-range",
            "data connections come to any port: a firewall must let all of them in",
        ),
        Some(range) => check_range(report, config, range),
    }
}

fn check_listen(report: &mut Report, address: SocketAddr) {
    match listen(address) {
        Ok(_) => report.ok("listen", format!("{address} is free")),
        // Most likely by this server, and the check is for a new configuration.
        Err(StartError::Listen { error, .. }) if error.kind() == io::ErrorKind::AddrInUse => {
            report.warning(
                "listen",
                format!("{address} is in use, by a server that runs already or by another program"),
            );
        }
        Err(error) => report.error("listen", error),
    }
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
