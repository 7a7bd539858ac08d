//! Memory that the network takes without a copy: `MSG_ZEROCOPY` (Documentation/networking/msg_zerocopy.rst of Linux).
//!
//! The kernel sends from the pages themselves, and says in the socket's queue of errors when it needs them no more: the peer has
//! acknowledged the bytes. Until then they must not be written, so a piece that is lent is not filled again. Half of the pieces
//! at most are lent, and none of the last ones of a range: over a long path the rest is copied as ever, and the end of a range
//! does not wait for the peer.
//!
//! Where the kernel makes a copy after all, as it does for peers on this machine, nothing is lent any more.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::Range;

use gridhaul_stack::{ChannelError, Detail, Operation};
use gridhaul_tcp::{Lent, TcpChannel, allow_lending};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

/// What the kernel was lent on one connection.
#[derive(Debug, Default)]
pub(crate) struct Uncopied {
    state: State,
    /// How many calls have lent memory. The kernel counts them as well.
    calls: u64,
    /// Pieces that are not given back, oldest first.
    pieces: VecDeque<Piece>,
    /// Bytes that were lent.
    bytes: u64,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Untried,
    Usable,
    /// The kernel does not take memory, or copies it; in words for an administrator.
    Useless(Cow<'static, str>),
}

/// A piece that was lent by some calls.
#[derive(Debug)]
struct Piece {
    index: u64,
    calls: Range<u64>,
    /// How many of them the kernel is not done with.
    left: u64,
}

impl Uncopied {
    /// Sends all of a piece; lends it if `may_lend`. More of the same range follows, if `is_more`.
    ///
    /// # Errors
    ///
    /// As those of [`gridhaul_stack::Channel::send`].
    pub(crate) fn send(
        &mut self,
        channel: &mut TcpChannel,
        (index, mut bytes): (u64, &[u8]),
        may_lend: bool,
        is_more: bool,
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        let mut lends = may_lend && self.is_usable(channel);
        let more = if is_more {
            SendFlags::MORE
        } else {
            SendFlags::empty()
        };
        let outcome = loop {
            if bytes.is_empty() {
                break Ok(());
            }
            if let Err(error) = channel.check(operation) {
                break Err(error);
            }
            let flags = if lends { LEND } else { SendFlags::empty() };
            match send(channel.socket(), bytes, more | flags | SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    if lends {
                        self.count_call(index);
                        self.bytes += sent as u64;
                    }
                    bytes = &bytes[sent..];
                }
                // The limit on locked memory, or on unread notices (net.core.optmem_max).
                Err(Errno::NOBUFS) if lends => lends = false,
                Err(Errno::AGAIN) => {
                    // A notice in the queue of errors would end the wait at once.
                    self.take_back(channel);
                    if let Err(error) = operation.wait_writable(channel.socket()) {
                        break Err(error);
                    }
                }
                Err(Errno::INTR) => {}
                Err(errno) => break Err(channel.fail(errno)),
            }
        };
        self.take_back(channel);
        outcome
    }

    /// Counts a call that has lent memory of a piece, before anything can be heard of it.
    fn count_call(&mut self, index: u64) {
        match self.pieces.back_mut() {
            Some(piece) if piece.index == index => {
                piece.calls.end += 1;
                piece.left += 1;
            }
            _ => self.pieces.push_back(Piece {
                index,
                calls: self.calls..self.calls + 1,
                left: 1,
            }),
        }
        self.calls += 1;
    }

    /// How many pieces are lent.
    pub(crate) fn lent(&self) -> usize {
        self.pieces.len()
    }

    /// Whether a piece is not lent, or not any more. If it must be so, waits.
    ///
    /// # Errors
    ///
    /// When the operation ends before.
    pub(crate) fn is_free(
        &mut self,
        channel: &TcpChannel,
        index: u64,
        must_be: bool,
        operation: &Operation<'_>,
    ) -> Result<bool, ChannelError> {
        loop {
            self.take_back(channel);
            if self.pieces.iter().all(|piece| piece.index != index) {
                return Ok(true);
            }
            if !must_be {
                return Ok(false);
            }
            operation.wait_error(channel.socket())?;
        }
    }

    /// Waits until the kernel has given everything back.
    ///
    /// # Errors
    ///
    /// When the operation ends before. Then only the end of the connection keeps the kernel from sending what others put
    /// there.
    pub(crate) fn settle(
        &mut self,
        channel: &TcpChannel,
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        while let Some(last) = self.pieces.back().map(|piece| piece.index) {
            self.is_free(channel, last, true, operation)?;
        }
        Ok(())
    }

