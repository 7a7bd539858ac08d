//! What an earlier attempt has left at the destination besides what is known: found by checksums of ranges at both ends.
//!
//! Servers tell once a second what they have stored, and a client that is killed has told its journal a moment ago. The ranges behind the
//! known ones are compared, larger and larger ones as long as they are equal, and halves of those that are not. Equal content
//! need not be sent, also if another program wrote it.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use gridhaul_protocol::path::PathArgument;
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_storage::{ChecksumAlgorithm, UploadForm};
use gridhaul_transfer::NodeSession;
use tokio::task::block_in_place;

use super::super::present::Present;
use super::super::shared::Shared;
use super::super::version::Version;
use super::WORTHWHILE;
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

impl<'a> Content<'a> {
    /// The unfinished file at this end, else the one that has the name of the copy; and its size. `None` if neither exists.
    pub(super) async fn unfinished(
        session: &'a mut Session,
        path: &PathArgument,
        form: UploadForm,
    ) -> Option<(Self, u64)> {
        use std::os::unix::ffi::OsStrExt as _;

        let temporary = form.unfinished(path.as_path())?;
        let temporary = PathArgument::new(temporary.as_os_str().as_bytes())?;
        for candidate in [&temporary, path] {
            if let Ok(Some(size)) = session.size(candidate).await {
                let path = candidate.clone();
                return Some((Self::There(session, path), size));
            }
        }
        None
    }

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

/// The size of the unfinished file of a copy on this machine.
pub(super) fn size_here(files: &dyn NodeSession, temporary: &Path) -> u64 {
    let found = block_in_place(|| files.storage().stat(temporary));
    found.map_or(0, |found| found.size)
}

/// Whether ranges of both ends are equal.
trait Compare {
    /// `None` if that cannot be found out.
    async fn are_equal(&mut self, range: &Range<u64>) -> Option<bool>;
}

struct Contents<'a> {
    source: Content<'a>,
    destination: Content<'a>,
}

impl Compare for Contents<'_> {
    async fn are_equal(&mut self, range: &Range<u64>) -> Option<bool> {
        let (source, destination) =
            tokio::join!(self.source.sum(range), self.destination.sum(range));
        Some(source?.eq_ignore_ascii_case(&destination?))
    }
}

/// Whether the destination may have more of this version than is known. A part is begun again.
pub(super) fn may_have_more(shared: &Shared, present: &Present, version: Version) -> bool {
    shared.arguments.part().is_none() && present.may_have_more(version, WORTHWHILE)
}

/// Adds what the destination has of this version besides what is known; its unfinished file has `size` bytes.
pub(super) async fn search_more(
    present: &mut Present,
    version: Version,
    size: u64,
    source: Content<'_>,
    destination: Content<'_>,
) {
    let mut ends = Contents {
        source,
        destination,
    };
    let size = size.min(version.size.unwrap_or_default());
    let more = search(present.ranges(), size, &mut ends).await;
    present.gain(&more);
}

async fn search(known: &RangeSet, size: u64, ends: &mut impl Compare) -> RangeSet {
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
