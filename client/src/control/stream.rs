//! The connection of a control channel.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use super::error::ControlError;
use crate::location::Server;

/// Which addresses of a server are tried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AddressFamily {
    /// All, in the order of the resolver (RFC 6724).
    #[default]
    Any,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl AddressFamily {
    fn has(self, address: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::Ipv4 => address.is_ipv4(),
            Self::Ipv6 => address.is_ipv6(),
        }
    }
}

/// Connects to the first address of the server that answers; each may take `within`.
pub(super) async fn connect(
    server: &Server,
    family: AddressFamily,
    within: Duration,
) -> Result<TcpStream, ControlError> {
    let found = lookup_host((server.host.as_str(), server.port)).await;
    let found = found.map_err(|error| ControlError::LookUp {
        host: server.host.clone(),
        error,
    })?;
    let addresses: Vec<SocketAddr> = found.filter(|address| family.has(address.ip())).collect();
    let mut last = io::Error::other("the name has no address of the wanted family");
    for address in &addresses {
        match timeout(within, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // Commands are short and wait for replies.
                stream.set_nodelay(true).map_err(ControlError::Connection)?;
                return Ok(stream);
            }
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(ControlError::Connect {
        server: server.to_string(),
        error: last,
    })
}
