//! Whether calls that move bytes of a file wait for its disk.
//!
//! A call through the page cache that copies takes 0.1 to 0.3 ms for a mebibyte. Nothing is gained if another thread does that: bytes
//! arrive in the ring, and leave it, meanwhile, and handing a request over costs time as well. But a call that waits for the disk may
//! take long, and keeps the thread from its queue pairs. So once a call has waited, the next bytes are moved with requests in flight.

use std::time::{Duration, Instant};

use gridhaul_direct::Call;

/// A call that slept for so long has waited for the disk.
const LONG_SLEEP: Duration = Duration::from_millis(1);

/// So many bytes are moved with requests in flight after a call that has waited. Then a call is tried again.
const QUEUED_BYTES: u64 = 64 << 20;

/// The bytes, in each direction, for which calls are expected to wait.
#[derive(Debug, Default)]
pub(super) struct Waits {
    reads: u64,
    writes: u64,
}

impl Waits {
    /// Whether calls for a range of so many bytes would wait. If so, the bytes are moved in another way.
    pub(super) fn expects(&mut self, call: Call, bytes: u64) -> bool {
        let left = self.left(call);
        let expects = *left > 0;
        *left = left.saturating_sub(bytes);
        expects
    }

    /// A call has waited.
    pub(super) fn note(&mut self, call: Call) {
        *self.left(call) = QUEUED_BYTES;
    }

    /// Whether a call has waited, and calls are still expected to.
    #[cfg(test)]
    pub(super) fn has_noted(&self, call: Call) -> bool {
        match call {
            Call::Read => self.reads > 0,
            Call::Write => self.writes > 0,
        }
    }

    fn left(&mut self, call: Call) -> &mut u64 {
        match call {
            Call::Read => &mut self.reads,
            Call::Write => &mut self.writes,
        }
    }
}

/// Times a call of this thread.
#[derive(Debug)]
pub(crate) struct CallTimer {
    begin: Instant,
    before: Usage,
}

impl CallTimer {
    /// Begins now.
    pub(super) fn start() -> Self {
        Self {
            begin: Instant::now(),
            before: Usage::of_thread(),
        }
    }

    /// Whether the thread has slept for long. A thread that has to leave the processor to others does not sleep.
    pub(super) fn has_slept(&self) -> bool {
        let elapsed = self.begin.elapsed();
        if elapsed < LONG_SLEEP {
            return false;
        }
        let now = Usage::of_thread();
        let worked = now.processor.saturating_sub(self.before.processor);
        now.sleeps > self.before.sleeps && elapsed.saturating_sub(worked) >= LONG_SLEEP
    }
}

/// What this thread has used so far.
#[derive(Debug, Clone, Copy, Default)]
struct Usage {
    processor: Duration,
    /// How many times it has slept.
    sleeps: u64,
}

impl Usage {
    fn of_thread() -> Self {
        // SAFETY: all bit patterns are numbers.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: it is memory for the result.
        if unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) } != 0 {
            return Self::default();
        }
        let time = |time: libc::timeval| {
            let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
            seconds + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
        };
        Self {
            processor: time(usage.ru_utime) + time(usage.ru_stime),
            // Voluntary context switches (getrusage(2)).
            sleeps: u64::try_from(usage.ru_nvcsw).unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn calls_are_expected_to_wait_for_some_bytes_after_one_has_waited() {
        let mut waits = Waits::default();
        assert!(!waits.expects(Call::Write, 1));
        waits.note(Call::Write);
        assert!(!waits.expects(Call::Read, 1), "of the other direction");
        for _ in 0..4 {
            assert!(waits.expects(Call::Write, QUEUED_BYTES / 4));
        }
        assert!(!waits.expects(Call::Write, 1));
    }

    #[test]
    fn a_thread_that_sleeps_is_told_from_one_that_works() {
        let sleeping = CallTimer::start();
        thread::sleep(2 * LONG_SLEEP);
        assert!(sleeping.has_slept());
        // It may be interrupted by other threads, but does not sleep.
        let working = CallTimer::start();
        while working.begin.elapsed() < 5 * LONG_SLEEP {
            std::hint::spin_loop();
        }
        assert!(!working.has_slept());
    }
}
