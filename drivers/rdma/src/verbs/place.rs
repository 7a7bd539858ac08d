//! The port and the GID that a channel uses, and its device.

mod choice;

use std::ffi::c_int;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use gridhaul_stack::{ChannelError, Operation};

use super::bindings::Verbs;
use super::connection_manager::{Route, route};
use super::device_options::DeviceOptions;
use super::error::VerbsError;
use super::mtu;
use super::objects::OpenDevice;
use super::partition::Partition;
use super::ports::{Gid, Port, Protocol};
use super::queue_limits::QueueLimits;
use super::sysfs;
use crate::numa::Locality;
use crate::provider::AdapterPort;

/// The chosen port, with its GID and the options.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(super) port: Port,
    pub(super) gid_index: u8,
    pub(super) gid: [u8; 16],
    pub(super) partition: Partition,
    /// The data connection's address belongs to an interface of IPoIB over this port.
    is_behind_interface: bool,
    /// The addresses of IPoIB between which a path was found.
    pub(super) routed: Option<[IpAddr; 2]>,
    pub(super) route: Option<Route>,
    pub(super) device_options: DeviceOptions,
    /// The device, once it is open: then it can be used.
    open_device: Option<Arc<OpenDevice>>,
}

impl Place {
    /// Whether one channel can use both ports at once.
    pub(crate) fn goes_with(&self, other: &Self) -> bool {
        let port = |place: &Self| (place.port.device.clone(), place.port.number);
        port(self) != port(other) && self.protocol() == other.protocol()
    }

    /// An administrator allows peers whose adapter has another address than the data connection.
    pub(crate) fn allows_any_peer(&self) -> bool {
        self.device_options.gid.is_some()
    }

    /// Whether the data connection's local address belongs to the port.
    pub(crate) fn is_at(&self, local: IpAddr) -> bool {
        self.is_behind_interface || self.port.gid_of(local).is_some()
    }

    /// The same place with the subnet manager's path to the peer, if the data connection runs over the same port.
    ///
    /// # Errors
    ///
    /// When the operation ends before. Where the path is not found, the peer's LID has to be enough.
    pub(crate) fn with_route(
        &self,
        local: IpAddr,
        peer: IpAddr,
        operation: &Operation<'_>,
    ) -> Result<Self, ChannelError> {
        let mut place = self.clone();
        if self.is_behind_interface {
            let found = route(local, peer, operation)?;
            place.route = found.filter(|route| self.begins(route));
            place.routed = place.route.map(|_| [local, peer]);
        }
        Ok(place)
    }

    /// Whether a path begins at this port: an address of IPoIB may have moved to another one.
    pub(super) fn begins(&self, route: &Route) -> bool {
        let mut gids = self.port.gids.iter();
        gids.any(|gid| gid.address.octets() == route.gids.local)
    }

    /// The same place with the present tables of its port, `port`, by the same rule as when it was found: the kernel may have moved the
    /// GID, and the subnet manager the P_Key. `None` if the port does not have them any more.
    pub(super) fn refreshed(&self, port: Port) -> Option<Self> {
        let is_infiniband = self.port.protocol == Protocol::InfiniBand;
        let is_usable = |gid: &&Gid| gid.is_version_2 || is_infiniband;
        let mut usable = port.gids.iter().filter(is_usable);
        let gid = match self.device_options.gid {
            Some(index) => usable.find(|gid| gid.index == index),
            None => {
                let same = usable.clone().find(|gid| gid.address.octets() == self.gid);
                // Its prefix is the subnet's, which the subnet manager chooses.
                same.or_else(|| usable.find(|_| is_infiniband))
            }
        }?;
        let partition = match is_infiniband {
            true => Partition::choose(&port.partitions, Some(self.partition.key))?,
            false => self.partition,
        };
        Some(Self {
            gid_index: gid.index,
            gid: gid.address.octets(),
            partition,
            port,
            ..self.clone()
        })
    }

