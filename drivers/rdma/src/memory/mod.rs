//! Memory that a device, or a peer through it, may change at any time.
//!
//! A Rust reference guarantees that no other code writes to its target. A registered region cannot
//! give that guarantee, so its bytes are moved only by system calls and by copies through raw
//! pointers, and no slice of them exists. The peer determines the content of a region, and this end
//! its place and length.
//!
//! A peer can make this end deliver, write to a file or send any byte of a ring. So a ring contains
//! only zeros when a channel gets it: see `recycled`.
//!
//! The *pool* provides all rings of the process under a hard bound. A channel that cannot have the
//! ring that it wants gets a smaller one, and waits in a queue when no memory is left.

mod bounds;
mod budget;
mod idle;
mod lengths;
mod limits;
mod pages;
mod pool;
mod recycled;
mod region;
mod release;
mod target;

pub(crate) use bounds::Holder;
pub(crate) use gridhaul_iwarp::{Buffer, Span};
pub(crate) use lengths::Lengths;
#[cfg(any(test, feature = "sim"))]
pub(crate) use limits::default_part;
pub(crate) use limits::pinned_bytes;
pub use pool::MemoryLoad;
pub(crate) use pool::{Part, Pool, PoolError, Share};
pub use region::Memory;
pub(crate) use release::release_later;
pub(crate) use target::RingMemory;
