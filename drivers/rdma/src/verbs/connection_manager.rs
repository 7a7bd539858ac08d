//! Connects iWARP queue pairs through librdmacm, the only way for iWARP adapters.
//!
//! The queue pair is our own and is identified by its number. librdmacm makes the TCP connection
//! and exchanges the MPA frames, which carry the private data. The queue pair reports the end of a
//! connection.

use std::ffi::{c_char, c_int, c_void};
use std::io;
use std::mem::{offset_of, size_of};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::{Arc, OnceLock};

use gridhaul_stack::{ChannelError, Operation};

use super::bindings::{Context, Handle, LibraryError, Verbs, library, text};
use super::objects::{check, set_nonblocking};

library! {
    /// librdmacm, `rdma_cm(7)`. Its manual pages describe the functions.
    ConnectionManager, "librdmacm.so.1", "librdmacm1";
    fn rdma_create_event_channel() -> *mut EventChannel;
    fn rdma_destroy_event_channel(*mut EventChannel);
    fn rdma_create_id(*mut EventChannel, *mut *mut Id, *mut c_void, c_int) -> c_int;
    fn rdma_destroy_id(*mut Id) -> c_int;
    fn rdma_bind_addr(*mut Id, *const libc::sockaddr) -> c_int;
    fn rdma_resolve_addr(*mut Id, *const libc::sockaddr, *const libc::sockaddr, c_int) -> c_int;
    fn rdma_resolve_route(*mut Id, c_int) -> c_int;
    fn rdma_connect(*mut Id, *mut Parameters) -> c_int;
    fn rdma_listen(*mut Id, c_int) -> c_int;
    fn rdma_accept(*mut Id, *mut Parameters) -> c_int;
    fn rdma_reject(*mut Id, *const c_void, u8) -> c_int;
    fn rdma_get_cm_event(*mut EventChannel, *mut *mut Event) -> c_int;
    fn rdma_ack_cm_event(*mut Event) -> c_int;
    fn rdma_event_str(c_int) -> *const c_char;
}

/// `struct rdma_event_channel`.
#[repr(C)]
pub(super) struct EventChannel {
    descriptor: c_int,
}

/// The head of `struct rdma_cm_id`.
#[repr(C)]
pub(super) struct Id {
    verbs: *mut Context,
}

/// `struct rdma_conn_param`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Parameters {
    private: *const u8,
    private_length: u8,
    reads_answered: u8,
    reads: u8,
    flow_control: u8,
    retries: u8,
    not_ready_retries: u8,
    shared_receives: u8,
    queue_pair: u32,
}

/// `struct rdma_cm_event`, with the part of its union that connections use.
#[repr(C)]
pub(super) struct Event {
    id: *mut Id,
    listener: *mut Id,
    kind: c_int,
    status: c_int,
    parameters: Parameters,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<Parameters>() == 24);
    assert!(offset_of!(Parameters, queue_pair) == 16);
    assert!(offset_of!(Event, status) == 20);
    assert!(offset_of!(Event, parameters) == 24);
};

/// `RDMA_PS_TCP`
const PORT_SPACE: c_int = 0x0106;

// enum rdma_cm_event_type
const ADDRESS_RESOLVED: c_int = 0;
const ROUTE_RESOLVED: c_int = 2;
const CONNECT_REQUEST: c_int = 4;
const ESTABLISHED: c_int = 9;

/// How long the kernel may take to resolve an address.
const RESOLVE_MILLISECONDS: c_int = 5000;

/// Connections that may wait to be accepted: those of one channel, and some of others.
const BACKLOG: c_int = 32;

/// Why a queue pair is not connected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error(transparent)]
    Channel(#[from] ChannelError),
    #[error(transparent)]
    Library(#[from] LibraryError),
    #[error("{what} by librdmacm: {error}")]
    Call {
        what: &'static str,
        error: io::Error,
    },
    #[error("librdmacm reports {words} (status {status})")]
    Event { words: String, status: c_int },
}

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
        let (from, to) = (Address::new(SocketAddr::new(local, 0)), Address::new(peer));
        // SAFETY: the identifier is valid, and the addresses are copied.
        let code = unsafe {
            (manager.rdma_resolve_addr)(
                id.id.as_ptr(),
                from.as_ptr(),
                to.as_ptr(),
                RESOLVE_MILLISECONDS,
            )
        };
        called("looking for the address", code)?;
        events.expect(ADDRESS_RESOLVED, operation)?;
        // SAFETY: the identifier is valid.
        let code = unsafe { (manager.rdma_resolve_route)(id.id.as_ptr(), RESOLVE_MILLISECONDS) };
        called("looking for the route", code)?;
        events.expect(ROUTE_RESOLVED, operation)?;
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
    id: OwnId,
    private: Vec<u8>,
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
            if let Some(incoming) = heard.incoming {
                return Ok(incoming);
            }
        }
    }
}

impl Incoming {
    /// The private data of the other end.
    pub(crate) fn private(&self) -> &[u8] {
        &self.private
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
        let events = Arc::clone(&self.id.events);
        // SAFETY: the identifier is valid, and the parameters with their private data are copied.
        let code =
            unsafe { (events.manager.rdma_accept)(self.id.id.as_ptr(), &raw mut parameters) };
        called("accepting", code)?;
        events.expect(ESTABLISHED, operation)?;
        Ok(Connection { _id: self.id })
    }

