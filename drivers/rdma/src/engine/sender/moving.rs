//! Moves the stream from one ring to the next, at both ends.
//!
//! The peer offers another ring, and this end takes one of its own if it can have one. From then on
//! new pieces go to the new rings; those before, and their repetitions, go to the earlier ones. So no
//! place has two meanings, and all of the new rings can be used at once. A notice on each queue pair,
//! before the first new piece there, tells the peer where the stream moves. Another one tells it that
//! nothing more arrives in its earlier ring, whose key then becomes invalid.
//!
//! In `mode=get` the peer accesses our ring and not its own, so that it gets the keys of ours with the notice.

use std::num::NonZeroU64;

use super::{End, Sender};
use crate::engine::message::Message;
use crate::provider::{Keys, Region, RemoteRing};

/// The rings that the stream moves to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Destination {
    /// The number of the peer's ring.
    pub(crate) number: u32,
    /// The peer's ring, and its length in bytes.
    pub(crate) theirs: (RemoteRing, NonZeroU64),
    /// `None` if our ring stays.
    pub(crate) own: Option<OwnRing>,
}

/// A ring of ours.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnRing {
    pub(crate) region: Region,
    /// Its keys at our adapters.
    pub(crate) keys: Keys,
    /// Its length in bytes.
    pub(crate) bytes: NonZeroU64,
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

/// What the peer is told about a move.
#[derive(Debug, Clone, Copy)]
struct Told {
    /// The number of its ring.
    number: u32,
    /// Where it fetches from; `None` if it does not fetch, or as before.
    source: Option<Message>,
    switch: Message,
}

/// The stream is in two rings.
#[derive(Debug)]
pub(super) struct Moving {
    told: Told,
    /// When everything before this position is consumed, the earlier rings are empty.
    until: u64,
    /// For each queue pair, the requests that may access the earlier rings; `None` before they are empty.
    requests: Option<Vec<u64>>,
}

/// The stream has left its earlier rings.
#[derive(Debug, Clone, Copy)]
pub(super) struct Left {
    told: Told,
    /// The queue pair over which the peer was told that it is left; `None` while all are lost.
    on: Option<usize>,
}

/// A message that precedes all others on its queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notice {
    /// This queue pair is lost.
    Abandoned(usize),
    /// Where the peer fetches from after the move that the next notice is about.
    Source,
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

    /// Whether the peer fetches announced pieces (`mode=get`).
    pub(crate) fn is_fetched(&self) -> bool {
        self.settings.is_fetched
    }

    /// The present ring of the peer.
    pub(crate) fn remote(&self) -> RemoteRing {
        self.theirs.at(self.cut).1
    }

    /// Whether the stream can move to a ring of this length: it is in one ring only, does not end, what
    /// waits to be sent fits, and nothing is being filled.
    pub(crate) fn can_move(&self, bytes: NonZeroU64) -> bool {
        self.promised == 0 && self.can_move_once_filled(bytes)
    }

    /// Whether it can do so as soon as nothing is being filled.
    pub(crate) fn can_move_once_filled(&self, bytes: NonZeroU64) -> bool {
        self.moving.is_none() && self.end == End::Open && self.filled - self.cut <= bytes.get()
    }

    /// Moves the stream. [`Sender::can_move`] holds.
    pub(crate) fn move_to(&mut self, to: Destination, shape: Shape) {
        let (theirs, bytes) = to.theirs;
        self.theirs.move_to(self.cut, bytes, theirs);
        if let Some(own) = &to.own {
            self.own.move_to(self.filled, own.bytes, own.region.id);
        }
        self.settings.message_bytes = shape.message_bytes;
        self.settings.piece_bytes = shape.piece_bytes;
        self.settings.immediate = shape.immediate;
        let window = self.window_bytes();
        for queue_pair in &mut self.queue_pairs {
            queue_pair.measure_in(window, &self.settings);
        }
        let fetched_from = to.own.filter(|_| self.settings.is_fetched);
        let source = fetched_from.map(|own| Message::Source {
            number: to.number,
            at: self.filled,
            bytes: own.bytes.get(),
            address: own.region.address,
            keys: own.keys,
        });
        let switch = Message::Switch {
            number: to.number,
            at: self.cut,
            window,
        };
        self.moving = Some(Moving {
            told: Told {
                number: to.number,
                source,
                switch,
            },
            until: self.filled,
            requests: None,
        });
        self.left = None;
        // What is still to be said about the move before is out of date: the peer knows it, because it has offered another ring.
        let is_of_loss = |&(_, notice): &(usize, Notice)| matches!(notice, Notice::Abandoned(_));
        self.notices.retain(is_of_loss);
        for on in 0..self.queue_pairs.len() {
            if !self.queue_pairs[on].lost {
                self.tell_move(on);
            }
        }
    }

    /// What the peer is told about the present or the last move.
    fn told(&self) -> Option<Told> {
        match &self.moving {
            Some(moving) => Some(moving.told),
            None => self.left.map(|left| left.told),
        }
    }

    /// Tells the peer about that move.
    fn tell_move(&mut self, on: usize) {
        if self.told().is_some_and(|told| told.source.is_some()) {
            self.notices.push_back((on, Notice::Source));
        }
        self.notices.push_back((on, Notice::Moving));
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
            told: moving.told,
            on: None,
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
            left.on = Some(on);
            self.tell_move(on);
            self.notices.push_back((on, Notice::Left));
        }
    }

    /// A queue pair was lost, perhaps with the notice.
    pub(super) fn lost_notice_of_leaving(&mut self, queue_pair: usize) {
        if let Some(left) = &mut self.left
            && left.on == Some(queue_pair)
        {
            left.on = None;
            self.tell_left();
        }
    }

    /// On a restored queue pair the peer does not know of moves yet.
    pub(super) fn repeat_moves(&mut self, queue_pair: usize) {
        if self.told().is_some() {
            self.tell_move(queue_pair);
        }
        if self.left.is_some_and(|left| left.on.is_none()) {
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
            Notice::Source => self.told()?.source,
            Notice::Moving => Some(self.told()?.switch),
            Notice::Left => {
                let number = self.left?.told.number;
                Some(Message::Left { number })
            }
        }
    }
}
