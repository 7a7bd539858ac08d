//! Subjects of the certificates.

/// The organisation that all good subjects belong to.
pub(super) const ORGANISATION: &str = "/DC=test/O=Grid";

/// The authority that all servers and clients trust.
pub(super) const AUTHORITY: &str = "/DC=test/O=Grid/CN=Test Authority";

/// The subject of the host certificate.
pub const HOST: &str = "/DC=test/O=Grid/CN=localhost";

/// The name in the certificate of the data node with this number, counted from 0: an address of its own on this machine.
pub(super) fn node_address(number: u8) -> std::net::Ipv4Addr {
    std::net::Ipv4Addr::new(127, 0, 7, number + 1)
}
