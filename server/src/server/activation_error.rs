//! Errors of sockets that a server was started with.

use std::net::SocketAddr;

/// A socket that the server was started with, and cannot use.
#[derive(Debug, thiserror::Error)]
pub enum ActivationError {
    /// It is no listening socket.
    #[error(
        "the socket {0:?} that the service manager passes accepts no connections: use ListenStream=, and Accept=no"
    )]
    NotListening(String),
    /// It is a Unix socket for something else than the administration.
    #[error(
        "the service manager passes the Unix socket {0:?}: only the administration has one, with FileDescriptorName=admin"
    )]
    Unix(String),
    /// It accepts IPv4 and IPv6.
    #[error(
        "the service manager passes a socket at {0} for both IPv4 and IPv6: set BindIPv6Only=ipv6-only, with a ListenStream= \
         for each"
    )]
    DualStack(SocketAddr),
    /// It is not configured.
    #[error(
        "{key} does not have {passed}, where the service manager passes a socket: write the same addresses at both places"
    )]
    NotConfigured {
        /// The key.
        key: &'static str,
        /// The address of the socket.
        passed: String,
    },
    /// A configured address has no socket.
    #[error(
        "the service manager passes sockets, but none for {configured} of listen: write the same addresses at both places, or \
         delete listen"
    )]
    NotPassed {
        /// The address.
        configured: SocketAddr,
    },
    /// The system refuses to tell about it.
    #[error("the socket {name:?} that the service manager passes: {error}")]
    System {
        /// Its name.
        name: String,
        /// The underlying OS error.
        error: std::io::Error,
    },
}
