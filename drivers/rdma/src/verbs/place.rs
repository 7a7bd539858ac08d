//! Chooses the port and the GID for a channel, and opens the device.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use super::bindings::{LibraryError, Verbs};
use super::connection_manager::{ConnectionError, device_at};
use super::inspect::no_kernel;
use super::objects::OpenDevice;
use super::ports::{Port, Protocol, class, ports};
use crate::provider::AdapterPort;

/// The options that choose the device of this end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DeviceOptions {
    /// The device's name; by default the device that has the data connection's address.
    pub(crate) device: Option<String>,
    /// The index in the port's table of GIDs.
    pub(crate) gid: Option<u8>,
    pub(crate) traffic_class: u8,
    pub(crate) service_level: u8,
}

/// The chosen port, with its GID and the options.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(super) port: Port,
    pub(super) gid_index: u8,
    pub(super) gid: [u8; 16],
    pub(super) device_options: DeviceOptions,
}

/// Why verbs cannot be used, and how to fix it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VerbsError {
    #[error(transparent)]
    Library(#[from] LibraryError),
    #[error("{}", no_kernel(.0))]
    NoKernel(io::Error),
    #[error("there is no RDMA device {0}; there are: {1}")]
    NoDevice(String, String),
    #[error("no RDMA device has the address {address}: {there}")]
    NoAddress { address: IpAddr, there: String },
    #[error(
        "port {number} of {device} is {state}, and not ACTIVE: is the link up, and for InfiniBand, does a subnet \
         manager run?"
    )]
    Inactive {
        device: String,
        number: u8,
        state: String,
    },
    #[error("port {number} of {device} has no GID {index} for RoCE v2; it has {there}")]
    NoGid {
        device: String,
        number: u8,
        index: u8,
        there: String,
    },
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    #[error("{what} of {device}: {error}")]
    Device {
        what: &'static str,
        device: String,
        error: io::Error,
    },
}

impl Place {
    /// The port for a data connection with this local address.
    ///
    /// # Errors
    ///
    /// When there is none, or it cannot be used.
    pub(crate) fn find(local: IpAddr, device_options: &DeviceOptions) -> Result<Self, VerbsError> {
        let ports = ports(&class()).map_err(VerbsError::NoKernel)?;
        Self::choose(&ports, local, device_options, || device_at(local))
    }

    /// `iwarp` finds the device with the address where ports have no GIDs.
    fn choose(
        ports: &[Port],
        local: IpAddr,
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
                .find(|port| port.gid_of(local).is_some())
                // A port of InfiniBand has no IP address and must be named.
                .or_else(|| {
                    wanted.find(|port| {
                        port.protocol == Protocol::InfiniBand && device_options.device.is_some()
                    })
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
                device_options: device_options.clone(),
            });
        }
        let wanted_gid = match device_options.gid {
            Some(index) => port.gids.iter().find(|gid| gid.index == index),
            None => port.gid_of(local).or_else(|| port.gids.first()),
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
            device_options: device_options.clone(),
        })
    }

    /// The device's name.
    pub(crate) fn device(&self) -> &str {
        &self.port.device
    }

    /// The protocol of the port.
    pub(crate) fn protocol(&self) -> Protocol {
        self.port.protocol
    }

    /// The port for a provider of another crate.
    pub(crate) fn adapter_port(&self) -> AdapterPort {
        AdapterPort {
            device: self.port.device.clone(),
            number: self.port.number,
            gid_index: self.gid_index,
            gid: self.gid,
            traffic_class: self.device_options.traffic_class,
            service_level: self.device_options.service_level,
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
                "libibverbs has no driver for the device",
                io::Error::other("on Debian they come with: apt install ibverbs-providers"),
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

/// The list of ports for an error message.
fn describe(ports: &[Port]) -> String {
    let names = ports.iter().map(|port| {
        let protocol = port.protocol.name();
        match port.protocol {
            Protocol::Roce => format!("{} ({protocol}, {})", port.device, describe_gids(port)),
            _ => format!("{} ({protocol})", port.device),
        }
    });
    list(names)
}

fn describe_gids(port: &Port) -> String {
    let gids = port.gids.iter().filter(|gid| gid.is_version_2);
    list(gids.map(|gid| {
        let address = IpAddr::V6(gid.address).to_canonical();
        format!("gid {} {address}", gid.index)
    }))
}

fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<_> = items.collect();
    if items.is_empty() {
        return "none".to_owned();
    }
    items.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::ports::tests::example;

    fn choose(local: &str, device_options: &DeviceOptions) -> Result<(String, u8), String> {
        let class = example();
        let ports = ports(class.path()).unwrap();
        let iwarp = || Ok((local == "10.9.0.7").then(|| "siw0".to_owned()));
        Place::choose(&ports, local.parse().unwrap(), device_options, iwarp)
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
