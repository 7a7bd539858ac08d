//! iWARP in user space, over TCP sockets (RFC 5040, 5041, 5044 and 6581).
//!
//! RDMA lets one host write to the memory of another, or read it, without a request to the program
//! there. This crate does that on any machine. It speaks the protocol of iWARP adapters and of
//! Linux's siw, so a host without an adapter can talk to one that has one.
//!
//! ```text
//!   post ──> transmit ──┐                              ┌──> regions: the registered memory
//!            segments   ├─ queue_pair ── TCP socket    │
//!   poll <── receive <──┘  one per connection          │
//!            segments ────────────────────────────────┘
//! ```
//!
//! - [`establish`] exchanges the two MPA frames that open a [`Connection`] (`handshake`,
//!   `mpa::frame`).
//! - An [`Endpoint`] has one or more connections, each a queue pair, and the registered memory that
//!   all of them access (`regions`).
//! - `transmit` cuts requests into DDP segments (`segment`) and frames them (`mpa::fpdu`).
//! - `receive` checks segments and places their payload straight into the registered memory.
//!   `prediction` guesses how a message is cut into segments, so that one system call receives
//!   several of them.
//! - `placed` records the bytes that the peer has written.
//!
//! An endpoint has no thread: bytes move in [`Endpoint::poll`] only. TCP paces, retransmits and
//! controls congestion. A WRITE completes when TCP has accepted its bytes, as with siw; only a later
//! message of the peer proves that the data has arrived.
//!
//! Markers, atomics, shared receive queues and immediate data are not supported.
//!
//! # Example
//!
//! One end writes into the memory of the other, and sends a message after that.
//!
//! ```
//! use std::num::NonZeroUsize;
//! use std::os::unix::net::UnixStream;
//! use std::sync::Arc;
//!
//! use gridhaul_iwarp::{
//!     Access, Buffer, Endpoint, Event, HeapBuffer, Message, Offer, Remote, Request, Span, establish,
//! };
//! use gridhaul_stack::{Cancel, Operation, Side};
//!
//! let (one, other) = UnixStream::pair()?;
//! one.set_nonblocking(true)?;
//! other.set_nonblocking(true)?;
//! let cancel = Cancel::new();
//! let operation = Operation { deadline: None, cancel: &cancel };
//! let offer = Offer {
//!     checksum: true,
//!     revision: 2,
//!     segment_bytes: usize::MAX,
//!     private: Vec::new(),
//! };
//! let open = |socket: UnixStream, side| {
//!     establish(socket.into(), side, &offer, &|_| true, &operation)
//! };
//! let (sender, receiver) = std::thread::scope(|scope| {
//!     let sender = scope.spawn(|| open(one, Side::Connector));
//!     (open(other, Side::Acceptor), sender.join().expect("no panic"))
//! });
//!
//! let length = NonZeroUsize::MIN.saturating_add(4095);
//! let (source, sink) = (Arc::new(HeapBuffer::new(length)), Arc::new(HeapBuffer::new(length)));
//! source.copy_in(0, b"hello");
//! let mut receiving = Endpoint::new(64, 16)?;
//! receiving.attach(receiver?)?;
//! let window = receiving.register(sink.clone(), Access::RemoteWrite)?;
//! let mut sending = Endpoint::new(64, 16)?;
//! sending.attach(sender?)?;
//! let own = sending.register(source, Access::Local)?;
//!
//! // The peer needs the address and the key of the window.
//! let to = Remote { address: window.address, key: window.key };
//! let span = Span::new(0, 5);
//! sending.post(0, 1, Request::Write { region: own.id, span, to })?;
//! let message = Message::new(b"written").expect("it is short");
//! sending.post(0, 2, Request::Send { message, payload: None })?;
//!
//! let mut events = Vec::new();
//! while events.is_empty() {
//!     sending.poll(&mut Vec::new());
//!     receiving.poll(&mut events);
//! }
//! assert_eq!(events, [Event::Received { queue_pair: 0, message: b"written".to_vec() }]);
//! let mut bytes = [0; 5];
//! sink.copy_out(0, &mut bytes);
//! assert_eq!(&bytes, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod buffer;
mod endpoint;
mod event;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod handshake;
mod limits;
mod mpa;
mod placed;
mod prediction;
mod queue_pair;
mod reads;
mod receive;
mod regions;
mod request;
mod segment;
mod socket;
mod transmit;

pub use crate::buffer::{Buffer, HeapBuffer, Span};
pub use crate::endpoint::Endpoint;
pub use crate::event::{Event, Loss};
pub use crate::handshake::{Connection, HandshakeError, Offer, establish};
pub use crate::limits::Limits;
pub use crate::mpa::FrameError;
pub use crate::request::{Access, MAX_MESSAGE_BYTES, Message, PostError, Region, Remote, Request};
