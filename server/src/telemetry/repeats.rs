//! A rate limit for messages that can repeat without an end, such as those about a full disk.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::locks::lock;

/// The interval of messages of one kind.
const EACH: Duration = Duration::from_secs(30);

/// Whether a message of this kind gets a line now; then the number of messages without a line before. The kind is a constant
/// of the program, so that there are few.
pub(crate) fn tell(kind: &'static str) -> Option<u64> {
    static KINDS: Mutex<BTreeMap<&str, Repeats>> = Mutex::new(BTreeMap::new());

    let mut kinds = lock(&KINDS);
    let kind = kinds.entry(kind).or_insert(Repeats::new(EACH));
    kind.due()
}

/// Messages of one kind, of which one in an interval gets a line.
#[derive(Debug)]
pub(crate) struct Repeats {
    interval: Duration,
    /// The time of the last line.
    told: Option<Instant>,
    /// Since then.
    untold: u64,
}

impl Repeats {
    pub(crate) const fn new(interval: Duration) -> Self {
        Self {
            interval,
            told: None,
            untold: 0,
        }
    }

    /// Counts a message. If a line is due for it: the number of messages that had none.
    pub(crate) fn due(&mut self) -> Option<u64> {
        self.due_at(Instant::now())
    }

    fn due_at(&mut self, now: Instant) -> Option<u64> {
        let is_recent = |told| now.saturating_duration_since(told) < self.interval;
        if self.told.is_some_and(is_recent) {
            self.untold += 1;
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_message_in_an_interval_gets_a_line_with_the_count_of_the_others() {
        for interval in [EACH, Duration::from_secs(5)] {
            let mut repeats = Repeats::new(interval);
            let now = Instant::now();
            let lines = (0..1000).filter_map(|_| repeats.due_at(now));
            assert_eq!(lines.collect::<Vec<_>>(), [0]);
            assert_eq!(repeats.due_at(now + interval), Some(999));
            assert_eq!(repeats.due_at(now + interval), None);
        }
    }

    #[test]
    fn each_kind_has_its_own_limit() {
        assert_eq!(tell("a test"), Some(0));
        assert_eq!(tell("a test"), None);
        assert_eq!(tell("another test"), Some(0));
    }
}
