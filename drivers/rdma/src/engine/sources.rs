//! Which parts of a stream are sent from memory outside the ring.

use std::collections::VecDeque;

/// A place in registered memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) region: usize,
    pub(crate) offset: usize,
}

/// The parts of a stream that are outside the ring, in order.
#[derive(Debug, Default)]
pub(super) struct Sources {
    parts: VecDeque<Part>,
}

#[derive(Debug, Clone, Copy)]
struct Part {
    start: u64,
    end: u64,
    source: Source,
}

impl Source {
    /// The place `count` bytes further on.
    fn skip(self, count: u64) -> Self {
        let count = usize::try_from(count).expect("a part is memory of this process");
        Self {
            offset: self.offset + count,
            ..self
        }
    }
}

impl Sources {
    /// The stream from `start` to `end` is at `source`. Parts are added in order.
    pub(super) fn add(&mut self, start: u64, end: u64, source: Source) {
        if let Some(last) = self.parts.back_mut()
            && last.end == start
            && last.source.skip(last.end - last.start) == source
        {
            last.end = end;
            return;
        }
        self.parts.push_back(Part { start, end, source });
    }

    /// Where the `length` bytes of the stream from `start` begin (`None` is the ring), and how many
    /// of them are contiguous there.
    pub(super) fn find(&self, start: u64, length: u64) -> (Option<Source>, u64) {
        let next = self.parts.partition_point(|part| part.end <= start);
        match self.parts.get(next) {
            Some(part) if part.start <= start => (
                Some(part.source.skip(start - part.start)),
                length.min(part.end - start),
            ),
            Some(part) => (None, length.min(part.start - start)),
            None => (None, length),
        }
    }

    /// Whether any part of the stream from `start` to `end` is outside the ring.
    pub(super) fn any_within(&self, start: u64, end: u64) -> bool {
        let next = self.parts.partition_point(|part| part.end <= start);
        self.parts.get(next).is_some_and(|part| part.start < end)
    }

    /// Drops everything before this position.
    pub(super) fn forget(&mut self, before: u64) {
        while self.parts.pop_front_if(|part| part.end <= before).is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(region: usize, offset: usize) -> Source {
        Source { region, offset }
    }

    #[test]
    fn parts_are_found_and_forgotten() {
        let mut sources = Sources::default();
        sources.add(100, 200, at(1, 0));
        sources.add(200, 300, at(1, 100));
        sources.add(300, 310, at(2, 7));
        assert_eq!(sources.parts.len(), 2);
        assert_eq!(sources.find(0, 1000), (None, 100));
        assert_eq!(sources.find(150, 1000), (Some(at(1, 50)), 150));
        assert_eq!(sources.find(305, 2), (Some(at(2, 12)), 2));
        assert_eq!(sources.find(310, 5), (None, 5));
        assert!(sources.any_within(0, 101) && !sources.any_within(0, 100));
        assert!(!sources.any_within(310, 400));
        sources.forget(299);
        assert_eq!(sources.find(150, 10), (Some(at(1, 50)), 10));
        sources.forget(300);
        assert_eq!(sources.find(150, 1000), (None, 150));
    }
}
