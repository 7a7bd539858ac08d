//! What a command takes at its start and its end, told from what each further byte takes, by files of two lengths.
//!
//! A short copy over a fast stack is mostly the start of programs, logins, and the opening of rings. A channel from memory to memory is
//! measured after all that, so only the rate of further bytes can be compared with it.

use super::site::{Run, Site, Way};
use crate::bench::sample::gigabytes;

/// A short copy and a long one. Their difference is long enough that the noise of both changes it little.
#[derive(Debug, Clone, Copy)]
pub(super) struct TwoLengths {
    pub(super) short: u64,
    pub(super) long: u64,
}

impl TwoLengths {
    /// Copies a file of each length, one right after the other, so that other load of the machine affects both.
    ///
    /// # Errors
    ///
    /// When a client fails, or the long copy did not take longer, in one line.
    pub(super) fn run(self, site: &Site, way: Way, stack: &str) -> Result<Run, String> {
        let short = site.run_length(way, stack, self.short)?;
        let long = site.run_length(way, stack, self.long)?;
        self.further(short, long)
    }

    /// The long copy, with the rate and the processor time of the bytes that the short one does not have.
    fn further(self, short: Run, long: Run) -> Result<Run, String> {
        let further = gigabytes(self.long - self.short);
        let seconds = seconds(long, self.long) - seconds(short, self.short);
        if seconds <= 0.0 {
            return Err("the long copy took no longer than the short one".to_owned());
        }
        let per_gigabyte = |time: fn(&Run) -> f64| {
            let [short, long] = [(short, self.short), (long, self.long)]
                .map(|(run, bytes)| time(&run) * gigabytes(bytes));
            (long - short) / further
        };
        Ok(Run {
            rate: long.rate,
            moving: further * 1000.0 / seconds,
            clients: per_gigabyte(|run| run.clients),
            servers: per_gigabyte(|run| run.servers),
            machine: per_gigabyte(|run| run.machine),
        })
    }

    /// What a whole command takes beside its bytes, in milliseconds.
    pub(super) fn start(self, run: &Run) -> f64 {
        (seconds(*run, self.long) - gigabytes(self.long) * 1000.0 / run.moving) * 1000.0
    }
}

/// The time of a whole command.
fn seconds(run: Run, bytes: u64) -> f64 {
    gigabytes(bytes) * 1000.0 / run.rate
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTHS: TwoLengths = TwoLengths {
        short: 100_000_000,
        long: 500_000_000,
    };

    /// A command over `bytes` that takes `start` seconds beside 2 ms for 10^6 bytes, all of it on the processor.
    fn run(bytes: u64, start: f64) -> Run {
        let seconds = start + gigabytes(bytes) * 2.0;
        let per_gigabyte = seconds / gigabytes(bytes);
        Run {
            rate: 1000.0 / per_gigabyte,
            moving: 1000.0 / per_gigabyte,
            clients: 0.25 * per_gigabyte,
            servers: 0.75 * per_gigabyte,
            machine: per_gigabyte,
        }
    }

    fn is_near(found: f64, wanted: f64) -> bool {
        (found / wanted - 1.0).abs() < 1e-6
    }

    #[test]
    fn the_start_of_a_command_is_told_from_its_bytes() {
        let both = [LENGTHS.short, LENGTHS.long].map(|bytes| run(bytes, 0.3));
        let further = LENGTHS.further(both[0], both[1]).unwrap();
        assert!(is_near(further.moving, 500.0), "{further:?}");
        assert!(is_near(further.machine, 2.0), "{further:?}");
        assert!(is_near(further.clients, 0.5), "{further:?}");
        assert!(is_near(further.servers, 1.5), "{further:?}");
        assert!(is_near(further.rate, both[1].rate), "{further:?}");
        assert!(is_near(LENGTHS.start(&further), 300.0), "{further:?}");
    }

    #[test]
    fn a_long_copy_that_took_no_longer_has_no_rate() {
        let outcome = LENGTHS.further(run(LENGTHS.short, 2.0), run(LENGTHS.long, 0.5));
        assert!(outcome.is_err(), "{outcome:?}");
    }
}
