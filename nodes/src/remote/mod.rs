//! The side of the control server: a [`gridhaul_transfer::DataNode`] on another machine.
//!
//! ```text
//!   RemoteNode     the connection to a node, its state and its load
//!     └─> session     the files and channels of a client there
//!           ├─> storage      calls that wait for their reply
//!           ├─> transfer     a transfer and its events; its rate
//!           └─> link         the stream of requests, and who waits for which reply
//! ```

mod addresses;
mod describe;
mod dial;
#[cfg(test)]
mod hostile;
mod link;
mod node;
mod part_rate;
mod session;
mod storage;
mod transfer;

pub use describe::{DescribeError, NodeDescription, describe_node};
pub use dial::{Dial, DialError, Dialled};
pub use node::{RemoteConfig, RemoteNode};
