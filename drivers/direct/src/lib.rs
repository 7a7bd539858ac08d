//! Asynchronous reads and writes of one file, past the page cache where possible.
//!
//! The drivers `splice` and `rdma` move files with it if their stack has `direct=1` or `direct=auto`, which is the default of `rdma`. Some
//! requests are in flight while the network uses the memory of the others.
//!
//! ```text
//!   usage ──> trial, cached                    the option, and what it measures with `auto`
//!
//!   engine ──> ring (io_uring) or threads      carry out raw requests
//!      │       └── fixed                      memory that is registered with io_uring
//!      │
//!   queue: IoQueue, PieceQueue                 one request in flight for each slot
//!      │
//!   target                                     the memory of the requests: pieces, or a driver's own
//! ```
//!
//! The kernel uses the memory of a request until it has completed. So a queue exists only while [`Engine::with_pieces`] or
//! [`Engine::with_memory`] runs, which wait for every request that has begun before they return, also if their caller fails or panics.
//!
//! io_uring is often unavailable: before Linux 5.6, with `kernel.io_uring_disabled`, and under seccomp filters (the default
//! one of containers, and the server's own unless its stack or an RDMA adapter needs it). Then helper threads do the same.
//!
//! # Example
//!
//! ```
//! use std::io::Write as _;
//! use std::os::fd::AsFd as _;
//!
//! use gridhaul_direct::{Call, Engine, EngineChoice, Request, Way};
//!
//! let mut file = tempfile::tempfile()?;
//! file.write_all(b"0123456789")?;
//! let mut memory = [0; 8];
//! let (one, other) = memory.split_at_mut(4);
//! let mut engine = Engine::open(EngineChoice::Best);
//! engine.with_pieces(file.as_fd(), vec![one, other], |queue| {
//!     for (piece, offset) in [(0, 1), (1, 6)] {
//!         let request = Request { call: Call::Read, way: Way::Direct, offset, start: 0, length: 4 };
//!         queue.submit(piece, request);
//!     }
//!     assert_eq!(queue.complete(0), Ok(4));
//!     assert_eq!(queue.complete(1), Ok(4));
//! })?;
//! assert_eq!(&memory, b"12346789");
//! # Ok::<(), std::io::Error>(())
//! ```

mod backend;
mod block;
mod blocking;
mod cached;
mod engine;
mod fixed;
mod queue;
mod request;
mod ring;
#[doc(hidden)]
pub mod scripted;
mod target;
#[doc(hidden)]
pub mod test_files;
mod threads;
mod trial;
mod usage;

pub use backend::MAX_REQUESTS;
pub use block::block_bytes;
pub use cached::Residence;
pub use engine::{Engine, EngineChoice};
pub use queue::{IoQueue, PieceQueue};
pub use request::{Call, Files, Request, Way};
pub use target::{LastingMemory, Target};
pub use trial::{Circumstances, Trial};
pub use usage::{DirectUse, OPTION};
