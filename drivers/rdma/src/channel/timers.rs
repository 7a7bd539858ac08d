//! The precision of the timers of this thread.

use std::cell::Cell;
use std::num::NonZeroU64;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;

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

/// The threads that poll instead of sleeping.
static SPINNERS: AtomicUsize = AtomicUsize::new(0);

/// The right of a thread to poll for a moment. Clients choose rates and bursts, so a quarter of the
/// processors has it at most, and none on a small machine; other threads sleep.
#[derive(Debug)]
pub(super) struct Spinner(&'static AtomicUsize);

impl Spinner {
    /// `None` if enough threads poll.
    pub(super) fn take() -> Option<Self> {
        static MOST: OnceLock<usize> = OnceLock::new();
        let most = *MOST.get_or_init(|| match cfg!(test) {
            // Tests run on small machines too.
            true => 16,
            false => available_parallelism().map_or(0, |all| all.get() / 4),
        });
        Self::take_of(&SPINNERS, most)
    }

    fn take_of(spinners: &'static AtomicUsize, most: usize) -> Option<Self> {
        let more = |count: usize| (count < most).then_some(count + 1);
        let taken = spinners.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| Self(spinners))
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
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

    #[test]
    fn few_threads_poll() {
        static SPINNERS: AtomicUsize = AtomicUsize::new(0);
        let take_of = |most| Spinner::take_of(&SPINNERS, most);
        let held: Vec<_> = std::iter::from_fn(|| take_of(100)).collect();
        assert_eq!(held.len(), 100);
        drop(held);
        assert!(take_of(100).is_some());
        assert!(take_of(0).is_none());
    }
}
