//! Fair sharing of limited resources (transfers, threads, memory) among many clients.
//!
//! A [`Pool`] counts units of one resource and decides which request gets the next free units. It counts them for
//! each [`Source`]: the network that a client connects from, and the account that it logged in to. [`policy`] bounds
//! how much one source may hold, so that a client that takes all it can get and returns nothing still leaves room for
//! every other client.
//!
//! ```text
//!   take ──> Pool ──> Shared: a lock around State ──> policy: how much a source may hold now
//!              │                      │
//!              │                      └─ units held by each source, queues of requests
//!              │
//!              ├─> Allocation::Granted(Grant)    units; dropping the grant returns them
//!              └─> Allocation::Queued(Waiting)   a future, or a blocking wait, for a Grant
//! ```
//!
//! # Example
//!
//! ```
//! use std::net::Ipv4Addr;
//!
//! use gridhaul_shares::{Allocation, Pool, Source};
//!
//! let pool = Pool::new(4);
//! let client = Source::at(Ipv4Addr::LOCALHOST.into());
//! let Allocation::Granted(grant) = pool.take(&client, 4) else {
//!     panic!("the pool is empty");
//! };
//! assert_eq!(grant.units(), 3); // one unit stays free for the next source
//! drop(grant);
//! assert_eq!(pool.load().held, 0);
//! ```
//!
//! The crate depends only on the standard library. Tasks await [`Waiting`]; threads block in [`Waiting::wait`].

mod grant;
pub mod policy;
mod pool;
mod request;
mod shared;
mod source;
mod state;
mod waiting;

pub use grant::Grant;
pub use pool::{Allocation, Load, Pool};
pub use source::{Network, Source};
pub use waiting::{WaitError, Waiting};
