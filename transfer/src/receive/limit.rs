//! The end of what a transfer may write.

use crate::error::PeerError;
use crate::node::Handling;

/// Where the file or the part ends, if that is known ([`Handling::limit`]). Offsets are those of the transfer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit(Option<u64>);

impl Limit {
    pub(super) fn of(handling: &Handling) -> Self {
        Self(handling.limit)
    }

    /// How many bytes may come from `offset` on.
    ///
    /// # Errors
    ///
    /// When there may be none, for the next byte.
    pub(super) fn room(self, offset: u64) -> Result<u64, PeerError> {
        self.check(offset, 1)?;
        Ok(self.left(offset))
    }

    /// Those of `bytes` at `offset` that are before the end.
    pub(super) fn within(self, offset: u64, bytes: &[u8]) -> &[u8] {
        let left = usize::try_from(self.left(offset)).unwrap_or(usize::MAX);
        &bytes[..left.min(bytes.len())]
    }

    /// Checks `count` bytes at `offset`.
    ///
    /// # Errors
    ///
    /// When not all of them are before the end.
    pub(super) fn check(self, offset: u64, count: u64) -> Result<(), PeerError> {
        match self.0 {
            Some(limit) if self.left(offset) < count => Err(PeerError::Excess { limit }),
            _ => Ok(()),
        }
    }

    fn left(self, offset: u64) -> u64 {
        self.0
            .map_or(u64::MAX, |limit| limit.saturating_sub(offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_behind_the_end_are_an_error() {
        let limit = Limit(Some(10));
        assert_eq!(limit.room(8).expect("two bytes"), 2);
        assert_eq!(limit.within(8, b"abc"), b"ab");
        limit.check(8, 2).expect("the last ones");
        limit.check(11, 0).expect("no byte");
        for error in [
            limit.check(8, 3),
            limit.room(10).map(drop),
            limit.room(11).map(drop),
        ] {
            assert!(matches!(error, Err(PeerError::Excess { limit: 10 })));
        }
        let unlimited = Limit(None);
        assert_eq!(unlimited.room(u64::MAX).expect("no end"), u64::MAX);
        assert_eq!(unlimited.within(8, b"abc"), b"abc");
    }
}
