//! Worker threads that serve data channels, and their limits.

mod group;
mod limit;
mod threads;

pub(crate) use group::WorkerGroup;
pub(crate) use limit::{WorkerLimit, WorkerPermit};
pub(crate) use threads::Threads;
