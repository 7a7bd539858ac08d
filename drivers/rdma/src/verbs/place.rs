//! Chooses the port and the GID for a channel, and opens the device.

use std::ffi::c_int;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use gridhaul_stack::{ChannelError, Operation};

use super::bindings::Verbs;
use super::connection_manager::{ConnectionError, Route, device_at, route};
use super::device_options::{AdapterName, DeviceOptions};
use super::error::VerbsError;
use super::ipoib::{self, Interface};
use super::mtu;
use super::objects::OpenDevice;
use super::partition::{Partition, PartitionKey};
use super::ports::{Gid, Port, Protocol, describe, describe_gids, describe_partitions, ports};
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
    pub(super) route: Option<Route>,
    pub(super) device_options: DeviceOptions,
}

impl Place {
    /// The port for a data connection with this local address.
    ///
    /// # Errors
    ///
    /// When there is none, or it cannot be used.
    pub(crate) fn find(local: IpAddr, device_options: &DeviceOptions) -> Result<Self, VerbsError> {
        let ports = ports(&sysfs::devices()).map_err(VerbsError::NoKernel)?;
        let interface = ipoib::interface_at(local);
        Self::choose(&ports, local, interface, device_options, || {
            device_at(local)
        })
    }

    /// The port of one of several adapters that are named, for a data connection with this local address. The address need not
    /// be the adapter's.
    ///
    /// # Errors
    ///
    /// When there is none, or it cannot be used.
    pub(crate) fn find_named(
        name: &AdapterName,
        local: IpAddr,
        device_options: &DeviceOptions,
    ) -> Result<Self, VerbsError> {
        let ports = ports(&sysfs::devices()).map_err(VerbsError::NoKernel)?;
        let interface = ipoib::interface_at(match name {
            AdapterName::Device(_) => local,
            AdapterName::Address(address) => *address,
        });
        let place = Self::choose_named(&ports, name, local, interface, device_options)?;
        // The other end relies on the number of adapters that are found.
        place.open()?;
        Ok(place)
    }

    fn choose_named(
        ports: &[Port],
        name: &AdapterName,
        local: IpAddr,
        interface: Option<Interface>,
        device_options: &DeviceOptions,
    ) -> Result<Self, VerbsError> {
        let (device, address) = match name {
            AdapterName::Device(device) => {
                let own = ports.iter().filter(|port| port.device == *device);
                let address = own_address(own, local).unwrap_or(local);
                (Some(device.clone()), address)
            }
            AdapterName::Address(address) => (None, *address),
        };
        let device_options = DeviceOptions {
            device,
            ..device_options.clone()
        };
        // Connections of iWARP have addresses of their own, so only one of its adapters is used.
        Self::choose(ports, address, interface, &device_options, || Ok(None))
    }

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

