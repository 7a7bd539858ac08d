//! The driver `tcp`: data channels over TCP, IPv4 and IPv6.
//!
//! A stack string names it with its options, for example `tcp:port=50000-51000;cc=bbr`:
//!
//! | option | meaning |
//! | --- | --- |
//! | `port=50000-51000` | the ports to listen on: a range or a single port. The default is any free port |
//! | `bind=192.0.2.1` | the local address to listen on and to connect from, instead of the session's |
//! | `advertise=198.51.100.7` | the address that peers should connect to, if it differs from the local one (NAT) |
//! | `buffer=4M` | the kernel's send and receive buffers in bytes, or `auto` for the kernel's tuning; 1G at most |
//! | `sndbuf=4M` | the same for the send buffer only |
//! | `rcvbuf=4M` | the same for the receive buffer only |
//! | `cc=bbr` | the congestion control algorithm, one that the machine allows |
//! | `nodelay=off` | enables Nagle's algorithm, with which the kernel delays small segments |
//! | `keepalive=60s` | sends keep-alive probes after this idle time; `on` uses the machine's times, `off` is the default |
//! | `rate=5g` | limits the send rate (`SO_MAX_PACING_RATE`): bits per second with `k`, `m` or `g`, bytes per second without |
//!
//! `port`, `bind` and `advertise` are for the administrator; clients may set the others ([`OPTIONS`] gives the reasons).
//!
//! An option takes precedence over the session's request (`SBUF`). Buffers that neither sets are tuned by the kernel, which is
//! the best choice unless its limits are too low for the path. Sizes that are set are limited by `net.core.rmem_max` and
//! `net.core.wmem_max`.
//!
//! Files are moved by reading and writing. Drivers that avoid the copy are separate crates with their own channels, built on
//! the public items here:
//!
//! ```text
//!   Tcp ──> listener, connector ──> channel ──> socket    system calls
//!              └──> settings                              options, applied to a socket
//! ```
//!
//! # Example
//!
//! ```
//! use gridhaul_protocol::stack::StackSpec;
//! use gridhaul_stack::{Registry, SocketOptions};
//! use gridhaul_tcp::Tcp;
//!
//! let mut registry = Registry::new();
//! registry.register(Tcp);
//! let stack = registry.build(&StackSpec::parse("tcp:cc=reno;rcvbuf=1M")?)?;
//! let listener = stack.listen(std::net::Ipv4Addr::LOCALHOST.into(), &SocketOptions::default())?;
//! assert_ne!(listener.address().port(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod channel;
mod connector;
mod facts;
mod listener;
mod settings;
mod socket;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use gridhaul_stack::options::OptionDoc;
use gridhaul_stack::{
    Built, Channel, ConnectError, Driver, ListenError, Listener, Operation, SocketOptions,
    StackError, Transport,
};

pub use crate::channel::TcpChannel;
pub use crate::connector::connect;
pub use crate::listener::TcpListener;
pub use crate::settings::{OPTIONS, Settings};
pub use crate::socket::{ZeroCopyCompletion, enable_zerocopy};
pub use facts::{ConnectionFacts, connection_facts};

/// The driver `tcp`; its options are in the table above.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tcp;

impl Driver for Tcp {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn options(&self) -> &'static [OptionDoc] {
        &OPTIONS
    }

    fn build(&self, options: &[(String, String)]) -> Result<Built, StackError> {
        let settings = Settings::parse(&self.read_options(options)?)?;
        Ok(Built::Transport(Arc::new(TcpTransport { settings })))
    }
}

#[derive(Debug)]
struct TcpTransport {
    settings: Settings,
}

impl Transport for TcpTransport {
    fn listen(
        &self,
        local: IpAddr,
        options: &SocketOptions,
    ) -> Result<Box<dyn Listener>, ListenError> {
        let listener = TcpListener::open(&self.settings, local, options)?;
        Ok(Box::new(listener))
    }

    fn connect(
        &self,
        peer: SocketAddr,
        options: &SocketOptions,
        operation: &Operation<'_>,
    ) -> Result<Box<dyn Channel>, ConnectError> {
        let channel = connect(&self.settings, peer, options, operation)?;
        Ok(Box::new(channel))
    }
}
