//! Whose turn it is on a short path, where no more than a burst is under way.
//!
//! Whoever sees a message arrive is the first to know that there is room, and would have it each time: one channel would send, and
//! the others wait for ever. So a channel sends alone for some bursts, and then leaves the room to the one that has waited longest.
//! Turns are long, because nothing leaves until that one looks again.

use std::collections::VecDeque;
use std::time::Duration;

use super::RETRY;

/// Channels that wait, and the one whose turn it is. Time is that since some moment, as everywhere in pacing.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// In the order in which they came.
    waiting: VecDeque<Waiting>,
    turn: Option<Turn>,
}

#[derive(Debug)]
struct Turn {
    channel: u64,
    /// How many bytes it has sent.
    bytes: u64,
    /// When it looked last.
    seen: Duration,
}

#[derive(Debug)]
struct Waiting {
    channel: u64,
    /// When it looks again.
    due: Duration,
}

/// How many bursts make a turn.
const TURN_BURSTS: u64 = 32;

/// How soon the first in the line looks again while another one sends.
const SOON: Duration = Duration::from_millis(1);

/// Who has not looked again for so long has nothing to send any more.
const LATE: Duration = Duration::from_millis(5);

impl Line {
    /// A channel looks, and has to wait until then. Returns when it should look again.
    pub(super) fn wait(&mut self, channel: u64, until: Duration, now: Duration) -> Duration {
        let is_first = self
            .waiting
            .front()
            .is_none_or(|first| first.channel == channel);
        let is_others = self
            .turn
            .as_ref()
            .is_some_and(|turn| turn.channel != channel);
        let due = if is_first && is_others {
            until.min(now + SOON)
        } else {
            until
        };
        self.see(channel, now);
        match self.waiting.iter_mut().find(|one| one.channel == channel) {
            Some(waiting) => waiting.due = due,
            None => self.waiting.push_back(Waiting { channel, due }),
        }
        due
    }

    /// There is room for a message of a channel that looks. Until when it leaves that to another one, if it does.
    pub(super) fn yields(&mut self, channel: u64, burst: u64, now: Duration) -> Option<Duration> {
        self.see(channel, now);
        while let Some(first) = self.waiting.front()
            && now > first.due + LATE
        {
            self.waiting.pop_front();
        }
        let next = self.waiting.front()?.channel;
        let most = TURN_BURSTS.saturating_mul(burst);
        let turn = self.turn.as_ref();
        let turn = turn.filter(|turn| turn.bytes < most && now <= turn.seen + LATE);
        let next = turn.map_or(next, |turn| turn.channel);
        (next != channel).then(|| now + RETRY)
    }

    /// So many bytes of a channel leave.
    pub(super) fn sends(&mut self, channel: u64, bytes: u64, now: Duration) {
        self.leaves(channel);
        match &mut self.turn {
            Some(turn) if turn.channel == channel => turn.bytes = turn.bytes.saturating_add(bytes),
            turn => {
                *turn = Some(Turn {
                    channel,
                    bytes,
                    seen: now,
                });
            }
        }
    }

    fn see(&mut self, channel: u64, now: Duration) {
        if let Some(turn) = &mut self.turn
            && turn.channel == channel
        {
            turn.seen = now;
        }
    }

    /// A channel waits no longer.
    pub(super) fn leaves(&mut self, channel: u64) {
        self.waiting.retain(|one| one.channel != channel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1);
    const BURST: u64 = 100;

    #[test]
    fn a_turn_ends_when_somebody_else_waits() {
        let mut line = Line::default();
        line.sends(1, TURN_BURSTS * BURST, NOW);
        assert_eq!(line.yields(1, BURST, NOW), None);
        assert_eq!(line.wait(1, NOW + RETRY, NOW), NOW + RETRY, "by itself");
        line.leaves(1);
        let due = line.wait(2, NOW + RETRY, NOW);
        assert_eq!(due, NOW + SOON);
        assert_eq!(line.wait(3, NOW + RETRY, NOW), NOW + RETRY);
        assert_eq!(line.yields(1, BURST, NOW), Some(NOW + RETRY));
        assert_eq!(line.yields(3, BURST, NOW), Some(NOW + RETRY));
        assert_eq!(line.yields(2, BURST, NOW), None);
        line.sends(2, 1, NOW);
        for other in [1, 3] {
            assert_eq!(line.yields(other, BURST, NOW), Some(NOW + RETRY));
        }
        assert_eq!(line.yields(2, BURST, NOW), None, "a turn is long");
    }

    #[test]
    fn nobody_waits_for_who_does_not_come() {
        let later = |at: Duration| at + LATE + Duration::from_nanos(1);
        let mut line = Line::default();
        line.sends(1, 1, NOW);
        line.wait(2, NOW + RETRY, NOW);
        assert_eq!(line.yields(2, BURST, NOW + LATE), Some(NOW + LATE + RETRY));
        assert_eq!(line.yields(2, BURST, later(NOW)), None);
        line.sends(1, TURN_BURSTS * BURST, later(NOW));
        let due = line.wait(2, later(NOW), later(NOW));
        assert!(line.yields(1, BURST, due).is_some());
        assert_eq!(line.yields(1, BURST, later(due)), None);
    }
}
