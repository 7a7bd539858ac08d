//! The outgoing memory: a ring, or pinned sections of files with a small staging ring.

mod sections;

use std::collections::VecDeque;
use std::sync::Arc;

pub(crate) use self::sections::{FileState, Pinned, Sections};
use crate::engine::{Sender, Source};
use crate::memory::{Memory, Span};

/// The outgoing memory of a channel.
#[derive(Debug)]
pub(crate) struct Outgoing {
    memory: Arc<Memory>,
    /// `None` where that memory is our ring.
    pinning: Option<Pinning>,
}

/// The replacement of a ring where files are pinned.
#[derive(Debug)]
struct Pinning {
    staging: Staging,
    sections: Sections,
}

/// A small ring for data that is not pinned: headers and bytes in a caller's memory.
#[derive(Debug)]
struct Staging {
    region: usize,
    bytes: u64,
    /// Bytes that went through it.
    staged: u64,
    /// Bytes in use.
    used: u64,
    /// Its contents, the oldest first.
    runs: VecDeque<Run>,
}

/// Bytes that are contiguous here and in the stream.
#[derive(Debug, Clone, Copy)]
struct Run {
    length: u64,
    /// Their end in the stream.
    stream: u64,
}

impl Outgoing {
    /// Our ring.
    pub(crate) fn ring(memory: Arc<Memory>) -> Self {
        Self {
            memory,
            pinning: None,
        }
    }

    /// Staging memory, registered as `region`, and pinned sections of files.
    pub(crate) fn pinning(memory: Arc<Memory>, region: usize, sections: Sections) -> Self {
        let staging = Staging {
            region,
            bytes: memory.length() as u64,
            staged: 0,
            used: 0,
            runs: VecDeque::new(),
        };
        Self {
            memory,
            pinning: Some(Pinning { staging, sections }),
        }
    }

    /// The memory that [`Outgoing::room`] is part of.
    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    pub(crate) fn sections(&self) -> Option<&Sections> {
        Some(&self.pinning.as_ref()?.sections)
    }

    pub(crate) fn sections_mut(&mut self) -> Option<&mut Sections> {
        Some(&mut self.pinning.as_mut()?.sections)
    }

    /// Where the next bytes may be put; empty while everything is in use.
    pub(crate) fn room(&mut self, sender: &Sender) -> Span {
        let room = sender.room();
        match &mut self.pinning {
            None => room,
            Some(pinning) => pinning
                .staging
                .room(sender.needed_from())
                .first(room.length),
        }
    }

    /// The first `count` bytes of the room are filled.
    pub(crate) fn fill(&mut self, sender: &mut Sender, count: usize) {
        match &mut self.pinning {
            None => sender.fill(count),
            Some(pinning) => {
                sender.fill_from(pinning.staging.next(), count);
                pinning.staging.fill(count as u64, sender.filled());
            }
        }
    }
}

impl Staging {
    /// The free room, if the stream is needed from this position on.
    fn room(&mut self, needed_from: u64) -> Span {
        while let Some(run) = self.runs.pop_front_if(|run| run.stream <= needed_from) {
            self.used -= run.length;
        }
        if let Some(first) = self.runs.front_mut() {
            let left = first.length.min(first.stream - needed_from);
            self.used -= first.length - left;
            first.length = left;
        }
        let contiguous = self.bytes - self.staged % self.bytes;
        let length = contiguous.min(self.bytes - self.used);
        let length = usize::try_from(length).expect("staging is memory of this process");
        Span::new(self.next().offset, length)
    }

    fn next(&self) -> Source {
        let offset = self.staged % self.bytes;
        Source {
            region: self.region,
            offset: usize::try_from(offset).expect("staging is memory of this process"),
        }
    }

    /// This many more bytes are filled, up to this position of the stream.
    fn fill(&mut self, count: u64, stream: u64) {
        self.staged += count;
        self.used += count;
        match self.runs.back_mut() {
            Some(run) if run.stream + count == stream => {
                (run.length, run.stream) = (run.length + count, stream);
            }
            _ => self.runs.push_back(Run {
                length: count,
                stream,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staging_is_free_again_as_far_as_the_stream_is_not_needed() {
        let mut staging = Staging {
            region: 3,
            bytes: 100,
            staged: 0,
            used: 0,
            runs: VecDeque::new(),
        };
        staging.fill(60, 60);
        staging.fill(30, 90);
        assert_eq!(staging.runs.len(), 1);
        // The stream continued in other memory.
        assert_eq!(staging.room(0), Span::new(90, 10));
        staging.fill(10, 1010);
        assert_eq!(staging.room(0).length, 0);
        assert_eq!(staging.room(70), Span::new(0, 70));
        assert_eq!(staging.room(500), Span::new(0, 90));
        staging.fill(90, 1100);
        assert_eq!(staging.room(1005), Span::new(90, 5));
        assert_eq!(staging.room(1100), Span::new(90, 10));
    }
}
