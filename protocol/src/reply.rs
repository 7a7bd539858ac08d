//! Replies of the control channel.
//!
//! A reply is a code and one or more lines. For any texts, an encoded [`Reply`] is exactly one reply to every client: control
//! characters are replaced, and no inner line can be mistaken for the last.

mod decoder;

use std::borrow::Cow;
use std::fmt;

use crate::line;

pub use decoder::{MAX_REPLY_BYTES, MAX_REPLY_LINES, ReplyDecoder, ReplyError};

/// A reply.
#[derive(Clone, PartialEq, Eq)]
pub struct Reply {
    code: u16,
    /// The texts without codes and line ends: one; or the first, the inner ones and the last.
    lines: Vec<Vec<u8>>,
    inner: InnerLines,
}

/// The prefix of the lines between the first and the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InnerLines {
    /// A space: `FEAT`, `MLST`, `SPAS`, `112`.
    Spaced,
    /// The code and a dash: errors.
    Coded,
}

impl Reply {
    /// A reply of one line.
    ///
    /// # Panics
    ///
    /// When the code is not from 100 to 699; so do the other constructors.
    pub fn new(code: u16, text: impl AsRef<[u8]>) -> Self {
        Self {
            code: checked(code),
            lines: vec![sanitized(text.as_ref())],
            inner: InnerLines::Spaced,
        }
    }

    /// A reply of several lines; inner ones start with a space.
    pub fn spaced<T: AsRef<[u8]>>(
        code: u16,
        first: impl AsRef<[u8]>,
        inner: impl IntoIterator<Item = T>,
        last: impl AsRef<[u8]>,
    ) -> Self {
        let mut lines = vec![sanitized(first.as_ref())];
        lines.extend(inner.into_iter().map(|line| sanitized(line.as_ref())));
        lines.push(sanitized(last.as_ref()));
        Self {
            code: checked(code),
            lines,
            inner: InnerLines::Spaced,
        }
    }

    /// A reply of several lines that all start with the code.
    pub fn coded<T: AsRef<[u8]>>(
        code: u16,
        first: impl AsRef<[u8]>,
        inner: impl IntoIterator<Item = T>,
        last: impl AsRef<[u8]>,
    ) -> Self {
        let mut reply = Self::spaced(code, first, inner, last);
        // Without inner lines both forms are identical.
        if reply.lines.len() > 2 {
            reply.inner = InnerLines::Coded;
        }
        reply
    }

    /// The code.
    pub fn code(&self) -> u16 {
        self.code
    }

    /// The texts of all lines, without codes, leading spaces and line ends.
    pub fn lines(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.lines.iter().map(Vec::as_slice)
    }

    /// The text of the first line.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.lines.first().map_or(&[], Vec::as_slice))
    }

    /// The lines between the first and the last one.
    pub fn inner(&self) -> &[Vec<u8>] {
        match self.lines.len() {
            0..=2 => &[],
            count => &self.lines[1..count - 1],
        }
    }

    /// 1yz: more replies to the same command follow.
    pub fn is_preliminary(&self) -> bool {
        self.code / 100 == 1
    }

    /// 2yz: completed.
    pub fn is_completion(&self) -> bool {
        self.code / 100 == 2
    }

    /// 3yz: another command is needed.
    pub fn is_intermediate(&self) -> bool {
        self.code / 100 == 3
    }

    /// 4yz, 5yz: refused or failed.
    pub fn is_error(&self) -> bool {
        matches!(self.code / 100, 4 | 5)
    }

    /// The bytes on the network.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.lines.iter().map(|line| line.len() + 6).sum());
        let last = self.lines.len() - 1;
        for (index, line) in self.lines.iter().enumerate() {
            match (index, self.inner) {
                (index, _) if index == last => push_line(&mut out, self.code, b' ', line),
                (1.., InnerLines::Spaced) => push_inner_line(&mut out, line),
                _ => push_line(&mut out, self.code, b'-', line),
            }
        }
        out
    }

    /// The encoded first line of a reply that is sent in parts (`MLSC`). Any number of [`Self::encode_inner_line`] and one
    /// [`Self::encode_last_line`] must follow.
    ///
    /// # Panics
    ///
    /// When the code is not from 100 to 699.
    pub fn encode_first_line(code: u16, text: impl AsRef<[u8]>) -> Vec<u8> {
        let mut out = Vec::new();
        push_line(&mut out, checked(code), b'-', &sanitized(text.as_ref()));
        out
    }

    /// An encoded inner line of such a reply.
    pub fn encode_inner_line(text: impl AsRef<[u8]>) -> Vec<u8> {
        let mut out = Vec::new();
        push_inner_line(&mut out, &sanitized(text.as_ref()));
        out
    }

    /// The encoded last line of such a reply.
    ///
    /// # Panics
    ///
    /// When the code is not from 100 to 699.
    pub fn encode_last_line(code: u16, text: impl AsRef<[u8]>) -> Vec<u8> {
        let mut out = Vec::new();
        push_line(&mut out, checked(code), b' ', &sanitized(text.as_ref()));
        out
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.encode().escape_ascii())
    }
}

