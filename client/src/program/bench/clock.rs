//! The processor time of this program and of this machine.

use std::fs;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Runs from its start.
pub(super) struct Clock {
    began: Instant,
    process: Duration,
    machine: Option<[u64; 2]>,
}

/// What processors have done meanwhile.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Work {
    /// The processors that this program has used, on average: 1.5 is one and a half.
    pub(super) processors: f64,
    /// The part of all processors of this machine that was busy, with any program; `None` if the kernel does not tell.
    pub(super) busy: Option<f64>,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self {
            began: Instant::now(),
            process: process(),
            machine: machine(),
        }
    }

    pub(super) fn work(&self) -> Work {
        let took = self.began.elapsed().as_secs_f64().max(1e-6);
        let used = process().saturating_sub(self.process).as_secs_f64();
        let busy = self
            .machine
            .zip(machine())
            .and_then(|(before, now)| part(before, now));
        Work {
            processors: used / took,
            busy,
        }
    }
}

/// The processor time of all threads.
fn process() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// The ticks in which the processors were busy, and all ticks (proc_stat(5)).
fn machine() -> Option<[u64; 2]> {
    parse(&fs::read_to_string("/proc/stat").ok()?)
}

fn parse(text: &str) -> Option<[u64; 2]> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    // user, nice, system, idle, iowait, irq, softirq, steal. What follows is a part of the first two.
    let ticks: Vec<u64> = line
        .split_whitespace()
        .take(8)
        .map(|ticks| ticks.parse().ok())
        .collect::<Option<_>>()?;
    let all = ticks
        .iter()
        .fold(0, |all: u64, ticks| all.saturating_add(*ticks));
    let idle = ticks.get(3)?.saturating_add(*ticks.get(4)?);
    Some([all.saturating_sub(idle), all])
}

#[expect(clippy::cast_precision_loss, reason = "a share needs no more digits")]
fn part(before: [u64; 2], now: [u64; 2]) -> Option<f64> {
    let [busy, all] = [0, 1].map(|at: usize| now[at].saturating_sub(before[at]));
    (all > 0).then(|| (busy as f64 / all as f64).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_for_disks_are_not_busy() {
        let text = "cpu  10 0 30 50 5 1 4 0 7 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(parse(text), Some([45, 100]));
        assert_eq!(parse("cpu0 1 2 3 4 5 6 7 8"), None);
        assert_eq!(parse("cpu  1 2"), None);
        assert_eq!(part([45, 100], [145, 300]), Some(0.5));
        assert_eq!(part([45, 100], [45, 100]), None);
    }

    #[test]
    fn a_loop_uses_a_processor() {
        let clock = Clock::start();
        while process().saturating_sub(clock.process) < Duration::from_millis(20) {
            std::hint::spin_loop();
        }
        let work = clock.work();
        assert!(work.processors > 0.0, "{work:?}");
        assert!(work.busy.is_none_or(|busy| busy <= 1.0), "{work:?}");
    }
}
