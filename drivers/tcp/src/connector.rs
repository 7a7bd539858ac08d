//! Connecting.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use gridhaul_stack::{ConnectError, Operation, SocketOptions};
use rustix::io::Errno;
use rustix::net::sockopt;

use crate::channel::TcpChannel;
use crate::listener::canonical;
use crate::settings::Settings;

/// Connects to `peer`, from the address of the option `bind` if there is one.
///
/// # Errors
///
/// When the peer refuses or does not answer before the operation's deadline, or a setting is not possible.
pub fn connect(
    settings: &Settings,
    peer: SocketAddr,
    options: &SocketOptions,
    operation: &Operation<'_>,
) -> Result<TcpChannel, ConnectError> {
    operation.check()?;
    let peer = canonical(peer);
    let socket =
        prepare(settings, &peer, options).map_err(|error| ConnectError::Local { peer, error })?;
    let outcome = match rustix::net::connect(&socket, &peer) {
        Err(Errno::INPROGRESS | Errno::INTR) => {
            operation.wait_writable(socket.as_fd())?;
            sockopt::socket_error(&socket).and_then(|outcome| outcome)
        }
        outcome => outcome,
    };
    outcome.map_err(|error| connect_error(peer, error))?;
    if is_connected_to_itself(&socket, peer) {
        return Err(connect_error(peer, Errno::CONNREFUSED));
    }
    Ok(TcpChannel::new(socket, peer))
}

fn prepare(settings: &Settings, peer: &SocketAddr, options: &SocketOptions) -> io::Result<OwnedFd> {
    let socket = settings.socket(peer, options)?;
    if let Some(bind) = settings.bind {
        if bind.is_ipv4() != peer.is_ipv4() {
            return Err(io::Error::other(format!(
                "the option bind={bind} is of another address family"
            )));
        }
        rustix::net::bind(&socket, &SocketAddr::new(bind, 0))?;
    }
    Ok(socket)
}

fn connect_error(peer: SocketAddr, errno: Errno) -> ConnectError {
    let error = io::Error::from(errno);
    match errno {
        // A firewall on this machine, or no free local port.
        Errno::ACCESS | Errno::PERM | Errno::ADDRNOTAVAIL | Errno::ADDRINUSE => {
            ConnectError::Local { peer, error }
        }
        _ => ConnectError::Peer { peer, error },
    }
}

/// If no socket listens on the port of a local peer, the kernel may choose the same port as the local port, and the socket
/// then connects to itself (RFC 793 3.4, simultaneous open).
fn is_connected_to_itself(socket: &OwnedFd, peer: SocketAddr) -> bool {
    let local = rustix::net::getsockname(socket).and_then(SocketAddr::try_from);
    local.is_ok_and(|local| (local.ip(), local.port()) == (peer.ip(), peer.port()))
}
