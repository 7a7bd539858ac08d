//! The host's name and addresses: what clients find when they look for the server.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::process::{Command, Stdio};

use super::findings::Findings;
use crate::config::Config;

const ABOUT: &str = "names";

/// Checks the name of this host in both directions. Returns the addresses at which clients reach the server.
pub(super) fn check(report: &mut Findings, config: &Config, host: &str) -> Vec<SocketAddr> {
    let only_local = config.listen.iter().all(|listen| listen.ip().is_loopback());
    let found = match resolve(host) {
        Ok(found) => found,
        Err(error) => {
            let text = format!("the name of this host, {host}, leads to no address ({error})");
            let remedy = "add it to DNS, or set the right name (hostnamectl)";
            if only_local {
                report.warning(ABOUT, text, remedy);
            } else {
                report.error(ABOUT, text, remedy);
            }
            Vec::new()
        }
    };
    if !found.is_empty() {
        report.ok(ABOUT, format!("{host} has {}", listed(&found)));
        if found.iter().all(IpAddr::is_loopback) && !only_local {
            report.warning(
                ABOUT,
                format!("{host} leads to this machine only, and clients elsewhere need its real addresses"),
                "correct the line of the host in /etc/hosts, or its name (hostnamectl)",
            );
        }
        for address in found.iter().filter(|address| !address.is_loopback()) {
            check_back(report, host, *address);
        }
    }
    check_advertised(report, config);
    targets(config, &found)
}

/// Where clients connect to: an address that the server listens at, or those of its name.
fn targets(config: &Config, found: &[IpAddr]) -> Vec<SocketAddr> {
    let mut targets = Vec::new();
    for listen in &config.listen {
        if !listen.ip().is_unspecified() {
            targets.push(*listen);
            continue;
        }
        let family = found
            .iter()
            .filter(|address| address.is_ipv4() == listen.is_ipv4());
        let mut of_name: Vec<_> = family
            .map(|address| SocketAddr::new(*address, listen.port()))
            .collect();
        if of_name.is_empty() {
            // No name leads there, so only the machine itself can be asked.
            let local: IpAddr = if listen.is_ipv4() {
                std::net::Ipv4Addr::LOCALHOST.into()
            } else {
                std::net::Ipv6Addr::LOCALHOST.into()
            };
            of_name.push(SocketAddr::new(local, listen.port()));
        }
        targets.extend(of_name);
    }
    targets.sort();
    targets.dedup();
    targets
}

fn resolve(host: &str) -> io::Result<Vec<IpAddr>> {
    let mut found: Vec<_> = (host, 0)
        .to_socket_addrs()?
        .map(|found| found.ip())
        .collect();
    found.sort();
    found.dedup();
    Ok(found)
}

/// Clients of GSI look the address up to compare the name with the certificate.
fn check_back(report: &mut Findings, host: &str, address: IpAddr) {
    match name_of(address) {
        Some(name) if same_host(&name, host) => {
            report.ok(ABOUT, format!("{address} leads back to {name}"));
        }
        Some(name) => report.warning(
            ABOUT,
            format!(
                "{address} leads to {name}, not to {host}: clients that look the address up expect that name in the certificate"
            ),
            "correct the record PTR of the address, or get a certificate with both names",
        ),
        None => report.warning(
            ABOUT,
            format!("{address} has no name in DNS: clients that look the address up cannot compare it with the certificate"),
            "add a record PTR with the name of this host",
        ),
    }
}

/// Asks the resolver of this machine, by the program that every C library has.
fn name_of(address: IpAddr) -> Option<String> {
    let done = Command::new("getent")
        .args(["hosts", &address.to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8(done.stdout).ok()?;
    text.split_whitespace().nth(1).map(str::to_owned)
}

/// Whether both are the same name, one perhaps without its domain.
fn same_host(one: &str, other: &str) -> bool {
    let first = |name: &str| {
        name.split('.')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase()
    };
    let has_domain = |name: &str| name.contains('.');
    match has_domain(one) && has_domain(other) {
        true => one.eq_ignore_ascii_case(other),
        false => first(one) == first(other),
    }
}

fn check_advertised(report: &mut Findings, config: &Config) {
    let Some(address) = config.data.advertise else {
        return;
    };
    match name_of(address) {
        Some(name) => report.ok(
            ABOUT,
            format!("clients are told {address} for data connections, which is {name}"),
        ),
        None => report.warning(
            ABOUT,
            format!("clients are told {address} for data connections (advertise-address), which has no name in DNS"),
            "correct the address, or add a record PTR for it",
        ),
    }
}

fn listed(addresses: &[IpAddr]) -> String {
    let texts: Vec<_> = addresses.iter().map(IpAddr::to_string).collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_same_with_or_without_its_domain() {
        for (one, other, same) in [
            ("dtn.example.org", "DTN.example.org", true),
            ("dtn", "dtn.example.org", true),
            ("dtn.example.org", "dtn.example.com", false),
            ("dtn1", "dtn2.example.org", false),
        ] {
            assert_eq!(same_host(one, other), same, "{one} {other}");
        }
    }
}
