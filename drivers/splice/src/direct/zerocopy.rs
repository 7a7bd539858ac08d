//! Sending without a copy: `MSG_ZEROCOPY` (Documentation/networking/msg_zerocopy.rst of Linux).
//!
//! The kernel sends from the pages themselves, and reports in the error queue of the socket when the peer has acknowledged
//! the bytes. Until then the pages must not be written, so a piece that the kernel holds is not filled again. At most half of
//! the pieces are sent in this way, and none of the last ones of a range: on a long path the others are copied, and the end of
//! a range does not wait for the peer's acknowledgement.
//!
//! If the kernel reports that it made a copy after all, as it does for peers on this machine, zero-copy is switched off.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::Range;

use gridhaul_stack::{ChannelError, Detail, Operation};
use gridhaul_tcp::{TcpChannel, ZeroCopyCompletion, enable_zerocopy};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

/// The zero-copy sends of one connection.
#[derive(Debug, Default)]
pub(crate) struct ZeroCopy {
    state: State,
    /// The number of zero-copy calls so far. The kernel numbers them in the same way.
    calls: u64,
    /// Pieces that the kernel holds, oldest first.
    pieces: VecDeque<Piece>,
    /// Bytes sent without a copy.
    bytes: u64,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Untried,
    Usable,
    /// The kernel refuses or copies; in words for an administrator.
    Unusable(Cow<'static, str>),
}

/// A piece that the kernel holds for some calls.
#[derive(Debug)]
struct Piece {
    index: u64,
    calls: Range<u64>,
    /// How many of them are not completed.
    left: u64,
}

impl ZeroCopy {
    /// Sends all of a piece, without a copy if `may_use` and possible. If `is_more`, more of the range follows.
    ///
    /// # Errors
    ///
    /// As those of [`gridhaul_stack::Channel::send`].
    pub(crate) fn send(
        &mut self,
        channel: &mut TcpChannel,
        (index, mut bytes): (u64, &[u8]),
        may_use: bool,
        is_more: bool,
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        let mut without_copy = may_use && self.is_usable(channel);
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
            let flags = if without_copy {
                ZEROCOPY
            } else {
                SendFlags::empty()
            };
            match send(channel.socket(), bytes, more | flags | SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    if without_copy {
                        self.count_call(index);
                        self.bytes += sent as u64;
                    }
                    bytes = &bytes[sent..];
                }
                // The limit on locked memory, or on unread completions (net.core.optmem_max).
                Err(Errno::NOBUFS) if without_copy => without_copy = false,
                Err(Errno::AGAIN) => {
                    // An unread completion in the error queue would end the wait at once.
                    self.read_completions(channel);
                    if let Err(error) = operation.wait_writable(channel.socket()) {
                        break Err(error);
                    }
                }
                Err(Errno::INTR) => {}
                Err(errno) => break Err(channel.fail(errno)),
            }
        };
        self.read_completions(channel);
        outcome
    }

    /// Counts a zero-copy call of a piece, before its completion can be read.
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

    /// The number of pieces that the kernel holds.
    pub(crate) fn held(&self) -> usize {
        self.pieces.len()
    }

    /// Whether the kernel does not hold a piece. With `must_be`, waits until it does not.
    ///
    /// # Errors
    ///
    /// When the operation ends first.
    pub(crate) fn is_free(
        &mut self,
        channel: &TcpChannel,
        index: u64,
        must_be: bool,
        operation: &Operation<'_>,
    ) -> Result<bool, ChannelError> {
        loop {
            self.read_completions(channel);
            if self.pieces.iter().all(|piece| piece.index != index) {
                return Ok(true);
            }
            if !must_be {
                return Ok(false);
            }
            operation.wait_error(channel.socket())?;
        }
    }

    /// Waits until the kernel has released all pieces.
    ///
    /// # Errors
    ///
    /// When the operation ends first. The caller must then reset the connection, or the kernel may send what is written to the
    /// pieces later.
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

    /// Details of the connection for the log.
    pub(crate) fn details(&self) -> Vec<Detail> {
        let state = match &self.state {
            State::Untried => return Vec::new(),
            State::Usable => Cow::from("used"),
            State::Unusable(reason) => reason.clone(),
        };
        vec![
            Detail::text("zerocopy", state),
            Detail::count("zerocopy-bytes", self.bytes),
        ]
    }

    fn is_usable(&mut self, channel: &TcpChannel) -> bool {
        if matches!(self.state, State::Untried) {
            self.state = match enable_zerocopy(channel.socket()) {
                // Kernel TLS encrypts into its own memory, and refuses the flag.
                Ok(()) if channel.is_protected() => State::Unusable("the kernel encrypts".into()),
                Ok(()) => State::Usable,
                Err(error) => State::Unusable(error.to_string().into()),
            };
        }
        matches!(self.state, State::Usable)
    }

    /// Reads the completions that have arrived.
    fn read_completions(&mut self, channel: &TcpChannel) {
        if self.pieces.is_empty() {
            return;
        }
        while let Some(ZeroCopyCompletion {
            first,
            last,
            was_copied,
        }) = channel.next_zerocopy_completion()
        {
            if was_copied {
                self.state = State::Unusable("the kernel copies".into());
            }
            self.complete(first, last);
        }
    }

    /// Counts completed calls. The kernel's numbers wrap at 2^32.
    fn complete(&mut self, first: u32, last: u32) {
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
const ZEROCOPY: SendFlags = SendFlags::from_bits_retain(0x400_0000);

fn truncated(calls: u64) -> u32 {
    u32::try_from(calls & u64::from(u32::MAX)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holding(pieces: &[(u64, Range<u64>)]) -> ZeroCopy {
        ZeroCopy {
            calls: pieces.last().map_or(0, |(_, calls)| calls.end),
            pieces: pieces
                .iter()
                .map(|(index, calls)| Piece {
                    index: *index,
                    calls: calls.clone(),
                    left: calls.end - calls.start,
                })
                .collect(),
            ..ZeroCopy::default()
        }
    }

    fn indices(zerocopy: &ZeroCopy) -> Vec<u64> {
        zerocopy.pieces.iter().map(|piece| piece.index).collect()
    }

    #[test]
    fn a_piece_is_free_when_all_its_calls_are_completed_in_any_order() {
        let mut zerocopy = holding(&[(0, 0..2), (1, 2..3), (3, 3..6)]);
        zerocopy.complete(1, 2);
        assert_eq!(indices(&zerocopy), [0, 3]);
        zerocopy.complete(4, 5);
        assert_eq!(indices(&zerocopy), [0, 3]);
        zerocopy.complete(0, 0);
        assert_eq!(indices(&zerocopy), [3]);
        zerocopy.complete(3, 3);
        assert!(indices(&zerocopy).is_empty());
    }

    #[test]
    fn completions_of_a_piece_that_is_still_being_sent_count() {
        let mut zerocopy = ZeroCopy::default();
        for index in [0, 1, 1] {
            zerocopy.count_call(index);
        }
        zerocopy.complete(0, 1);
        assert_eq!(indices(&zerocopy), [1]);
        zerocopy.count_call(1);
        zerocopy.complete(2, 2);
        assert_eq!(indices(&zerocopy), [1]);
        zerocopy.complete(3, 3);
        assert!(indices(&zerocopy).is_empty());
    }

    #[test]
    fn the_kernels_numbers_wrap() {
        let wrap = 1_u64 << 32;
        let mut zerocopy = holding(&[(7, wrap - 2..wrap), (8, wrap..wrap + 2)]);
        zerocopy.complete(u32::MAX - 1, 0);
        assert_eq!(indices(&zerocopy), [8]);
        zerocopy.complete(1, 1);
        assert!(indices(&zerocopy).is_empty());
    }
}
