//! Cuts the stream into pieces, and pieces into requests.

use std::time::Duration;

use super::{End, Piece, Post, Sender, WRITE};
use crate::engine::message::Message;
use crate::engine::ring::immediate;
use crate::engine::sources::Source;
use crate::memory::Span;
use crate::provider::{MAX_RAILS, Request, Work, rail_of};

/// A piece to send from, and its queue pair.
#[derive(Debug, Clone, Copy)]
struct Next {
    number: usize,
    queue_pair: usize,
    /// With several rails: none of those that could take it may send before.
    held_until: Option<Duration>,
}

impl Next {
    /// This one, or another one that may be sent earlier.
    fn or(self, other: Option<Self>) -> Option<Self> {
        let is_earlier = |other: &Self| other.held_until <= self.held_until;
        Some(other.filter(is_earlier).unwrap_or(self))
    }
}

impl Sender {
    /// The next request, or `None` if everything was posted, no queue pair has room, or the pacers hold
    /// messages back.
    pub(crate) fn next(&mut self, now: Duration) -> Option<Post> {
        while let Some(&(on, notice)) = self.notices.front() {
            if self.queue_pairs[on].pending() >= self.settings.depth {
                return None;
            }
            self.notices.pop_front();
            if let Some(message) = self.message(notice) {
                return Some(self.post(on, 0, Work::Send(message.encode()), now));
            }
        }
        self.cut_pieces();
        let Some(Next {
            number, queue_pair, ..
        }) = self.next_piece(now)
        else {
            return self.next_end(now);
        };
        let settings = self.settings;
        let piece = self.pieces[number];
        let bytes = piece.end - piece.start;
        let is_short = bytes <= settings.inline_bytes && bytes <= self.own.contiguous(piece.start);
        if piece.is_padded() || is_short && !self.sources.any_within(piece.start, piece.end) {
            return self.next_inline(number, queue_pair, now);
        }
        if piece.posted == piece.end {
            self.bind(number, queue_pair);
            let request = self.pieces[number].announce();
            self.count_announced();
            return Some(self.post(queue_pair, request.id, request.work, now));
        }
        let (source, length) = self.next_part(piece, queue_pair);
        if !self.pacers.pass(queue_pair, length, now) {
            return None;
        }
        self.bind(number, queue_pair);
        let (to, place) = self.theirs.place(piece.posted, length);
        let source = source.unwrap_or_else(|| {
            let (region, place) = self.own.place(piece.posted, length);
            let offset = place.offset;
            Source { region, offset }
        });
        let piece = &mut self.pieces[number];
        // A piece that was split, by the pacer or because it is in several places, is announced by
        // a message of its own.
        let is_whole = piece.posted == piece.start && length == piece.end - piece.start;
        // With pieces in two rings, 32 bits do not identify a position.
        let announces = is_whole && settings.immediate && self.moving.is_none();
        let immediate = announces.then(|| immediate(piece.start));
        piece.posted += length;
        let id = WRITE | if announces { piece.end } else { 0 };
        (piece.announced, piece.announced_once) = (announces, announces || piece.announced_once);
        let Source { region, offset } = source;
        let work = Work::Write {
            region,
            span: Span::new(offset, place.length),
            to: to.at(queue_pair, place.offset),
            immediate,
        };
        if announces {
            self.count_announced();
        }
        Some(self.post(queue_pair, id, work, now))
    }

