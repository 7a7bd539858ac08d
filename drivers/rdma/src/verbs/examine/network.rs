//! The link of a port, the packets that it carries, and the addresses by which channels find it.

use std::net::{IpAddr, Ipv6Addr};

use super::super::mtu;
use super::super::ports::Gid;
use super::super::sysfs;
use super::{Adapter, Line};

/// GIDs that a line names. A port has some for each address of its interfaces.
const MOST_GIDS: usize = 12;

/// The longest packets of RoCE and InfiniBand: `IBV_MTU_4096`.
const LONGEST: u8 = 5;

impl Adapter<'_> {
    /// The network interfaces of the GIDs, or those of the device.
    pub(super) fn find_interfaces(&self) -> Vec<String> {
        let of_gid = |gid: &Gid| {
            let path = self.path().join("gid_attrs/ndevs");
            sysfs::text(&path.join(gid.index.to_string()))
        };
        let mut found: Vec<_> = self.port.gids.iter().filter_map(of_gid).collect();
        if found.is_empty() {
            // rxe shows its network interface there.
            found.extend(sysfs::text(&self.device().join("parent")));
        }
        if found.is_empty() {
            found = sysfs::names(&self.hardware().join("net"));
        }
        // The name becomes a part of a path.
        found.retain(|name| !name.contains('/') && name != "..");
        found.sort();
        found.dedup();
        found
    }

    /// The state of the cable, the rate, and whose network interface it is.
    pub(super) fn link(&self) -> Line {
        const TOPIC: &str = "link";

        let port = self.port;
        let layer = sysfs::text(&self.path().join("link_layer"));
        let layer = layer.unwrap_or_else(|| "unknown link layer".to_owned());
        // The kernel writes number and name: `5: LinkUp`.
        let physical = sysfs::text(&self.path().join("phys_state"));
        let physical = physical.as_deref().map(|text| {
            let name = text.split_once(": ");
            name.map_or(text, |(_, name)| name)
        });
        let physical = physical.map_or_else(String::new, |physical| format!(", {physical}"));
        let interfaces = match &self.interfaces[..] {
            [] => "no network interface".to_owned(),
            [one] => format!("network interface {one}"),
            several => format!("network interfaces {}", several.join(", ")),
        };
        let text = format!("{layer}{physical}, {}, {interfaces}", port.rate);
        if port.is_active() {
            return Line::good(TOPIC, text);
        }
        let state = &port.state;
        Line::bad(
            TOPIC,
            format!(
                "{text}: it is {state}: plug in the cable at both ends, set the interface up (ip link set), and for InfiniBand run a \
                 subnet manager"
            ),
        )
    }

    /// The packets that the network interfaces of RoCE allow. The MTU of InfiniBand is that of the subnet.
    pub(super) fn mtu(&self) -> Vec<Line> {
        const TOPIC: &str = "mtu";

        if !self.is_roce() {
            return Vec::new();
        }
        let lines = self.interfaces.iter().map(|name| {
            let read = sysfs::number(&self.interface(name).join("mtu"));
            let Some(ip_bytes) = read.and_then(|bytes| u32::try_from(bytes).ok()) else {
                return Line::unknown(TOPIC, format!("{name} does not tell: ip link show {name}"));
            };
            let payload = mtu::bytes(mtu::within(LONGEST, Some(ip_bytes)));
            let text =
                format!("{name} has {ip_bytes} bytes, so packets carry up to {payload} bytes");
            if payload >= mtu::bytes(LONGEST) {
                let path = "gridhaul-server doctor --rdma shows what a path leaves of that";
                return Line::good(TOPIC, format!("{text}; {path}"));
            }
            Line::bad(
                TOPIC,
                format!(
                    "{text}: for {} bytes set {} or more here, at the other end and on all switches (ip link set {name} mtu 9000)",
                    mtu::bytes(LONGEST),
                    mtu::ip_bytes(LONGEST)
                ),
            )
        });
        lines.collect()
    }

    /// The GIDs, and the IP addresses that they are.
    pub(super) fn addresses(&self) -> Line {
        const TOPIC: &str = "addresses";

        let gids = &self.port.gids;
        let shown = gids.iter().take(MOST_GIDS).map(|gid| self.describe(gid));
        let mut shown: Vec<_> = shown.collect();
        if gids.len() > MOST_GIDS {
            shown.push(format!("{} more", gids.len() - MOST_GIDS));
        }
        let text = shown.join(", ");
        if gids.is_empty() {
            return match self.is_roce() {
                true => Line::bad(
                    TOPIC,
                    "it has no GID: give its network interface an address, and set it up",
                ),
                false => Line::good(TOPIC, "it has no GID, and needs none"),
            };
        }
        let has_global = gids
            .iter()
            .any(|gid| gid.is_version_2 && !gid.address.is_unicast_link_local());
        if self.is_roce() && !has_global {
            return Line::bad(
                TOPIC,
                format!(
                    "{text}: none is an address for data connections in RoCE v2: give its network interface one (ip address add)"
                ),
            );
        }
        Line::good(TOPIC, text)
    }

    fn describe(&self, gid: &Gid) -> String {
        if !self.is_roce() {
            return format!("gid {} {}", gid.index, gid.address);
        }
        let path = self.path().join("gid_attrs/ndevs");
        let interface = sysfs::text(&path.join(gid.index.to_string()));
        let interface = interface.map_or_else(String::new, |name| format!(" of {name}"));
        let version = if gid.is_version_2 { "v2" } else { "v1" };
        format!(
            "gid {} {}{interface} (RoCE {version})",
            gid.index,
            canonical(gid.address)
        )
    }
}

/// IPv4 addresses appear as IPv6-mapped GIDs.
fn canonical(address: Ipv6Addr) -> IpAddr {
    IpAddr::V6(address).to_canonical()
}
