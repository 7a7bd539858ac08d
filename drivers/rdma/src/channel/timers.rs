//! The precision of the timers of this thread.

use std::cell::Cell;
use std::num::NonZeroU64;

use rustix::thread::set_current_timer_slack;

/// The kernel may delay the end of a wait by this many nanoseconds, to wake up less often. The default
/// is 50 µs (PR_SET_TIMERSLACK(2const)), in which a path of 100 Gb/s carries two messages.
const SLACK: NonZeroU64 = NonZeroU64::MIN;

thread_local! {
    static IS_SET: Cell<bool> = const { Cell::new(false) };
}

/// Ends later waits of this thread without the usual delay, for as long as the thread lives.
pub(super) fn wake_in_time() {
    if !IS_SET.replace(true) {
        // Where that is forbidden, bursts make up for later wake-ups.
        let _ = set_current_timer_slack(Some(SLACK));
    }
}

#[cfg(test)]
mod tests {
    use rustix::thread::current_timer_slack;

    use super::*;

    #[test]
    fn a_thread_that_waits_for_a_pace_has_exact_timers() {
        // Slack belongs to the thread, so other tests are not affected.
        std::thread::spawn(|| {
            set_current_timer_slack(NonZeroU64::new(50_000)).unwrap();
            wake_in_time();
            assert_eq!(current_timer_slack().unwrap(), 1);
        })
        .join()
        .unwrap();
    }
}