    /// Sends a piece inside its announcement. The pacer holds it back like a WRITE. In `mode=get`
    /// the receiver paces its READs, and these pieces are too short to matter.
    fn next_inline(&mut self, number: usize, queue_pair: usize, now: Duration) -> Option<Post> {
        let Piece {
            start,
            bytes_end,
            end,
            ..
        } = self.pieces[number];
        let is_paced = !self.settings.is_fetched && bytes_end > start;
        if is_paced && !self.pacers.pass(queue_pair, bytes_end - start, now) {
            return None;
        }
        self.bind(number, queue_pair);
        let piece = &mut self.pieces[number];
        (piece.posted, piece.announced, piece.announced_once) = (end, true, true);
        self.count_announced();
        let (region, span) = self.own.place(start, bytes_end - start);
        let length = span.length;
        let message = match u32::try_from(end - bytes_end) {
            Ok(0) => Message::Carried { start, length },
            padding => Message::Padded {
                start,
                padding: padding.expect("padding is shorter than the block of a file"),
                length,
            },
        };
        let message = message.encode();
        let work = match length {
            0 => Work::Send(message),
            _ => Work::Carry {
                message,
                region,
                span,
            },
        };
        let id = end | if is_paced { WRITE } else { 0 };
        Some(self.post(queue_pair, id, work, now))
    }

    /// When to call [`Sender::next`] again if the pacers hold messages back: `now` or later.
    pub(crate) fn next_at(&self, now: Duration) -> Option<Duration> {
        let next = self.next_piece(now)?;
        if next.held_until.is_some() {
            return next.held_until;
        }
        let (_, length) = self.next_part(self.pieces[next.number], next.queue_pair);
        (length > 0).then(|| self.pacers.ready_at(next.queue_pair, length, now))
    }

    /// The source of a piece's next message, and its length; 0 if everything was posted. The source is the ring if it is `None`.
    fn next_part(&self, piece: Piece, queue_pair: usize) -> (Option<Source>, u64) {
        let most = self.settings.message_bytes;
        let most = self.pacers.message_bytes(queue_pair, most);
        let length = piece.bytes_end.saturating_sub(piece.posted).min(most);
        match self.sources.find(piece.posted, length) {
            // The peer's ring may have another length, so that the part may cross the end of ours.
            (None, length) => (None, length.min(self.own.contiguous(piece.posted))),
            elsewhere => elsewhere,
        }
    }

    /// A piece is sent over this queue pair.
    fn bind(&mut self, number: usize, queue_pair: usize) {
        let piece = &mut self.pieces[number];
        if piece.queue_pair.is_none() {
            piece.queue_pair = Some(queue_pair);
            self.next = queue_pair + 1;
        }
    }

    /// Cuts the filled part into pieces. A piece ends at a multiple of the piece size in the ring,
    /// so that all pieces are equal while data flows; only a flush ends one earlier, or padding. A few
    /// bytes before padding travel inside the message that announces it.
    fn cut_pieces(&mut self) {
        let piece_bytes = self.settings.piece_bytes;
        while self.cut < self.filled && self.pieces.len() < self.settings.max_pieces {
            let ring = self.theirs.latest();
            let contiguous = ring.contiguous(self.cut);
            let whole = (piece_bytes - ring.offset(self.cut) % piece_bytes).min(contiguous);
            let padding = self.padding.front().copied();
            let there = padding.map_or(self.filled, |(start, _)| start) - self.cut;
            if there < whole && padding.is_none() && self.flush < self.filled {
                return;
            }
            let bytes_end = self.cut + whole.min(there);
            let held = self.sources.any_within(self.cut, bytes_end);
            let is_short = there <= self.settings.inline_bytes.min(whole) && !held;
            // No piece crosses the end of a ring.
            let is_joined = is_short
                && there < contiguous
                && (there == 0 || there <= self.own.contiguous(self.cut));
            let padding = padding.filter(|_| there == 0 || is_joined);
            let end = padding.map_or(bytes_end, |(_, end)| end.min(self.cut + contiguous));
            if let Some((_, padding_end)) = padding {
                self.padding.pop_front();
                if end < padding_end {
                    self.padding.push_front((end, padding_end));
                }
            }
            self.held += usize::from(held);
            self.pieces.push_back(Piece {
                start: self.cut,
                bytes_end,
                end,
                queue_pair: None,
                posted: if self.settings.is_fetched {
                    end
                } else {
                    self.cut
                },
                announced: false,
                announced_once: false,
                held,
                again: false,
            });
            self.cut = end;
        }
    }

