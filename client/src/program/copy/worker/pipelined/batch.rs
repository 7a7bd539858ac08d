//! The files of a pipeline.

use std::collections::VecDeque;

use super::super::super::job::{Job, Place};
use super::super::super::jobs::Queue;
use super::super::super::shared::Shared;
use super::super::super::version::Version;
use super::super::doubtful::Doubted;
use super::super::{Taken, begins, is_known, succeeded};
use super::length::Length;
use crate::location::Url;
use crate::transfer::{Doubt, Supply, TransferFailure, Transferred};

/// What the files of a pipeline have in common.
pub(super) trait Way: Send {
    /// The copy of a file.
    type Copy;

    /// The copy of a file and the version that is copied. `None` if it does not go with the others.
    fn copy(&self, shared: &Shared, job: &Job) -> Option<(Self::Copy, Version)>;
}

/// The files that a worker copies in a pipeline.
pub(super) struct Batch<'a, W> {
    shared: &'a Shared,
    way: W,
    queue: &'a Queue,
    /// Of an earlier pipeline.
    taken: &'a mut VecDeque<Taken>,
    length: &'a mut Length,
    begun: VecDeque<Begun>,
    /// A file that does not go with the others.
    pub(super) other: Option<Taken>,
    /// Files that have changed meanwhile.
    changed: Vec<Job>,
    /// The number of complete files.
    pub(super) complete: usize,
    /// The last one of them that is at a server, or of an earlier pipeline.
    last: &'a mut Option<Url>,
}

/// A file whose copy has begun.
struct Begun {
    job: Job,
    /// That of an uploaded file.
    version: Version,
    doubt: Option<Doubted>,
}

impl<'a, W: Way> Batch<'a, W> {
    pub(super) fn new(
        shared: &'a Shared,
        way: W,
        queue: &'a Queue,
        (taken, length, last): (&'a mut VecDeque<Taken>, &'a mut Length, &'a mut Option<Url>),
    ) -> Self {
        Self {
            shared,
            way,
            queue,
            taken,
            length,
            begun: VecDeque::new(),
            other: None,
            changed: Vec::new(),
            complete: 0,
            last,
        }
    }

    /// The copy of a file. One that does not go with the others stays.
    pub(super) fn begin(&mut self, taken: Taken) -> Option<W::Copy> {
        match self.way.copy(self.shared, &taken.job) {
            Some((copy, version)) if !taken.is_alone => {
                begins(self.shared, &taken.job);
                self.begun.push_back(Begun {
                    job: taken.job,
                    version,
                    doubt: taken.doubt,
                });
                Some(copy)
            }
            _ => {
                self.other = Some(taken);
                None
            }
        }
    }

    /// Gives back what is not complete. After uploads that may still be carried out, it has failed instead.
    pub(super) fn end(self, ended: &Result<(), TransferFailure>) {
        if ended.is_err() {
            self.length.fails();
        }
        match ended {
            Err(failure @ TransferFailure::Unsettled(_)) => self.abandon(failure),
            ended => self.leave(ended.is_err()),
        }
    }

    /// What is not complete has failed: the server may still carry out its commands, and would replace what is copied there meanwhile.
    fn abandon(mut self, failure: &TransferFailure) {
        // However many files these are, the server has failed once.
        self.shared.note(false);
        let begun = std::mem::take(&mut self.begun);
        for Begun { job, doubt, .. } in begun {
            let names = (job.source.words(), job.destination.words());
            let words = format!("{failure}{}", Doubted::words(doubt.as_ref()));
            self.shared
                .report
                .failed(Some((&names.0, &names.1)), &words);
        }
        self.leave(false);
    }

    /// Gives back what is not complete. After an error, the oldest file is the one that has failed.
    fn leave(self, has_failed: bool) {
        let mut back: Vec<Taken> = Vec::new();
        for (index, begun) in self.begun.into_iter().enumerate() {
            back.push(Taken {
                is_alone: has_failed && index == 0,
                doubt: begun.doubt,
                ..Taken::new(begun.job)
            });
        }
        back.extend(self.changed.into_iter().map(|job| Taken {
            is_alone: true,
            ..Taken::new(job)
        }));
        back.extend(self.other);
        for taken in back.into_iter().rev() {
            self.taken.push_front(taken);
        }
    }

    /// The next file of the queue, if one waits now.
    fn take(&mut self) -> Option<Taken> {
        let taken = self.taken.pop_front();
        taken.or_else(|| self.queue.try_take().map(Taken::new))
    }
}

impl<W: Way> Supply<W::Copy> for Batch<'_, W> {
    fn most(&self) -> usize {
        self.length.files()
    }

    fn next(&mut self) -> Option<W::Copy> {
        while self.other.is_none() && self.shared.gives_up().is_none() {
            let taken = self.take()?;
            if is_known(self.shared, &taken.job) {
                self.shared.report.unchanged();
                continue;
            }
            return self.begin(taken);
        }
        None
    }

    fn complete(&mut self, done: Transferred) {
        let Some(Begun { job, version, .. }) = self.begun.pop_front() else {
            return;
        };
        if let Place::Local { path, .. } = &job.source
            && Version::of_file(path).is_ok_and(|now| version.differs_from(&now))
        {
            self.changed.push(job);
            return;
        }
        self.complete += 1;
        self.length.succeeds();
        let names = (job.source.words(), job.destination.words());
        succeeded(self.shared, &job, (&names.0, &names.1), &done);
        if let Place::Remote(url) = job.destination {
            *self.last = Some(url);
        }
    }

    fn doubt(&mut self, place: usize, doubt: Doubt) {
        if let Some(begun) = self.begun.get_mut(place) {
            Doubted::add(&mut begun.doubt, doubt, self.last.as_ref());
        }
    }
}
