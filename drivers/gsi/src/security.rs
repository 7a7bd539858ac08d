//! How the data channels of a session are authenticated and protected.

use std::sync::Arc;

use gridhaul_security::certificate::Certificate;
use gridhaul_security::credential::Credential;
use gridhaul_security::tls::TlsVersions;
use gridhaul_security::trust::TrustStore;

/// How the data channels of a session are authenticated and protected.
#[derive(Debug, Clone)]
pub struct ChannelSecurity {
    /// Our own credential.
    pub credential: Arc<Credential>,
    /// The trust anchors and rules of this machine for peers.
    pub trust: Arc<TrustStore>,
    /// Trust anchors of this session in addition, as after `DCSC P`: [`TrustStore::with_anchors`]. Only these are in a
    /// [`gridhaul_stack::SessionValue`].
    pub anchors: Vec<Certificate>,
    /// The identity that the peer must have (one-line form).
    pub expected: String,
    /// Whether data is protected after the handshake.
    pub protection: Protection,
    /// The TLS versions that we accept.
    pub versions: TlsVersions,
}

/// Whether the data of an authenticated channel is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// `PROT C`: cleartext after the handshake.
    Clear,
    /// `PROT S` and `PROT P`: TLS records.
    Private,
}
