//! The drivers `splice` and `auto`: data channels over TCP whose file ranges the kernel moves.
//!
//! The wire format is plain TCP, so the peer may use any driver for TCP. A file is sent with `sendfile`, which passes pages of
//! the page cache to the socket, and received with `splice`, from the socket through a pipe into the file. If the kernel or
//! the file system does not support that, the rest of the range is copied through memory, as with the driver `tcp`. Short
//! ranges and all bytes outside of files are copied as well.
//!
//! `auto` measures both methods on the first mebibytes of long transfers and then uses the cheaper one.
//!
//! ```text
//!   channel ──> decision, selection which method is cheaper (auto)
//!      ├──> sending, readahead      sendfile
//!      ├──> receiving, pipes        splice
//!      ├──> direct                  O_DIRECT over io_uring or threads (direct=1, direct=auto)
//!      └──> gridhaul_tcp            read and write
//! ```
//!
//! Both drivers have all options of the driver `tcp`, whose settings and sockets they use. `splice` has one more, for the
//! administrator:
//!
//! | option | meaning |
//! | --- | --- |
//! | `direct=1` | reads and writes files past the page cache (`O_DIRECT`), over io_uring if available; `auto` does so where that pays, as measured; `threads` uses helper threads; `0` is the default |
//!
//! With `direct=1`, bytes that were read are sent without a copy if the kernel supports it (`MSG_ZEROCOPY`). Other sends are
//! copied: a channel's caller gets its memory back when `send` returns, so every call would have to wait until the peer has
//! acknowledged the last byte.
//!
//! `sendfile` to a socket that the peer has closed raises `SIGPIPE`, and has no flag against it. Programs written in Rust
//! ignore that signal from the start.
//!
//! # Example
//!
//! ```
//! use gridhaul_protocol::stack::StackSpec;
//! use gridhaul_splice::{Auto, Splice};
//! use gridhaul_stack::Registry;
//!
//! let mut registry = Registry::new();
//! registry.register(Auto);
//! registry.register(Splice);
//! let spec = StackSpec::parse("splice:direct=1;buffer=4M")?;
//! let stack = registry.build(&spec)?;
//! assert!(stack.wants_direct());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod channel;
mod decision;
mod direct;
mod pipes;
mod progress;
mod readahead;
mod receiving;
mod selection;
mod sending;
mod support;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use gridhaul_stack::options::OptionDoc;
use gridhaul_stack::{
    AcceptError, Built, Channel, ConnectError, Driver, Finding, ListenError, Listener, Operation,
    SocketOptions, StackError, Transport,
};
use gridhaul_tcp::{Settings, TcpListener};

use crate::channel::{Choice, SpliceChannel};
use crate::direct::DirectUse;

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
            // Without it the kernel moves files without a copy, which cost less where it was measured.
            direct: DirectUse::parse(&options, None)?,
        })))
    }

    fn check_kernel(&self) -> Vec<Finding> {
        support::support()
    }
}

const OPTIONS: [OptionDoc; gridhaul_tcp::OPTIONS.len() + 1] = {
    let mut options = [direct::OPTION; gridhaul_tcp::OPTIONS.len() + 1];
    let (of_tcp, _) = options.split_at_mut(gridhaul_tcp::OPTIONS.len());
    of_tcp.copy_from_slice(&gridhaul_tcp::OPTIONS);
    options
};

/// The driver `auto`: as `splice` where that is cheaper, as `tcp` otherwise. Its options are those of `tcp`.
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
    direct: Option<DirectUse>,
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

    fn bypasses_cache(&self) -> bool {
        matches!(self.direct, Some(DirectUse::Always(_)))
    }
}

#[derive(Debug)]
struct SpliceListener {
    listener: TcpListener,
    choice: Choice,
    direct: Option<DirectUse>,
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
