//! A rate limit for messages that can repeat without an end, such as those about a full disk.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A message of one kind is logged once in this time.
const EACH: Duration = Duration::from_secs(30);

static REPEATS: Repeats = Repeats(Mutex::new(None));

/// Whether a message of this kind gets a line now; then the number of messages without a line before. The kind is a constant
/// of the program, so that there are few.
pub(crate) fn tell(kind: &'static str) -> Option<u64> {
    REPEATS.tell(kind, Instant::now())
}

struct Repeats(Mutex<Option<HashMap<&'static str, Kind>>>);

struct Kind {
    told: Instant,
    untold: u64,
}

impl Repeats {
    fn tell(&self, kind: &'static str, now: Instant) -> Option<u64> {
        // A panic elsewhere leaves counts that are accurate enough.
        let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kinds = kinds.get_or_insert_default();
        let Some(known) = kinds.get_mut(kind) else {
            let (told, untold) = (now, 0);
            kinds.insert(kind, Kind { told, untold });
            return Some(0);
        };
        if now.saturating_duration_since(known.told) < EACH {
            known.untold += 1;
            return None;
        }
        known.told = now;
        Some(std::mem::take(&mut known.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_a_kind_is_told_once_in_a_while_with_a_count() {
        let repeats = Repeats(Mutex::default());
        let now = Instant::now();
        let lines = (0..1000).filter_map(|_| repeats.tell("disk", now));
        assert_eq!(lines.collect::<Vec<_>>(), [0]);
        assert_eq!(repeats.tell("other", now), Some(0));
        assert_eq!(repeats.tell("disk", now + EACH), Some(999));
        assert_eq!(repeats.tell("disk", now + EACH), None);
    }
}
