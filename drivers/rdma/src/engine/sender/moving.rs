//! Moves the stream from one ring to the next, at both ends.
//!
//! The peer offers another ring, and this end takes one of its own if it can have one. From then on
//! new pieces go to the new rings; those before, and their repetitions, go to the earlier ones. So no
//! place has two meanings, and all of the new rings can be used at once. A notice on each queue pair,
//! before the first new piece there, tells the peer where the stream moves. Another one tells it that
//! nothing more arrives in its earlier ring, whose key then becomes invalid.

use std::num::NonZeroU64;

use super::{End, Sender};
use crate::engine::message::Message;
use crate::provider::RemoteRing;

/// The rings that the stream moves to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Destination {
    /// The number of the peer's ring.
    pub(crate) number: u32,
    /// The peer's ring, and its length in bytes.
    pub(crate) theirs: (RemoteRing, NonZeroU64),
    /// Our ring: its region, and its length in bytes. `None` if it stays.
    pub(crate) own: Option<(usize, NonZeroU64)>,
}

/// How the stream is cut for rings of some length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// The largest WRITE in bytes.
    pub(crate) message_bytes: u64,
    /// The longest piece in bytes.
    pub(crate) piece_bytes: u64,
    /// A piece that fits into one WRITE is announced by immediate data.
    pub(crate) immediate: bool,
}

/// The stream is in two rings.
#[derive(Debug)]
pub(super) struct Moving {
    number: u32,
    /// Where it moves to the peer's next ring.
    at: u64,
    window: u64,
    /// When everything before this position is consumed, the earlier rings are empty.
    until: u64,
    /// For each queue pair, the requests that may access the earlier rings; `None` before they are empty.
    requests: Option<Vec<u64>>,
}

/// The stream has left its earlier rings.
#[derive(Debug, Clone, Copy)]
pub(super) struct Left {
    number: u32,
    at: u64,
    window: u64,
    /// The queue pair over which the peer was told; `None` while all are lost.
    told: Option<usize>,
}

/// A message that precedes all others on its queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notice {
    /// This queue pair is lost.
    Abandoned(usize),
    /// The stream moves to another ring, or has moved there last.
    Moving,
    /// It has left the earlier one.
    Left,
}

impl Sender {
    /// How many bytes may be in flight: all of the shorter ring.
    pub(crate) fn window_bytes(&self) -> u64 {
        let theirs = self.theirs.latest().bytes();
        self.own.latest().bytes().min(theirs)
    }

    /// The length of our present ring in bytes.
    pub(crate) fn ring_length(&self) -> NonZeroU64 {
        self.own.latest().length()
    }

    /// Whether the stream can move to a ring of this length: it is in one ring only, does not end, what
    /// waits to be sent fits, and nothing is being filled.
    pub(crate) fn can_move(&self, bytes: NonZeroU64) -> bool {
        self.moving.is_none()
            && self.promised == 0
            && self.end == End::Open
            && self.filled - self.cut <= bytes.get()
    }

    /// Moves the stream. [`Sender::can_move`] holds.
    pub(crate) fn move_to(&mut self, to: Destination, shape: Shape) {
        let (theirs, bytes) = to.theirs;
        self.theirs.move_to(self.cut, bytes, theirs);
        if let Some((region, bytes)) = to.own {
            self.own.move_to(self.filled, bytes, region);
        }
        self.settings.message_bytes = shape.message_bytes;
        self.settings.piece_bytes = shape.piece_bytes;
        self.settings.immediate = shape.immediate;
        let window = self.window_bytes();
        for queue_pair in &mut self.queue_pairs {
            queue_pair.measure_in(window, &self.settings);
        }
        self.moving = Some(Moving {
            number: to.number,
            at: self.cut,
            window,
            until: self.filled,
            requests: None,
        });
        self.left = None;
        for on in 0..self.queue_pairs.len() {
            if !self.queue_pairs[on].lost {
                self.notices.push_back((on, Notice::Moving));
            }
        }
    }

    /// Whether requests must complete before the earlier rings can be left.
    pub(super) fn is_leaving(&self) -> bool {
        let moving = self.moving.as_ref();
        moving.is_some_and(|moving| moving.requests.is_some())
    }

    /// Leaves the earlier rings, if everything in them was consumed and no request accesses them any
    /// more. Returns `None` if not, or the region of our earlier ring, if there is one.
    pub(crate) fn leave(&mut self) -> Option<Option<usize>> {
        let needed_from = self.needed_from();
        let is_told = |&(_, notice): &(usize, Notice)| notice != Notice::Moving;
        let is_ready = self.first_connected().is_some() && self.notices.iter().all(is_told);
        let moving = self.moving.as_mut()?;
        if needed_from < moving.until || !is_ready {
            return None;
        }
        let queue_pairs = &self.queue_pairs;
        let requests = moving
            .requests
            .get_or_insert_with(|| queue_pairs.iter().map(|on| on.posted).collect());
        let is_done = queue_pairs.iter().zip(requests);
        if !is_done
            .into_iter()
            .all(|(on, last)| on.completed() >= *last)
        {
            return None;
        }
        let left = Left {
            number: moving.number,
            at: moving.at,
            window: moving.window,
            told: None,
        };
        self.moving = None;
        self.theirs.leave();
        let base = self.theirs.latest().base();
        self.repeats.retain(|repeat| repeat.base == base);
        self.left = Some(left);
        self.tell_left();
        Some(self.own.leave())
    }

    /// Over TCP, all repeated pieces went over the first connected queue pair, and arrive before the
    /// notice. The notice of the move goes first once more: a queue pair that was lost may have taken the earlier ones with it.
    fn tell_left(&mut self) {
        let on = self.first_connected();
        if let (Some(left), Some(on)) = (&mut self.left, on) {
            left.told = Some(on);
            self.notices.push_back((on, Notice::Moving));
            self.notices.push_back((on, Notice::Left));
        }
    }

    /// A queue pair was lost, perhaps with the notice.
    pub(super) fn lost_notice_of_leaving(&mut self, queue_pair: usize) {
        if let Some(left) = &mut self.left
            && left.told == Some(queue_pair)
        {
            left.told = None;
            self.tell_left();
        }
    }

    /// On a restored queue pair the peer does not know of moves yet.
    pub(super) fn repeat_moves(&mut self, queue_pair: usize) {
        if self.moving.is_some() || self.left.is_some() {
            self.notices.push_back((queue_pair, Notice::Moving));
        }
        if self.left.is_some_and(|left| left.told.is_none()) {
            self.tell_left();
        }
    }

    /// The message of a notice; `None` if it is out of date.
    pub(super) fn message(&self, notice: Notice) -> Option<Message> {
        match notice {
            Notice::Abandoned(lost) => Some(Message::Abandon {
                queue_pair: lost,
                generation: self.queue_pairs[lost].generation,
            }),
            Notice::Moving => {
                let moving = self.moving.as_ref();
                let moving = moving.map(|moving| (moving.number, moving.at, moving.window));
                let left = self.left.map(|left| (left.number, left.at, left.window));
                let (number, at, window) = moving.or(left)?;
                Some(Message::Switch { number, at, window })
            }
            Notice::Left => {
                let number = self.left?.number;
                Some(Message::Left { number })
            }
        }
    }
}
