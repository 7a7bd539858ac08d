//! Finds the rate of a path with a policer, and the longest message that it passes.
//!
//! A policer gives no signal before it drops, so its rate can only be found by losses, which should be
//! few. The rate climbs in small steps until messages are lost; the time at which they were sent
//! identifies the step that was too fast. Then a binary search narrows the interval between the
//! passing and the failing rate; each rate is tried for long enough to use up a policer's burst. When
//! the interval is narrow, the rate stays at its lower end. After a long time, which grows, a
//! slightly higher rate is probed.
//!
//! Before the rate, the length of messages is found ([`Sizing`]). [`RoundTripEstimator`] decides when a
//! message is lost. On a short path the device repairs a loss before that, and the device's
//! counters reveal it ([`misses`]).
//!
//! The bytes in flight are limited to little more than the product of rate and round trip time:
//! more would only queue in the device or at a bottleneck.

mod losses;
mod misses;
#[cfg(test)]
mod tests;

use std::time::Duration;

use super::RETRY_INTERVAL;
use super::estimator::RoundTripEstimator;
use super::pace::bytes_in_wake_up;
use super::rates::Rates;
use super::sizing::Sizing;
use super::trial::Trial;
use super::window::Window;
use misses::{MENDED_AFTER, Misses};

/// The state of a search.
#[derive(Debug)]
pub(super) struct Search {
    phase: Phase,
    rates: Rates,
    sizing: Sizing,
    /// A climb in message length and not in rate.
    tries_longer: bool,
    /// When the first message of this phase was sent.
    phase_since: Option<Duration>,
    /// The trial of the present rate.
    trial: Option<Trial>,
    /// How long a rate is tried.
    trial_time: Duration,
    /// Sending is paused until then: devices may still be retransmitting the loss at full speed, and
    /// cause more loss.
    pause: Option<Duration>,
    estimator: RoundTripEstimator,
    /// Bytes that arrived since the last loss.
    arrived: u64,
    /// Bytes that were sent and have neither arrived nor been lost.
    under_way: u64,
    /// The bound of the bytes in flight on a short path.
    window: Window,
    misses: Misses,
    /// How long the rate stays before a higher one is probed.
    rest: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Finding the length of messages with growing groups.
    Sizing,
    /// Raising the rate until the first loss.
    Climbing,
    /// Halving the interval between the passing and the failing rate.
    Narrowing,
    /// Trying a slightly higher rate.
    Probing,
    /// Staying at a rate that passes.
    Resting,
}

/// The time of a step of a climb. A policer's burst hides at most a few steps.
const STEP_TIME: Duration = Duration::from_millis(20);

/// A trial counts only if the sender used at least this share of the allowed rate; on a short path,
/// where a loss costs little, enough of it for a policer to notice.
const USED: f64 = 0.8;
const CLOSELY_USED: f64 = 0.97;

const TRIAL_TIME: Duration = Duration::from_millis(250);

/// The share by which the rate is lowered where trials had to become longer: half of the remaining
/// interval.
const SPARE: f64 = 0.0125;

const FIRST_REST: Duration = Duration::from_secs(30);

/// The rest after a reduction that may have been larger than necessary.
const EASED_REST: Duration = Duration::from_secs(1);

impl Search {
    /// `port` is the rate of the port in bytes per second; `message_bytes` the longest message
    /// wanted.
    pub(super) fn new(port: Option<u64>, message_bytes: u64) -> Self {
        Self {
            phase: Phase::Sizing,
            rates: Rates::new(port),
            sizing: Sizing::new(message_bytes),
            tries_longer: false,
            phase_since: None,
            trial: None,
            trial_time: TRIAL_TIME,
            pause: None,
            estimator: RoundTripEstimator::default(),
            arrived: 0,
            under_way: 0,
            window: Window::new(),
            misses: Misses::default(),
            rest: FIRST_REST,
        }
    }

    /// The rate in bytes per second.
    pub(super) fn rate(&self) -> u64 {
        self.rates.bytes_in(Duration::from_secs(1))
    }

