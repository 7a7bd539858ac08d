//! Round-robin scheduling of the channels that share a short path, where at most a burst is in
//! flight.
//!
//! The channel whose message has just arrived is the first to notice the free room, and would take it
//! each time: it would starve the others. So a channel sends alone for some bursts and then yields to
//! the channel that has waited longest. Turns are long, because between two turns the path drains.
//! Waiting channels poll rarely, because on a host with few processors each poll takes time from the
//! sending channel.

use std::collections::VecDeque;
use std::time::Duration;

use super::RETRY_INTERVAL;
use super::bucket::time_of;

/// The waiting channels, and the sending one. Times are counted from one moment, as
/// everywhere in pacing.
#[derive(Debug, Default)]
pub(super) struct TurnQueue {
    /// In order of arrival.
    waiting: VecDeque<Waiting>,
    turn: Option<Turn>,
}

#[derive(Debug)]
struct Turn {
    channel: u64,
    /// Bytes it has sent in this turn.
    bytes: u64,
    /// When it polled last.
    seen: Duration,
}

#[derive(Debug)]
struct Waiting {
    channel: u64,
    /// When it polls next.
    due: Duration,
}

/// The length of a turn in bursts.
const TURN_BURSTS: u64 = 32;

/// The polling interval of a channel that has the turn or is about to get it.
const SOON: Duration = Duration::from_micros(250);

/// The polling interval of the next channel: the sending channel may become idle.
const NEXT_LOOKS: Duration = Duration::from_millis(4);

/// The polling interval of the others: the channels ahead of them may become idle.
const OTHERS_LOOK: Duration = Duration::from_millis(100);

/// A channel that has the turn and has not polled for this long is idle.
const IDLE: Duration = Duration::from_millis(5);

/// A waiting channel whose poll is overdue by this much is removed from the queue.
const GONE: Duration = Duration::from_millis(20);

impl TurnQueue {
    /// A channel is about to send. Returns when it should poll again if it does not have the turn.
    /// `burst` is in bytes, `rate` in bytes per second.
    pub(super) fn look(
        &mut self,
        channel: u64,
        burst: u64,
        rate: u64,
        now: Duration,
    ) -> Option<Duration> {
        if let Some(turn) = self.turn_of(channel) {
            turn.seen = now;
            return None;
        }
        let most = TURN_BURSTS.saturating_mul(burst);
        // A message takes at most the time of a burst, and no channel polls before the message may
        // be sent.
        let idle = IDLE.max(2 * time_of(burst, rate));
        let turn = self.turn.as_ref().filter(|turn| now <= turn.seen + idle);
        let left = turn.map_or(0, |turn| most.saturating_sub(turn.bytes));
        let place = self.place_of(channel, now);
        if place == 0 && left == 0 {
            self.begin(channel, 0, now);
            return None;
        }
        let ahead = most.saturating_mul(place as u64).saturating_add(left);
        let longest = if place == 0 { NEXT_LOOKS } else { OTHERS_LOOK };
        let due = now + time_of(ahead, rate).clamp(SOON, longest);
        self.waiting[place].due = due;
        Some(due)
    }

    /// The next poll of a channel that has the turn and must wait until `until`: the arrival of another
    /// channel's bytes is not reported to it.
    pub(super) fn first_look(&self, until: Duration, now: Duration) -> Duration {
        let has_sent = self.turn.as_ref().is_none_or(|turn| turn.bytes > 0);
        if has_sent || until > now + RETRY_INTERVAL {
            return until;
        }
        until.min(now + SOON)
    }

    /// A channel sends this many bytes.
    pub(super) fn sends(&mut self, channel: u64, bytes: u64, now: Duration) {
        match self.turn_of(channel) {
            Some(turn) => turn.bytes = turn.bytes.saturating_add(bytes),
            None => self.begin(channel, bytes, now),
        }
    }

    /// A channel is closed.
    pub(super) fn leaves(&mut self, channel: u64) {
        self.waiting.retain(|one| one.channel != channel);
        self.turn.take_if(|turn| turn.channel == channel);
    }

