//! Driver stacks for data channels.
//!
//! A data channel runs over a *stack*: one [`Transport`] at the bottom (`tcp`, `rdma`, ...) and any number of [`Transform`]s
//! above it (`gsi`, `trace`, `fault`). This crate defines the traits, the registry that builds a [`Stack`] from a stack string,
//! the drivers without a network (`null`, `memory`, `fault`, `trace`), and the conformance suite that every transport passes,
//! alone and under each transform.
//!
//! ```text
//!   stack string ──> registry ──> stack ──> channel          send, receive, file ranges
//!                    options,     transport,   file_range, sparse, write
//!                    rules,       transforms   operation       deadline and cancellation
//!                    driver <── session_value                  drivers of a session for another machine
//! ```
//!
//! Drivers that can move a file in two ways choose with [`measured`].
//!
//! Drivers do not depend on an async runtime: every call blocks, on a thread of the caller. Drivers do not depend on GridFTP, and
//! this crate does not depend on the drivers that a program registers.
//!
//! # Example
//!
//! ```
//! use gridhaul_protocol::stack::StackSpec;
//! use gridhaul_stack::{Body, Cancel, Fault, Memory, Operation, Received, Registry, SocketOptions};
//!
//! let mut registry = Registry::new();
//! registry.register(Memory);
//! registry.register(Fault);
//! let stack = registry.build(&StackSpec::parse("memory:buffer=1M,fault:short=3")?)?;
//!
//! let cancel = Cancel::new();
//! let operation = Operation { deadline: None, cancel: &cancel };
//! let sockets = SocketOptions::default();
//! let mut listener = stack.listen(std::net::Ipv4Addr::LOCALHOST.into(), &sockets)?;
//! let mut sender = stack.connect(listener.address(), &sockets, &operation)?;
//! let mut receiver = listener.accept(&operation)?.establish(&operation)?;
//!
//! sender.send(b"head", Body::Memory(b"body"), &operation)?;
//! let mut buffer = [0; 16];
//! let Received::Bytes(count) = receiver.receive(&mut buffer, &operation)? else { panic!() };
//! assert_eq!(&buffer[..count.get()], b"hea"); // fault shortens each receive to 3 bytes
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod channel;
pub mod conformance;
mod detail;
mod driver;
mod error;
pub mod exact;
mod fault;
mod file_range;
pub mod measured;
mod memory;
mod null;
mod operation;
pub mod options;
mod random;
mod registry;
mod report;
mod rules;
mod session_value;
mod sparse;
mod stack;
mod static_name;
mod trace;
mod transport;
mod write;
mod write_lock;

pub use channel::{Body, Channel, ChannelInfo, Movement, Received, Watch};
pub use detail::{Detail, DetailValue, Details};
pub use driver::{Built, Driver};
pub use error::{AcceptError, ChannelError, ConnectError, ListenError, StackError};
pub use fault::Fault;
pub use file_range::{FileRange, RangeWriter, Tap};
pub use memory::Memory;
pub use null::Null;
pub use operation::{Cancel, Operation};
pub use random::random_bytes;
pub use registry::Registry;
pub use report::{Finding, Gauge, GaugeValues, Standing};
pub use rules::{OptionRules, OptionRulesError};
pub use session_value::{
    MAX_SESSION_VALUE_BYTES, MAX_SESSION_VALUE_NAME_BYTES, RestoreError, SessionValue,
    SessionValueError,
};
pub use sparse::Sparse;
pub use stack::{Incoming, Outgoing, Stack, StackListener};
pub use trace::{Account, Tally, Trace};
pub use transport::{BufferSize, Flow, Listener, Party, Side, SocketOptions, Transform, Transport};
pub use write::write_all_at;
pub use write_lock::WriteLock;