    /// Rejects it.
    pub(crate) fn reject(self) {
        // SAFETY: the identifier is valid. If the call fails, the peer is gone.
        unsafe { (self.id.events.manager.rdma_reject)(self.id.id.as_ptr(), ptr::null(), 0) };
    }
}

/// The event channel of the connection manager.
#[derive(Debug)]
struct Events {
    manager: &'static ConnectionManager,
    channel: NonNull<EventChannel>,
}

// SAFETY: rdma_cm(7): its functions may be called from any thread.
unsafe impl Send for Events {}
// SAFETY: as above.
unsafe impl Sync for Events {}

/// The used parts of an event.
struct Heard {
    kind: c_int,
    status: c_int,
    incoming: Option<Incoming>,
}

impl Events {
    fn open() -> Result<Self, ConnectionError> {
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

    fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel lives as long as this value.
        let descriptor = unsafe { self.channel.as_ref() }.descriptor;
        // SAFETY: librdmacm keeps it open as long as the channel.
        unsafe { BorrowedFd::borrow_raw(descriptor) }
    }

    fn next(self: &Arc<Self>, operation: &Operation<'_>) -> Result<Heard, ConnectionError> {
        loop {
            operation.check()?;
            let mut event = ptr::null_mut();
            // SAFETY: the channel is valid, and its descriptor does not block.
            let code =
                unsafe { (self.manager.rdma_get_cm_event)(self.channel.as_ptr(), &raw mut event) };
            if code == 0 {
                let heard = self.read(event);
                // SAFETY: the event was just received, and is acknowledged once.
                unsafe { (self.manager.rdma_ack_cm_event)(event) };
                return Ok(heard);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::WouldBlock {
                let what = "waiting";
                return Err(ConnectionError::Call { what, error });
            }
            operation.wait_readable(self.descriptor())?;
        }
    }

    fn read(self: &Arc<Self>, event: *mut Event) -> Heard {
        // SAFETY: the event was received, and is not acknowledged yet.
        let event = unsafe { &*event };
        let id = NonNull::new(event.id).filter(|_| event.kind == CONNECT_REQUEST);
        let incoming = id.map(|id| {
            let Parameters {
                private,
                private_length,
                ..
            } = event.parameters;
            let private = match NonNull::new(private.cast_mut()) {
                // SAFETY: the library says that so many bytes are valid until the event is
                // acknowledged.
                Some(private) => unsafe {
                    std::slice::from_raw_parts(private.as_ptr(), usize::from(private_length))
                }
                .to_vec(),
                None => Vec::new(),
            };
            Incoming {
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
            incoming,
        }
    }

    /// Waits for an event of this kind. Connection requests that arrive meanwhile are rejected.
    fn expect(
        self: &Arc<Self>,
        kind: c_int,
        operation: &Operation<'_>,
    ) -> Result<(), ConnectionError> {
        let heard = loop {
            let heard = self.next(operation)?;
            match heard.incoming {
                Some(stranger) => stranger.reject(),
                None => break heard,
            }
        };
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
struct OwnId {
    id: NonNull<Id>,
    events: Arc<Events>,
}

// SAFETY: as for the events.
unsafe impl Send for OwnId {}

impl OwnId {
    fn new(events: &Arc<Events>) -> Result<Self, ConnectionError> {
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

    fn bind(&self, address: SocketAddr) -> Result<(), ConnectionError> {
        let address = Address::new(address);
        // SAFETY: the identifier is valid, and the address is copied.
        let code =
            unsafe { (self.events.manager.rdma_bind_addr)(self.id.as_ptr(), address.as_ptr()) };
        called("binding to the address", code)
    }
}

impl Drop for OwnId {
    fn drop(&mut self) {
        // SAFETY: this is the only place that destroys it, and all its events were acknowledged.
        unsafe { (self.events.manager.rdma_destroy_id)(self.id.as_ptr()) };
    }
}

/// An address in the form of the operating system.
enum Address {
    V4(libc::sockaddr_in),
    V6(libc::sockaddr_in6),
}

impl Address {
    fn new(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(address) => Self::V4(libc::sockaddr_in {
                sin_family: family(libc::AF_INET),
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(address.ip().octets()),
                },
                sin_zero: [0; 8],
            }),
            SocketAddr::V6(address) => Self::V6(libc::sockaddr_in6 {
                sin6_family: family(libc::AF_INET6),
                sin6_port: address.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr {
                    s6_addr: address.ip().octets(),
                },
                sin6_scope_id: address.scope_id(),
            }),
        }
    }

    fn as_ptr(&self) -> *const libc::sockaddr {
        match self {
            Self::V4(address) => ptr::from_ref(address).cast(),
            Self::V6(address) => ptr::from_ref(address).cast(),
        }
    }
}

fn family(number: c_int) -> libc::sa_family_t {
    libc::sa_family_t::try_from(number).expect("families are small numbers")
}

fn called(what: &'static str, code: c_int) -> Result<(), ConnectionError> {
    check(code).map_err(|error| ConnectionError::Call { what, error })
}
