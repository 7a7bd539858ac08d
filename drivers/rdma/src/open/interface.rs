//! The speed of the network interface that has an address.

use std::fs;
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::path::Path;

use nix::ifaddrs::{InterfaceAddress, getifaddrs};

/// The part of a link's rate that is left for the payload of packets of 1500 bytes.
const PAYLOAD_PERCENT: u64 = 95;

/// The rate of the interface that has this address in bytes of payload per second. `None` for a
/// virtual interface, without a cable, and for an address of another namespace.
pub(super) fn rate(local: IpAddr) -> Option<NonZeroU64> {
    let local = local.to_canonical();
    let mut interfaces = getifaddrs().ok()?;
    let found = interfaces.find(|interface| address(interface) == Some(local))?;
    rate_of(Path::new("/sys/class/net"), &found.interface_name)
}

fn address(interface: &InterfaceAddress) -> Option<IpAddr> {
    let address = interface.address.as_ref()?;
    let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
}

/// sysfs has megabits per second, and -1 if the speed is not known; older kernels show that as an
/// unsigned number.
fn rate_of(class: &Path, name: &str) -> Option<NonZeroU64> {
    const BYTES_OF_A_MEGABIT: u64 = 125_000;
    let speed = fs::read_to_string(class.join(name).join("speed")).ok()?;
    let megabits: u32 = speed.trim_end().parse().ok()?;
    let is_known = megabits < u32::MAX;
    let rate = u64::from(megabits) * BYTES_OF_A_MEGABIT / 100 * PAYLOAD_PERCENT;
    NonZeroU64::new(rate).filter(|_| is_known)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn the_speed_is_read_from_sysfs() {
        let class = tempfile::tempdir().unwrap();
        fs::create_dir(class.path().join("eth0")).unwrap();
        let read = |speed: &str| {
            fs::write(class.path().join("eth0/speed"), speed).unwrap();
            rate_of(class.path(), "eth0").map(NonZeroU64::get)
        };
        assert_eq!(read("100000\n"), Some(11_875_000_000));
        assert_eq!(read("-1\n"), None);
        assert_eq!(read("4294967295\n"), None);
        assert_eq!(read("0\n"), None);
        assert_eq!(rate_of(class.path(), "eth1"), None);
    }

    #[test]
    fn loopback_and_strange_addresses_have_none() {
        assert_eq!(rate(IpAddr::V4(Ipv4Addr::LOCALHOST)), None);
        assert_eq!(rate(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7))), None);
    }
}
