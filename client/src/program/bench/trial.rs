//! The transfers with one setting, and what they have measured.

use gridhaul_stack::{DetailValue, Details};

use super::super::report::amount;
use super::clock::Work;
use super::setting::Setting;
use crate::transfer::Transferred;

/// A number of connections whose rate is this part of the best one is near enough.
pub(super) const NEAR: f64 = 0.92;

/// Another setting must bring this factor: as much as [`NEAR`] gives away.
pub(super) const WORTH: f64 = 1.0 / NEAR;

/// What a trial is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Connections,
    Blocks,
    Rate,
    Ring,
}

impl Stage {
    /// Those that follow the first one, in their order.
    pub(super) const LATER: [Self; 3] = [Self::Blocks, Self::Rate, Self::Ring];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Blocks => "blocks",
            Self::Rate => "rate",
            Self::Ring => "ring",
        }
    }
}

/// The counted transfers of one round.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Sample {
    pub(super) bytes: u64,
    /// The time of all transfers together.
    pub(super) seconds: f64,
    pub(super) transfers: u32,
    /// What there were: a server may have opened fewer than were asked for.
    pub(super) channels: usize,
    /// How the bytes were moved on this machine, where its driver had a choice.
    pub(super) movement: Option<String>,
    pub(super) facts: Facts,
    pub(super) work: Work,
}

/// What the driver of this machine has told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// Segments, or messages of an adapter, that this machine has sent again. `None` if it has not sent, or does not know.
    pub(super) sent_again: Option<u64>,
    /// The microseconds in which TCP had data on its way; then those of them in which the window of the receiver, and the send buffer of
    /// this machine, were full. Of all connections together.
    pub(super) busy: u64,
    pub(super) receiver_limited: u64,
    pub(super) buffer_limited: u64,
    /// The round trip of TCP, in microseconds.
    pub(super) round_trip: Option<u64>,
    /// What this machine has paced its bytes to, in bytes per second and connection.
    pub(super) paced: Option<u64>,
    /// Of rdma, in bytes.
    pub(super) ring: Option<u64>,
    pub(super) message: Option<u64>,
    /// rdma without an adapter: TCP carries it.
    pub(super) is_soft: bool,
}

impl Facts {
    /// Adds a transfer. `sends`: this machine has sent its bytes.
    fn add(&mut self, details: &Details, sends: bool) {
        for detail in details.as_slice() {
            let number = match &detail.value {
                DetailValue::Text(text) => {
                    self.is_soft |= detail.name == "provider" && text == "soft";
                    continue;
                }
                DetailValue::Setting(number)
                | DetailValue::Holding(number)
                | DetailValue::Count(number)
                | DetailValue::Shared(number) => *number,
            };
            match detail.name {
                "retransmits" | "retries" if sends => {
                    let before = self.sent_again.unwrap_or(0);
                    self.sent_again = Some(before.saturating_add(number));
                }
                "busy-us" => self.busy = self.busy.saturating_add(number),
                "receiver-limited-us" => {
                    self.receiver_limited = self.receiver_limited.saturating_add(number);
                }
                "buffer-limited-us" => {
                    self.buffer_limited = self.buffer_limited.saturating_add(number);
                }
                "rtt-us" => self.round_trip = Some(number),
                "rate" if sends => self.paced = Some(number),
                "ring-bytes" => self.ring = Some(number),
                "message-bytes" => self.message = Some(number),
                _ => {}
            }
        }
    }
}

impl Sample {
    pub(super) fn add(&mut self, done: &Transferred, sends: bool) {
        self.bytes = self.bytes.saturating_add(done.bytes);
        self.seconds += done.took.as_secs_f64().max(1e-6);
        self.transfers += 1;
        self.channels = done.channels;
        self.movement.clone_from(&done.movement);
        self.facts.add(&done.details, sends);
    }

    /// In bytes per second.
    #[expect(clippy::cast_precision_loss, reason = "rates need no more digits")]
    fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds.max(1e-6)
    }
}

/// All rounds with one setting.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Trial {
    pub(super) stage: Stage,
    pub(super) setting: Setting,
    pub(super) samples: Vec<Sample>,
    pub(super) error: Option<String>,
}

impl Trial {
    pub(super) fn new(stage: Stage, setting: Setting) -> Self {
        Self {
            stage,
            setting,
            samples: Vec::new(),
            error: None,
        }
    }

    /// Whether it counts: there is a round, and none has failed.
    pub(super) fn counts(&self) -> bool {
        self.error.is_none() && !self.samples.is_empty()
    }

    pub(super) fn name(&self) -> String {
        let count = self.setting.parallel;
        format!("{}, {count} connections", self.setting.name())
    }

    /// The rates of the rounds in bytes per second, the lowest one first.
    pub(super) fn rates(&self) -> Vec<f64> {
        let mut rates: Vec<f64> = self.samples.iter().map(Sample::rate).collect();
        rates.sort_by(f64::total_cmp);
        rates
    }

    /// The median of the rounds, in bytes per second; of an even number the lower one.
    pub(super) fn rate(&self) -> f64 {
        median(self.samples.iter().map(Sample::rate)).unwrap_or(0.0)
    }

    /// The rate of the slowest round.
    pub(super) fn lowest(&self) -> f64 {
        self.rates().first().copied().unwrap_or(0.0)
    }