    pub(super) fn message_bytes(&self) -> u64 {
        self.sizing.message_bytes()
    }

    /// Bytes that may be sent together.
    pub(super) fn burst(&self) -> u64 {
        match self.phase {
            // The first message of a group may be the rest of a piece.
            Phase::Sizing => self.sizing.group_bytes() + self.sizing.message_bytes(),
            // A sender that is scheduled late catches up; the window bounds how far.
            _ if self.is_short() => self.sizing.passed_bytes(),
            // Policers pass more than this at once: their bursts are some milliseconds of their rate.
            _ => self.sizing.message_bytes() + bytes_in_wake_up(self.rate()),
        }
    }

    /// The end of the pause.
    pub(super) fn pause(&self) -> Duration {
        self.pause.unwrap_or_default()
    }

    /// The time before which no message may be sent, or when to check again.
    pub(super) fn hold(&mut self, now: Duration) -> Option<Duration> {
        if let Some(until) = self.pause.filter(|&until| until > now) {
            return Some(until);
        }
        if self.misses.is_recovering() {
            return Some(now + RETRY_INTERVAL);
        }
        if self.phase == Phase::Sizing {
            return match self.trial {
                Some(trial) => {
                    (trial.bytes() >= self.sizing.group_bytes()).then_some(now + RETRY_INTERVAL)
                }
                None => Some(self.sizing.next_group()).filter(|&next| next > now),
            };
        }
        if self.is_short() {
            return self.is_full_until(now);
        }
        let most_time = self.estimator.round_trip() + self.estimator.lateness() / 2;
        let most = self.rates.bytes_in(most_time);
        if self.under_way < most.max(4 * self.sizing.message_bytes()) {
            return None;
        }
        let posted_at = now.saturating_sub(most_time);
        // A bottleneck with a queue that is slower than the rate gives no other sign.
        if self.phase == Phase::Climbing || !self.estimator.was_not_repeated(posted_at) {
            self.late(posted_at, now);
        }
        Some(now + RETRY_INTERVAL)
    }

    /// Whether the device's count of retransmissions has grown since it was read last.
    pub(super) fn counted(&mut self, went_back: bool, now: Duration) {
        self.estimator.counted(went_back, now);
    }

    /// When a message sent at `posted_at` counts as lost.
    pub(super) fn lost_at(&self, posted_at: Duration) -> Duration {
        let at = self.estimator.lost_at(posted_at, self.pause.is_some());
        match self.is_short() {
            true => at.max(posted_at + MENDED_AFTER),
            false => at,
        }
    }

    /// A message is sent.
    pub(super) fn posted(&mut self, bytes: u64, now: Duration) {
        self.under_way += bytes;
        if self.pause.take_if(|until| *until <= now).is_none() && self.pause.is_some() {
            return;
        }
        if self.trial.is_none() {
            self.rates.begin(now);
        }
        self.phase_since.get_or_insert(now);
        let trial = self.trial.get_or_insert_with(|| Trial::new(now));
        trial.posted(bytes);
        let time = self.misses.step_time();
        let is_used = trial.use_of(self.rates.rate(), now) >= USED;
        let is_step = now - trial.began() >= time && is_used;
        // Without an arrival there is no estimate of the round trip.
        let is_measured = self.estimator.is_measured();
        if self.phase == Phase::Climbing && self.rates.is_below_port() && is_step && is_measured {
            self.try_rate(self.rates.step());
        }
    }

