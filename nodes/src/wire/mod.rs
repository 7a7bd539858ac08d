//! Values of the interface as messages, and back. Nothing that a peer sends is used before it has become a value here.
//!
//! ```text
//!   account   storage   plan   events   bounds
//!       └────────┴───┬───┴───────┴────────┘
//!                 values, failure
//! ```

mod account;
mod bounds;
mod events;
mod failure;
mod plan;
mod storage;
mod values;

pub(crate) use account::{account, attach};
pub(crate) use bounds::{check_reply, check_request};
pub(crate) use events::{Moving, moving, outcome, to_outcome};
#[cfg(any(test, fuzzing))]
pub(crate) use failure::Sent;
pub(crate) use failure::{cancel_reason, to_cancel_reason};
pub(crate) use plan::{KeptParts, ToRestore, to_algorithm, to_plan, transfer};
pub(crate) use storage::{entry, metadata, to_entry, to_metadata};
pub(crate) use values::{
    WireError, address, in_messages, ip, path, sockets, time, to_address, to_ip, to_path,
    to_ranges, to_sockets, to_time,
};
