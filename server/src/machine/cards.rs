//! The network cards of this machine: their traffic, their speed and their addresses.

use std::fs;
use std::net::IpAddr;

use nix::ifaddrs::getifaddrs;

/// A network card, or another interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NetworkCard {
    /// The name of the interface.
    pub(crate) name: String,
    /// Since the interface is there.
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    /// The speed of the link in each direction, in bytes per second. `None` for a virtual interface, or without a cable.
    pub(crate) link: Option<u64>,
    pub(crate) addresses: Vec<IpAddr>,
}

/// The interfaces of this network namespace that have an address. The kernel does not count here what RDMA moves.
pub(crate) fn network_cards() -> Vec<NetworkCard> {
    let addresses = addresses();
    let text = fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    let cards = counters(&text).filter_map(|(name, received_bytes, sent_bytes)| {
        let of_card = addresses.iter().filter(|(card, _)| card == name);
        let addresses: Vec<_> = of_card.map(|(_, address)| *address).collect();
        // Most interfaces of a machine with containers have none.
        (!addresses.is_empty()).then(|| NetworkCard {
            link: link(name),
            name: name.to_owned(),
            received_bytes,
            sent_bytes,
            addresses,
        })
    });
    cards.collect()
}

/// Names with received and sent bytes: the first and the ninth column.
fn counters(text: &str) -> impl Iterator<Item = (&str, u64, u64)> {
    const SENT: usize = 8;
    text.lines().filter_map(|line| {
        // The number may follow the colon without a space.
        let (name, numbers) = line.rsplit_once(':')?;
        let mut numbers = numbers.split_ascii_whitespace();
        let received = numbers.next()?.parse().ok()?;
        let sent = numbers.nth(SENT - 1)?.parse().ok()?;
        Some((name.trim(), received, sent))
    })
}

/// sysfs has megabits per second, and -1 if the speed is not known.
fn link(name: &str) -> Option<u64> {
    const BYTES_OF_A_MEGABIT: u64 = 125_000;
    let speed = fs::read_to_string(format!("/sys/class/net/{name}/speed")).ok()?;
    let megabits: u32 = speed.trim_end().parse().ok()?;
    // As an unsigned number, in older kernels.
    (megabits > 0 && megabits < u32::MAX).then(|| u64::from(megabits) * BYTES_OF_A_MEGABIT)
}

/// The addresses of all interfaces. Empty when the kernel does not answer.
fn addresses() -> Vec<(String, IpAddr)> {
    let Ok(interfaces) = getifaddrs() else {
        return Vec::new();
    };
    let addresses = interfaces.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        let address = v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())));
        Some((interface.interface_name, address?))
    });
    addresses.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_from_the_table_of_the_kernel() {
        let text = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 5000 10 0 0 0 0 0 0 6000 10 0 0 0 0 0 0
ens1f0:18446744073709551615 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0
  odd: 5
";
        let found: Vec<_> = counters(text).collect();
        assert_eq!(found, [("lo", 5000, 6000), ("ens1f0", u64::MAX, 7)]);
    }

    #[test]
    fn the_loopback_interface_is_there_and_has_no_speed() {
        let cards = network_cards();
        let is_loopback = |card: &&NetworkCard| card.addresses.iter().any(IpAddr::is_loopback);
        let loopback = cards.iter().find(is_loopback).expect("loopback");
        assert_eq!(loopback.link, None);
    }
}