    /// `interface` is the one of IPoIB with the address. `iwarp` finds the device with the address where ports have no GIDs.
    fn choose(
        ports: &[Port],
        local: IpAddr,
        interface: Option<Interface>,
        device_options: &DeviceOptions,
        iwarp: impl FnOnce() -> Result<Option<String>, ConnectionError>,
    ) -> Result<Self, VerbsError> {
        let there = describe(ports);
        if let Some(device) = &device_options.device
            && !ports.iter().any(|port| port.device == *device)
        {
            return Err(VerbsError::NoDevice(device.clone(), there));
        }
        let is_wanted = |port: &&Port| {
            let is_selected = device_options
                .device
                .as_ref()
                .is_none_or(|device| port.device == *device);
            is_selected && port.protocol != Protocol::Iwarp
        };
        let mut wanted = ports.iter().filter(is_wanted);
        let found = match device_options.gid {
            Some(_) => wanted.next(),
            None => wanted
                .clone()
                .find(|port| port.gid_of(local).is_some() || port.is_behind(interface))
                // A port of InfiniBand without an interface has no IP address and must be named.
                .or_else(|| {
                    let is_named = |port: &&Port| {
                        port.protocol == Protocol::InfiniBand && device_options.device.is_some()
                    };
                    let mut named = wanted.filter(is_named);
                    let active = named.clone().find(|port| port.is_active());
                    active.or_else(|| named.next())
                }),
        };
        let speaks_iwarp = |port: &&Port| {
            let device = device_options.device.as_ref();
            port.protocol == Protocol::Iwarp && device.is_none_or(|device| port.device == *device)
        };
        let found = match found {
            None if ports.iter().any(|port| speaks_iwarp(&port)) => {
                let device = iwarp()?;
                let mut candidates = ports.iter().filter(speaks_iwarp);
                candidates.find(|port| Some(&port.device) == device.as_ref())
            }
            other => other,
        };
        let port = found.ok_or(VerbsError::NoAddress {
            address: local,
            there,
        })?;
        if !port.is_active() {
            return Err(VerbsError::Inactive {
                device: port.device.clone(),
                number: port.number,
                state: port.state.clone(),
            });
        }
        if port.protocol == Protocol::Iwarp {
            // Its connections are TCP connections with IP addresses.
            return Ok(Self {
                port: port.clone(),
                gid_index: 0,
                gid: [0; 16],
                partition: Partition::DEFAULT,
                is_behind_interface: false,
                route: None,
                device_options: device_options.clone(),
            });
        }
        let interface = interface.filter(|&interface| port.is_behind(Some(interface)));
        let wanted_gid = match (device_options.gid, interface) {
            (Some(index), _) => port.gids.iter().find(|gid| gid.index == index),
            (None, Some(interface)) => {
                let mut gids = port.gids.iter();
                gids.find(|gid| gid.address == interface.gid)
            }
            (None, None) => port.gid_of(local).or_else(|| port.gids.first()),
        };
        let gid = wanted_gid.filter(|gid| {
            // RoCE v1 and v2 do not interoperate.
            gid.is_version_2 || port.protocol == Protocol::InfiniBand
        });
        let gid = gid.ok_or_else(|| VerbsError::NoGid {
            device: port.device.clone(),
            number: port.number,
            index: device_options.gid.unwrap_or(0),
            there: describe_gids(port),
        })?;
        Ok(Self {
            port: port.clone(),
            gid_index: gid.index,
            gid: gid.address.octets(),
            partition: partition(port, interface, device_options)?,
            is_behind_interface: interface.is_some(),
            route: None,
            device_options: device_options.clone(),
        })
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
            place.route = match route(local, peer, operation) {
                Err(ConnectionError::Channel(error)) => return Err(error),
                outcome => outcome.ok().flatten(),
            };
        }
        Ok(place)
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

    /// The NUMA node of the device, if the machine has several.
    pub(crate) fn locality(&self) -> Option<Locality> {
        Locality::of_device(&sysfs::devices(), &self.port.device)
    }

    /// The protocol of the port.
    pub(crate) fn protocol(&self) -> Protocol {
        self.port.protocol
    }