    /// The first piece with something left to post, and its queue pair: the one it has, or the one that
    /// will deliver it first. Few pieces are looked at, because earlier ones fill their queue pairs.
    ///
    /// Each rail has a pace of its own. A piece whose rail must wait is passed over while another rail may send.
    fn next_piece(&self, now: Duration) -> Option<Next> {
        let mut held: Option<Next> = None;
        for number in self.announced..self.pieces.len() {
            let piece = self.pieces[number];
            if piece.announced {
                continue;
            }
            let Some(own) = piece.queue_pair.or_else(|| self.bound_to(piece)) else {
                // Later pieces wait for the same queue pair.
                return match self.free_queue_pair(piece, now) {
                    Some((queue_pair, held_until)) => Next {
                        number,
                        queue_pair,
                        held_until,
                    }
                    .or(held),
                    None => held,
                };
            };
            if !self.has_room(own) {
                continue;
            }
            let next = Next {
                number,
                queue_pair: own,
                held_until: self.held_until(piece, own, now),
            };
            held = next.or(held);
            if held.is_some_and(|next| next.held_until.is_none()) {
                return held;
            }
        }
        held
    }

    /// The queue pair that will deliver a piece first, among those whose rail may send now, if there are any. With the time
    /// at which the first rail may send if there are none. `None` if the best one has no room.
    fn free_queue_pair(&self, piece: Piece, now: Duration) -> Option<(usize, Option<Duration>)> {
        let bytes = piece.bytes_end - piece.start;
        let has_room = |number| self.has_room(number);
        let rails = self.pacers.rails();
        if rails == 1 {
            let quickest = self.quickest(self.next, bytes, |_| true, has_room);
            return quickest.map(|queue_pair| (queue_pair, None));
        }
        let mut held = [None; MAX_RAILS];
        for (rail, held) in (0..rails).zip(&mut held) {
            *held = self.held_until(piece, rail, now);
        }
        let is_due = |number| held[rail_of(number, rails)].is_none();
        let any_is_due =
            (0..self.queue_pairs.len()).any(|number| has_room(number) && is_due(number));
        if any_is_due {
            let quickest = self.quickest(self.next, bytes, is_due, has_room);
            return quickest.map(|queue_pair| (queue_pair, None));
        }
        let queue_pair = self.quickest(self.next, bytes, |_| true, has_room)?;
        let with_room = (0..self.queue_pairs.len()).filter(|&number| has_room(number));
        let until = with_room.filter_map(|number| held[rail_of(number, rails)]);
        Some((queue_pair, until.min()))
    }

    /// When the rail of a queue pair may send the next message of a piece, if there are several rails and that is later.
    fn held_until(&self, piece: Piece, queue_pair: usize, now: Duration) -> Option<Duration> {
        if self.pacers.rails() == 1 {
            return None;
        }
        let (_, length) = self.next_part(piece, queue_pair);
        let is_paced = length > 0 && !self.settings.is_fetched;
        let ready_at = is_paced.then(|| self.pacers.ready_at(queue_pair, length, now));
        ready_at.filter(|&at| at > now)
    }

    /// Announces the end of the stream once everything before it was posted.
    fn next_end(&mut self, now: Duration) -> Option<Post> {
        if self.end != End::Wanted || self.cut < self.filled {
            return None;
        }
        let queue_pair = self.reserve(now)?;
        self.end = End::Announced { queue_pair };
        let message = Message::End { at: self.filled };
        let work = Work::Send(message.encode());
        Some(Post {
            queue_pair,
            request: Request { id: 0, work },
        })
    }

    fn post(&mut self, queue_pair: usize, id: u64, work: Work, now: Duration) -> Post {
        self.queue_pairs[queue_pair].count(work.bytes() as u64, now);
        Post {
            queue_pair,
            request: Request { id, work },
        }
    }
}
