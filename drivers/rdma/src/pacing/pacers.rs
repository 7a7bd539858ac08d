//! The pacers of a channel: one for each of its rails, because each rail is a path of its own.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::pacer::Pacer;
use super::path::Path;
use crate::provider::{Endpoint, queue_pairs_on, rail_of};

/// The pacers of a channel, by rail. There is at least one.
#[derive(Debug)]
pub(crate) struct Pacers(Vec<Pacer>);

/// A channel without further rails.
#[cfg(any(test, fuzzing))]
impl From<Pacer> for Pacers {
    fn from(pacer: Pacer) -> Self {
        Self(vec![pacer])
    }
}

impl Pacers {
    /// A pacer for each of these paths, at least one. `queue_pairs` are those of the channel; 0 if completions are not reported.
    pub(crate) fn new(paths: &[Arc<Path>], queue_pairs: usize) -> Self {
        debug_assert!(!paths.is_empty(), "a channel has a path");
        let pacer = |(rail, path)| {
            let of_rail = queue_pairs_on(rail, queue_pairs, paths.len());
            Pacer::new(Arc::clone(path), of_rail).on_rail(rail)
        };
        Self(paths.iter().enumerate().map(pacer).collect())
    }

    /// Has the adapters limit the queue pairs to equal parts of the rate of their path, which so many channels share. So many
    /// bytes may then be handed to them at once. If one of the adapters does not, none does.
    pub(crate) fn limit(&mut self, channels: usize, burst: u64, endpoint: &mut dyn Endpoint) {
        let mut pacers = self.0.iter_mut();
        if !pacers.all(|pacer| pacer.limit(channels, burst, endpoint)) {
            endpoint.lift_limits();
            self.0.iter_mut().for_each(Pacer::end_limit);
        }
    }

    /// The number of rails.
    pub(crate) fn rails(&self) -> usize {
        self.0.len()
    }

    /// The pacer of a queue pair, and the number of the queue pair on its rail.
    fn of(&self, queue_pair: usize) -> (&Pacer, usize) {
        let rails = self.rails();
        (&self.0[rail_of(queue_pair, rails)], queue_pair / rails)
    }

    fn of_mut(&mut self, queue_pair: usize) -> (&mut Pacer, usize) {
        let rails = self.rails();
        (&mut self.0[rail_of(queue_pair, rails)], queue_pair / rails)
    }

    /// The paced rate of all rails together in bytes per second; `None` if messages are not paced.
    pub(crate) fn rate(&self) -> Option<u64> {
        let mut rates = self.0.iter().map(Pacer::rate);
        rates.try_fold(0, |sum: u64, rate| Some(sum.saturating_add(rate?)))
    }

    /// See [`Pacer::message_bytes`].
    pub(crate) fn message_bytes(&self, queue_pair: usize, wanted: u64) -> u64 {
        self.of(queue_pair).0.message_bytes(wanted)
    }

    /// The longest message on any rail, at most `wanted` bytes.
    pub(crate) fn longest_message(&self, wanted: u64) -> u64 {
        let longest = self.0.iter().map(|pacer| pacer.message_bytes(wanted));
        longest.max().unwrap_or(wanted)
    }

    /// See [`Pacer::wake`].
    pub(crate) fn wake(&mut self, now: Duration, endpoint: &mut dyn Endpoint) {
        for pacer in &mut self.0 {
            pacer.wake(now, endpoint);
        }
    }

    /// See [`Pacer::ready_at`].
    pub(crate) fn ready_at(&self, queue_pair: usize, bytes: u64, now: Duration) -> Duration {
        self.of(queue_pair).0.ready_at(bytes, now)
    }

    /// See [`Pacer::spin_time`].
    pub(crate) fn spin_time(&self, bytes: u64) -> Duration {
        let times = self.0.iter().map(|pacer| pacer.spin_time(bytes));
        times.max().unwrap_or_default()
    }

    /// See [`Pacer::pass`].
    pub(crate) fn pass(&mut self, queue_pair: usize, bytes: u64, now: Duration) -> bool {
        let (pacer, number) = self.of_mut(queue_pair);
        pacer.pass(number, bytes, now)
    }

    /// See [`Pacer::completed`].
    pub(crate) fn completed(&mut self, queue_pair: usize, now: Duration) {
        let (pacer, number) = self.of_mut(queue_pair);
        pacer.completed(number, now);
    }

    /// See [`Pacer::lost`].
    pub(crate) fn lost(&mut self, queue_pair: usize) {
        let (pacer, number) = self.of_mut(queue_pair);
        pacer.lost(number);
    }

    /// See [`Pacer::overdue_at`].
    pub(crate) fn overdue_at(&self, queue_pair: usize) -> Option<Duration> {
        let (pacer, number) = self.of(queue_pair);
        pacer.overdue_at(number)
    }

    /// Whether the times of completions matter.
    pub(crate) fn awaits_completions(&self) -> bool {
        self.0.iter().any(Pacer::awaits_completions)
    }

    /// Bytes in flight on a rail, and bytes that have completed there.
    pub(crate) fn progress(&self, rail: usize) -> (u64, u64) {
        self.0[rail].progress()
    }

    /// The counter of bytes that arrived over all channels of a rail's path.
    pub(crate) fn arrived(&self, rail: usize) -> Arc<AtomicU64> {
        self.0[rail].arrived()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pacing::Rate;

    /// The rates of the rails add up, and one that is ahead does not hold up the other.
    #[test]
    fn each_rail_has_a_pace_of_its_own() {
        let paths = [1000, 500].map(|rate| Path::new(Rate::Fixed(rate), 100));
        let mut pacers = Pacers::new(&paths, 4);
        assert_eq!((pacers.rails(), pacers.rate()), (2, Some(1500)));
        let now = Duration::ZERO;
        // Queue pairs 0 and 2 are on the first rail.
        assert!(pacers.pass(0, 100, now) && pacers.pass(1, 100, now));
        assert!(!pacers.pass(2, 100, now) && !pacers.pass(3, 100, now));
        let ready = [2, 3].map(|queue_pair| pacers.ready_at(queue_pair, 100, now));
        assert_eq!(ready, [100, 200].map(Duration::from_millis));
        assert!(pacers.pass(2, 100, ready[0]) && !pacers.pass(3, 100, ready[0]));
        pacers.completed(0, ready[0]);
        assert_eq!(pacers.progress(0), (100, 100));
        pacers.lost(1);
        assert_eq!(pacers.progress(1), (0, 0));
    }

    #[test]
    fn rails_without_a_pace_have_no_rate() {
        let paths = [(); 2].map(|()| Path::new(Rate::Any, 100));
        assert_eq!(Pacers::new(&paths, 2).rate(), None);
    }
}
