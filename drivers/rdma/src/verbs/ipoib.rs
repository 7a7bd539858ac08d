//! The port of InfiniBand behind an IP address: network interfaces of IPoIB name their GID and their partition.

use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

use nix::ifaddrs::getifaddrs;

use super::partition::PartitionKey;
use super::sysfs::{self, hexadecimal};

/// What a network interface of IPoIB tells about its port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) gid: Ipv6Addr,
    /// `None` if it does not name it: a bond of interfaces has the address of the active one, but no file `pkey`.
    pub(super) partition: Option<PartitionKey>,
}

/// `ARPHRD_INFINIBAND` (linux/if_arp.h).
const INFINIBAND: &str = "32";

/// The interface with this address; `None` if there is none, or it is no interface of IPoIB.
pub(super) fn interface_at(address: IpAddr) -> Option<Interface> {
    let wanted = address.to_canonical();
    let mut interfaces = getifaddrs().ok()?;
    let found = interfaces.find(|interface| {
        let address = interface.address.as_ref();
        let v4 = address.and_then(|address| address.as_sockaddr_in());
        let v6 = address.and_then(|address| address.as_sockaddr_in6());
        let address = v4.map(|v4| IpAddr::V4(v4.ip()));
        address.or_else(|| v6.map(|v6| IpAddr::V6(v6.ip()))) == Some(wanted)
    });
    read(&sysfs::root().join("class/net").join(found?.interface_name))
}

fn read(directory: &Path) -> Option<Interface> {
    let line = |name: &str| fs::read_to_string(directory.join(name)).ok();
    if line("type")?.trim() != INFINIBAND {
        return None;
    }
    // RFC 4391 9.1.1: flags, the number of a queue pair, and the GID of the port.
    let address = line("address")?;
    let bytes = address.trim().split(':');
    let bytes: Option<Vec<u8>> = bytes
        .map(|byte| u8::from_str_radix(byte, 16).ok())
        .collect();
    let gid: [u8; 16] = bytes?.get(4..)?.try_into().ok()?;
    Some(Interface {
        gid: gid.into(),
        // ipoib_main.c: the index of the key is not shown.
        partition: line("pkey")
            .and_then(|key| hexadecimal(&key))
            .map(PartitionKey),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_names_its_port() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        write("type", "32\n");
        write("pkey", "0x8001\n");
        write(
            "address",
            "80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:00:00:05\n",
        );
        let interface = read(directory.path()).unwrap();
        assert_eq!(
            interface.gid,
            "fe80::2:c903:0:5".parse::<Ipv6Addr>().unwrap()
        );
        assert_eq!(interface.partition, Some(PartitionKey(0x8001)));
        fs::remove_file(directory.path().join("pkey")).unwrap();
        let bond = read(directory.path()).unwrap();
        assert_eq!((bond.gid, bond.partition), (interface.gid, None));
        write("address", "80:00:02:08\n");
        assert_eq!(read(directory.path()), None);
        write("type", "1\n");
        assert_eq!(read(directory.path()), None, "Ethernet");
    }

    #[test]
    fn the_loopback_interface_is_not_of_infiniband() {
        assert_eq!(interface_at(IpAddr::from([127, 0, 0, 1])), None);
    }
}
