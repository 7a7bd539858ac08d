//! The drivers `splice` and `auto`: data channels over TCP whose file ranges are moved by the kernel.
//!
//! On the wire it is plain TCP, and the peer may be anything. A file is sent by `sendfile`, which hands the
//! pages of the page cache to the socket, and received by `splice`, from the socket through a pipe to the
//! file. Where the kernel or a file system cannot do that, the rest of the range goes through memory, as
//! with the driver `tcp`; so does everything that is not a range of a file: small replies, and all bytes of
//! a transform.
//!
//! `auto` moves ranges in this way or as `tcp` does, whichever costs less: it measures both on the first
//! mebibytes of long transfers, and remembers what it found.
//!
//! Both have all options of the driver `tcp`, whose settings and sockets they use. `splice` has one more:
//!
//! | option | meaning |
//! | --- | --- |
//! | `direct=1` | reads and writes files past the page cache (`O_DIRECT`), over io_uring where the kernel has it. `threads` does without io_uring, `0` is the default |
//!
//! `direct` is the administrator's.
//!
//! What `direct=1` has read is sent without a copy where the kernel can (`MSG_ZEROCOPY`). Nothing else is: a channel's caller gets
//! its memory back when `send` returns, so every call would have to wait until the peer has acknowledged the last byte.
//!
//! `sendfile` to a socket whose peer is gone raises `SIGPIPE`, and no flag keeps it from doing so. Programs
//! written in Rust ignore that signal from the start.

mod channel;
mod direct;
mod judge;
mod pipes;
mod readahead;
mod receiving;
mod sending;
mod support;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use gridhaul_stack::options::OptionDoc;
use gridhaul_stack::{
    AcceptError, Built, Channel, ConnectError, Driver, ListenError, Listener, Operation,
    SocketOptions, StackError, Transport,
};
use gridhaul_tcp::{Settings, TcpListener};

pub use crate::support::{Support, support};

use crate::channel::{Choice, SpliceChannel};
use crate::direct::Wish;

/// The driver `splice`; its options are those of the driver `tcp`, and `direct`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Splice;

impl Driver for Splice {
    fn name(&self) -> &'static str {
        "splice"
    }

    fn options(&self) -> &'static [OptionDoc] {
        &OPTIONS
    }

    fn build(&self, options: &[(String, String)]) -> Result<Built, StackError> {
        let options = self.read_options(options)?;
        Ok(Built::Transport(Arc::new(SpliceTransport {
            settings: Settings::parse(&options)?,
            choice: Choice::Splice,
            direct: Wish::parse(&options)?,
        })))
    }
}

const OPTIONS: [OptionDoc; gridhaul_tcp::OPTIONS.len() + 1] = {
    let mut options = [direct::OPTION; gridhaul_tcp::OPTIONS.len() + 1];
    let (of_tcp, _) = options.split_at_mut(gridhaul_tcp::OPTIONS.len());
    of_tcp.copy_from_slice(&gridhaul_tcp::OPTIONS);
    options
};

/// The driver `auto`: `splice` where that is cheaper, as `tcp` otherwise. Its options are those of `tcp`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Auto;

impl Driver for Auto {
    fn name(&self) -> &'static str {
        "auto"
    }

    fn options(&self) -> &'static [OptionDoc] {
        &gridhaul_tcp::OPTIONS
    }

    fn build(&self, options: &[(String, String)]) -> Result<Built, StackError> {
        let settings = Settings::parse(&self.read_options(options)?)?;
        Ok(Built::Transport(Arc::new(SpliceTransport {
            settings,
            choice: Choice::Measured,
            direct: None,
        })))
    }
}

#[derive(Debug)]
struct SpliceTransport {
    settings: Settings,
    choice: Choice,
    direct: Option<Wish>,
}

impl Transport for SpliceTransport {
    fn listen(
        &self,
        local: IpAddr,
        options: &SocketOptions,
    ) -> Result<Box<dyn Listener>, ListenError> {
        let listener = TcpListener::open(&self.settings, local, options)?;
        Ok(Box::new(SpliceListener {
            listener,
            choice: self.choice,
            direct: self.direct,
        }))
    }

    fn connect(
        &self,
        peer: SocketAddr,
        options: &SocketOptions,
        operation: &Operation<'_>,
    ) -> Result<Box<dyn Channel>, ConnectError> {
        let channel = gridhaul_tcp::connect(&self.settings, peer, options, operation)?;
        Ok(Box::new(SpliceChannel::new(
            channel,
            self.choice,
            self.direct,
        )))
    }

    fn wants_direct(&self) -> bool {
        self.direct.is_some()
    }
}

#[derive(Debug)]
struct SpliceListener {
    listener: TcpListener,
    choice: Choice,
    direct: Option<Wish>,
}

impl Listener for SpliceListener {
    fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    fn accept(&mut self, operation: &Operation<'_>) -> Result<Box<dyn Channel>, AcceptError> {
        let channel = self.listener.accept_channel(operation)?;
        Ok(Box::new(SpliceChannel::new(
            channel,
            self.choice,
            self.direct,
        )))
    }
}
