//! The options about devices.

use std::net::IpAddr;

/// The options that choose the device of this end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DeviceOptions {
    /// The device's name; by default the device that has the data connection's address.
    pub(crate) device: Option<String>,
    /// Several adapters that a channel uses at once, in place of `device`; empty otherwise.
    pub(crate) adapters: Vec<AdapterName>,
    /// The index in the port's table of GIDs.
    pub(crate) gid: Option<u8>,
    pub(crate) traffic_class: u8,
    /// By default that of the path record, or 0.
    pub(crate) service_level: Option<u8>,
    /// The P_Key of InfiniBand, with or without the bit of full members; by default that of the data connection's interface, or the
    /// first of the port.
    pub(crate) partition: Option<u16>,
    /// The largest MTU (`enum ibv_mtu`).
    pub(crate) mtu: Option<u8>,
}

/// An adapter that the options name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AdapterName {
    /// By the name of its device.
    Device(String),
    /// By an address of its port.
    Address(IpAddr),
}
