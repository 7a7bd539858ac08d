//! Which RDMA ports the machine has, as the kernel tells it without any library.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};

/// Where the kernel describes its RDMA devices.
pub(super) const CLASS: &str = "/sys/class/infiniband";

/// What ports of a device speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
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
    /// The kernel's word, such as `ACTIVE`.
    pub(super) state: String,
    /// In the kernel's words, such as `100 Gb/sec (4X EDR)`.
    pub(super) rate: String,
    /// It sends over an interface of the network, as a program of the kernel, and `rate` is not its own.
    pub(super) is_software: bool,
    pub(super) gids: Vec<Gid>,
}

/// An address of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gid {
    pub(super) index: u8,
    pub(super) address: Ipv6Addr,
    /// RoCE v2 goes over UDP and so through routers; the first version is another protocol.
    pub(super) is_version_2: bool,
}

impl Port {
    pub(super) fn is_active(&self) -> bool {
        self.state == "ACTIVE"
    }

    /// What is left of its rate to payload, in bytes per second, where the rate is its own.
    pub(super) fn payload_rate(&self) -> Option<u64> {
        let gigabits: f64 = self.rate.split_once(" Gb/sec")?.0.parse().ok()?;
        let is_sane = !self.is_software && (1.0..100_000.0).contains(&gigabits);
        // Of a packet of RoCE v2 that carries 4096 bytes, 90 are frame, headers and checksums.
        #[expect(clippy::cast_possible_truncation, reason = "checked by the line above")]
        #[expect(clippy::cast_sign_loss, reason = "checked by the line above")]
        is_sane.then_some((gigabits * 1e9 / 8.0 * 0.975) as u64)
    }

    /// Where the kernel describes it.
    pub(super) fn path(&self) -> PathBuf {
        let ports = Path::new(CLASS).join(&self.device).join("ports");
        ports.join(self.number.to_string())
    }

    /// The GID that stands for an IP address, in RoCE v2.
    pub(super) fn gid_of(&self, address: IpAddr) -> Option<&Gid> {
        let wanted = mapped(address);
        self.gids
            .iter()
            .find(|gid| gid.is_version_2 && gid.address == wanted)
    }
}

/// IPv4 addresses are GIDs in their IPv6-mapped form.
fn mapped(address: IpAddr) -> Ipv6Addr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// All ports, by device and number.
///
/// # Errors
///
/// When the kernel has no RDMA, or does not let itself be asked.
pub(super) fn ports(class: &Path) -> io::Result<Vec<Port>> {
    let mut ports = Vec::new();
    for device in names(class)? {
        let path = class.join(&device);
        let is_iwarp = word(&path.join("node_type")) == "RNIC";
        // rxe tells there which interface it uses (rxe_verbs.c).
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
            });
        }
    }
    Ok(ports)
}

/// The table has as many places as the device likes, a thousand with soft-RoCE; empty ones are zeros. The kernel fills the
/// first that is free, so that behind many empty ones there is nothing.
fn gids(port: &Path) -> Vec<Gid> {
    const EMPTY_PLACES: usize = 16;
    let (mut gids, mut empty) = (Vec::new(), 0);
    for index in 0..=u8::MAX {
        if empty == EMPTY_PLACES {
            break;
        }
        let Ok(text) = fs::read_to_string(port.join(format!("gids/{index}"))) else {
            break;
        };
        let Ok(address) = text.trim().parse::<Ipv6Addr>() else {
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

fn names(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = fs::read_dir(directory)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

/// What a file says; nothing if it cannot be read.
fn line(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim().to_owned()
}

/// The kernel writes numbers of an enumeration with their names: `4: ACTIVE`.
fn word(path: &Path) -> String {
    let line = line(path);
    line.split_once(": ")
        .map_or(line.as_str(), |(_, word)| word)
        .to_owned()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A description of two devices, as the kernel writes it.
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
    fn ports_are_what_the_kernel_says() {
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
