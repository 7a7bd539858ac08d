//! Data connections: connect, accept, and reset.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt};

/// The default timeout of connections and replies.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// Connects to a data port of the server.
///
/// # Errors
///
/// When the connection is refused.
pub fn connect_data(address: SocketAddr) -> io::Result<TcpStream> {
    with_timeouts(TcpStream::connect_timeout(&address, TIMEOUT)?)
}

/// Connects from a given local address. On Linux all of 127.0.0.0/8 is local, so that one
/// machine can act as many hosts.
///
/// # Errors
///
/// When the address is not local, or the connection is refused.
pub fn connect_from(source: Ipv4Addr, address: SocketAddr) -> io::Result<TcpStream> {
    // Servers that other tests start meanwhile must not inherit it.
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    bind(&socket, &SocketAddrV4::new(source, 0))?;
    connect(&socket, &address)?;
    with_timeouts(TcpStream::from(socket))
}

/// Closes with a reset: the peer sees `ECONNRESET`, not an end of stream.
///
/// # Errors
///
/// When `SO_LINGER` cannot be set.
pub fn reset(stream: TcpStream) -> io::Result<()> {
    sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
    drop(stream);
    Ok(())
}

/// A data port of the client, for `PORT`.
#[derive(Debug)]
pub struct DataListener {
    listener: TcpListener,
    address: SocketAddrV4,
}

impl DataListener {
    /// Listens on a free port of this address.
    ///
    /// # Errors
    ///
    /// When no port is free.
    pub fn open(address: Ipv4Addr) -> io::Result<Self> {
        let listener = TcpListener::bind((address, 0))?;
        listener.set_nonblocking(true)?;
        let address = SocketAddrV4::new(address, listener.local_addr()?.port());
        Ok(Self { listener, address })
    }

    /// Its address.
    pub fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    ///
    /// `TimedOut` when none is made.
    pub fn accept(&self) -> io::Result<TcpStream> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.accept_within(left)? {
                Some(stream) => return Ok(stream),
                None if left.is_zero() => {
                    let words = "the server opened no data connection";
                    return Err(io::Error::new(io::ErrorKind::TimedOut, words));
                }
                None => {}
            }
        }
    }

    /// Waits this long for a connection; `None` when none was made.
    ///
    /// # Errors
    ///
    /// When a system call fails.
    pub fn accept_within(&self, time: Duration) -> io::Result<Option<TcpStream>> {
        let time = Timespec::try_from(time).map_err(io::Error::other)?;
        poll(
            &mut [PollFd::new(&self.listener, PollFlags::IN)],
            Some(&time),
        )?;
        match self.listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                Ok(Some(with_timeouts(stream)?))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn with_timeouts(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