    /// The device's name.
    pub(crate) fn device(&self) -> &str {
        &self.port.device
    }

    /// The MTU of packets: that of the port, of the option, or of the path.
    pub(super) fn mtu(&self, active: c_int, ip_bytes: Option<u32>) -> u8 {
        let port = u8::try_from(active).unwrap_or(mtu::LEAST);
        let asked = self.device_options.mtu.unwrap_or(u8::MAX);
        let route = self.route.map_or(u8::MAX, |route| route.mtu);
        // With the option gid the adapter may use another path than TCP.
        let follows_tcp = self.port.protocol == Protocol::Roce && self.device_options.gid.is_none();
        mtu::within(port.min(asked).min(route), ip_bytes.filter(|_| follows_tcp))
    }

    /// The NUMA nodes of the devices of these places, if the machine has several.
    pub(crate) fn locality(places: &[Self]) -> Option<Locality> {
        Locality::of_devices(&sysfs::root(), places.iter().map(Self::device))
    }

    /// The protocol of the port.
    pub(crate) fn protocol(&self) -> Protocol {
        self.port.protocol
    }

    /// The rate of the port in bytes of payload per second; `None` for software devices.
    pub(crate) fn port_rate(&self) -> Option<u64> {
        self.port.payload_rate()
    }

    /// What the device takes on one queue pair; `None` if it cannot be asked.
    pub(crate) fn queue_limits(&self) -> Option<QueueLimits> {
        let attributes = self.open().ok()?.attributes().ok()?;
        let count = |number: c_int| usize::try_from(number).unwrap_or(0);
        let reads = attributes.max_reads.min(attributes.max_reads_answered);
        let (requests, reads) = (count(attributes.max_requests), count(reads));
        Some(QueueLimits::promised(requests, reads))
    }

    /// The port for a provider of another crate.
    pub(crate) fn adapter_port(&self) -> AdapterPort {
        AdapterPort {
            device: self.port.device.clone(),
            number: self.port.number,
            gid_index: self.gid_index,
            gid: self.gid,
            traffic_class: self.device_options.traffic_class,
            service_level: self.device_options.service_level.unwrap_or(0),
        }
    }

    /// The same with its device open. sysfs also shows devices that this process cannot use: where their driver in libibverbs is
    /// missing, in a container without their files, or while they are being removed. The other end relies on what is found.
    fn opened(self) -> Result<Self, VerbsError> {
        let open_device = Some(self.open()?);
        Ok(Self {
            open_device,
            ..self
        })
    }

    /// The open device.
    ///
    /// # Errors
    ///
    /// When the libraries are missing, or the device file cannot be opened.
    pub(super) fn open(&self) -> Result<Arc<OpenDevice>, VerbsError> {
        if let Some(device) = &self.open_device {
            return Ok(Arc::clone(device));
        }
        let name = &self.port.device;
        let device =
            OpenDevice::open(Verbs::get()?, name).map_err(|error| self.failed("opening", error))?;
        let device = device.ok_or_else(|| {
            self.failed(
                "opening",
                io::Error::other(
                    "libibverbs does not list it: is its driver there (on Debian: apt install ibverbs-providers), and does \
                     the device belong to this network namespace (rdma system show)?",
                ),
            )
        })?;
        Ok(Arc::new(device))
    }

