//! Checks the libraries and ports that the provider `verbs` needs, for an administrator.

use std::fmt::Display;
use std::io;
use std::net::IpAddr;

use gridhaul_stack::{Finding, Standing};

use super::bindings::Verbs;
use super::mtu;
use super::objects::OpenDevice;
use super::partition::Partition;
use super::ports::{Port, Protocol, ports};
use super::sysfs;

/// The library, the kernel's support, and every port.
pub(crate) fn inspect() -> Vec<Finding> {
    let verbs = Verbs::get();
    let mut findings = Vec::new();
    if let Err(error) = &verbs {
        findings.push(bad(error));
    }
    let verbs = verbs.ok();
    match ports(&sysfs::devices()) {
        Err(error) => findings.push(bad(no_kernel(&error))),
        Ok(ports) if ports.is_empty() => findings.push(bad(
            "there is no RDMA device; the program carries data by iWARP over TCP itself (provider=soft)",
        )),
        Ok(ports) => findings.extend(ports.iter().map(|port| port_finding(port, verbs))),
    }
    findings
}

/// Whether the kernel lists any port.
pub(crate) fn has_devices() -> bool {
    ports(&sysfs::devices()).is_ok_and(|ports| !ports.is_empty())
}

/// The rate of the fastest adapter's port in bytes of payload per second, if there is any.
pub(crate) fn fastest_port() -> Option<u64> {
    let ports = ports(&sysfs::devices()).ok()?;
    ports.iter().filter_map(Port::payload_rate).max()
}

/// The kernel lists no RDMA devices.
pub(super) fn no_kernel(error: &io::Error) -> String {
    format!(
        "this kernel has no RDMA, or none of its drivers is loaded ({}: {error}); the driver of an adapter brings \
         it, and for soft-RoCE: modprobe rdma_rxe; rdma link add rxe0 type rxe netdev eth0",
        sysfs::devices().display()
    )
}

fn port_finding(port: &Port, verbs: Option<&'static Verbs>) -> Finding {
    let name = format!(
        "{}/{}: {}, {}, {}",
        port.device,
        port.number,
        port.protocol.name(),
        port.state,
        port.rate
    );
    if !port.is_active() {
        return bad(format!(
            "{name}: is the link up, and for InfiniBand, does a subnet manager run?"
        ));
    }
    let Some(verbs) = verbs else {
        return bad(format!("{name}; it cannot be used without the library"));
    };
    match limits(port, verbs) {
        Ok(limits) => addresses(port, format!("{name}, {limits}")),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => bad(format!(
            "{name}; it cannot be opened ({error}): may this user read and write /dev/infiniband/uverbs*?"
        )),
        Err(error) => bad(format!(
            "{name}; it cannot be opened ({error}): is its part of libibverbs there (apt install ibverbs-providers), and does it \
             belong to this network namespace (rdma system show)?"
        )),
    }
}

fn addresses(port: &Port, name: String) -> Finding {
    match port.protocol {
        Protocol::InfiniBand => return partitions(port, &name),
        Protocol::Iwarp => return good(name),
        Protocol::Roce => {}
    }
    let gids: Vec<_> = port
        .gids
        .iter()
        .filter(|gid| gid.is_version_2)
        .map(|gid| {
            format!(
                "{} (gid {})",
                IpAddr::V6(gid.address).to_canonical(),
                gid.index
            )
        })
        .collect();
    if gids.is_empty() {
        return bad(format!(
            "{name}; it has no GID for RoCE v2: does its network interface have an address?"
        ));
    }
    good(format!(
        "{name}, for data connections at {}",
        gids.join(", ")
    ))
}

fn partitions(port: &Port, name: &str) -> Finding {
    match Partition::choose(&port.partitions, None) {
        Some(partition) => good(format!("{name}, in the partition {}", partition.key)),
        None => bad(format!(
            "{name}; it is in no partition: does a subnet manager run?"
        )),
    }
}

/// The device's limits as text.
fn limits(port: &Port, verbs: &'static Verbs) -> io::Result<String> {
    let device = OpenDevice::open(verbs, &port.device)?.ok_or(io::ErrorKind::NotFound)?;
    let attributes = device.attributes()?;
    let active = device.port(port.number)?;
    // InfiniBand has static rates instead, which no device lists.
    let limiter = match (device.rate_range(), port.protocol) {
        (Some(range), _) => format!(
            "rates limited up to {:.0} Gb/s",
            f64::from(range.most) * 1e-6
        ),
        (None, Protocol::InfiniBand) => "static rates".to_owned(),
        (None, _) => "no limiter of rates".to_owned(),
    };
    Ok(format!(
        "MTU {} bytes, messages to {} bytes, {} requests and {} READs of a queue pair, {limiter}",
        mtu::bytes(u8::try_from(active.active_mtu).unwrap_or(0)),
        active.max_message_bytes,
        attributes.max_requests,
        attributes.max_reads
    ))
}

fn good(words: impl Display) -> Finding {
    finding(true, words)
}

fn bad(words: impl Display) -> Finding {
    finding(false, words)
}

fn finding(is_good: bool, words: impl Display) -> Finding {
    Finding {
        about: "rdma",
        standing: Standing::of(is_good),
        text: format!("provider verbs: {words}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::ports::tests::example;

    #[test]
    fn missing_parts_are_named() {
        let class = example();
        let mut ports = ports(class.path()).unwrap();
        let finding = addresses(&ports[0], "rxe0/1".to_owned());
        assert!(finding.is_good(), "{finding:?}");
        assert!(finding.text.ends_with("10.9.0.1 (gid 2)"), "{finding:?}");
        ports[0].gids.clear();
        let finding = addresses(&ports[0], "rxe0/1".to_owned());
        assert!(finding.text.contains("no GID"), "{finding:?}");
        ports[1].state = "DOWN".to_owned();
        let finding = port_finding(&ports[1], None);
        assert!(
            finding
                .text
                .starts_with("provider verbs: siw0/1: iWARP, DOWN"),
            "{finding:?}"
        );
    }
}