fn push_line(out: &mut Vec<u8>, code: u16, separator: u8, text: &[u8]) {
    out.extend_from_slice(code.to_string().as_bytes());
    out.push(separator);
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

fn push_inner_line(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b' ');
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

fn checked(code: u16) -> u16 {
    assert!(
        (100..700).contains(&code),
        "a reply code has three digits and begins with 1 to 6"
    );
    code
}

/// Replaces control characters: a client that takes a single CR or LF for a line end must not see two replies.
fn sanitized(text: &[u8]) -> Vec<u8> {
    let mut sanitized = Vec::with_capacity(text.len());
    line::append_shown(&mut sanitized, text);
    sanitized
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_replies() {
        let single = Reply::new(226, "Transfer Complete.");
        assert_eq!(single.encode(), b"226 Transfer Complete.\r\n");

        let spaced = Reply::spaced(211, "Extensions supported", ["SIZE", "REST STREAM"], "End.");
        assert_eq!(
            spaced.encode(),
            b"211-Extensions supported\r\n SIZE\r\n REST STREAM\r\n211 End.\r\n"
        );

        let coded = Reply::coded(
            550,
            "GlobusError: v=1 c=PATH_NOT_FOUND",
            [
                "GridFTP-Errno: 2",
                "GridFTP-Error-String: No such file or directory",
            ],
            "End.",
        );
        assert_eq!(
            coded.encode(),
            b"550-GlobusError: v=1 c=PATH_NOT_FOUND\r\n550-GridFTP-Errno: 2\r\n\
              550-GridFTP-Error-String: No such file or directory\r\n550 End.\r\n"
        );
    }

    #[test]
    fn a_text_cannot_end_the_reply() {
        let reply = Reply::spaced(250, "status of a\r\n226 b", ["226 x\n226 y\0"], "End.");
        assert_eq!(
            reply.encode(),
            b"250-status of a??226 b\r\n 226 x?226 y?\r\n250 End.\r\n"
        );
    }

    #[test]
    fn a_long_reply_is_sent_in_parts() {
        let whole = Reply::spaced(250, "Contents of /", ["Type=dir; a", "Type=dir; b"], "End.");
        let pieces = [
            Reply::encode_first_line(250, "Contents of /"),
            Reply::encode_inner_line("Type=dir; a"),
            Reply::encode_inner_line("Type=dir; b"),
            Reply::encode_last_line(250, "End."),
        ];
        assert_eq!(pieces.concat(), whole.encode());
    }

    #[test]
    fn codes_have_classes() {
        assert!(Reply::new(150, "").is_preliminary());
        assert!(Reply::new(226, "").is_completion());
        assert!(Reply::new(350, "").is_intermediate());
        assert!(Reply::new(426, "").is_error() && Reply::new(550, "").is_error());
        assert!(!Reply::new(631, "").is_error());
    }
}
