//! Fair shares of what many clients use together: transfers, threads, memory.
//!
//! A [`Pool`] counts units of one resource and says who gets the next one. Units are counted for each
//! [`Source`]: the network that a client comes from, and the account that it logged in to. A client that
//! takes all it can get and gives nothing back leaves room for every other one, because of the threshold
//! that [`policy`] describes.
//!
//! The crate depends on nothing but the standard library. Tasks await [`Waiting`]; threads block in
//! [`Waiting::wait`].

pub mod policy;
mod pool;
mod source;
mod state;
mod waiting;

pub use pool::{Grant, Load, Pool, Turn};
pub use source::{Network, Source};
pub use waiting::{GaveUp, Waiting};
