//! The driver `tcp`: data channels over TCP, IPv4 and IPv6.
//!
//! A stack string names it with its options, for example `tcp:port=50000-51000;cc=bbr`:
//!
//! | option | meaning |
//! | --- | --- |
//! | `port=50000-51000` | the ports to listen at: a range or a single one. Any free port unless given |
//! | `bind=192.0.2.1` | the local address to listen at and to connect from, instead of the session's |
//! | `advertise=198.51.100.7` | the address that peers are told to connect to, where it is another one (NAT) |
//! | `buffer=4M` | the kernel's send and receive buffers in bytes, or `auto` to let it tune them; 1G at most |
//! | `sndbuf=4M` | the same for the send buffer only |
//! | `rcvbuf=4M` | the same for the receive buffer only |
//! | `cc=bbr` | the congestion control, one of those that the machine allows |
//! | `nodelay=off` | lets the kernel hold small segments back (Nagle's algorithm) |
//! | `keepalive=60s` | asks a silent peer for a sign of life after so long; `on` takes the machine's times, `off` is the default |
//! | `rate=5g` | sends at most so fast (`SO_MAX_PACING_RATE`): bits per second with `k`, `m` or `g`, bytes per second without |
//!
//! `port`, `bind` and `advertise` are the administrator's; the others are for clients as well ([`OPTIONS`] says why).
//!
//! An option wins over what the session asks for (`SBUF` and the like). Buffers that neither names are
//! tuned by the kernel, which is the best choice unless its limits are too low for the circuit. Buffers
//! that are named are subject to the limits `net.core.rmem_max` and `net.core.wmem_max`.
//!
//! Files are moved by reading and writing. A driver that avoids the copy is a crate of its own, with its
//! own channels over what is public here: the options, connecting and listening.

mod channel;
mod connector;
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
