//! The event channel of the connection manager, and its identifiers.

use std::ffi::c_int;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use gridhaul_stack::Operation;

use super::address::Address;
use super::bindings::{
    CONNECT_REQUEST, ConnectionManager, Event, EventChannel, Id, PORT_SPACE, Parameters,
};
use super::error::{ConnectionError, called};
use crate::verbs::bindings::text;
use crate::verbs::objects::set_nonblocking;

/// The event channel of the connection manager.
#[derive(Debug)]
pub(super) struct Events {
    pub(super) manager: &'static ConnectionManager,
    channel: NonNull<EventChannel>,
}

// SAFETY: rdma_cm(7): its functions may be called from any thread.
unsafe impl Send for Events {}
// SAFETY: as above.
unsafe impl Sync for Events {}

/// A queue pair of the other end that asks to be connected.
#[derive(Debug)]
pub(super) struct ConnectRequest {
    pub(super) id: OwnId,
    /// The private data of the other end.
    pub(super) private: Vec<u8>,
}

/// The relevant parts of an event.
pub(super) struct Heard {
    kind: c_int,
    status: c_int,
    pub(super) request: Option<ConnectRequest>,
}

impl Events {
    pub(super) fn open() -> Result<Self, ConnectionError> {
        let manager = ConnectionManager::get()?;
        // SAFETY: it takes no arguments.
        let channel = unsafe { (manager.rdma_create_event_channel)() };
        let channel = NonNull::new(channel).ok_or_else(|| ConnectionError::Call {
            what: "opening /dev/infiniband/rdma_cm (modprobe rdma_ucm)",
            error: io::Error::last_os_error(),
        })?;
        let events = Self { manager, channel };
        set_nonblocking(events.descriptor()).map_err(|error| ConnectionError::Call {
            what: "its descriptor",
            error,
        })?;
        Ok(events)
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel lives as long as this value.
        let descriptor = unsafe { self.channel.as_ref() }.descriptor;
        // SAFETY: librdmacm keeps it open as long as the channel.
        unsafe { BorrowedFd::borrow_raw(descriptor) }
    }

    pub(super) fn next(
        self: &Arc<Self>,
        operation: &Operation<'_>,
    ) -> Result<Heard, ConnectionError> {
        loop {
            operation.check()?;
            if let Some(heard) = self.take()? {
                return Ok(heard);
            }
            operation.wait_readable(self.descriptor())?;
        }
    }

    /// The next event, if it has arrived.
    pub(super) fn take(self: &Arc<Self>) -> Result<Option<Heard>, ConnectionError> {
        let mut event = ptr::null_mut();
        // SAFETY: the channel is valid, and its descriptor does not block.
        let code =
            unsafe { (self.manager.rdma_get_cm_event)(self.channel.as_ptr(), &raw mut event) };
        if code == 0 {
            let heard = self.read(event);
            // SAFETY: the event was just received, and is acknowledged once.
            unsafe { (self.manager.rdma_ack_cm_event)(event) };
            return Ok(Some(heard));
        }
        match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            error => Err(ConnectionError::Call {
                what: "waiting",
                error,
            }),
        }
    }

    fn read(self: &Arc<Self>, event: *mut Event) -> Heard {
        // SAFETY: the event was received, and is not acknowledged yet.
        let event = unsafe { &*event };
        let id = NonNull::new(event.id).filter(|_| event.kind == CONNECT_REQUEST);
        let request = id.map(|id| {
            let Parameters {
                private,
                private_length,
                ..
            } = event.parameters;
            let private = match NonNull::new(private.cast_mut()) {
                // SAFETY: rdma_get_cm_event(3): these bytes are valid until the event is acknowledged.
                Some(private) => unsafe {
                    std::slice::from_raw_parts(private.as_ptr(), usize::from(private_length))
                }
                .to_vec(),
                None => Vec::new(),
            };
            ConnectRequest {
                id: OwnId {
                    id,
                    events: Arc::clone(self),
                },
                private,
            }
        });
        Heard {
            kind: event.kind,
            status: event.status,
            request,
        }
    }

    /// Waits for an event of this kind. Connection requests that arrive meanwhile are rejected.
    pub(super) fn expect(
        self: &Arc<Self>,
        kind: c_int,
        operation: &Operation<'_>,
    ) -> Result<(), ConnectionError> {
        let heard = loop {
            let heard = self.next(operation)?;
            match heard.request {
                Some(other) => other.id.reject(),
                None => break heard,
            }
        };
        self.check(&heard, kind)
    }

    /// Whether an event is of this kind.
    pub(super) fn check(&self, heard: &Heard, kind: c_int) -> Result<(), ConnectionError> {
        if heard.kind == kind {
            return Ok(());
        }
        // SAFETY: it takes any number.
        let words = text(unsafe { (self.manager.rdma_event_str)(heard.kind) });
        Err(ConnectionError::Event {
            words,
            status: heard.status,
        })
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // SAFETY: identifiers hold the channel, so none uses it any more.
        unsafe { (self.manager.rdma_destroy_event_channel)(self.channel.as_ptr()) };
    }
}

/// An identifier: librdmacm's counterpart of a socket.
#[derive(Debug)]
pub(super) struct OwnId {
    pub(super) id: NonNull<Id>,
    pub(super) events: Arc<Events>,
}

// SAFETY: as for the events.
unsafe impl Send for OwnId {}

impl OwnId {
    pub(super) fn new(events: &Arc<Events>) -> Result<Self, ConnectionError> {
        let mut id = ptr::null_mut();
        // SAFETY: the channel is valid, and is held by the value below.
        let code = unsafe {
            (events.manager.rdma_create_id)(
                events.channel.as_ptr(),
                &raw mut id,
                ptr::null_mut(),
                PORT_SPACE,
            )
        };
        called("making an identifier", code)?;
        let id = NonNull::new(id).ok_or_else(|| ConnectionError::Call {
            what: "making an identifier",
            error: io::ErrorKind::Other.into(),
        })?;
        Ok(Self {
            id,
            events: Arc::clone(events),
        })
    }

    pub(super) fn bind(&self, address: SocketAddr) -> Result<(), ConnectionError> {
        let address = Address::new(address);
        // SAFETY: the identifier is valid, and the address is copied.
        let code =
            unsafe { (self.events.manager.rdma_bind_addr)(self.id.as_ptr(), address.as_ptr()) };
        called("binding to the address", code)
    }

    /// Rejects a connection request.
    pub(super) fn reject(&self) {
        // SAFETY: the identifier is valid. If the call fails, the peer is gone.
        unsafe { (self.events.manager.rdma_reject)(self.id.as_ptr(), ptr::null(), 0) };
    }
}

impl Drop for OwnId {
    fn drop(&mut self) {
        // SAFETY: this is the only place that destroys it, and all its events were acknowledged.
        unsafe { (self.events.manager.rdma_destroy_id)(self.id.as_ptr()) };
    }
}
