//! Lines of the control channel: bytes in, lines out.
//!
//! Only CRLF ends a line: a single LF or CR belongs to a file name. A line is at most [`MAX_LINE_BYTES`] long.

use std::mem;

/// The longest line without its CRLF, in bytes. `DCSC` contains a credential: globus-url-copy sends lines of 7 kB.
pub const MAX_LINE_BYTES: usize = 64 * 1024;

/// Splits a stream into lines. Holds no memory between two lines.
#[derive(Debug, Default)]
pub struct LineDecoder {
    /// The line so far, including a CR.
    line: Vec<u8>,
    /// The error of the present line; the rest of the line is skipped.
    fault: Option<LineError>,
    /// The last byte was a CR; also tracked while skipping.
    after_carriage_return: bool,
    telnet: Telnet,
}

/// Why a line is invalid. It is dropped; the next line is not affected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// It is longer than [`MAX_LINE_BYTES`].
    #[error("the line is longer than {MAX_LINE_BYTES} bytes")]
    TooLong,
    /// It contains a NUL.
    #[error("there is a NUL byte in the line")]
    Nul,
}

/// The state of telnet decoding.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Telnet {
    /// Telnet sequences are not decoded: replies.
    #[default]
    Off,
    /// Telnet sequences are removed: commands.
    Text,
    /// After IAC.
    Command,
    /// After IAC and WILL, WONT, DO or DONT.
    Option,
}

const IAC: u8 = 255;
/// The first code of a telnet command (RFC 854, "TELNET command structure").
const FIRST_TELNET_COMMAND: u8 = 240;
const WILL: u8 = 251;
const DONT: u8 = 254;

impl LineDecoder {
    /// A decoder for lines of a client: telnet sequences are removed, and IAC IAC becomes one byte 255 (RFC 959 4.1.3 requires
    /// telnet sequences with `ABOR` and `STAT`). A byte 255 without a telnet command after it is kept, because clients without
    /// telnet support send file names unchanged.
    pub fn for_commands() -> Self {
        Self {
            telnet: Telnet::Text,
            ..Self::default()
        }
    }

    /// A decoder for lines of a server: only CR and LF are special.
    pub fn for_replies() -> Self {
        Self::default()
    }

    /// Consumes `input` up to the end of a line, and returns the line without its CRLF, or its error. `None`: the line is
    /// incomplete, and all of `input` is consumed.
    pub fn decode(&mut self, input: &mut &[u8]) -> Option<Result<Vec<u8>, LineError>> {
        while let Some((&byte, rest)) = input.split_first() {
            *input = rest;
            if self.take(byte) {
                let line = mem::take(&mut self.line);
                return Some(match self.fault.take() {
                    Some(fault) => Err(fault),
                    None => Ok(line),
                });
            }
        }
        None
    }

    /// Whether a line has begun and not ended.
    pub fn is_inside_line(&self) -> bool {
        !self.line.is_empty() || self.fault.is_some()
    }

    /// The incomplete line, encoded so that another decoder can continue with it.
    pub fn into_begun(self) -> Vec<u8> {
        let mut begun = Vec::new();
        if self.fault.is_some() {
            // A NUL makes the line invalid for the other decoder too.
            begun.push(0);
            begun.extend(self.after_carriage_return.then_some(b'\r'));
        } else {
            // The next byte is unknown, so every IAC is doubled.
            let doubled = |&byte: &u8| std::iter::repeat_n(byte, 1 + usize::from(byte == IAC));
            begun.extend(self.line.iter().flat_map(doubled));
        }
        match self.telnet {
            Telnet::Command => begun.push(IAC),
            Telnet::Option => begun.extend([IAC, WILL]),
            Telnet::Off | Telnet::Text => {}
        }
        begun
    }

    /// Consumes a byte from the network, and returns whether a line ended.
    fn take(&mut self, byte: u8) -> bool {
        match self.telnet {
            Telnet::Off => self.push(byte),
            Telnet::Text if byte == IAC => {
                self.telnet = Telnet::Command;
                false
            }
            Telnet::Text => self.push(byte),
            Telnet::Command => {
                self.telnet = Telnet::Text;
                match byte {
                    IAC => self.push(IAC),
                    WILL..=DONT => {
                        self.telnet = Telnet::Option;
                        false
                    }
                    FIRST_TELNET_COMMAND.. => false,
                    _ => {
                        self.push(IAC);
                        self.push(byte)
                    }
                }
            }
            Telnet::Option => {
                self.telnet = Telnet::Text;
                false
            }
        }
    }

