//! How queue pairs end and are connected again.
//!
//! The two ends coordinate over a separate connection, like the connection manager of real verbs: a
//! loss at one end is reported to the other, which agrees to a new generation. From then on, packets
//! of the earlier generation are ignored.

use super::event::{EventKind, Place};
use super::fabric::{End, Fabric};
use super::queue_pair::QueuePair;
use crate::provider::{Completion, Loss};

impl Fabric {
    /// A queue pair fails, and the reason is reported to its user.
    pub(crate) fn fail(&mut self, place: Place, reason: &str) {
        if self.give_up(place, None) {
            self.complete_lost(place, Loss::Failed(reason.to_owned()));
        }
    }

    /// Ends a queue pair and reports that to the other end; with a reason if it will not be restored.
    /// Returns `false` if it is lost already.
    pub(crate) fn give_up(&mut self, place: Place, ended: Option<Loss>) -> bool {
        let is_news = self.lives(place);
        if is_news || ended.is_some() {
            self.queue_pair(place).living = false;
            let now = self.now;
            let at = self.port(place).wire.carry_reliably(now);
            self.plan(at, place.peer(), EventKind::PeerLost { ended });
        }
        is_news
    }

    /// Aborts an end of a channel.
    pub(crate) fn abort(&mut self, host: usize, channel: usize) {
        for place in self.places(host, channel) {
            self.give_up(place, Some(Loss::Reset));
        }
        self.hosts[host].ends[channel].is_over = true;
    }

    /// Ends an end of a channel whose requests have all completed. The loss is reported when the peer
    /// has ended it as well.
    pub(crate) fn finish(&mut self, host: usize, channel: usize) {
        self.hosts[host].ends[channel].is_ended = true;
        for place in self.places(host, channel) {
            if !self.give_up(place, Some(Loss::Closed)) {
                self.complete_lost(place, Loss::Closed);
            }
        }
    }

    /// Ends an end of a channel when all of its requests have completed.
    pub(crate) fn leave(&mut self, host: usize, channel: usize) {
        if std::mem::replace(&mut self.hosts[host].ends[channel].is_over, true) {
            return;
        }
        for place in self.places(host, channel) {
            if self.lives(place) {
                self.queue_pair(place).closing = true;
                self.close_if_done(place);
            } else {
                // The other end may wait for this report.
                self.give_up(place, Some(Loss::Closed));
            }
        }
    }

    pub(crate) fn close_if_done(&mut self, place: Place) {
        let queue_pair = self.queue_pair(place);
        if queue_pair.closing && queue_pair.living && queue_pair.pending() == 0 {
            self.give_up(place, Some(Loss::Closed));
        }
    }

    fn places(&self, host: usize, channel: usize) -> Vec<Place> {
        let queue_pairs = self.hosts[host].ends[channel].queue_pairs.iter();
        let place = |(queue_pair, known): (usize, &QueuePair)| Place {
            host,
            channel,
            queue_pair,
            generation: known.generation,
        };
        queue_pairs.enumerate().map(place).collect()
    }

    /// The other end lost or gave up the queue pair.
    pub(crate) fn peer_lost(&mut self, place: Place, ended: Option<Loss>) {
        let is_news = self.lives(place);
        let known = self.queue_pair(place);
        if known.generation != place.generation {
            return;
        }
        known.living = false;
        let loss = ended.clone().unwrap_or(Loss::Reset);
        if is_news {
            self.complete_lost(place, loss.clone());
        }
        let is_ended = self.end(place).is_ended;
        if ended.is_some() && (self.settings.replaces || is_ended) {
            // A second report means that it will not be restored.
            self.complete_lost(place, loss);
        } else if ended.is_none() && self.settings.replaces {
            if self.end(place).is_over || is_ended {
                // The other end waits for this report.
                self.give_up(place, Some(Loss::Closed));
            } else {
                let now = self.now;
                let at = self.port(place).wire.carry_reliably(now);
                self.plan(at, place.peer(), EventKind::Connected);
            }
        }
    }

    fn complete_lost(&mut self, place: Place, loss: Loss) {
        let queue_pair = place.queue_pair;
        self.complete(place, Completion::Lost { queue_pair, loss });
    }

    /// Both ends have agreed to a new generation.
    pub(crate) fn connected(&mut self, place: Place) {
        let peer = place.peer();
        let is_current = self.queue_pair(place).generation == place.generation;
        let ends = |end: &End| end.is_over || end.is_ended;
        if !is_current || ends(self.end(place)) || ends(self.end(peer)) {
            return;
        }
        for place in [place, peer] {
            let restored = self.new_queue_pair(place.host, place.queue_pair, place.generation + 1);
            let before = std::mem::replace(self.queue_pair(place), restored);
            // It keeps its place in the port's queue and the device's counters.
            self.queue_pair(place).queued = before.queued;
            self.queue_pair(place).rests_until = before.rests_until;
            self.queue_pair(place).repeats = before.repeats;
            self.queue_pair(place).misses = before.misses;
            let queue_pair = place.queue_pair;
            self.complete(place, Completion::Restored { queue_pair });
        }
    }
}
