//! Finds how fast a path is that drops what comes too fast, and how long its messages may be.
//!
//! A policer gives no sign before it drops, so its rate is found by being dropped, as seldom as can be. The rate climbs
//! in small steps until messages are lost; what is lost tells by when it left which step was too much. From there the
//! interval between what passed and what did not is halved, each half tried for long enough to use up a policer's
//! burst, until it is narrow; then the rate stays at its lower end. Long afterwards, and each time later, a
//! little more is tried again.
//!
//! Before that, pairs of messages of growing length go by themselves, until one is wished no longer or a pair does not
//! arrive in time: it is longer than the burst, and would be repeated in vain at any rate.
//!
//! What is lost by chance is repeated by the device and arrives a round trip late; behind a policer what is repeated
//! comes too fast as well, and does not arrive. So what is late is waited for, and some of that in a second is nobody's
//! fault. A path that delays what comes too fast, such as a port that is slower than the rate, is late again and again.
//!
//! No more is under way than the rate brings in little more than a round trip: what a device or a slower place holds
//! back would only wait there.

use std::collections::VecDeque;
use std::time::Duration;

use super::bucket::time_of;
use super::excuses::Excuses;

/// A search, between events.
#[derive(Debug)]
pub(super) struct Search {
    phase: Phase,
    /// In bytes per second.
    rate: f64,
    /// What has passed for some time, and what has not. In bytes per second.
    low: f64,
    high: f64,
    /// In bytes per second.
    port: f64,
    /// The longest message, in bytes, and the longest that is wanted.
    message_bytes: u64,
    wanted_bytes: u64,
    /// Messages of the full length of the pair under trial that are there.
    whole: u32,
    /// When the next pair may leave: the policer's burst is whole again.
    next_pair: Duration,
    /// Longer messages are tried, and not a higher rate.
    tries_longer: bool,
    /// Since when the rate climbs, if it does: from the first message on.
    climbs_since: Option<Duration>,
    /// Since when messages leave at this rate, and how many bytes have: from the first message on.
    trial: Option<Trial>,
    /// How long a rate is tried.
    trial_time: Duration,
    /// Nothing leaves until then: what was lost may still go again and again at full speed, and make more of it be lost.
    pause: Option<Duration>,
    /// Rates and since when, of what may still be under way.
    rates: VecDeque<(Duration, f64)>,
    /// The least that a message took.
    least: Option<Duration>,
    /// Bytes that arrived since messages were lost.
    arrived: u64,
    /// Losses without a trial that passed between them.
    losses: u32,
    /// When messages were lost by chance, as it seemed.
    chance: Option<Duration>,
    /// What was late and did arrive.
    excuses: Excuses,
    /// When this host was too busy to look at the path, and for how long.
    slept: (Duration, Duration),
    /// All of that.
    slept_in_all: Duration,
    /// When a device went back last, where devices count that.
    went_back: Option<Duration>,
    /// Bytes that left, and neither arrived nor were lost.
    under_way: u64,
    /// Too much was under way, and nothing leaves until it is what the path holds.
    is_draining: bool,
    /// How long the rate stays until a little more is tried.
    rest: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Pairs of messages become longer.
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

#[derive(Debug, Clone, Copy)]
struct Trial {
    began: Duration,
    bytes: u64,
    /// [`Search::slept_in_all`] when it began.
    slept: Duration,
}

/// Where the climb begins, in bytes per second, where the port does not tell.
const FIRST_RATE: f64 = 12_500_000.0;
/// The share of the port's rate where it begins.
const FIRST_SHARE: f64 = 1.0 / 64.0;
/// Nothing is slower than that.
const LEAST_RATE: f64 = 125_000.0;

/// A step of the climb, and how long it takes. The burst of a policer hides at most a few of them.
const STEP: f64 = 1.19;
const STEP_TIME: Duration = Duration::from_millis(20);

/// How narrow the interval becomes.
const NARROW: f64 = 1.025;

/// How much more is tried after a rest.
const PROBE: f64 = 1.02;

const TRIAL_TIME: Duration = Duration::from_millis(250);
const MOST_TRIAL_TIME: Duration = Duration::from_secs(4);

const FIRST_REST: Duration = Duration::from_secs(30);
const MOST_REST: Duration = Duration::from_secs(600);

/// After so long at a rate, one loss is chance.
const PROVEN: Duration = Duration::from_secs(5);

/// So many losses without a rate that passed between them have another reason, such as a path that has become longer.
const MOST_LOSSES: u32 = 8;

const LEAST_MESSAGE_BYTES: u64 = 4096;

/// Messages that are tried together. A burst that takes two of them has room for one that comes a little early.
const PAIR: u64 = 2;

/// How long the messages of the first pair are.
const FIRST_MESSAGE_BYTES: u64 = 32 << 10;

/// A message that takes so much longer than the quickest is late, at least: hosts are busy with other things.
const LEAST_LATENESS: Duration = Duration::from_millis(50);

/// Who may not send because of what is under way looks again after so long, if nothing happens before.
const RETRY: Duration = Duration::from_millis(2);

/// What a message may take where none has arrived yet.
const FIRST_PATIENCE: Duration = Duration::from_secs(1);

/// Rates that are remembered; each lasts for a step or longer.
const MOST_RATES: usize = 256;

impl Search {
    /// `port` is the rate of the port, in bytes per second; `message_bytes` the longest message that is wanted.
    pub(super) fn new(port: Option<u64>, message_bytes: u64) -> Self {
        let port = port.map_or(f64::INFINITY, |port| port as f64);
        Self {
            phase: Phase::Sizing,
            rate: first_rate(port),
            low: LEAST_RATE,
            high: f64::INFINITY,
            port,
            message_bytes: message_bytes.min(FIRST_MESSAGE_BYTES),
            wanted_bytes: message_bytes,
            whole: 0,
            next_pair: Duration::ZERO,
            tries_longer: false,
            climbs_since: None,
            trial: None,
            trial_time: TRIAL_TIME,
            pause: None,
            rates: VecDeque::new(),
            least: None,
            arrived: 0,
            losses: 0,
            chance: None,
            excuses: Excuses::default(),
            slept: (Duration::ZERO, Duration::ZERO),
            slept_in_all: Duration::ZERO,
            went_back: None,
            under_way: 0,
            is_draining: false,
            rest: FIRST_REST,
        }
    }

