//! Chooses the port and the GID for a data connection.

use std::net::IpAddr;

use super::Place;
use crate::verbs::connection_manager::{ConnectionError, device_at};
use crate::verbs::device_options::{AdapterName, DeviceOptions};
use crate::verbs::error::VerbsError;
use crate::verbs::ipoib::{self, Interface};
use crate::verbs::partition::{Partition, PartitionKey};
use crate::verbs::ports::{
    Gid, Port, Protocol, describe, describe_gids, describe_partitions, ports,
};
use crate::verbs::sysfs;

impl Place {
    /// The port for a data connection with this local address, with its device open.
    ///
    /// # Errors
    ///
    /// When there is none, or it cannot be used.
    pub(crate) fn find(local: IpAddr, device_options: &DeviceOptions) -> Result<Self, VerbsError> {
        let ports = ports(&sysfs::devices()).map_err(VerbsError::NoKernel)?;
        let interface = ipoib::interface_at(local);
        Self::choose(&ports, local, interface, device_options, || {
            device_at(local)
        })?
        .opened()
    }

    /// The port of one of several adapters that are named, for a data connection with this local address, with its device open.
    /// The address need not be the adapter's.
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
        Self::choose_named(&ports, name, local, interface, device_options)?.opened()
    }

    /// `interface` is the one of IPoIB with the address by which the adapter is named, or else that of the data connection.
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
        let iwarp = || Ok(None);
        let place = Self::choose(ports, address, interface, &device_options, iwarp)?;
        let is_of_connection = match name {
            AdapterName::Device(_) => true,
            AdapterName::Address(address) => address.to_canonical() == local.to_canonical(),
        };
        Ok(Self {
            is_behind_interface: place.is_behind_interface && is_of_connection,
            ..place
        })
    }

    /// `interface` is the one of IPoIB with the address. `iwarp` finds the device with the address where ports have no GIDs.
    pub(super) fn choose(
        ports: &[Port],
        local: IpAddr,
        interface: Option<Interface>,
        device_options: &DeviceOptions,
        iwarp: impl FnOnce() -> Result<Option<String>, ConnectionError>,
    ) -> Result<Self, VerbsError> {
        if let Some(device) = &device_options.device
            && !ports.iter().any(|port| port.device == *device)
        {
            return Err(VerbsError::NoDevice(device.clone(), describe(ports)));
        }
        let found = match port_with_gid(ports, local, interface, device_options) {
            None => port_of_iwarp(ports, device_options, iwarp)?,
            found => found,
        };
        let port = found.ok_or_else(|| VerbsError::NoAddress {
            address: local,
            there: describe(ports),
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
            return Ok(Self::at(port, device_options));
        }
        let interface = interface.filter(|&interface| port.is_behind(Some(interface)));
        let gid = gid(port, local, interface, device_options)?;
        Ok(Self {
            gid_index: gid.index,
            gid: gid.address.octets(),
            partition: partition(port, interface, device_options)?,
            is_behind_interface: interface.is_some(),
            ..Self::at(port, device_options)
        })
    }

    /// A port without any GID.
    fn at(port: &Port, device_options: &DeviceOptions) -> Self {
        Self {
            port: port.clone(),
            gid_index: 0,
            gid: [0; 16],
            partition: Partition::DEFAULT,
            is_behind_interface: false,
            routed: None,
            route: None,
            device_options: device_options.clone(),
            open_device: None,
        }
    }
}

fn is_selected(port: &Port, device_options: &DeviceOptions) -> bool {
    let device = device_options.device.as_ref();
    device.is_none_or(|device| port.device == *device)
}

/// The port of RoCE or InfiniBand: the one with the address, or the one that the options name.
fn port_with_gid<'a>(
    ports: &'a [Port],
    local: IpAddr,
    interface: Option<Interface>,
    device_options: &DeviceOptions,
) -> Option<&'a Port> {
    let is_wanted =
        |port: &&Port| is_selected(port, device_options) && port.protocol != Protocol::Iwarp;
    let mut wanted = ports.iter().filter(is_wanted);
    if device_options.gid.is_some() {
        return wanted.next();
    }
    let has_address = |port: &&Port| port.gid_of(local).is_some() || port.is_behind(interface);
    if let Some(port) = wanted.clone().find(has_address) {
        return Some(port);
    }
    // A port of InfiniBand without an interface has no IP address and must be named.
    let is_named =
        |port: &&Port| port.protocol == Protocol::InfiniBand && device_options.device.is_some();
    let mut named = wanted.filter(is_named);
    let active = named.clone().find(|port| port.is_active());
    active.or_else(|| named.next())
}

/// The port of the device that `iwarp` finds, which is asked only where there is any.
fn port_of_iwarp<'a>(
    ports: &'a [Port],
    device_options: &DeviceOptions,
    iwarp: impl FnOnce() -> Result<Option<String>, ConnectionError>,
) -> Result<Option<&'a Port>, ConnectionError> {
    let speaks_iwarp =
        |port: &&Port| port.protocol == Protocol::Iwarp && is_selected(port, device_options);
    let mut candidates = ports.iter().filter(speaks_iwarp).peekable();
    if candidates.peek().is_none() {
        return Ok(None);
    }
    let device = iwarp()?;
    Ok(candidates.find(|port| Some(&port.device) == device.as_ref()))
}

/// The GID of the options, of the interface of the data connection, or of its address, or the first one.
fn gid<'a>(
    port: &'a Port,
    local: IpAddr,
    interface: Option<Interface>,
    device_options: &DeviceOptions,
) -> Result<&'a Gid, VerbsError> {
    let mut gids = port.gids.iter();
    let wanted = match (device_options.gid, interface) {
        (Some(index), _) => gids.find(|gid| gid.index == index),
        (None, Some(interface)) => gids.find(|gid| gid.address == interface.gid),
        (None, None) => port.gid_of(local).or_else(|| port.gids.first()),
    };
    // RoCE v1 and v2 do not interoperate.
    let is_usable = |gid: &&Gid| gid.is_version_2 || port.protocol == Protocol::InfiniBand;
    wanted.filter(is_usable).ok_or_else(|| VerbsError::NoGid {
        device: port.device.clone(),
        number: port.number,
        index: device_options.gid.unwrap_or(0),
        there: describe_gids(port),
    })
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

    /// The data connection uses another port of InfiniBand, so that its path is not that of this one.
    #[test]
    fn an_adapter_that_is_named_by_address_is_at_that_address_only() {
        let class = example();
        let mut port = ports(class.path()).unwrap().remove(0);
        port.protocol = Protocol::InfiniBand;
        port.partitions = vec![0xffff];
        let interface = Interface {
            gid: port.gids[0].address,
            partition: None,
        };
        let name = AdapterName::Address("192.0.2.7".parse().unwrap());
        let is_at = |local: &str| {
            let local = local.parse().unwrap();
            let (ports, interface) = (std::slice::from_ref(&port), Some(interface));
            let options = DeviceOptions::default();
            let place = Place::choose_named(ports, &name, local, interface, &options).unwrap();
            assert_eq!(place.gid_index, 0);
            place.is_at(local)
        };
        assert!(is_at("192.0.2.7") && is_at("::ffff:192.0.2.7"));
        assert!(!is_at("192.0.2.1"));
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
}
