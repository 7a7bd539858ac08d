//! Addresses and ports.

use std::io;
use std::net::SocketAddr;

use super::report::Report;
use crate::admin;
use crate::config::{Config, PortRange};
use crate::server::{StartError, listen};
use crate::validate::Validated;

pub(super) fn check(report: &mut Report, validated: &Validated) {
    let config = &validated.config;
    if !validated.is_wrong("listen") {
        for address in &config.listen {
            check_listen(report, "listen", (*address, validated));
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
    if let Some(address) = config.admin.listen {
        check_listen(report, "admin-listen", (address, validated));
        check_administrators(report, config);
    }
    match config.data.port_range {
        None => report.ok(
            "port-range",
            "data connections come to any port: a firewall must let all of them in",
        ),
        Some(range) => check_range(report, config, range),
    }
}

/// Tells who may use the administration interface, and reads the files about them.
fn check_administrators(report: &mut Report, config: &Config) {
    let admin = &config.admin;
    match admin::examine(admin) {
        Err(error) => report.error("admin-listen", error),
        Ok(()) if admin.token.is_some() => {
            report.ok(
                "admin-listen",
                "administrators show the secret of admin-token",
            );
        }
        Ok(()) if admin.clients.is_some() => {
            report.ok(
                "admin-listen",
                "administrators have certificates of admin-clients",
            );
        }
        Ok(()) => report.ok(
            "admin-listen",
            "administrators are root and the account that starts the server, on this machine",
        ),
    }
}

fn check_listen(
    report: &mut Report,
    key: &'static str,
    (address, validated): (SocketAddr, &Validated),
) {
    if validated.is_passed(address) {
        report.ok(key, format!("there is a socket at {address}"));
        return;
    }
    match listen(address) {
        Ok(_) => report.ok(key, format!("{address} is free")),
        // Most likely by this server, and the check is for a new configuration.
        Err(StartError::Listen { error, .. }) if error.kind() == io::ErrorKind::AddrInUse => {
            report.warning(
                key,
                format!("{address} is in use, by a server that runs already or by another program"),
            );
        }
        Err(error) => report.error(key, error),
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