    /// Consumes a byte of text, and returns whether a line ended.
    fn push(&mut self, byte: u8) -> bool {
        if byte == b'\n' && mem::take(&mut self.after_carriage_return) {
            self.line.pop();
            return true;
        }
        self.after_carriage_return = byte == b'\r';
        if self.fault.is_none() {
            if byte == 0 {
                self.skip(LineError::Nul);
            } else if self.line.len() >= MAX_LINE_BYTES + usize::from(byte == b'\r') {
                self.skip(LineError::TooLong);
            } else {
                self.line.push(byte);
            }
        }
        false
    }

    fn skip(&mut self, fault: LineError) {
        self.fault = Some(fault);
        self.line = Vec::new();
    }
}

/// Encodes a command line for the network.
///
/// A byte 255 is doubled only before a byte that would make it a telnet command: globus-gridftp-server 13.24 does not undo the
/// doubling, so names with 255 before a byte below 240 still work there.
pub fn encode_command_line(line: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(line.len() + 2);
    for (index, &byte) in line.iter().enumerate() {
        encoded.push(byte);
        let next = line.get(index + 1);
        if byte == IAC && next.is_some_and(|&next| next >= FIRST_TELNET_COMMAND) {
            encoded.push(IAC);
        }
    }
    encoded.extend_from_slice(b"\r\n");
    encoded
}

/// Appends a text, with `?` for characters that could end a line or control a terminal, as in the output of ls(1): the control
/// characters of ASCII except the tab, those of Unicode (U+0080 to U+009F) in UTF-8, and the line and paragraph separators.
/// RFC 3659 7.2 ends a line of a listing only at CRLF, but Python's ftplib also at a single CR or LF, and `str.splitlines` at
/// others of these.
pub(crate) fn append_shown(line: &mut Vec<u8>, text: &[u8]) {
    let is_plain = |&byte: &u8| (b' '..0x7f).contains(&byte) || byte == b'\t';
    // The fast path for nearly all names: a listing may have a million.
    if text.iter().all(is_plain) {
        line.extend_from_slice(text);
        return;
    }
    let mut rest = text;
    while let [first, behind @ ..] = rest {
        let (shown, length) = match rest {
            [0xc2, 0x80..=0x9f, ..] => (b'?', 2),
            [0xe2, 0x80, 0xa8 | 0xa9, ..] => (b'?', 3),
            [0x80..=0xff, ..] => (*first, 1),
            _ if is_plain(first) => (*first, 1),
            _ => (b'?', 1),
        };
        line.push(shown);
        rest = rest.get(length..).unwrap_or(behind);
    }
}

