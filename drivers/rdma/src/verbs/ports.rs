//! The machine's RDMA ports, as sysfs lists them, without any library.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};

use super::ipoib::Interface;
use super::partition::PartitionKey;
use super::sysfs::{self, hexadecimal};

/// The protocol of a device's ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    InfiniBand,
    /// InfiniBand's transport over Ethernet.
    Roce,
    Iwarp,
}

impl Protocol {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::InfiniBand => "InfiniBand",
            Self::Roce => "RoCE",
            Self::Iwarp => "iWARP",
        }
    }
}

/// A port of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Port {
    pub(super) device: String,
    pub(super) number: u8,
    pub(super) protocol: Protocol,
    /// The kernel's text, such as `ACTIVE`.
    pub(super) state: String,
    /// The kernel's text, such as `100 Gb/sec (4X EDR)`.
    pub(super) rate: String,
    /// A software device of the kernel that sends over a network interface; `rate` is not its own.
    pub(super) is_software: bool,
    pub(super) gids: Vec<Gid>,
    /// The table of P_Keys.
    pub(super) partitions: Vec<u16>,
}

/// An address of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gid {
    pub(super) index: u8,
    pub(super) address: Ipv6Addr,
    /// RoCE v2 runs over UDP and can be routed; version 1 is another protocol.
    pub(super) is_version_2: bool,
}

impl Port {
    pub(super) fn is_active(&self) -> bool {
        self.state == "ACTIVE"
    }

    /// The rate of the link in gigabits per second, if `rate` is the port's own.
    pub(super) fn gigabits(&self) -> Option<f64> {
        let gigabits: f64 = self.rate.split_once(" Gb/sec")?.0.parse().ok()?;
        let is_sane = !self.is_software && (1.0..100_000.0).contains(&gigabits);
        is_sane.then_some(gigabits)
    }

    /// The payload rate in bytes per second, if `rate` is the port's own.
    pub(super) fn payload_rate(&self) -> Option<u64> {
        let gigabits = self.gigabits()?;
        // Of a RoCE v2 packet with 4096 bytes of payload, 90 bytes are frame, headers and
        // checksums.
        #[expect(clippy::cast_possible_truncation, reason = "`gigabits` has bounds")]
        #[expect(clippy::cast_sign_loss, reason = "`gigabits` is positive")]
        Some((gigabits * 1e9 / 8.0 * 0.975) as u64)
    }

    /// The same port with its present state and tables.
    pub(super) fn read_again(&self, class: &Path) -> Self {
        let path = class.join(&self.device).join("ports");
        let path = path.join(self.number.to_string());
        Self {
            state: word(&path.join("state")),
            rate: line(&path.join("rate")),
            gids: gids(&path),
            partitions: partitions(&path),
            ..self.clone()
        }
    }

    /// Its directory in sysfs.
    pub(super) fn path(&self) -> PathBuf {
        let ports = sysfs::devices().join(&self.device).join("ports");
        ports.join(self.number.to_string())
    }

    /// Whether this interface of IPoIB belongs to the port.
    pub(super) fn is_behind(&self, interface: Option<Interface>) -> bool {
        let gid = interface.map(|interface| interface.gid);
        self.protocol == Protocol::InfiniBand
            && self.gids.iter().any(|other| Some(other.address) == gid)
    }

    /// The GID of an IP address in RoCE v2.
    pub(super) fn gid_of(&self, address: IpAddr) -> Option<&Gid> {
        let wanted = mapped(address);
        self.gids
            .iter()
            .find(|gid| gid.is_version_2 && gid.address == wanted)
    }
}

/// IPv4 addresses appear as IPv6-mapped GIDs.
fn mapped(address: IpAddr) -> Ipv6Addr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// All ports by device and number.
///
/// # Errors
///
/// When the kernel has no RDMA support, or sysfs cannot be read.
pub(super) fn ports(class: &Path) -> io::Result<Vec<Port>> {
    let mut ports = Vec::new();
    for device in names(class)? {
        let path = class.join(&device);
        let is_iwarp = word(&path.join("node_type")) == "RNIC";
        // rxe shows its network interface there (rxe_verbs.c).
        let is_software = path.join("parent").exists();
        for number in names(&path.join("ports"))? {
            let Ok(parsed) = number.parse() else {
                continue;
            };
            let path = path.join("ports").join(number);
            let protocol = match line(&path.join("link_layer")).as_str() {
                _ if is_iwarp => Protocol::Iwarp,
                "InfiniBand" => Protocol::InfiniBand,
                _ => Protocol::Roce,
            };
            ports.push(Port {
                device: device.clone(),
                number: parsed,
                protocol,
                state: word(&path.join("state")),
                rate: line(&path.join("rate")),
                is_software,
                gids: gids(&path),
                partitions: partitions(&path),
            });
        }
    }
    Ok(ports)
}

/// The device chooses the size of the table (a thousand entries with soft-RoCE), and empty entries are
/// zeros. The kernel fills the first free entry, so the search ends after some empty ones.
fn gids(port: &Path) -> Vec<Gid> {
    const EMPTY_PLACES: usize = 16;
    let (mut gids, mut empty) = (Vec::new(), 0);
    for index in 0..=u8::MAX {
        if empty == EMPTY_PLACES {
            break;
        }
        let Some(text) = sysfs::text(&port.join(format!("gids/{index}"))) else {
            break;
        };
        let Ok(address) = text.parse::<Ipv6Addr>() else {
            continue;
        };
        if address.is_unspecified() {
            empty += 1;
        } else {
            empty = 0;
            let kind = line(&port.join(format!("gid_attrs/types/{index}")));
            gids.push(Gid {
                index,
                address,
                is_version_2: kind == "RoCE v2",
            });
        }
    }
    gids
}