    pub(super) fn failed(&self, what: &'static str, error: io::Error) -> VerbsError {
        VerbsError::Device {
            what,
            device: self.port.device.clone(),
            error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::Gids;
    use crate::verbs::ports::ports;
    use crate::verbs::ports::tests::example;

    /// The port of RoCE, with these options.
    fn with_options(device_options: DeviceOptions) -> Place {
        let all = ports(example().path()).unwrap();
        let address = "10.9.0.1".parse().unwrap();
        Place::choose(&all, address, None, &device_options, || Ok(None)).unwrap()
    }

    /// Numbers of `enum ibv_mtu`: 5 is 4096 bytes, and 3 is 1024, which fit into IP packets of 1500.
    #[test]
    fn packets_are_no_longer_than_the_path_of_tcp_allows() {
        let roce = with_options(DeviceOptions::default());
        let mtus = |place: &Place| {
            let paths = [None, Some(9000), Some(1500)];
            paths.map(|ip_bytes| place.mtu(5, ip_bytes))
        };
        assert_eq!(mtus(&roce), [5, 5, 3]);
        assert_eq!(roce.mtu(2, Some(1500)), 2, "the port has less");
        let short = with_options(DeviceOptions {
            mtu: Some(2),
            ..DeviceOptions::default()
        });
        assert_eq!(mtus(&short), [2, 2, 2]);
        let elsewhere = with_options(DeviceOptions {
            gid: Some(2),
            ..DeviceOptions::default()
        });
        assert_eq!(mtus(&elsewhere), [5, 5, 5], "another path than that of TCP");
    }

    /// The MTU of IPoIB is not that of the port, and the subnet manager names that of the path.
    #[test]
    fn packets_of_infiniband_are_those_of_the_subnet_managers_path() {
        let mut place = with_options(DeviceOptions::default());
        place.port.protocol = Protocol::InfiniBand;
        assert_eq!(place.mtu(5, Some(1500)), 5);
        place.route = Some(Route {
            gids: Gids {
                local: place.gid,
                peer: [0; 16],
            },
            lid: 5,
            service_level: 0,
            mtu: 4,
            hop_limit: 0,
            traffic_class: 0,
            flow_label: 0,
        });
        assert_eq!(place.mtu(5, Some(1500)), 4);
    }

    #[test]
    fn a_gid_that_moved_is_found_again() {
        let class = example();
        let all = ports(class.path()).unwrap();
        let address = "10.9.0.1".parse().unwrap();
        let place = |gid| {
            let device_options = DeviceOptions {
                gid,
                ..DeviceOptions::default()
            };
            Place::choose(&all, address, None, &device_options, || Ok(None)).unwrap()
        };
        let (by_address, by_index) = (place(None), place(Some(2)));
        let ours = by_address.gid;
        let found = |place: &Place, ports: &[Port]| {
            let place = place.refreshed(ports[0].clone())?;
            Some((place.gid_index, place.gid))
        };
        assert_eq!(found(&by_address, &all), Some((2, ours)));
        let set = |index: u8, text: &str| {
            let path = class.path().join(format!("rxe0/ports/1/gids/{index}"));
            std::fs::write(path, text).unwrap();
        };
        // Another address has taken the place of ours, which comes later now.
        set(2, "0000:0000:0000:0000:0000:ffff:0a09:0002");
        set(4, "0000:0000:0000:0000:0000:ffff:0a09:0001");
        let kind = class.path().join("rxe0/ports/1/gid_attrs/types/4");
        std::fs::write(kind, "RoCE v2").unwrap();
        let moved = ports(class.path()).unwrap();
        assert_eq!(found(&by_address, &moved), Some((4, ours)));
        let chosen = found(&by_index, &moved).unwrap();
        assert_eq!((chosen.0, chosen.1[15]), (2, 2));
        for index in [1, 4] {
            set(index, "0000:0000:0000:0000:0000:0000:0000:0000");
        }
        let mut gone = ports(class.path()).unwrap();
        assert_eq!(found(&by_address, &gone), None);
        // A port of InfiniBand has its first GID at any rate, and the P_Key at another index.
        gone[0].partitions = vec![0, 0x7fff, 0xffff];
        let infiniband = Place {
            port: Port {
                protocol: Protocol::InfiniBand,
                ..by_address.port.clone()
            },
            ..by_address
        };
        let refreshed = infiniband.refreshed(gone.remove(0)).unwrap();
        assert_eq!((refreshed.gid_index, refreshed.partition.index), (0, 2));
    }
}