/// Whether these bytes can be part of a line: no NUL and no CRLF.
pub(crate) fn fits(bytes: &[u8]) -> bool {
    // Nearly no name has a CR, and a listing may have a million.
    let has_line_end = bytes.contains(&b'\r') && bytes.windows(2).any(|pair| pair == b"\r\n");
    !has_line_end && !bytes.contains(&0)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn decode(mut input: &[u8]) -> Vec<Result<Vec<u8>, LineError>> {
        let mut decoder = LineDecoder::for_commands();
        std::iter::from_fn(|| decoder.decode(&mut input)).collect()
    }

    fn line(text: &[u8]) -> Result<Vec<u8>, LineError> {
        Ok(text.to_vec())
    }

    proptest! {
        #[test]
        fn another_decoder_can_continue(
            bytes in vec(
                prop_oneof![any::<u8>(), proptest::sample::select(&b"\xff\xff\xfb\xf4\r\n\0"[..])],
                0..40,
            ),
            at in any::<proptest::sample::Index>(),
        ) {
            let (before, after) = bytes.split_at(at.index(bytes.len() + 1));
            let mut decoder = LineDecoder::for_commands();
            let mut input = before;
            let mut found: Vec<_> = std::iter::from_fn(|| decoder.decode(&mut input)).collect();
            let mut rest = decoder.into_begun();
            rest.extend(after);
            found.extend(decode(&rest));
            prop_assert_eq!(found, decode(&bytes));
        }
    }

    #[test]
    fn only_crlf_ends_a_line() {
        assert_eq!(decode(b"NOOP\r\nPWD\r\n"), [line(b"NOOP"), line(b"PWD")]);
        assert_eq!(decode(b"RETR a\nb\rc\r\n"), [line(b"RETR a\nb\rc")]);
        assert_eq!(decode(b"RETR a\r\r\n\r\n"), [line(b"RETR a\r"), line(b"")]);
        assert_eq!(decode(b"NOOP\n"), []);
    }

    #[test]
    fn a_line_may_come_byte_by_byte() {
        let mut decoder = LineDecoder::for_commands();
        for byte in b"NOOP\r" {
            assert_eq!(decoder.decode(&mut [*byte].as_slice()), None);
        }
        assert!(decoder.is_inside_line());
        assert_eq!(decoder.decode(&mut b"\n".as_slice()), Some(line(b"NOOP")));
        assert!(!decoder.is_inside_line());
    }

    #[test]
    fn the_longest_line_passes() {
        let longest = vec![b'x'; MAX_LINE_BYTES];
        let input = [longest.as_slice(), b"\r\nNOOP\r\n"].concat();
        assert_eq!(decode(&input), [line(&longest), line(b"NOOP")]);
    }

    #[test]
    fn a_longer_line_is_one_error_and_takes_no_memory() {
        let mut decoder = LineDecoder::for_commands();
        for _ in 0..1024 {
            assert_eq!(decoder.decode(&mut [b'x'; 1024].as_slice()), None);
            assert!(decoder.line.capacity() <= 2 * MAX_LINE_BYTES);
        }
        assert_eq!(decoder.line.capacity(), 0);
        let mut rest = b"\r\rx\r\nNOOP\r\n".as_slice();
        assert_eq!(decoder.decode(&mut rest), Some(Err(LineError::TooLong)));
        assert_eq!(decoder.decode(&mut rest), Some(line(b"NOOP")));

        let one_more = [vec![b'x'; MAX_LINE_BYTES + 1], b"\r\n".to_vec()].concat();
        assert_eq!(decode(&one_more), [Err(LineError::TooLong)]);
        let one_more = [vec![b'x'; MAX_LINE_BYTES], b"\r\r\n".to_vec()].concat();
        assert_eq!(decode(&one_more), [Err(LineError::TooLong)]);
    }

    #[test]
    fn a_nul_is_an_error() {
        assert_eq!(
            decode(b"RETR a\0b\r\nNOOP\r\n"),
            [Err(LineError::Nul), line(b"NOOP")]
        );
    }

    #[test]
    fn telnet_sequences_are_removed() {
        // IAC IP, IAC DM before ABOR (RFC 959 4.1.3); a negotiation; a doubled IAC.
        assert_eq!(decode(b"\xff\xf4\xff\xf2ABOR\r\n"), [line(b"ABOR")]);
        assert_eq!(decode(b"NO\xff\xfb\x01OP\r\xff\xf1\n"), [line(b"NOOP")]);
        assert_eq!(
            decode(b"RETR a\xff\xff\xffb\r\n"),
            [line(b"RETR a\xff\xffb")]
        );
    }

    #[test]
    fn telnet_is_not_decoded_in_replies() {
        let mut decoder = LineDecoder::for_replies();
        let mut input = b"250 \xff\xff\xf4\r\n".as_slice();
        assert_eq!(decoder.decode(&mut input), Some(line(b"250 \xff\xff\xf4")));
    }

    proptest! {
        #[test]
        fn lines_survive(lines in vec(vec(prop_oneof![any::<u8>(), Just(255), 240u8..], 0..20), 0..5)) {
            let lines: Vec<_> = lines.into_iter().filter(|line| fits(line)).collect();
            let encoded: Vec<u8> = lines.iter().flat_map(|line| encode_command_line(line)).collect();
            let expected: Vec<_> = lines.into_iter().map(Ok).collect();
            prop_assert_eq!(decode(&encoded), expected);
        }
    }
}
