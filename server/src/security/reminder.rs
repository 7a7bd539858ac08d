//! Limits messages about failures that clients can repeat.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The interval of messages.
const INTERVAL: Duration = Duration::from_secs(5);

/// The time of the last message, and the failures since then.
#[derive(Debug, Default)]
pub(super) struct Reminder(Mutex<(Option<Instant>, u64)>);

impl Reminder {
    /// Counts a failure. If a message about it is due: the number of failures that had none.
    pub(super) fn due(&self) -> Option<u64> {
        self.due_at(Instant::now())
    }

    fn due_at(&self, now: Instant) -> Option<u64> {
        // Both are complete at every unlock, so a panic elsewhere leaves no partial state.
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, untold) = &mut *state;
        if last.is_some_and(|last| now.saturating_duration_since(last) < INTERVAL) {
            *untold += 1;
            return None;
        }
        *last = Some(now);
        Some(std::mem::take(untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_failures_are_few_messages_with_a_count() {
        let reminder = Reminder::default();
        let begun = Instant::now();
        assert_eq!(reminder.due_at(begun), Some(0));
        for _ in 0..7 {
            assert_eq!(reminder.due_at(begun), None);
        }
        assert_eq!(reminder.due_at(begun + INTERVAL), Some(7));
    }
}
