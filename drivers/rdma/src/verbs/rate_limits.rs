//! Limits of rates in the adapters.
//!
//! The pacers of a channel set them, and change them when others begin or end to share its path. A limit that no pacer keeps up any
//! more would hold its queue pair at an old part of the rate, also where that could have all of it. So either the adapters of all
//! rails limit their queue pairs, and those that replace them, or none of them does.

use super::VerbsEndpoint;
use super::adapter::Rail;
use super::limiter;
use super::queue_pair::QueuePair;
use crate::provider::rail_of;

impl VerbsEndpoint {
    /// Whether the adapters of all rails limit their queue pairs.
    pub(super) fn is_limited(&self) -> bool {
        self.rails.iter().all(|rail| rail.path.limit.is_some())
    }

    /// Limits each queue pair of a rail to so many bytes of payload per second. Returns whether the adapter does so; if not, no
    /// rail has limits any more.
    pub(super) fn limit_rail(&mut self, rail: usize, rate: u64) -> bool {
        let Some(known) = self.rails.get_mut(rail) else {
            return false;
        };
        known.path.limit = Some(rate);
        let known = *known;
        let is_limited = known.kilobits(rate).is_some()
            && self
                .connected_on(rail)
                .all(|queue_pair| known.limit(queue_pair));
        if !is_limited {
            self.lift_all_limits();
        }
        is_limited
    }

    /// Lifts the limits of all queue pairs. Those that replace them get none.
    pub(super) fn lift_all_limits(&mut self) {
        for rail in 0..self.rails.len() {
            let path = &mut self.rails[rail].path;
            path.limit = None;
            if let Some(range) = path.rate_range {
                self.connected_on(rail)
                    .for_each(|queue_pair| queue_pair.lift_limit(range.most));
            }
        }
    }

    /// The queue pairs of a rail that this end has connected.
    fn connected_on(&mut self, rail: usize) -> impl Iterator<Item = &mut QueuePair> {
        let rails = self.rails.len();
        let slots = self.slots.iter_mut().enumerate();
        let on_rail = slots.filter(move |(number, _)| rail_of(*number, rails) == rail);
        on_rail.filter_map(|(_, slot)| slot.connected())
    }
}

impl Rail {
    /// Limits a connected queue pair, if those of the rail are limited. Returns `false` if the adapter refuses that.
    pub(super) fn limit(&self, queue_pair: &mut QueuePair) -> bool {
        let Some(rate) = self.path.limit else {
            return true;
        };
        let kilobits = self.kilobits(rate);
        kilobits.is_some_and(|kilobits| queue_pair.limit(kilobits))
    }

    /// The limit of a queue pair that sends so many bytes of payload per second, if the adapter has such a limit.
    fn kilobits(&self, rate: u64) -> Option<u32> {
        limiter::kilobits(rate, self.mtu(), self.path.rate_range?)
    }
}
