//! What an earlier attempt has left at the destination besides what is known: found by checksums of ranges at both ends.
//!
//! Servers tell once a second what they have stored, and a client that is killed has told its journal a moment ago. Each channel was
//! sending a block, which has arrived from its beginning on. So where blocks may begin, ranges are compared, larger and larger ones as
//! long as they are equal, and halves of the first one that is not. Equal content need not be sent, also if another program wrote it.

use std::fs;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridhaul_protocol::path::PathArgument;
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_storage::{ChecksumAlgorithm, UploadForm};
use gridhaul_transfer::NodeSession;
use tokio::time::timeout;

use super::super::present::Present;
use crate::session::Session;
use crate::transfer::{FilePart, checksum_of_file, checksum_of_server};

/// The shortest range that is compared, in bytes. What a channel had of its last block ends within one.
const UNIT: u64 = 64 << 10;

/// The longest range that is compared at once: reading it takes a second or so.
const LONGEST: u64 = 256 << 20;

/// The most comparisons of a file. Each one is a round trip.
const MOST: usize = 256;

/// Blocks begin at multiples of it, if nothing was present before: those of this program, its server and globus-gridftp-server 13.24.
const STEP: u64 = 256 << 10;

/// After so many places in a row where no block begins, nothing else has arrived: blocks have 16 MiB at most.
const MISSES: usize = 64;

/// All servers have it.
const ALGORITHM: ChecksumAlgorithm = ChecksumAlgorithm::Md5;

/// What an end of a copy has of a file.
pub(super) enum Content<'a> {
    /// A file of this machine.
    Here(&'a Arc<dyn NodeSession>, &'a Path),
    /// A file of a server.
    There(&'a mut Session, PathArgument),
}

impl Content<'_> {
    async fn sum(&mut self, range: &Range<u64>) -> Option<String> {
        let part = Some(FilePart {
            offset: range.start,
            length: Some(range.end - range.start),
        });
        match self {
            Self::Here(files, path) => checksum_of_file(files, ALGORITHM, path, part).await.ok(),
            Self::There(session, path) => {
                let sum = checksum_of_server(session, ALGORITHM, path, part).await;
                sum.ok()
            }
        }
    }
}

/// Whether ranges of both ends are equal.
pub(super) trait Compare {
    /// `None` if that cannot be found out.
    async fn are_equal(&mut self, range: &Range<u64>) -> Option<bool>;
}

pub(super) struct Contents<'a> {
    source: Content<'a>,
    destination: Content<'a>,
    started: Instant,
    budget: Budget,
}

impl<'a> Contents<'a> {
    /// Without an equal byte, comparisons take so long together.
    pub(super) fn new(source: Content<'a>, destination: Content<'a>, within: Duration) -> Self {
        Self {
            source,
            destination,
            started: Instant::now(),
            budget: Budget { within, equal: 0 },
        }
    }
}

impl Compare for Contents<'_> {
    async fn are_equal(&mut self, range: &Range<u64>) -> Option<bool> {
        let left = self.budget.left(self.started.elapsed())?;
        let sums = async { tokio::join!(self.source.sum(range), self.destination.sum(range)) };
        // A server that owes a reply gets another session.
        let (source, destination) = timeout(left, sums).await.ok()?;
        let are_equal = source?.eq_ignore_ascii_case(&destination?);
        if are_equal {
            self.budget.equal += range.end - range.start;
        }
        Some(are_equal)
    }
}

/// The time of all comparisons of a file.
#[derive(Debug)]
struct Budget {
    within: Duration,
    /// The bytes that were found to be equal: each one may take what sending it would take.
    equal: u64,
}

impl Budget {
    /// Bytes a second of a slow network.
    const RATE: u64 = 16 << 20;

