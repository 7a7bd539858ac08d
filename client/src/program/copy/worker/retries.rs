//! How often a file is tried again.

use std::time::Duration;

use super::{FIRST_PAUSE, LONGEST_PAUSE};

/// The attempts that are left of a file. They begin again when the transfer gets on by a real amount: a server that sends a few bytes in
/// each attempt would otherwise hold a file for ever.
#[derive(Debug)]
pub(super) struct Retries {
    most: u32,
    left: u32,
    pause: Duration,
    /// The bytes that count as a real amount.
    step: u64,
    /// The bytes that the destination had when the attempts began again. They never become fewer: what was begun again does not count twice.
    counted: u64,
    /// The last attempt has brought nothing, although the source has called the file complete after a restart.
    was_unsent: bool,
    /// The file was begun again because of that.
    has_begun_again: bool,
}

impl Retries {
    /// The attempts begin again at most so often.
    const STEPS: u64 = 64;

    /// Less is no real amount.
    const LEAST: u64 = 4 << 20;

    /// So many bytes may be in the buffers of sockets of both ends when a source calls a file complete. A connection that breaks loses them.
    const BUFFERED: u64 = 64 << 20;

    /// `most` retries in a row of a file of this size, of which the destination has some bytes.
    pub(super) fn new(most: u32, size: Option<u64>, present: u64) -> Self {
        Self {
            most,
            left: most,
            pause: FIRST_PAUSE,
            step: (size.unwrap_or_default() / Self::STEPS).max(Self::LEAST),
            counted: present,
            was_unsent: false,
            has_begun_again: false,
        }
    }

    /// Notes the failure of an attempt. `unsent` are the bytes of a restart that have not arrived, although the source has called the file
    /// complete. Returns whether the file is begun again because the source never sends them: once, because all its bytes are sent again,
    /// and not after the first failure if a connection may have lost the bytes.
    pub(super) fn is_never_sent(&mut self, unsent: Option<u64>) -> bool {
        let is_second =
            std::mem::replace(&mut self.was_unsent, unsent.is_some()) && unsent.is_some();
        let is_certain = is_second || unsent > Some(Self::BUFFERED);
        is_certain && !std::mem::replace(&mut self.has_begun_again, true)
    }

    /// Notes how many bytes the destination has.
    pub(super) fn note(&mut self, present: u64) {
        if present >= self.counted.saturating_add(self.step) {
            self.counted = present;
            (self.left, self.pause) = (self.most, FIRST_PAUSE);
        }
    }

    /// The pause before the next attempt; `None` after the last one.
    pub(super) fn next(&mut self) -> Option<Duration> {
        self.left = self.left.checked_sub(1)?;
        let pause = self.pause;
        self.pause = LONGEST_PAUSE.min(pause * 2);
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The attempts of a file of which each one brings so many bytes more.
    fn attempts(retries: &mut Retries, bytes: u64, limit: u32) -> u32 {
        let mut present = 0;
        for attempt in 1..limit {
            present += bytes;
            retries.note(present);
            if retries.next().is_none() {
                return attempt;
            }
        }
        limit
    }

    #[test]
    fn little_progress_does_not_prolong_a_copy() {
        let size = Some(64 << 30);
        assert_eq!(attempts(&mut Retries::new(5, size, 0), 0, 1000), 6);
        assert_eq!(attempts(&mut Retries::new(5, size, 0), 1000, 1000), 6);
        assert_eq!(attempts(&mut Retries::new(5, None, 0), 4 << 20, 1000), 1000);
        assert_eq!(attempts(&mut Retries::new(5, size, 0), 1 << 30, 1000), 1000);
        // A fourth of what counts, with 5 retries.
        assert_eq!(
            attempts(&mut Retries::new(5, size, 0), 256 << 20, 1000),
            1000
        );
    }

    #[test]
    fn what_is_begun_again_does_not_count_again() {
        let mut retries = Retries::new(2, Some(100 << 20), 0);
        let mut attempts = 0;
        loop {
            attempts += 1;
            // All of it arrives each time, and is thrown away.
            retries.note(100 << 20);
            if retries.next().is_none() {
                break;
            }
        }
        assert_eq!(attempts, 3);
    }

    #[test]
    fn a_file_without_restarts_is_begun_again_once() {
        let mut retries = Retries::new(5, None, 0);
        let is_never_sent = [(); 3].map(|()| {
            retries.note(1 << 30);
            retries.is_never_sent(Some(1 << 30))
        });
        assert_eq!(is_never_sent, [true, false, false]);
    }

    #[test]
    fn what_a_connection_may_have_lost_counts_as_unsent_the_second_time_in_a_row() {
        const LOST: Option<u64> = Some(64 << 20);

        let mut retries = Retries::new(5, None, 0);
        let failures = [LOST, None, None, LOST, LOST, LOST, LOST];
        let is_never_sent = failures.map(|unsent| retries.is_never_sent(unsent));
        let expected = [false, false, false, false, true, false, false];
        assert_eq!(is_never_sent, expected);
        let mut retries = Retries::new(5, None, 0);
        assert!(retries.is_never_sent(LOST.map(|lost| lost + 1)));
    }

    #[test]
    fn pauses_become_longer_until_the_transfer_gets_on() {
        let mut retries = Retries::new(10, None, 0);
        let pauses: Vec<_> = (0..3)
            .filter_map(|_| retries.next())
            .map(|pause| pause.as_secs())
            .collect();
        assert_eq!(pauses, [1, 2, 4]);
        retries.note(5 << 20);
        assert_eq!(retries.next(), Some(FIRST_PAUSE));
    }
}
