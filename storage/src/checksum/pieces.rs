//! The checksum of a file whose pieces arrive in any order.
//!
//! Adjacent pieces are joined at once, so memory is bounded by the number of gaps and not by the size of the file.

use std::collections::BTreeMap;

use super::PartialChecksum;

/// Pieces of one file, all of one algorithm.
#[derive(Debug, Default)]
pub struct ChecksumPieces {
    /// By offset. No two of them are adjacent.
    pieces: BTreeMap<u64, PartialChecksum>,
}

impl ChecksumPieces {
    /// Without pieces.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the piece that starts at `offset`.
    pub fn insert(&mut self, offset: u64, piece: PartialChecksum) {
        if piece.length() == 0 {
            return;
        }
        let next = self.pieces.remove(&(offset + piece.length()));
        let before = self.pieces.range_mut(..offset).next_back();
        let joined = match before {
            Some((start, before)) if start + before.length() == offset => {
                before.append(&piece);
                before
            }
            _ => self.pieces.entry(offset).or_insert(piece),
        };
        if let Some(next) = next {
            joined.append(&next);
        }
    }

    /// The checksum of the first `length` bytes, if exactly that many were summed.
    pub fn whole(&self, length: u64) -> Option<String> {
        let (start, only) = self.pieces.first_key_value()?;
        let complete = self.pieces.len() == 1 && *start == 0 && only.length() == length;
        complete.then(|| only.finish())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use proptest::prelude::*;

    use super::super::ChecksumAlgorithm;
    use super::super::tests::whole;
    use super::*;

    /// Cuts `bytes` at `cuts`, and returns the pieces in the order of `order`.
    fn pieces<'a>(bytes: &'a [u8], cuts: &[usize], order: &[u32]) -> Vec<(usize, &'a [u8])> {
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let mut pieces: Vec<_> = cuts
            .windows(2)
            .enumerate()
            .map(|(n, ends)| (order[n % order.len()], ends[0], &bytes[ends[0]..ends[1]]))
            .collect();
        pieces.sort_by_key(|(key, ..)| *key);
        pieces
            .into_iter()
            .map(|(_, at, piece)| (at, piece))
            .collect()
    }

    #[test]
    fn a_hole_and_a_second_copy_are_noticed() {
        let piece = |bytes: &[u8]| {
            let mut piece = PartialChecksum::new(ChecksumAlgorithm::Adler32).expect("it combines");
            piece.update(bytes);
            piece
        };
        let mut sums = ChecksumPieces::new();
        assert_eq!(sums.whole(0), None);
        sums.insert(0, piece(b"abc"));
        sums.insert(5, piece(b"fg"));
        assert_eq!(sums.whole(7), None);
        sums.insert(3, piece(b"de"));
        assert_eq!(sums.whole(6), None);
        assert_eq!(
            sums.whole(7),
            Some(whole(ChecksumAlgorithm::Adler32, b"abcdefg"))
        );
        sums.insert(3, piece(b"de"));
        assert_eq!(sums.whole(7), None);
    }

    proptest! {
        #[test]
        fn pieces_from_several_threads_make_the_whole(
            bytes in prop::collection::vec(any::<u8>(), 1..2000),
            cuts in prop::collection::vec(any::<usize>(), 0..40),
            order in prop::collection::vec(any::<u32>(), 1..40),
            threads in 1..5_usize,
        ) {
            let pieces = pieces(&bytes, &cuts, &order);
            for algorithm in ChecksumAlgorithm::ALL {
                let Some(empty) = PartialChecksum::new(algorithm) else {
                    continue;
                };
                let sums = Mutex::new(ChecksumPieces::new());
                std::thread::scope(|scope| {
                    for thread in 0..threads {
                        let (sums, pieces, empty) = (&sums, &pieces, &empty);
                        scope.spawn(move || {
                            for (offset, bytes) in pieces.iter().skip(thread).step_by(threads) {
                                let mut piece = empty.clone();
                                piece.update(bytes);
                                sums.lock().expect("no panic").insert(*offset as u64, piece);
                            }
                        });
                    }
                });
                let sums = sums.into_inner().expect("no panic");
                let sum = sums.whole(bytes.len() as u64);
                prop_assert_eq!(sum, Some(whole(algorithm, &bytes)));
            }
        }
    }
}
