//! Connects iWARP queue pairs through librdmacm, the only way for iWARP adapters.
//!
//! The queue pair is our own and is identified by its number. librdmacm makes the TCP connection
//! and exchanges the MPA frames, which carry the private data. The queue pair reports the end of a
//! connection.

mod address;
mod bindings;
mod error;
mod events;
mod route;
mod route_search;

use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr};
use std::ptr::NonNull;
use std::sync::Arc;

use gridhaul_stack::Operation;

use self::bindings::{ESTABLISHED, Parameters};
pub(crate) use self::error::ConnectionError;
use self::error::called;
use self::events::{ConnectRequest, Events, OwnId};
pub(super) use self::route::Route;
use self::route::resolve;
pub(super) use self::route_search::{RouteSearch, route};
use super::bindings::{Verbs, text};

/// Connections that may wait to be accepted: those of one channel, and some of others.
const BACKLOG: c_int = 32;

/// The parameters of a queue pair when it is connected.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Introduction<'a> {
    /// The number of the queue pair.
    pub(crate) number: u32,
    /// READs that it requests, and that it answers, at a time.
    pub(crate) reads: u8,
    /// Private data for the other end.
    pub(crate) private: &'a [u8],
}

impl Introduction<'_> {
    fn parameters(&self) -> Parameters {
        Parameters {
            private: self.private.as_ptr(),
            private_length: u8::try_from(self.private.len())
                .expect("private data of ours is a token and a number"),
            reads_answered: self.reads,
            reads: self.reads,
            flow_control: 0,
            retries: 0,
            not_ready_retries: 0,
            shared_receives: 0,
            queue_pair: self.number,
        }
    }
}

/// The name of the device with this local address; `None` if none has it.
///
/// # Errors
///
/// When a library or the kernel's part of it is missing.
pub(super) fn device_at(address: IpAddr) -> Result<Option<String>, ConnectionError> {
    let verbs = Verbs::get()?;
    let id = OwnId::new(&Arc::new(Events::open()?))?;
    if id.bind(SocketAddr::new(address, 0)).is_err() {
        return Ok(None);
    }
    // SAFETY: the identifier is valid; librdmacm has set the device that it is bound to.
    let context = unsafe { id.id.as_ref() }.verbs;
    let Some(context) = NonNull::new(context) else {
        return Ok(None);
    };
    // SAFETY: librdmacm keeps the devices open that it uses.
    let device = unsafe { context.as_ref() }.device;
    // SAFETY: the device belongs to an open context.
    let name = unsafe { (verbs.ibv_get_device_name)(device) };
    Ok(Some(text(name)))
}

/// The connection of a queue pair; destroyed before it.
#[derive(Debug)]
pub(crate) struct Connection {
    _id: OwnId,
}

impl Connection {
    /// Connects a queue pair to `peer` from a local address.
    ///
    /// # Errors
    ///
    /// When the peer does not accept, or the operation ends before.
    pub(crate) fn connect(
        local: IpAddr,
        peer: SocketAddr,
        introduction: Introduction<'_>,
        operation: &Operation<'_>,
    ) -> Result<Self, ConnectionError> {
        let events = Arc::new(Events::open()?);
        let id = OwnId::new(&events)?;
        let manager = events.manager;
        resolve(&id, local, peer, operation)?;
        let mut parameters = introduction.parameters();
        // SAFETY: the identifier is valid, and the parameters with their private data are copied.
        let code = unsafe { (manager.rdma_connect)(id.id.as_ptr(), &raw mut parameters) };
        called("connecting", code)?;
        events.expect(ESTABLISHED, operation)?;
        Ok(Self { _id: id })
    }
}

/// Listens for connections of queue pairs.
#[derive(Debug)]
pub(crate) struct Listener {
    id: OwnId,
}

/// A queue pair that asks to be connected.
#[derive(Debug)]
pub(crate) struct Incoming {
    request: ConnectRequest,
}

impl Listener {
    /// Listens at a local address.
    ///
    /// # Errors
    ///
    /// When the port is taken, or no device has the address.
    pub(crate) fn open(address: SocketAddr) -> Result<Self, ConnectionError> {
        let id = OwnId::new(&Arc::new(Events::open()?))?;
        id.bind(address)?;
        // SAFETY: the identifier is valid.
        let code = unsafe { (id.events.manager.rdma_listen)(id.id.as_ptr(), BACKLOG) };
        called("listening", code)?;
        Ok(Self { id })
    }

    /// The next connection request.
    ///
    /// # Errors
    ///
    /// When the operation ends before.
    pub(crate) fn next(&self, operation: &Operation<'_>) -> Result<Incoming, ConnectionError> {
        loop {
            let heard = self.id.events.next(operation)?;
            // Other events belong to connections that were given up.
            if let Some(request) = heard.request {
                return Ok(Incoming { request });
            }
        }
    }
}

impl Incoming {
    /// The private data of the other end.
    pub(crate) fn private(&self) -> &[u8] {
        &self.request.private
    }

    /// Connects it to a queue pair.
    ///
    /// # Errors
    ///
    /// When the peer is gone, or the operation ends before.
    pub(crate) fn accept(
        self,
        introduction: Introduction<'_>,
        operation: &Operation<'_>,
    ) -> Result<Connection, ConnectionError> {
        let mut parameters = introduction.parameters();
        let events = Arc::clone(&self.request.id.events);
        // SAFETY: the identifier is valid, and the parameters with their private data are copied.
        let code = unsafe {
            (events.manager.rdma_accept)(self.request.id.id.as_ptr(), &raw mut parameters)
        };
        called("accepting", code)?;
        events.expect(ESTABLISHED, operation)?;
        Ok(Connection {
            _id: self.request.id,
        })
    }

    /// Rejects it.
    pub(crate) fn reject(self) {
        self.request.id.reject();
    }
}