    fn turn_of(&mut self, channel: u64) -> Option<&mut Turn> {
        self.turn.as_mut().filter(|turn| turn.channel == channel)
    }

    fn begin(&mut self, channel: u64, bytes: u64, seen: Duration) {
        self.waiting.retain(|one| one.channel != channel);
        self.turn = Some(Turn {
            channel,
            bytes,
            seen,
        });
    }

    /// How many channels wait ahead of this one, which is queued if it was not yet.
    fn place_of(&mut self, channel: u64, now: Duration) -> usize {
        self.waiting
            .retain(|one| one.channel == channel || now <= one.due + GONE);
        let place = self.waiting.iter().position(|one| one.channel == channel);
        place.unwrap_or_else(|| {
            self.waiting.push_back(Waiting { channel, due: now });
            self.waiting.len() - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1);
    const BURST: u64 = 1000;
    const RATE: u64 = 1_000_000;
    const TURN: Duration = Duration::from_millis(32);

    fn look(turns: &mut TurnQueue, channel: u64, at: Duration) -> Option<Duration> {
        turns.look(channel, BURST, RATE, at).map(|due| due - at)
    }

    #[test]
    fn a_turn_goes_on_until_the_next_one_takes_it() {
        let mut turns = TurnQueue::default();
        assert_eq!(look(&mut turns, 1, NOW), None);
        assert_eq!(look(&mut turns, 2, NOW), Some(NEXT_LOOKS));
        assert_eq!(look(&mut turns, 3, NOW), Some(2 * TURN));
        turns.sends(1, 31 * BURST, NOW);
        assert_eq!(look(&mut turns, 2, NOW), Some(TURN / 32));
        turns.sends(1, BURST - 1, NOW);
        assert_eq!(look(&mut turns, 2, NOW), Some(SOON), "a moment is left");
        turns.sends(1, BURST, NOW);
        assert_eq!(look(&mut turns, 1, NOW), None, "no channel has taken it");
        assert_eq!(look(&mut turns, 3, NOW), Some(TURN), "another one is next");
        assert_eq!(look(&mut turns, 2, NOW), None);
        assert_eq!(look(&mut turns, 1, NOW), Some(2 * TURN), "behind the third");
        turns.sends(2, 40 * BURST, NOW);
        assert_eq!(look(&mut turns, 3, NOW), None);
    }

    #[test]
    fn a_channel_that_stopped_polling_is_skipped() {
        let mut turns = TurnQueue::default();
        assert_eq!(look(&mut turns, 1, NOW), None);
        assert_eq!(look(&mut turns, 2, NOW), Some(NEXT_LOOKS));
        assert_eq!(look(&mut turns, 3, NOW), Some(2 * TURN));
        assert_eq!(look(&mut turns, 3, NOW + NEXT_LOOKS + GONE), Some(TURN));
        let later = NOW + NEXT_LOOKS + GONE + Duration::from_nanos(1);
        assert_eq!(look(&mut turns, 3, later), None);
    }

    #[test]
    fn a_closed_channel_loses_its_turn() {
        let mut turns = TurnQueue::default();
        assert_eq!(look(&mut turns, 1, NOW), None);
        assert!(look(&mut turns, 2, NOW).is_some());
        turns.leaves(1);
        assert_eq!(look(&mut turns, 2, NOW), None);
    }

    #[test]
    fn the_next_channel_polls_soon_while_the_flight_drains() {
        let mut turns = TurnQueue::default();
        let retry = NOW + RETRY_INTERVAL;
        assert_eq!(
            turns.first_look(retry, NOW),
            retry,
            "without other channels"
        );
        assert_eq!(look(&mut turns, 1, NOW), None);
        assert_eq!(turns.first_look(retry, NOW), NOW + SOON);
        let pause = retry + SOON;
        assert_eq!(turns.first_look(pause, NOW), pause, "it is not for that");
        turns.sends(1, 1, NOW);
        assert_eq!(turns.first_look(retry, NOW), retry);
    }
}
