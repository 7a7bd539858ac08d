//! Devices, memory regions and queues as owned values.
//!
//! Each value holds the objects that it depends on, so that none is destroyed before its users. Errors are
//! those of the operating system; the callers explain them.

mod completion_queue;
mod device;
mod errno;
mod extension;
mod queue_pair;
mod registration;

pub(super) use self::completion_queue::CompletionQueue;
pub(super) use self::device::OpenDevice;
pub(super) use self::errno::{check, set_nonblocking};
pub(super) use self::extension::RateRange;
pub(super) use self::queue_pair::{Batch, Depths, OwnQueuePair};
pub(super) use self::registration::{Domain, Registration};
