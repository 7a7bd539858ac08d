//! Finds how fast a path is that drops what comes too fast, and how long its messages may be.
//!
//! A policer gives no sign before it drops, so its rate is found by being dropped, as seldom as can be. The rate climbs
//! in small steps until messages are lost; what is lost tells by when it left which step was too much. From there the
//! interval between what passed and what did not is halved, each half tried for long enough to use up a policer's
//! burst, until it is narrow; then the rate stays at its lower end. Long afterwards, and each time later, a
//! little more is tried again.
//!
//! Before that comes how long messages may be ([`Sizing`]). From when on one was lost, [`Patience`] knows. On a short path the
//! device mends a loss before that, and what it counts tells of it ([`misses`]).
//!
//! No more is under way than the rate brings in little more than a round trip: what a device or a slower place holds
//! back would only wait there.

mod losses;
mod misses;

use std::time::Duration;

use super::RETRY;
use super::patience::{Arrival, Patience};
use super::rates::Rates;
use super::sizing::Sizing;
use super::trial::Trial;
use super::window::Window;
use misses::{MENDED_AFTER, Misses};

/// A search, between events.
#[derive(Debug)]
pub(super) struct Search {
    phase: Phase,
    rates: Rates,
    sizing: Sizing,
    /// Longer messages are tried, and not a higher rate.
    tries_longer: bool,
    /// Since when the phase lasts: from its first message on.
    phase_since: Option<Duration>,
    /// What leaves at this rate.
    trial: Option<Trial>,
    /// How long a rate is tried.
    trial_time: Duration,
    /// Nothing leaves until then: what was lost may still go again and again at full speed, and make more of it be lost.
    pause: Option<Duration>,
    patience: Patience,
    /// Bytes that arrived since messages were lost.
    arrived: u64,
    /// Losses without a trial that passed between them.
    losses: u32,
    /// When messages were lost by chance, as it seemed.
    chance: Option<Duration>,
    /// Bytes that left, and neither arrived nor were lost.
    under_way: u64,
    /// Too much was under way, and nothing leaves until it is what the path holds.
    is_draining: bool,
    /// What may be under way where the path is short.
    window: Window,
    misses: Misses,
    /// How long the rate stays until a little more is tried.
    rest: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Groups of messages become longer.
    Sizing,
    /// Nothing was lost yet.
    Climbing,
    /// Between a rate that passes and one that does not.
    Narrowing,
    /// A little more is tried.
    Probing,
    /// At a rate that passes.
    Resting,
}

/// How long a step of the climb takes. The burst of a policer hides at most a few of them.
const STEP_TIME: Duration = Duration::from_millis(20);

/// A rate is used by whoever sends so much of what might have left; on a short path, where a loss costs little, by whoever sends so
/// much that a policer notices.
const USED: f64 = 0.8;
const CLOSELY_USED: f64 = 0.97;

const TRIAL_TIME: Duration = Duration::from_millis(250);

/// By what share of it a rate becomes less where trials had to become longer: half of what is left of an interval.
const SPARE: f64 = 0.0125;

const FIRST_REST: Duration = Duration::from_secs(30);

/// How long it stays where it became less by more than it may have had to.
const EASED_REST: Duration = Duration::from_secs(1);