    /// A message arrived.
    pub(super) fn completed(&mut self, bytes: u64, posted_at: Duration, now: Duration) {
        self.gone(bytes);
        self.window.arrived(bytes, self.left_at(posted_at, now));
        let is_late = self.estimator.arrived(posted_at, now);
        self.arrived += bytes;
        // On a short path the delay is that of a busy host: after a loss the device's counters would have grown.
        if is_late && !self.is_short() {
            return self.late(posted_at, now);
        }
        let Some(trial) = self.trial else {
            return;
        };
        let is_resting = self.phase == Phase::Resting && !self.misses.is_eased();
        let since = match self.phase_since {
            // A random loss does not prolong it.
            Some(since) if is_resting => since,
            _ => trial.began(),
        };
        let time = match self.phase {
            Phase::Sizing => {
                if posted_at >= trial.began() {
                    self.group_arrived(bytes, now);
                }
                return;
            }
            // The next step begins before the outcome of this one is known, unless it is the last.
            Phase::Climbing if self.rates.is_below_port() => return,
            Phase::Climbing | Phase::Narrowing | Phase::Probing => self.trial_time,
            Phase::Resting if is_resting => self.rest,
            Phase::Resting => EASED_REST,
        };
        if posted_at < since + time {
            return;
        }
        let least_use = if self.is_short() { CLOSELY_USED } else { USED };
        let is_used = trial.use_of(self.rates.rate(), now) >= least_use;
        if !is_resting && !is_used {
            // The sender used too little of the rate for a valid trial.
            self.trial = None;
            return;
        }
        self.passed();
    }

    /// A message of a group has arrived.
    fn group_arrived(&mut self, bytes: u64, now: Duration) {
        if self.sizing.arrived(bytes) {
            if !self.misses.await_look(now) {
                self.group_passed(now);
            }
        } else if self.under_way == 0 && !self.misses.awaits_look() {
            // The sender used too little of the rate for a valid trial.
            self.trial = None;
            self.sizing.follow(now, self.rate());
        }
    }

    /// A whole group has arrived without loss.
    fn group_passed(&mut self, now: Duration) {
        self.sizing.passed();
        if self.sizing.is_longest() {
            self.go(Phase::Climbing, self.rates.rate());
            return;
        }
        self.sizing.lengthen();
        self.trial = None;
        self.sizing.follow(now, self.rate());
    }

    /// The rate was tried for long enough without loss.
    fn passed(&mut self) {
        self.rates.passed();
        match self.phase {
            Phase::Sizing => {}
            Phase::Climbing => self.go(Phase::Resting, self.rates.low()),
            Phase::Narrowing if !self.rates.is_narrow(self.is_short()) => self.halve(),
            // A policer's rate is rarely this close below a failing one: that loss may have been
            // random.
            Phase::Narrowing if self.rates.is_doubtful() => {
                self.go(Phase::Climbing, self.rates.low());
            }
            Phase::Narrowing => self.settle(),
            Phase::Probing if std::mem::take(&mut self.tries_longer) => {
                self.go(Phase::Resting, self.rates.low());
            }
            // A higher rate passes; another climb finds the limit.
            Phase::Probing => self.go(Phase::Climbing, self.rates.low()),
            Phase::Resting if self.misses.take_eased() => self.halve(),
            Phase::Resting if !self.sizing.is_longest() && !self.is_short() => {
                self.tries_longer = true;
                self.sizing.lengthen();
                self.go(Phase::Probing, self.rates.low());
            }
            Phase::Resting if self.rates.is_below_port() => {
                self.go(Phase::Probing, self.rates.probe());
            }
            Phase::Resting => self.go(Phase::Resting, self.rates.low()),
        }
    }

    /// This many bytes left the flight.
    pub(super) fn gone(&mut self, bytes: u64) {
        self.under_way = self.under_way.saturating_sub(bytes);
    }

    /// The rate passed, and a slightly higher one fails.
    pub(super) fn settle(&mut self) {
        if self.is_short() {
            self.rates.lower(self.hidden());
        } else if self.trial_time > TRIAL_TIME {
            // The passing rate has failed once: a policer's burst can hide a small excess for long.
            self.rates.lower(self.rates.low() * SPARE);
        }
        self.go(Phase::Resting, self.rates.low());
    }

    fn go(&mut self, phase: Phase, rate: f64) {
        if phase != Phase::Resting {
            self.misses.look_anew();
        }
        self.phase = phase;
        self.phase_since = None;
        self.try_rate(rate);
    }

    fn try_rate(&mut self, rate: f64) {
        self.rates.set(rate);
        self.trial = None;
        self.misses.begin_rate();
    }
}
