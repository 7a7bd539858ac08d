//! A channel between two calls of its user, while the peer fetches from its ring.
//!
//! A device answers READs by itself. Where a program has to answer them, the background thread does
//! so until the next call, or until nothing is left to fetch.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::background::{self, Shared, Task, TaskId};
use super::streams::Streams;

/// A channel that the background thread drives.
#[derive(Debug)]
pub(crate) struct Loan {
    name: TaskId,
    streams: Shared<Lent>,
}

impl Loan {
    /// # Errors
    ///
    /// When the background thread can take no more tasks.
    pub(crate) fn new(streams: Box<Streams>) -> io::Result<Self> {
        let streams = Arc::new(Mutex::new(Lent(Some(streams))));
        let name = background::leave(&streams)?;
        Ok(Self { name, streams })
    }

    /// Takes the channel back from the background thread.
    pub(crate) fn recall(self) -> Option<Box<Streams>> {
        background::take_back(self.name, &self.streams).0.take()
    }

    /// Reads something of the channel.
    pub(crate) fn ask<T>(&self, question: impl FnOnce(&Streams) -> T) -> Option<T> {
        background::lock(&self.streams).0.as_deref().map(question)
    }
}

/// `None` once it was taken back.
#[derive(Debug)]
struct Lent(Option<Box<Streams>>);

impl Task for Lent {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref().map(|streams| streams.descriptor())
    }

    fn drive(&mut self) -> Option<Duration> {
        self.0.as_mut().and_then(|streams| streams.drive())
    }
}
