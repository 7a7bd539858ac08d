//! A directory listing that a broker reads and sends in several messages.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use gridhaul_storage::{DirectoryRun, DirectoryStream, Metadata, StorageError};
use rustix::io::Errno;

use super::broker::{Answered, Broker, Repeat};
use crate::facts::Entry;
use crate::messages::{Reply, Request};

const CALL: &str = "scandir";

/// The rest of a listing: the entries received so far, and the number under which the broker keeps the others.
pub(super) struct Listing {
    broker: Arc<Broker>,
    /// The process that reads the directory. A successor does not have the listing.
    generation: u64,
    waiting: std::vec::IntoIter<Entry>,
    more: Option<u32>,
}

impl Listing {
    /// Begins with the first answer.
    pub(super) fn new(first: Answered) -> Result<Self, StorageError> {
        let (broker, generation) = (Arc::clone(&first.broker), first.generation);
        let (entries, more) = entries(first)?;
        Ok(Self {
            broker,
            generation,
            waiting: entries.into_iter(),
            more,
        })
    }

    /// Requests the next entries.
    fn fill(&mut self, number: u32) -> Result<(), StorageError> {
        let here = Repeat::SameProcess(self.generation);
        let answered = self
            .broker
            .call_with_long_answer(CALL, Request::Continue(number), here)
            .and_then(entries);
        // After an error the broker has forgotten the listing.
        self.more = answered.as_ref().map_or(None, |(_, more)| *more);
        if self.more.is_none() {
            self.broker.end_listing(self.generation);
        }
        self.waiting = answered?.0.into_iter();
        Ok(())
    }
}

impl DirectoryStream for Listing {
    fn next_run(&mut self, enough: usize) -> Result<Option<Box<dyn DirectoryRun>>, StorageError> {
        let mut run = Run(self.waiting.by_ref().collect());
        while run.0.len() < enough
            && let Some(number) = self.more
        {
            self.fill(number)?;
            run.0.extend(self.waiting.by_ref());
        }
        Ok((!run.0.is_empty()).then(|| Box::new(run) as _))
    }
}

/// Received entries, whose owners are still numbers.
struct Run(Vec<Entry>);

impl Run {
    /// Sorts the entries. The entries of each message are sorted already, which makes a stable sort fast.
    fn sort(&mut self) {
        self.0.sort_by(|a, b| a.name.cmp(&b.name));
    }
}

impl DirectoryRun for Run {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn retain(&mut self, wanted: &dyn Fn(&OsStr) -> bool) {
        self.0
            .retain(|entry| wanted(OsStr::from_bytes(&entry.name)));
    }

    fn names(&mut self, show: &mut dyn FnMut(&OsStr)) {
        self.sort();
        self.0
            .iter()
            .for_each(|entry| show(OsStr::from_bytes(&entry.name)));
    }

    fn entries(&mut self, show: &mut dyn FnMut(&OsStr, &Metadata)) -> Result<(), StorageError> {
        self.sort();
        let mut before = None;
        for entry in std::mem::take(&mut self.0) {
            let metadata = entry.facts.into_metadata(before.take());
            show(OsStr::from_bytes(&entry.name), &metadata);
            before = Some(metadata);
        }
        Ok(())
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        if let Some(number) = self.more {
            self.broker.end_listing(self.generation);
            let here = Repeat::SameProcess(self.generation);
            // This fails only if the broker has ended, and its listings with it.
            let _ = self.broker.call(CALL, Request::Forget(number), here);
        }
    }
}

impl fmt::Debug for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listing")
            .field("waiting", &self.waiting.len())
            .field("more", &self.more)
            .finish_non_exhaustive()
    }
}

fn entries(answered: Answered) -> Result<(Vec<Entry>, Option<u32>), StorageError> {
    match answered.reply {
        Reply::Entries { entries, more } => Ok((entries, more)),
        _ => Err(StorageError::new(CALL, Errno::PROTO)),
    }
}
