//! Replies of the control channel.
//!
//! A reply is a code and one or more lines. Whatever its texts hold, an encoded [`Reply`] is exactly one
//! reply to every client: CR, LF and NUL are replaced, and no inner line can be taken for the last.

use std::borrow::Cow;
use std::fmt;

/// One reply.
#[derive(Clone, PartialEq, Eq)]
pub struct Reply {
    code: u16,
    /// The texts without codes and line ends; one, or first, inner ones, last.
    lines: Vec<Vec<u8>>,
    inner: InnerLines,
}

/// How the lines between the first and the last one begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InnerLines {
    /// With one space: `FEAT`, `MLST`, `SPAS`, `112`.
    Spaced,
    /// With the code and a dash: errors.
    Coded,
}

impl Reply {
    /// A reply of one line.
    ///
    /// # Panics
    ///
    /// As the others, when the code is not from 100 to 699.
    pub fn new(code: u16, text: impl AsRef<[u8]>) -> Self {
        Self {
            code: checked(code),
            lines: vec![harmless(text.as_ref())],
            inner: InnerLines::Spaced,
        }
    }

    /// A reply of several lines whose inner ones begin with a space.
    pub fn spaced<T: AsRef<[u8]>>(
        code: u16,
        first: impl AsRef<[u8]>,
        inner: impl IntoIterator<Item = T>,
        last: impl AsRef<[u8]>,
    ) -> Self {
        let mut lines = vec![harmless(first.as_ref())];
        lines.extend(inner.into_iter().map(|line| harmless(line.as_ref())));
        lines.push(harmless(last.as_ref()));
        Self {
            code: checked(code),
            lines,
            inner: InnerLines::Spaced,
        }
    }

    /// A reply of several lines that all begin with the code.
    pub fn coded<T: AsRef<[u8]>>(
        code: u16,
        first: impl AsRef<[u8]>,
        inner: impl IntoIterator<Item = T>,
        last: impl AsRef<[u8]>,
    ) -> Self {
        let mut reply = Self::spaced(code, first, inner, last);
        // Without inner lines there is nothing to tell the two apart.
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

    /// 2yz: done.
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
            let code = self.code.to_string();
            match (index, self.inner) {
                (index, _) if index == last => {
                    out.extend_from_slice(code.as_bytes());
                    out.push(b' ');
                }
                (1.., InnerLines::Spaced) => out.push(b' '),
                _ => {
                    out.extend_from_slice(code.as_bytes());
                    out.push(b'-');
                }
            }
            out.extend_from_slice(line);
            out.extend_from_slice(b"\r\n");
        }
        out
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.encode().escape_ascii())
    }
}

fn checked(code: u16) -> u16 {
    assert!(
        (100..700).contains(&code),
        "a reply code has three digits and begins with 1 to 6"
    );
    code
}

/// A client that takes a lone CR or LF for the end of a line must not be led to see two replies.
fn harmless(text: &[u8]) -> Vec<u8> {
    text.iter()
        .map(|&byte| match byte {
            b'\r' | b'\n' | 0 => b'?',
            byte => byte,
        })
        .collect()
}