    /// What is told of the connection.
    pub(crate) fn details(&self) -> Vec<Detail> {
        let words = match &self.state {
            State::Untried => return Vec::new(),
            State::Usable => Cow::from("used"),
            State::Useless(words) => words.clone(),
        };
        vec![
            Detail::text("zerocopy", words),
            Detail::count("zerocopy-bytes", self.bytes),
        ]
    }

    fn is_usable(&mut self, channel: &TcpChannel) -> bool {
        if matches!(self.state, State::Untried) {
            self.state = match allow_lending(channel.socket()) {
                // It encrypts to memory of its own, and refuses such calls.
                Ok(()) if channel.is_protected() => State::Useless("the kernel encrypts".into()),
                Ok(()) => State::Usable,
                Err(error) => State::Useless(error.to_string().into()),
            };
        }
        matches!(self.state, State::Usable)
    }

    /// Reads what the kernel has said.
    fn take_back(&mut self, channel: &TcpChannel) {
        if self.pieces.is_empty() {
            return;
        }
        while let Some(Lent {
            first,
            last,
            was_copied,
        }) = channel.next_given_back()
        {
            if was_copied {
                self.state = State::Useless("the kernel copies".into());
            }
            self.give_back(first, last);
        }
    }

    /// Counts calls that are done; the kernel's numbers begin anew after 2^32.
    fn give_back(&mut self, first: u32, last: u32) {
        let end = self.calls - u64::from(truncated(self.calls).wrapping_sub(last)) + 1;
        let start = end - u64::from(last.wrapping_sub(first)) - 1;
        for piece in &mut self.pieces {
            let common = end
                .min(piece.calls.end)
                .saturating_sub(start.max(piece.calls.start));
            piece.left = piece.left.saturating_sub(common);
        }
        self.pieces.retain(|piece| piece.left > 0);
    }
}

/// `MSG_ZEROCOPY` of linux/socket.h.
const LEND: SendFlags = SendFlags::from_bits_retain(0x400_0000);

fn truncated(calls: u64) -> u32 {
    u32::try_from(calls & u64::from(u32::MAX)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lent(pieces: &[(u64, Range<u64>)]) -> Uncopied {
        Uncopied {
            calls: pieces.last().map_or(0, |(_, calls)| calls.end),
            pieces: pieces
                .iter()
                .map(|(index, calls)| Piece {
                    index: *index,
                    calls: calls.clone(),
                    left: calls.end - calls.start,
                })
                .collect(),
            ..Uncopied::default()
        }
    }

    fn indices(uncopied: &Uncopied) -> Vec<u64> {
        uncopied.pieces.iter().map(|piece| piece.index).collect()
    }

    #[test]
    fn a_piece_is_free_when_all_its_calls_are_done_in_any_order() {
        let mut uncopied = lent(&[(0, 0..2), (1, 2..3), (3, 3..6)]);
        uncopied.give_back(1, 2);
        assert_eq!(indices(&uncopied), [0, 3]);
        uncopied.give_back(4, 5);
        assert_eq!(indices(&uncopied), [0, 3]);
        uncopied.give_back(0, 0);
        assert_eq!(indices(&uncopied), [3]);
        uncopied.give_back(3, 3);
        assert!(indices(&uncopied).is_empty());
    }

    #[test]
    fn what_is_told_of_a_piece_that_is_still_being_sent_counts() {
        let mut uncopied = Uncopied::default();
        for index in [0, 1, 1] {
            uncopied.count_call(index);
        }
        uncopied.give_back(0, 1);
        assert_eq!(indices(&uncopied), [1]);
        uncopied.count_call(1);
        uncopied.give_back(2, 2);
        assert_eq!(indices(&uncopied), [1]);
        uncopied.give_back(3, 3);
        assert!(indices(&uncopied).is_empty());
    }

    #[test]
    fn the_kernels_numbers_begin_anew() {
        let wrap = 1_u64 << 32;
        let mut uncopied = lent(&[(7, wrap - 2..wrap), (8, wrap..wrap + 2)]);
        uncopied.give_back(u32::MAX - 1, 0);
        assert_eq!(indices(&uncopied), [8]);
        uncopied.give_back(1, 1);
        assert!(indices(&uncopied).is_empty());
    }
}
