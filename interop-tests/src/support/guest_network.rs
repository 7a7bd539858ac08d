//! The network of a guest: two ends, `left` and `right`, and a cable between them.
//!
//! Guests set it up; benchmarks that run in a guest use its addresses.

/// The devices of a guest. One guest has both ends, `left` with [`LEFT`] and `right` with [`RIGHT`]; of two guests,
/// each has one end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Network {
    /// Loopback only.
    None,
    /// Ethernet without RDMA devices.
    Ethernet,
    /// With the devices `rxe_left` and `rxe_right`, which speak RoCE v2.
    Rxe,
    /// With the devices `siw_left` and `siw_right`, which speak iWARP.
    Siw,
    /// As [`Network::Rxe`], with the routers `router_left` and `router_right` between the ends. These are network namespaces; the link
    /// between them is the interface `middle` of each. Both ends are in one guest.
    Routed,
}

/// Where the file system of a guest with a disk is.
pub const DISK: &str = "/run/disk";

/// The address of the end `left`.
pub const LEFT: &str = "10.9.0.1";

/// The address of the end `right`.
pub const RIGHT: &str = "10.9.0.2";

/// The IPv6 address of the end `left`, where each end is in a guest of its own.
pub const LEFT_6: &str = "fd09::1";

/// The IPv6 address of the end `right`.
pub const RIGHT_6: &str = "fd09::2";