/// The device chooses the size of the table: one entry with RoCE, 128 with most adapters of InfiniBand.
fn partitions(port: &Path) -> Vec<u16> {
    const MOST: usize = 256;
    let key = |index| hexadecimal(&sysfs::text(&port.join(format!("pkeys/{index}")))?);
    (0..MOST).map_while(key).collect()
}

fn names(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = fs::read_dir(directory)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

/// The content of a file; empty if it cannot be read.
fn line(path: &Path) -> String {
    sysfs::text(path).unwrap_or_default()
}

/// The kernel writes enumerations as number and name: `4: ACTIVE`.
fn word(path: &Path) -> String {
    let line = line(path);
    line.split_once(": ")
        .map_or(line.as_str(), |(_, word)| word)
        .to_owned()
}

/// The list of ports for an error message.
pub(super) fn describe(ports: &[Port]) -> String {
    let names = ports.iter().map(|port| {
        let protocol = port.protocol.name();
        match port.protocol {
            Protocol::Roce => format!("{} ({protocol}, {})", port.device, describe_gids(port)),
            _ => format!("{} ({protocol})", port.device),
        }
    });
    list(names)
}

pub(super) fn describe_gids(port: &Port) -> String {
    let gids = port.gids.iter().filter(|gid| gid.is_version_2);
    list(gids.map(|gid| {
        let address = IpAddr::V6(gid.address).to_canonical();
        format!("gid {} {address}", gid.index)
    }))
}

pub(super) fn describe_partitions(port: &Port) -> String {
    let keys = port.partitions.iter().map(|&key| PartitionKey(key));
    let keys = keys.filter(|key| key.number() != 0);
    list(keys.map(|key| key.to_string()))
}

fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<_> = items.collect();
    if items.is_empty() {
        return "none".to_owned();
    }
    items.join(", ")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A sysfs directory with two devices, as the kernel writes it.
    pub(in crate::verbs) fn example() -> tempfile::TempDir {
        let class = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = class.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("rxe0/node_type", "1: CA\n");
        write("siw0/node_type", "4: RNIC\n");
        for device in ["rxe0", "siw0"] {
            write(&format!("{device}/ports/1/state"), "4: ACTIVE\n");
            write(&format!("{device}/ports/1/link_layer"), "Ethernet\n");
            write(&format!("{device}/ports/1/rate"), "10 Gb/sec (1X FDR10)\n");
        }
        let gids = [
            ("fe80:0000:0000:0000:bcc8:d0ff:fe1b:0f90", "RoCE v2"),
            ("0000:0000:0000:0000:0000:ffff:0a09:0001", "IB/RoCE v1"),
            ("0000:0000:0000:0000:0000:ffff:0a09:0001", "RoCE v2"),
            ("0000:0000:0000:0000:0000:0000:0000:0000", ""),
        ];
        for (index, (address, kind)) in gids.iter().enumerate() {
            write(&format!("rxe0/ports/1/gids/{index}"), address);
            write(&format!("rxe0/ports/1/gid_attrs/types/{index}"), kind);
        }
        class
    }

    #[test]
    fn ports_are_read_from_sysfs() {
        let class = example();
        let ports = ports(class.path()).unwrap();
        let [rxe, siw] = &ports[..] else {
            panic!("{ports:?}");
        };
        assert_eq!((rxe.device.as_str(), rxe.number), ("rxe0", 1));
        assert_eq!(rxe.protocol, Protocol::Roce);
        assert!(rxe.is_active());
        assert_eq!(rxe.rate, "10 Gb/sec (1X FDR10)");
        assert_eq!(rxe.gids.len(), 3);
        assert_eq!(siw.protocol, Protocol::Iwarp);
    }

    #[test]
    fn the_rate_of_an_adapter_is_its_own() {
        let class = example();
        let rate = |rate: &str| {
            fs::write(class.path().join("rxe0/ports/1/rate"), rate).unwrap();
            ports(class.path()).unwrap()[0].payload_rate()
        };
        assert_eq!(rate("100 Gb/sec (4X EDR)"), Some(12_187_500_000));
        assert_eq!(rate("2.5 Gb/sec (1X SDR)"), Some(304_687_500));
        assert_eq!(rate("unknown"), None);
        fs::write(class.path().join("rxe0/parent"), "eth0").unwrap();
        assert_eq!(rate("100 Gb/sec (4X EDR)"), None, "of a program");
    }

    #[test]
    fn a_gid_is_found_by_its_address_in_version_2() {
        let class = example();
        let ports = ports(class.path()).unwrap();
        let index = |address: &str| {
            let gid = ports[0].gid_of(address.parse().unwrap());
            gid.map(|gid| gid.index)
        };
        assert_eq!(index("10.9.0.1"), Some(2));
        assert_eq!(index("::ffff:10.9.0.1"), Some(2));
        assert_eq!(index("fe80::bcc8:d0ff:fe1b:f90"), Some(0));
        assert_eq!(index("10.9.0.2"), None);
    }
}