impl Search {
    /// `port` is the rate of the port, in bytes per second; `message_bytes` the longest message that is wanted.
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
            patience: Patience::default(),
            arrived: 0,
            losses: 0,
            chance: None,
            under_way: 0,
            is_draining: false,
            window: Window::new(),
            misses: Misses::default(),
            rest: FIRST_REST,
        }
    }

    /// In bytes per second.
    pub(super) fn rate(&self) -> u64 {
        self.rates.bytes_in(Duration::from_secs(1))
    }

    pub(super) fn message_bytes(&self) -> u64 {
        self.sizing.message_bytes()
    }

    /// How many bytes may leave together.
    pub(super) fn burst(&self) -> u64 {
        match self.phase {
            // The first of a group may be the rest of a piece.
            Phase::Sizing => self.sizing.group_bytes() + self.sizing.message_bytes(),
            // Who is woken late catches up, and a window tells how far.
            _ if self.is_short() => self.sizing.passed_bytes(),
            _ => self.sizing.message_bytes(),
        }
    }

    /// Nothing is to leave before then.
    pub(super) fn pause(&self) -> Duration {
        self.pause.unwrap_or_default()
    }

    /// Until when nothing may leave, if that is so; before that moment it may be looked at again.
    pub(super) fn hold(&mut self, now: Duration) -> Option<Duration> {
        if let Some(until) = self.pause.filter(|&until| until > now) {
            return Some(until);
        }
        if self.misses.is_recovering() {
            return Some(now + RETRY);
        }
        if self.phase == Phase::Sizing {
            return match self.trial {
                Some(trial) => (trial.bytes() >= self.sizing.group_bytes()).then_some(now + RETRY),
                None => Some(self.sizing.next_group()).filter(|&next| next > now),
            };
        }
        if self.is_short() {
            self.is_draining = false;
            return self.is_full_until(now);
        }
        let round_trip = self.patience.round_trip();
        let most_time = round_trip + self.patience.lateness() / 2;
        let [least, most] = [round_trip, most_time].map(|time| self.rates.bytes_in(time));
        if self.is_draining {
            self.is_draining = self.under_way > least.max(2 * self.sizing.message_bytes());
            if !self.is_draining && self.phase == Phase::Climbing {
                self.trial = None;
            }
        } else if self.under_way >= most.max(4 * self.sizing.message_bytes()) {
            self.is_draining = true;
            let posted_at = now.saturating_sub(most_time);
            // A place that is slower than the rate has no other sign.
            if self.phase == Phase::Climbing || !self.patience.is_innocent(posted_at) {
                self.late(posted_at, now);
            }
        }
        self.is_draining.then_some(now + RETRY)
    }

    /// Nobody looked at the path for so long before `now`, though it was time to.
    pub(super) fn overslept(&mut self, by: Duration, now: Duration) {
        self.patience.overslept(by, now, self.circumstances());
    }

    /// A device counts how often it goes back, and did so since somebody looked last, or not.
    pub(super) fn counted(&mut self, went_back: bool, now: Duration) {
        self.patience.counted(went_back, now);
    }

    /// When a message that left at `posted_at` counts as lost.
    pub(super) fn lost_at(&self, posted_at: Duration) -> Duration {
        let at = self.patience.lost_at(posted_at, self.circumstances());
        match self.is_short() {
            true => at.max(posted_at + MENDED_AFTER),
            false => at,
        }
    }

    /// A message leaves.
    pub(super) fn posted(&mut self, bytes: u64, now: Duration) {
        self.under_way += bytes;
        if self.pause.take_if(|until| *until <= now).is_none() && self.pause.is_some() {
            return;
        }
        if self.trial.is_none() {
            self.rates.begin(now);
        }
        self.phase_since.get_or_insert(now);
        let slept = self.patience.slept_in_all();
        let trial = self.trial.get_or_insert_with(|| Trial::new(now, slept));
        trial.posted(bytes);
        let time = self.misses.step_time();
        let is_used = trial.use_of(self.rates.rate(), now, slept) >= USED;
        let is_step = now - trial.began() >= time && is_used;
        // Nothing is known of a path on which nothing has arrived.
        let knows = self.patience.knows();
        if self.phase == Phase::Climbing && self.rates.is_below_port() && is_step && knows {
            self.try_rate(self.rates.step());
        }
    }

    /// A message arrived.
    pub(super) fn completed(&mut self, bytes: u64, posted_at: Duration, now: Duration) {
        self.gone(bytes);
        self.window.arrived(bytes, self.left_at(posted_at, now));
        match self.patience.arrived(posted_at, now, self.circumstances()) {
            // Somebody was busy, or the device would have told.
            _ if self.is_short() => self.arrived += bytes,
            Arrival::TooLate => return self.lost(posted_at),
            Arrival::Late => {
                self.arrived += bytes;
                return self.late(posted_at, now);
            }
            Arrival::InTime => self.arrived += bytes,
        }
        let Some(trial) = self.trial else {
            return;
        };
        let is_resting = self.phase == Phase::Resting && !self.misses.is_eased();
        let since = match self.phase_since {
            // Chance does not make it longer.
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
            // The next step comes before anything is known of this one, but for the last.
            Phase::Climbing if self.rates.is_below_port() => return,
            Phase::Climbing | Phase::Narrowing | Phase::Probing => self.trial_time,
            Phase::Resting if is_resting => self.rest,
            Phase::Resting => EASED_REST,
        };
        if posted_at < since + time {
            return;
        }
        let slept = self.patience.slept_in_all();
        let least_use = if self.is_short() { CLOSELY_USED } else { USED };
        let is_used = trial.use_of(self.rates.rate(), now, slept) >= least_use;
        if !is_resting && !is_used {
            // Nobody sent so much: it proves nothing.
            self.trial = None;
            return;
        }
        self.passed();
    }

    /// A message of a group is there.
    fn group_arrived(&mut self, bytes: u64, now: Duration) {
        if self.sizing.arrived(bytes) {
            if !self.misses.await_look(now) {
                self.group_passed(now);
            }
        } else if self.under_way == 0 && !self.misses.awaits_look() {
            // Nobody had so much to send.
            self.trial = None;
            self.sizing.follow(now, self.rate());
        }
    }

    /// All of a group is there, and nothing of it was lost.
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

    /// The rate was tried for long enough, and nothing was lost.
    fn passed(&mut self) {
        if self.has_other_reason() {
            // How long messages take is learned anew.
            self.patience.forget();
        }
        self.losses = 0;
        self.rates.passed();
        match self.phase {
            Phase::Sizing => {}
            Phase::Climbing => self.go(Phase::Resting, self.rates.low()),
            Phase::Narrowing if !self.rates.is_narrow(self.is_short()) => self.halve(),
            // Seldom is a policer's rate so little less than what was lost at: it may have been chance.
            Phase::Narrowing if self.rates.is_doubtful() => {
                self.go(Phase::Climbing, self.rates.low());
            }
            Phase::Narrowing => self.settle(),
            Phase::Probing if std::mem::take(&mut self.tries_longer) => {
                self.go(Phase::Resting, self.rates.low());
            }
            // There is more to be had: how much, another climb tells.
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

    /// So many bytes are not under way any more.
    pub(super) fn gone(&mut self, bytes: u64) {
        self.under_way = self.under_way.saturating_sub(bytes);
    }

    /// A rate passed, and one that is little more does not.
    pub(super) fn settle(&mut self) {
        if self.is_short() {
            self.rates.lower(self.hidden());
        } else if self.trial_time > TRIAL_TIME {
            // What passed has failed once: a policer's burst hides for long that it is too much by little.
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
        self.misses.forgive();
    }
}