    /// The rate of the fastest round.
    pub(super) fn highest(&self) -> f64 {
        self.rates().last().copied().unwrap_or(0.0)
    }

    /// From the slowest round to the fastest one, as a part of the median.
    pub(super) fn spread(&self) -> f64 {
        let rates = self.rates();
        match (rates.first(), rates.last()) {
            (Some(first), Some(last)) if self.rate() > 0.0 => (last - first) / self.rate(),
            _ => 0.0,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        let all = self.samples.iter().map(|sample| sample.bytes);
        all.fold(0, u64::saturating_add)
    }

    pub(super) fn seconds(&self) -> f64 {
        self.samples.iter().map(|sample| sample.seconds).sum()
    }

    /// The time of one transfer.
    pub(super) fn transfer_seconds(&self) -> f64 {
        let count: u32 = self.samples.iter().map(|sample| sample.transfers).sum();
        self.seconds() / f64::from(count.max(1))
    }

    /// What was sent again; `None` if this machine does not know.
    pub(super) fn sent_again(&self) -> Option<u64> {
        let known = self.samples.iter().map(|sample| sample.facts.sent_again);
        known.sum()
    }

    /// The same for each gigabyte.
    #[expect(clippy::cast_precision_loss, reason = "a share needs no more digits")]
    pub(super) fn sent_again_each_gigabyte(&self) -> Option<f64> {
        let bytes = self.bytes().max(1) as f64;
        self.sent_again().map(|count| count as f64 / bytes * 1e9)
    }

    /// The parts of the time in which the window of the receiver, and the send buffer of this machine, were full.
    #[expect(clippy::cast_precision_loss, reason = "a share needs no more digits")]
    pub(super) fn limited(&self) -> Option<[f64; 2]> {
        let sum = |of: fn(&Facts) -> u64| {
            let all = self.samples.iter().map(|sample| of(&sample.facts));
            all.fold(0, u64::saturating_add) as f64
        };
        let busy = sum(|facts| facts.busy);
        let parts = [
            sum(|facts| facts.receiver_limited),
            sum(|facts| facts.buffer_limited),
        ];
        (busy > 0.0).then(|| parts.map(|part| (part / busy).min(1.0)))
    }

    /// The processors that this program has used: the median of the rounds.
    pub(super) fn processors(&self) -> f64 {
        let all = self.samples.iter().map(|sample| sample.work.processors);
        median(all).unwrap_or(0.0)
    }

    /// The part of the processors of this machine that was busy: the median of the rounds.
    pub(super) fn busy(&self) -> Option<f64> {
        median(self.samples.iter().filter_map(|sample| sample.work.busy))
    }

    /// What the driver has told last.
    pub(super) fn facts(&self) -> Facts {
        self.samples
            .last()
            .map_or_else(Facts::default, |sample| sample.facts)
    }
}

/// `1.1 GB/s`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates are positive, and shown with few digits"
)]
pub(super) fn rate_words(bytes_per_second: f64) -> String {
    format!("{}/s", amount(bytes_per_second as u64))
}

/// Of an even number the lower one of those in the middle.
fn median(all: impl Iterator<Item = f64>) -> Option<f64> {
    let mut all: Vec<f64> = all.collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
pub(super) mod tests {
    use gridhaul_stack::Detail;

    use super::*;

    /// A trial with these rates of its rounds, in megabytes per second.
    pub(in super::super) fn trial(stage: Stage, setting: Setting, rates: &[f64]) -> Trial {
        let mut trial = Trial::new(stage, setting);
        trial.samples = rates
            .iter()
            .map(|rate| Sample {
                bytes: 1_000_000_000,
                seconds: 1000.0 / rate,
                transfers: 2,
                channels: trial.setting.parallel.into(),
                ..Sample::default()
            })
            .collect();
        trial
    }

    #[test]
    fn medians_of_rounds_count() {
        let setting = Setting {
            stack: None,
            parallel: 2,
            block_bytes: None,
        };
        let odd = trial(Stage::Connections, setting.clone(), &[100.0, 10.0, 90.0]);
        assert!((odd.rate() - 90e6).abs() < 1.0, "{}", odd.rate());
        assert!((odd.spread() - 1.0).abs() < 1e-6, "{}", odd.spread());
        assert!((odd.lowest() - 10e6).abs() < 1.0, "{}", odd.lowest());
        let even = trial(Stage::Connections, setting.clone(), &[100.0, 50.0]);
        assert!((even.rate() - 50e6).abs() < 1.0, "{}", even.rate());
        assert!(!Trial::new(Stage::Ring, setting).counts());
    }

    #[test]
    fn what_only_a_sender_knows_is_not_told_by_a_receiver() {
        let mut known = Details::default();
        let told = [
            Detail::count("retransmits", 3),
            Detail::count("busy-us", 1000),
            Detail::count("receiver-limited-us", 900),
            Detail::text("provider", "soft"),
            Detail::setting("ring-bytes", 1 << 20),
        ];
        known.add(&told, &[]);
        let mut facts = Facts::default();
        facts.add(&known, true);
        facts.add(&known, true);
        assert_eq!(facts.sent_again, Some(6));
        assert_eq!((facts.busy, facts.receiver_limited), (2000, 1800));
        assert_eq!((facts.ring, facts.is_soft), (Some(1 << 20), true));
        let mut facts = Facts::default();
        facts.add(&known, false);
        assert_eq!(facts.sent_again, None);
    }
}
