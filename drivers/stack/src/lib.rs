//! Driver stacks for data channels.
//!
//! A data channel runs over a *stack*: one [`Transport`] at the bottom (`tcp`, `rdma`, ...) and any
//! number of [`Transform`]s on it (`gsi`, `pace`, `trace`, `fault`). This crate defines the traits, the
//! registry that turns a stack string into a [`Stack`], the drivers that need no network
//! (`null`, `memory`, `fault`, `trace`) and the conformance suite that every transport
//! passes, alone and under each transform.
//!
//! Drivers are runtime-free: every call blocks, and runs on a thread that its caller provides. No
//! driver knows GridFTP, and nothing here knows which drivers a program compiles in.

mod channel;
pub mod conformance;
mod detail;
mod driver;
mod error;
pub mod exact;
mod fault;
mod file_range;
mod memory;
mod null;
mod operation;
pub mod options;
mod registry;
mod rules;
mod sparse;
mod stack;
mod trace;
mod transport;
mod write;
mod write_lock;

pub use channel::{Body, Channel, ChannelInfo, Movement, Received};
pub use detail::{Detail, DetailValue, Details};
pub use driver::{Built, Driver};
pub use error::{AcceptError, ChannelError, ConnectError, ListenError, StackError};
pub use fault::Fault;
pub use file_range::{FileRange, RangeWriter, Tap};
pub use memory::Memory;
pub use null::Null;
pub use operation::{Cancel, Operation};
pub use registry::Registry;
pub use rules::{OptionRules, OptionRulesError};
pub use sparse::Sparse;
pub use stack::{Incoming, Outgoing, Stack, StackListener};
pub use trace::{Account, Tally, Trace};
pub use transport::{BufferSize, Listener, Party, Side, SocketOptions, Transform, Transport};
pub use write::write_all_at;
pub use write_lock::WriteLock;
