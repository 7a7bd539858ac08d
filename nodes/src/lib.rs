//! Data nodes on other machines.
//!
//! A data node has storage and data channels; a control server has the control connections of clients. Both are ends of
//! [`gridhaul_transfer::DataNode`], which this crate carries over gRPC (`proto/node.proto`).
//!
//! ```text
//!   control server                                node
//!
//!   cluster      several nodes as one
//!     └─> remote      one node        ──gRPC──>   service ──> gridhaul_transfer::LocalNode
//!            └────────── wire, generated ────────────┘
//! ```
//!
//! The crate makes no connections and knows no certificates: the program gives it byte streams whose ends have authenticated
//! each other.

pub mod cluster;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
#[rustfmt::skip]
mod generated;
mod instances;
mod limits;
mod load;
mod remote;
mod secret;
mod service;
mod sync;
mod told;
mod version;
mod wire;

pub use instances::Instances;
pub use limits::REPLY_TIME;
pub use remote::{
    DescribeError, Dial, DialError, Dialled, NodeDescription, RemoteConfig, RemoteNode,
    describe_node,
};
pub use service::{
    Arrival, Card, Connection, MachineSample, OwnStack, ReachRule, RestoreDriver, Service,
    ServiceConfig, ServiceError, blocking_threads,
};
pub use told::{CardLoad, MachineLoad, NodeFacts, Traffic};
