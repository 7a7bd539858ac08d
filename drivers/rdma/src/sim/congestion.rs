//! Congestion control by the devices: DCQCN.
//!
//! Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015. Three parts work together:
//!
//! - a bottleneck marks packets, with a probability that grows with its queue ([`Marking`]; the paper's congestion point);
//! - the receiver's device answers a marked packet with a notification, and sends no other one for a while (its notification point);
//! - the sender's device cuts the rate of the queue pair that the notification names, and raises it again while none arrives
//!   ([`ReactionPoint`]).
//!
//! Fast recovery and additive increase are the paper's. Its third stage, hyper increase, begins after five periods of the timer
//! and five of the byte counter without a notification, and is left out.

use std::time::Duration;

/// When a bottleneck marks packets, by the bytes in its queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Marking {
    /// It marks nothing up to this length: `K_min`.
    pub least_bytes: u64,
    /// It marks every packet above this length: `K_max`.
    pub most_bytes: u64,
    /// The share of packets that it marks at that length: `P_max`.
    pub most_share: f64,
}

impl Marking {
    /// Section 5.4 of the paper, for ports of 40 Gb/s.
    pub fn of_paper() -> Self {
        Self {
            least_bytes: 5_000,
            most_bytes: 200_000,
            most_share: 0.01,
        }
    }

    /// The probability that a packet is marked.
    pub(super) fn share(&self, queued_bytes: f64) -> f64 {
        let [least, most] = [self.least_bytes, self.most_bytes].map(|bytes| bytes as f64);
        if queued_bytes <= least {
            0.0
        } else if queued_bytes > most {
            1.0
        } else {
            self.most_share * (queued_bytes - least) / (most - least)
        }
    }
}

/// The parameters of the devices at both ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dcqcn {
    /// The least time between two notifications of one queue pair: `N`.
    pub notification_interval: Duration,
    /// The weight of a notification in the estimate of congestion: `g`.
    pub weight: f64,
    /// The estimate falls after each such time without a notification: `K`.
    pub estimate_interval: Duration,
    /// The rate rises after each such time without a notification: `T`.
    pub increase_interval: Duration,
    /// And after so many bytes: `B`.
    pub increase_bytes: u64,
    /// Increases of either kind that only recover the rate from before the cut: `F`.
    pub recovery_steps: u32,
    /// Each further increase in bytes per second: `R_AI`.
    pub increase: f64,
}

impl Dcqcn {
    /// The values that the paper deploys.
    pub fn of_paper() -> Self {
        Self {
            notification_interval: Duration::from_micros(50),
            weight: 1.0 / 256.0,
            estimate_interval: Duration::from_micros(55),
            increase_interval: Duration::from_micros(55),
            increase_bytes: 10_000_000,
            recovery_steps: 5,
            // 40 Mb/s.
            increase: 5e6,
        }
    }
}

/// The least rate of a queue pair in bytes per second. The paper names none; without one, cuts could stop it for good.
const LEAST_RATE: f64 = 125_000.0;

/// The rate of one queue pair. Times are those of the simulation.
#[derive(Debug)]
pub(crate) struct ReactionPoint {
    law: Dcqcn,
    /// The rate of the port in bytes per second.
    line: f64,
    /// The rate at which it sends, `R_C`, and the one that it recovers, `R_T`.
    current: f64,
    target: f64,
    /// The estimate of congestion, from 0 to 1: alpha.
    estimate: f64,
    /// The last notification, or the end of the last period without one; `None` before the first.
    estimated_at: Option<Duration>,
    increased_at: Duration,
    /// Bytes sent since the byte counter last expired.
    bytes: u64,
    /// How often each expired since the last cut.
    timer_steps: u32,
    byte_steps: u32,
}

impl ReactionPoint {
    /// A queue pair begins at the rate of its port, in bytes per second.
    pub(super) fn new(law: Dcqcn, line: u64) -> Self {
        Self {
            law,
            line: line as f64,
            current: line as f64,
            target: line as f64,
            estimate: 1.0,
            estimated_at: None,
            increased_at: Duration::ZERO,
            bytes: 0,
            timer_steps: 0,
            byte_steps: 0,
        }
    }