    /// The rate of the port in bytes of payload per second; `None` for software devices.
    pub(crate) fn port_rate(&self) -> Option<u64> {
        self.port.payload_rate()
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

    /// Opens the device.
    ///
    /// # Errors
    ///
    /// When the libraries are missing, or the device file cannot be opened.
    pub(super) fn open(&self) -> Result<Arc<OpenDevice>, VerbsError> {
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

/// The address by which a named adapter of RoCE is used: that of the data connection, or the first of the same family that is
/// not only valid on its link.
fn own_address<'a>(ports: impl Iterator<Item = &'a Port> + Clone, local: IpAddr) -> Option<IpAddr> {
    if ports.clone().any(|port| port.gid_of(local).is_some()) {
        return Some(local);
    }
    let is_v4 = local.to_canonical().is_ipv4();
    let is_usable = |address: &IpAddr| match address {
        IpAddr::V4(address) => is_v4 && !address.is_link_local(),
        IpAddr::V6(address) => !is_v4 && !address.is_unicast_link_local(),
    };
    let active = ports.filter(|port| port.is_active());
    let gids = active.flat_map(|port| &port.gids);
    gids.filter(|gid| gid.is_version_2)
        .map(|gid| IpAddr::V6(gid.address).to_canonical())
        .find(is_usable)
}

/// The partition of the options, of the interface of the data connection, or the first one.
fn partition(
    port: &Port,
    interface: Option<Interface>,
    device_options: &DeviceOptions,
) -> Result<Partition, VerbsError> {
    if port.protocol != Protocol::InfiniBand {
        return Ok(Partition::DEFAULT);
    }
    let asked = device_options.partition.map(PartitionKey);
    let wanted = asked.or_else(|| interface.and_then(|interface| interface.partition));
    Partition::choose(&port.partitions, wanted).ok_or_else(|| VerbsError::NoPartition {
        device: port.device.clone(),
        number: port.number,
        wanted: wanted.map_or_else(String::new, |wanted| format!(" {wanted}")),
        there: describe_partitions(port),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::ports::tests::example;

    fn choose(local: &str, device_options: &DeviceOptions) -> Result<(String, u8), String> {
        let class = example();
        let ports = ports(class.path()).unwrap();
        let iwarp = || Ok((local == "10.9.0.7").then(|| "siw0".to_owned()));
        Place::choose(&ports, local.parse().unwrap(), None, device_options, iwarp)
            .map(|place| (place.port.device, place.gid_index))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_port_with_the_address_is_taken() {
        let any = DeviceOptions::default();
        assert_eq!(choose("10.9.0.1", &any), Ok(("rxe0".to_owned(), 2)));
        assert_eq!(choose("10.9.0.7", &any), Ok(("siw0".to_owned(), 0)));
        let gid = DeviceOptions {
            gid: Some(0),
            ..DeviceOptions::default()
        };
        assert_eq!(choose("127.0.0.1", &gid), Ok(("rxe0".to_owned(), 0)));
    }

    #[test]
    fn a_named_adapter_is_used_by_an_address_of_its_own() {
        let class = example();
        let ports = ports(class.path()).unwrap();
        let named = |name: &AdapterName, local: &str| {
            let local = local.parse().unwrap();
            Place::choose_named(&ports, name, local, None, &DeviceOptions::default())
                .map(|place| {
                    (
                        place.port.device.clone(),
                        place.gid_index,
                        place.is_at(local),
                    )
                })
                .map_err(|error| error.to_string())
        };
        let device = |name: &str| AdapterName::Device(name.to_owned());
        let rxe = "rxe0".to_owned();
        // The data connection has another address.
        assert_eq!(
            named(&device("rxe0"), "192.0.2.1"),
            Ok((rxe.clone(), 2, false))
        );
        assert_eq!(
            named(&device("rxe0"), "10.9.0.1"),
            Ok((rxe.clone(), 2, true))
        );
        // Its only address of IPv6 is valid on the link only.
        assert!(named(&device("rxe0"), "2001:db8::1").is_err());
        let address = AdapterName::Address("10.9.0.1".parse().unwrap());
        assert_eq!(named(&address, "192.0.2.1"), Ok((rxe, 2, false)));
        assert!(named(&device("siw0"), "10.9.0.7").is_err(), "iWARP");
        assert!(named(&device("mlx5_7"), "10.9.0.7").is_err());
    }

    #[test]
    fn errors_name_the_alternatives() {
        let error = choose("10.9.0.2", &DeviceOptions::default()).unwrap_err();
        assert_eq!(
            error,
            "no RDMA device has the address 10.9.0.2: rxe0 (RoCE, gid 0 fe80::bcc8:d0ff:fe1b:f90, gid 2 10.9.0.1), \
             siw0 (iWARP)"
        );
        let device = DeviceOptions {
            device: Some("mlx5_0".to_owned()),
            ..DeviceOptions::default()
        };
        let error = choose("10.9.0.1", &device).unwrap_err();
        assert!(
            error.starts_with("there is no RDMA device mlx5_0"),
            "{error}"
        );
        let first_version = DeviceOptions {
            gid: Some(1),
            ..DeviceOptions::default()
        };
        let error = choose("10.9.0.1", &first_version).unwrap_err();
        assert!(error.contains("has no GID 1 for RoCE v2"), "{error}");
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