    /// What is left after so long; `None` if it is too late.
    fn left(&self, elapsed: Duration) -> Option<Duration> {
        let earned = Duration::from_millis(self.equal / (Self::RATE / 1000));
        let left = self.within.saturating_add(earned).checked_sub(elapsed)?;
        (!left.is_zero()).then_some(left)
    }
}

/// The size of the unfinished file beside `path` on this machine. `None` if there is none that this user can have written.
pub(super) fn size_here(path: &Path, form: UploadForm) -> Option<u64> {
    let found = fs::symlink_metadata(form.unfinished(path)?).ok()?;
    let is_own = found.uid() == rustix::process::geteuid().as_raw();
    (found.is_file() && is_own).then_some(found.len())
}

/// Adds what the destination has of a file besides what is known; its unfinished file has `size` bytes.
pub(super) async fn search_more(
    present: &mut Present,
    size: u64,
    source: Content<'_>,
    destination: Content<'_>,
    within: Duration,
) {
    let mut ends = Contents::new(source, destination, within);
    let more = search(present.ranges(), size, &mut ends).await;
    present.gain(&more);
}

/// Those of these ranges that are equal at both ends, as far as that can be found out. None of them, if one is not: the destination
/// has another file.
pub(super) async fn equal_ones(known: &RangeSet, ends: &mut impl Compare) -> RangeSet {
    let longest = LONGEST.max(known.covered() / MOST as u64 * 2);
    let mut equal = RangeSet::new();
    let mut left = MOST;
    for range in known.iter() {
        let mut at = range.start;
        while at < range.end && left > 0 {
            left -= 1;
            let piece = at..range.end.min(at.saturating_add(longest));
            at = piece.end;
            match ends.are_equal(&piece).await {
                Some(true) => equal.insert(piece),
                Some(false) => return RangeSet::new(),
                None => return equal,
            }
        }
    }
    equal
}

/// What else is equal at both ends of a file, of which the destination has `size` bytes.
pub(super) async fn search(known: &RangeSet, size: u64, ends: &mut impl Compare) -> RangeSet {
    let mut search = Search {
        ends,
        left: MOST,
        found: RangeSet::new(),
    };
    for gap in known.missing_in(0..size) {
        if search.gap(gap).await.is_none() {
            break;
        }
    }
    search.found
}

/// A search for blocks that have arrived from their beginning on. `None` of its functions ends it.
struct Search<'a, C> {
    ends: &'a mut C,
    /// Comparisons.
    left: usize,
    found: RangeSet,
}

