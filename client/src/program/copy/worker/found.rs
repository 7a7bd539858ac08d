//! What an earlier attempt has left at the destination besides what is known: found by checksums of ranges at both ends.
//!
//! Servers tell once a second what they have stored, and a client that is killed has told its journal a moment ago. The ranges behind the
//! known ones are compared, larger and larger ones as long as they are equal, and halves of those that are not. Equal content
//! need not be sent, also if another program wrote it.

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

/// After so many units in a row that differ, what follows has not arrived.
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

pub(super) async fn search(known: &RangeSet, size: u64, ends: &mut impl Compare) -> RangeSet {
    let mut found = RangeSet::new();
    let mut left = MOST;
    for gap in known.missing_in(0..size) {
        let (mut at, mut length, mut misses) = (gap.start, UNIT, 0);
        while at < gap.end && misses < MISSES {
            let end = gap.end.min(at.saturating_add(length));
            // What is to be compared next is last.
            let mut ranges: Vec<_> = std::iter::once(at..end).collect();
            while let Some(range) = ranges.pop() {
                if left == 0 {
                    return found;
                }
                left -= 1;
                let bytes = range.end - range.start;
                match ends.are_equal(&range).await {
                    None => return found,
                    Some(true) => {
                        found.insert(range);
                        misses = 0;
                    }
                    Some(false) if bytes <= UNIT => misses += 1,
                    Some(false) => {
                        let units = bytes.div_ceil(UNIT);
                        let middle = range.start + units / 2 * UNIT;
                        ranges.extend([middle..range.end, range.start..middle]);
                    }
                }
            }
            at = end;
            length = match misses {
                0 => LONGEST.min(length.saturating_mul(2)),
                _ => UNIT,
            };
        }
    }
    found
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
