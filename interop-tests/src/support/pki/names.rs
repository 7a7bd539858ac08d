//! Subjects of the certificates.

/// The organisation that all good subjects belong to.
pub(super) const ORGANISATION: &str = "/DC=test/O=Grid";

/// The authority that all servers and clients trust.
pub(super) const AUTHORITY: &str = "/DC=test/O=Grid/CN=Test Authority";

/// The subject of the host certificate.
pub const HOST: &str = "/DC=test/O=Grid/CN=localhost";