impl<C: Compare> Search<'_, C> {
    /// Finds the blocks in a gap of what is known.
    async fn gap(&mut self, gap: Range<u64>) -> Option<()> {
        // What is before this offset is known or compared.
        let mut compared = gap.start;
        let (mut at, mut misses) = (gap.start, 0);
        while at < gap.end && misses < MISSES {
            let end = self.run(at..gap.end).await?;
            if end > at {
                self.before(compared..at).await?;
                misses = 0;
            } else {
                misses += 1;
            }
            // A unit that differs.
            compared = gap.end.min(end.saturating_add(UNIT));
            at = (end / STEP + 1) * STEP;
        }
        Some(())
    }

    /// Returns where the range, from its beginning on, ceases to be equal: larger and larger pieces, then halves of the last one.
    async fn run(&mut self, range: Range<u64>) -> Option<u64> {
        let (mut at, mut length) = (range.start, UNIT);
        while at < range.end {
            let mut end = range.end.min(at.saturating_add(length));
            length = LONGEST.min(length.saturating_mul(2));
            if self.are_equal(at..end).await? {
                at = end;
                continue;
            }
            while end - at > UNIT {
                let middle = at + ((end - at) / UNIT).div_ceil(2) * UNIT;
                let middle = middle.min(end - 1);
                match self.are_equal(at..middle).await? {
                    true => at = middle,
                    false => end = middle,
                }
            }
            return Some(at);
        }
        Some(at)
    }

    /// A block may have begun between the last comparison and `range.end`, where it was found.
    async fn before(&mut self, range: Range<u64>) -> Option<()> {
        let mut end = range.end;
        while end > range.start {
            let start = range.start.max(end.saturating_sub(UNIT));
            if !self.are_equal(start..end).await? {
                break;
            }
            end = start;
        }
        Some(())
    }

    async fn are_equal(&mut self, range: Range<u64>) -> Option<bool> {
        self.left = self.left.checked_sub(1)?;
        let are_equal = self.ends.are_equal(&range).await?;
        if are_equal {
            self.found.insert(range);
        }
        Some(are_equal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_end_unless_they_find_equal_content_in_time() {
        let seconds = Duration::from_secs;
        let mut budget = Budget {
            within: seconds(60),
            equal: 0,
        };
        assert_eq!(budget.left(seconds(20)), Some(seconds(40)));
        assert_eq!(budget.left(seconds(60)), None);
        assert_eq!(budget.left(seconds(61)), None);
        budget.equal = 1 << 30;
        assert!(budget.left(seconds(120)) > Some(seconds(3)));
        assert_eq!(budget.left(seconds(126)), None);
    }

    /// Contents that are equal in these ranges.
    struct Equal {
        there: RangeSet,
        asked: usize,
    }

    impl Compare for Equal {
        async fn are_equal(&mut self, range: &Range<u64>) -> Option<bool> {
            self.asked += 1;
            Some(self.there.contains(range))
        }
    }

    fn find(known: &RangeSet, there: &RangeSet) -> (RangeSet, usize) {
        let mut ends = Equal {
            there: there.clone(),
            asked: 0,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let searching = search(known, there.end(), &mut ends);
        let found = runtime.expect("a runtime").block_on(searching);
        (found, ends.asked)
    }

    #[test]
    fn what_is_behind_the_known_ranges_is_found_to_a_unit() {
        let known = RangeSet::from(0..100 << 20);
        // Two channels have not ended their blocks.
        let mut there = RangeSet::from(0..(180 << 20) + 5);
        there.insert((181 << 20)..(181 << 20) + 70_000);
        there.insert((182 << 20)..(183 << 20));
        let (found, asked) = find(&known, &there);
        assert!(asked <= MOST, "{asked}");
        let missing = there.covered() - known.covered() - found.covered();
        assert!(missing < 3 * UNIT, "{missing} of {there} are not found");
        assert!(found.iter().all(|range| there.contains(&range)));
    }

    #[test]
    fn blocks_that_channels_have_begun_are_found() {
        const MIB: u64 = 1 << 20;
        let (known, mut there) = (RangeSet::from(0..3 * MIB), RangeSet::from(0..5 * MIB));
        // Of large blocks little has arrived, and one does not begin at a step.
        let blocks = [21 * MIB, 37 * MIB, 52 * MIB + 70_000];
        for start in blocks {
            there.insert(start..start + 900_000);
        }
        let (found, asked) = find(&known, &there);
        assert!(asked <= MOST, "{asked}");
        let missing = there.covered() - known.covered() - found.covered();
        assert!(missing < 5 * UNIT, "{missing} of {there} are not found");
        assert!(found.iter().all(|range| there.contains(&range)));
    }

    #[test]
    fn nothing_is_found_where_nothing_is() {
        let known = RangeSet::from(0..10 << 20);
        let (found, asked) = find(&known, &known);
        assert!(found.is_empty() && asked == 0, "{asked}");
        let mut there = known.clone();
        there.insert((1 << 40)..(1 << 40) + 1);
        let (found, asked) = find(&known, &there);
        assert!(found.is_empty() && asked <= MOST, "{found} {asked}");
    }

    #[test]
    fn all_of_a_file_is_found_without_any_knowledge() {
        let there = RangeSet::from(0..3 << 30);
        let (found, asked) = find(&RangeSet::new(), &there);
        assert_eq!(found, there);
        assert!(asked < 40, "{asked}");
    }
}
