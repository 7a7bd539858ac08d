//! Memory that a device, or a peer through it, may change at any time.
//!
//! A Rust reference promises that no other code writes to its target. A registered region cannot
//! promise that, so its bytes are moved only by system calls and by copies through raw pointers,
//! and no slice of them exists. The contents of a region are up to the peer; its place and length
//! are up to us.
//!
//! A peer can make us deliver, write to a file or send any byte of a ring, whatever was in it. So a
//! ring contains only zeros when a channel gets it: see `recycled`.
//!
//! The *pool* provides all rings of the process under a hard bound. A channel that cannot have the
//! ring that it wants gets a smaller one, and waits in a queue when no memory is left.

mod bounds;
mod budget;
mod limits;
mod pages;
mod pool;
mod recycled;
mod region;

pub(crate) use bounds::Holder;
pub(crate) use limits::pinned_bytes;
pub use pool::MemoryLoad;
pub(crate) use pool::{Pool, PoolError, Share};
pub use region::{Memory, Span};
