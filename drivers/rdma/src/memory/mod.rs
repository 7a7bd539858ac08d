//! Memory that a device, or a peer through it, may change at any time.
//!
//! Rust's references promise that nobody else writes. A registered region cannot promise that: its bytes
//! are moved by system calls and copies through raw pointers only, and no slice of them is ever handed
//! out. What is in a region is up to the peer; where it is, and how much, is up to us.
//!
//! A peer can have us deliver, write to a file or send any byte of a ring, whatever was put there. So rings come to a channel
//! with zeros in them, and only so: see `recycled`.
//!
//! How much memory there is, the *pool* knows: all rings of the process come from it, and there is a hard bound on what they
//! take together. A channel that cannot have the ring that it wants gets a smaller one, and waits for its turn
//! when there is nothing left.

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
