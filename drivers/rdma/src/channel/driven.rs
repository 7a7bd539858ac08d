//! A channel between two calls of its user, while the peer fetches from its ring.
//!
//! A device answers READs without its program. In user space the background thread answers them, until
//! the next call or until the peer has fetched everything.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::background::{self, SharedTask, Task, TaskId};
use super::streams::Streams;

/// A channel that the background thread drives.
#[derive(Debug)]
pub(crate) struct DrivenChannel {
    id: TaskId,
    streams: SharedTask<Driven>,
}

impl DrivenChannel {
    /// # Errors
    ///
    /// When the background thread can take no more tasks.
    pub(crate) fn new(streams: Box<Streams>) -> io::Result<Self> {
        let streams = Arc::new(Mutex::new(Driven(Some(streams))));
        let id = background::submit(&streams)?;
        Ok(Self { id, streams })
    }

    /// Takes the channel back from the background thread.
    pub(crate) fn take_back(self) -> Option<Box<Streams>> {
        background::take_back(self.id, &self.streams).0.take()
    }

    /// Reads a property of the channel; `None` if it was taken back.
    pub(crate) fn read<T>(&self, property: impl FnOnce(&Streams) -> T) -> Option<T> {
        background::lock(&self.streams).0.as_deref().map(property)
    }
}

/// `None` once it was taken back.
#[derive(Debug)]
struct Driven(Option<Box<Streams>>);

impl Task for Driven {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref().map(|streams| streams.descriptor())
    }

    fn drive(&mut self) -> Option<Duration> {
        self.0.as_mut().and_then(|streams| streams.drive())
    }
}