    /// In bytes per second.
    pub(super) fn rate(&self) -> u64 {
        whole_bytes(self.rate)
    }

    pub(super) fn message_bytes(&self) -> u64 {
        self.message_bytes
    }

    /// How many bytes may leave together.
    pub(super) fn burst(&self) -> u64 {
        match self.phase {
            Phase::Sizing => PAIR * self.message_bytes,
            _ => self.message_bytes,
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
        if self.phase == Phase::Sizing {
            return match self.trial {
                Some(trial) => (trial.bytes >= PAIR * self.message_bytes).then_some(now + RETRY),
                None => Some(self.next_pair).filter(|&next| next > now),
            };
        }
        let round_trip = self.least.unwrap_or(FIRST_PATIENCE);
        let most_time = round_trip + self.lateness() / 2;
        let held = |time: Duration| whole_bytes(self.rate * time.as_secs_f64());
        let (least, most) = (held(round_trip), held(most_time));
        if self.is_draining {
            self.is_draining = self.under_way > least.max(2 * self.message_bytes);
            if !self.is_draining && self.phase == Phase::Climbing {
                self.trial = None;
            }
        } else if self.under_way >= most.max(4 * self.message_bytes) {
            self.is_draining = true;
            let posted_at = now.saturating_sub(most_time);
            // A place that is slower than the rate has no other sign.
            if self.phase == Phase::Climbing || !self.is_innocent(posted_at) {
                self.late(posted_at, now);
            }
        }
        self.is_draining.then_some(now + RETRY)
    }

    /// How long a message may take until it counts as late.
    fn patience(&self) -> Duration {
        match self.least {
            // It is not the rate that makes messages be lost: the device has time to repeat them.
            _ if self.losses > MOST_LOSSES => FIRST_PATIENCE,
            // The pair is longer than the one before.
            Some(least) if self.phase == Phase::Sizing => 2 * least + LEAST_LATENESS,
            Some(least) => least + self.lateness(),
            None => FIRST_PATIENCE,
        }
    }

    /// Nobody looked at the path for so long before `now`, though it was time to: what took longer than that did not
    /// on the way.
    pub(super) fn overslept(&mut self, by: Duration, now: Duration) {
        self.slept_in_all += by;
        let (at, before) = self.slept;
        let is_one = now.saturating_sub(at) < self.give_up_after();
        self.slept = (now, if is_one { before + by } else { by });
    }

    /// A device counts how often it goes back, and did so since somebody looked last, or not.
    pub(super) fn counted(&mut self, went_back: bool, now: Duration) {
        if went_back || self.went_back.is_none() {
            self.went_back = Some(now);
        }
    }

    /// When a message that left at `posted_at` counts as lost.
    pub(super) fn lost_at(&self, posted_at: Duration) -> Duration {
        let mut time = self.give_up_after();
        if self.is_innocent(posted_at) {
            // It may have been the last of many, so that the device does not know.
            time *= 2;
        }
        posted_at + time + self.slept_since(posted_at)
    }

    /// Whether no device went back since then: what is late is not lost, but somebody is busy.
    fn is_innocent(&self, posted_at: Duration) -> bool {
        self.went_back.is_some_and(|last| last < posted_at)
    }

    /// How much of the time since then nobody looked.
    fn slept_since(&self, posted_at: Duration) -> Duration {
        let (at, by) = self.slept;
        if posted_at < at { by } else { Duration::ZERO }
    }

    /// How long a message may take until it counts as lost: a device that misses it hears of that after a round trip, and
    /// it takes another one.
    fn give_up_after(&self) -> Duration {
        let repeated = self.least.map(|least| 2 * least + 3 * self.lateness() / 2);
        match repeated {
            // While nothing leaves, what is late is what was lost already.
            Some(repeated) if self.phase != Phase::Sizing && self.pause.is_none() => {
                repeated.max(self.patience())
            }
            _ => self.patience(),
        }
    }

    fn lateness(&self) -> Duration {
        self.least
            .map_or(LEAST_LATENESS, |least| LEAST_LATENESS.max(least / 2))
    }

    /// A message leaves.
    pub(super) fn posted(&mut self, bytes: u64, now: Duration) {
        self.under_way += bytes;
        if self.pause.take_if(|until| *until <= now).is_none() && self.pause.is_some() {
            return;
        }
        if self.trial.is_none() {
            if self.rates.len() >= MOST_RATES {
                self.rates.pop_front();
            }
            self.rates.push_back((now, self.rate));
        }
        self.climbs_since.get_or_insert(now);
        let trial = self.trial.get_or_insert(Trial {
            began: now,
            bytes: 0,
            slept: self.slept_in_all,
        });
        trial.bytes += bytes;
        let trial = *trial;
        let is_step = now - trial.began >= STEP_TIME && self.is_used(now);
        // Nothing is known of a path on which nothing has arrived.
        let knows = self.least.is_some();
        if self.phase == Phase::Climbing && self.rate < self.port && is_step && knows {
            self.try_rate((self.rate * STEP).min(self.port));
        }
    }

    /// A message arrived.
    pub(super) fn completed(&mut self, bytes: u64, posted_at: Duration, now: Duration) {
        self.gone(bytes);
        let all = now.saturating_sub(posted_at);
        let took = all.saturating_sub(self.slept_since(posted_at));
        let is_innocent = self.is_innocent(posted_at);
        if took > self.give_up_after() && !is_innocent {
            self.lost(posted_at);
            return;
        }
        self.arrived += bytes;
        if took > self.patience() && !is_innocent {
            self.late(posted_at, now);
            return;
        }
        self.least = Some(self.least.map_or(all, |least| least.min(all)));
        let Some(trial) = self.trial else {
            return;
        };
        let time = match self.phase {
            Phase::Sizing => {
                if posted_at >= trial.began {
                    self.pair_arrived(bytes, now);
                }
                return;
            }
            // The next step comes before anything is known of this one, but for the last.
            Phase::Climbing if self.rate < self.port => return,
            Phase::Climbing | Phase::Narrowing | Phase::Probing => self.trial_time,
            Phase::Resting => self.rest,
        };
        if posted_at < trial.began + time {
            return;
        }
        if self.phase != Phase::Resting && !self.is_used(now) {
            // Nobody sent so much: it proves nothing.
            self.trial = None;
            return;
        }
        self.passed();
    }

    /// A message of a pair is there.
    fn pair_arrived(&mut self, bytes: u64, now: Duration) {
        self.whole += u32::from(bytes == self.message_bytes);
        if u64::from(self.whole) == PAIR {
            if self.message_bytes == self.wanted_bytes {
                self.go(Phase::Climbing, self.rate);
                return;
            }
            self.message_bytes = (2 * self.message_bytes).min(self.wanted_bytes);
            self.next_pair(now);
        } else if self.under_way == 0 {
            // Nobody had so much to send.
            self.next_pair(now);
        }
    }

    fn next_pair(&mut self, now: Duration) {
        (self.trial, self.whole) = (None, 0);
        self.next_pair = now + time_of(PAIR * self.message_bytes, self.rate());
    }

    /// The rate was tried for long enough, and nothing was lost.
    fn passed(&mut self) {
        if self.losses > MOST_LOSSES {
            // How long messages take is learned anew.
            self.least = None;
        }
        self.losses = 0;
        self.low = self.rate;
        match self.phase {
            Phase::Sizing => {}
            Phase::Climbing => self.go(Phase::Resting, self.low),
            Phase::Narrowing if self.high / self.low <= NARROW => self.go(Phase::Resting, self.low),
            Phase::Narrowing => self.halve(),
            Phase::Probing if std::mem::take(&mut self.tries_longer) => {
                self.go(Phase::Resting, self.low);
            }
            // There is more to be had: how much, another climb tells.
            Phase::Probing => self.go(Phase::Climbing, self.low),
            Phase::Resting if self.message_bytes < self.wanted_bytes => {
                self.tries_longer = true;
                self.message_bytes = (self.message_bytes * 2).min(self.wanted_bytes);
                self.go(Phase::Probing, self.low);
            }
            Phase::Resting if self.rate < self.port => {
                self.go(Phase::Probing, (self.low * PROBE).min(self.port));
            }
            Phase::Resting => self.trial = None,
        }
    }

    /// So many bytes are not under way any more.
    pub(super) fn gone(&mut self, bytes: u64) {
        self.under_way = self.under_way.saturating_sub(bytes);
    }

    /// Messages from `posted_at` on take too long, and may arrive.
    fn late(&mut self, posted_at: Duration, now: Duration) {
        if !self.excuses.excuses(posted_at, now) {
            self.lost(posted_at);
        }
    }

    /// Messages from `posted_at` on were lost.
    pub(super) fn lost(&mut self, posted_at: Duration) {
        let began = match self.phase {
            Phase::Climbing => self.climbs_since,
            _ => self.trial.map(|trial| trial.began),
        };
        let is_early = began.is_none_or(|began| posted_at < began);
        // What left at an earlier rate says nothing of this one, but where it climbs.
        if is_early || self.pause.is_some() {
            return;
        }
        self.losses += 1;
        let arrived = std::mem::take(&mut self.arrived);
        let give_up_after = self.give_up_after();
        if self.phase == Phase::Sizing {
            self.shorten();
            if arrived > 0 {
                // Half of it has passed. Half of that leaves room for messages that a busy host sends late and together.
                self.shorten();
                self.go(Phase::Climbing, self.rate);
            }
            self.whole = 0;
        } else if arrived == 0 && self.message_bytes > LEAST_MESSAGE_BYTES {
            // Not even the first one passed: it is longer than the policer's burst.
            self.shorten();
            if self.phase == Phase::Climbing {
                self.try_rate(self.low.max(first_rate(self.port)));
            }
        } else {
            self.judge(posted_at);
        }
        self.trial = None;
        // It was noticed when that time was over; what left last has its own.
        self.pause = Some(posted_at + give_up_after + self.patience());
    }

    /// Draws conclusions from a loss.
    fn judge(&mut self, posted_at: Duration) {
        match self.phase {
            Phase::Sizing => {}
            Phase::Climbing => {
                self.high = self.rate_at(posted_at);
                self.low = self.low.max(self.high / (STEP * STEP)).min(self.high);
                self.halve();
            }
            Phase::Narrowing => {
                self.high = self.rate;
                if self.high / self.low <= NARROW {
                    self.distrust();
                }
                self.halve();
            }
            Phase::Probing => {
                if std::mem::take(&mut self.tries_longer) {
                    self.shorten();
                }
                self.rest = (self.rest * 2).min(MOST_REST);
                self.go(Phase::Resting, self.low);
            }
            Phase::Resting if self.is_chance(posted_at) => self.chance = Some(posted_at),
            Phase::Resting => {
                self.high = self.rate;
                self.distrust();
                self.halve();
            }
        }
    }

    /// What passed before did so on the policer's burst, or is no longer true.
    fn distrust(&mut self) {
        self.low = (self.low / STEP).max(LEAST_RATE);
        self.trial_time = (self.trial_time * 2).min(MOST_TRIAL_TIME);
    }

    /// Tries the middle of the interval.
    fn halve(&mut self) {
        self.go(Phase::Narrowing, (self.low * self.high).sqrt());
    }

    fn shorten(&mut self) {
        self.message_bytes =
            (self.message_bytes / 2).max(LEAST_MESSAGE_BYTES.min(self.wanted_bytes));
    }

    /// Whether a loss may be nobody's fault: the rate was good for long, and nothing was lost lately.
    fn is_chance(&self, lost_at: Duration) -> bool {
        let began = self.trial.map(|trial| trial.began);
        let since = began.max(self.chance);
        since.is_some_and(|since| lost_at.saturating_sub(since) >= PROVEN)
    }

    fn go(&mut self, phase: Phase, rate: f64) {
        self.phase = phase;
        self.climbs_since = None;
        self.try_rate(rate);
    }

    fn try_rate(&mut self, rate: f64) {
        self.rate = rate.max(LEAST_RATE);
        self.trial = None;
    }

    /// Whether as much left as might have.
    fn is_used(&self, now: Duration) -> bool {
        self.trial.is_some_and(|trial| {
            let slept = self.slept_in_all - trial.slept;
            let awake = now.saturating_sub(trial.began).saturating_sub(slept);
            let allowed = awake.as_secs_f64() * self.rate;
            trial.bytes as f64 >= 0.8 * allowed
        })
    }

    /// The rate at which a message left.
    fn rate_at(&self, posted_at: Duration) -> f64 {
        let since = self
            .rates
            .iter()
            .rev()
            .find(|(since, _)| *since <= posted_at);
        since.map_or(self.rate, |(_, rate)| *rate)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "`as` saturates")]
#[expect(clippy::cast_sign_loss, reason = "nothing is negative here")]
fn whole_bytes(bytes: f64) -> u64 {
    bytes as u64
}

/// Where the climb begins, in bytes per second.
fn first_rate(port: f64) -> f64 {
    if port.is_finite() {
        (port * FIRST_SHARE).max(LEAST_RATE)
    } else {
        FIRST_RATE
    }
}