    /// A notification has arrived.
    pub(super) fn cut(&mut self, now: Duration) {
        self.advance(now);
        self.target = self.current;
        self.current = (self.current * (1.0 - self.estimate / 2.0)).max(LEAST_RATE);
        self.estimate += self.law.weight * (1.0 - self.estimate);
        (self.estimated_at, self.increased_at) = (Some(now), now);
        (self.bytes, self.timer_steps, self.byte_steps) = (0, 0, 0);
    }

    /// The queue pair sends this many bytes. Returns how long the next ones have to wait.
    pub(super) fn send(&mut self, bytes: u64, now: Duration) -> Duration {
        self.advance(now);
        let wait = Duration::from_secs_f64(bytes as f64 / self.current);
        self.bytes += bytes;
        if self.bytes >= self.law.increase_bytes {
            self.bytes -= self.law.increase_bytes;
            self.byte_steps += 1;
            self.increase();
        }
        wait
    }

    /// Carries out what the timers have caused until `now`.
    fn advance(&mut self, now: Duration) {
        if let Some(since) = &mut self.estimated_at {
            let interval = self.law.estimate_interval;
            let periods = now
                .saturating_sub(*since)
                .div_duration_f64(interval)
                .floor();
            *since += interval.mul_f64(periods);
            self.estimate *= (1.0 - self.law.weight).powf(periods);
        }
        // At the rate of the port nothing is left to recover.
        while self.current < self.line && now >= self.increased_at + self.law.increase_interval {
            self.increased_at += self.law.increase_interval;
            self.timer_steps += 1;
            self.increase();
        }
    }

    fn increase(&mut self) {
        if self.timer_steps.max(self.byte_steps) > self.law.recovery_steps {
            self.target = (self.target + self.law.increase).min(self.line);
        }
        self.current = (self.current + self.target) / 2.0;
        if self.line - self.current < 1.0 {
            self.current = self.line;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIGABIT: u64 = 125_000_000;
    const LINE: u64 = 40 * GIGABIT;

    fn at(microseconds: u64) -> Duration {
        Duration::from_micros(microseconds)
    }

    #[test]
    fn packets_are_marked_by_the_length_of_the_queue() {
        let marking = Marking::of_paper();
        let shares = [0.0, 5e3, 102_500.0, 2e5, 200_001.0].map(|bytes| marking.share(bytes));
        assert_eq!(shares, [0.0, 0.0, 0.005, 0.01, 1.0]);
    }

    /// Equations 1 to 3 of the paper.
    #[test]
    fn a_notification_halves_the_rate_at_first_and_fast_recovery_brings_it_back() {
        let mut reaction = ReactionPoint::new(Dcqcn::of_paper(), LINE);
        reaction.cut(at(100));
        assert_eq!(reaction.current, LINE as f64 / 2.0);
        assert_eq!(reaction.target, LINE as f64);
        reaction.advance(at(154));
        assert_eq!(reaction.current, LINE as f64 / 2.0, "a period has 55 us");
        reaction.advance(at(155));
        assert_eq!(reaction.current, LINE as f64 * 0.75);
        assert_eq!(reaction.estimate, 1.0 - 1.0 / 256.0);
        reaction.advance(at(100 + 5 * 55));
        assert_eq!(reaction.current, LINE as f64 * (1.0 - 1.0 / 64.0));
    }

    #[test]
    fn after_fast_recovery_the_rate_rises_in_equal_steps() {
        let mut reaction = ReactionPoint::new(Dcqcn::of_paper(), LINE);
        reaction.cut(at(0));
        reaction.cut(at(0));
        // The rate from before the second cut.
        let before = LINE as f64 / 2.0;
        reaction.advance(at(25 * 55));
        assert_eq!(reaction.target, before + 20.0 * 5e6);
        reaction.advance(Duration::from_secs(60));
        assert_eq!(reaction.current, LINE as f64, "and no further");
    }

    #[test]
    fn bytes_raise_the_rate_as_time_does() {
        let mut reaction = ReactionPoint::new(Dcqcn::of_paper(), LINE);
        reaction.cut(at(0));
        let wait = reaction.send(9_999_999, at(1));
        assert_eq!(wait.as_micros(), 4_000, "at 20 Gb/s");
        assert_eq!(reaction.current, LINE as f64 / 2.0);
        reaction.send(1, at(2));
        assert_eq!(reaction.current, LINE as f64 * 0.75);
    }
}
