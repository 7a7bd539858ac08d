//! Replies as they arrived: their framing only.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

/// One reply of the server, of one line or of several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The code of its last line.
    pub code: u16,
    /// All lines as they arrived, without CRLF.
    pub lines: Vec<String>,
}

impl Reply {
    /// Whether this is a 1xx: another reply will follow.
    pub fn is_preliminary(&self) -> bool {
        (100..200).contains(&self.code)
    }

    /// Whether this is a 2xx.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// The whole reply, its lines joined by newlines.
    pub fn text(&self) -> String {
        self.lines.join("\n")
    }

    /// Whether the reply contains this text, ignoring case.
    pub fn contains(&self, words: &str) -> bool {
        self.text().to_lowercase().contains(&words.to_lowercase())
    }

    /// The text of the last line after the code and the space.
    pub fn tail(&self) -> &str {
        self.lines
            .last()
            .map_or("", |line| line.get(4..).unwrap_or(""))
    }

    /// Takes the first whole reply off the front of `bytes`, or `None` while it is not complete.
    ///
    /// A reply ends at the first line whose first four characters are three digits and a space; a
    /// first line with a hyphen there opens a reply of several lines (RFC 959 4.2). Errors
    /// are forms that some clients cannot parse: a line that ends with a bare LF, a first line in
    /// neither form, a last line with another code than the first.
    pub(super) fn take(bytes: &mut Vec<u8>) -> io::Result<Option<Self>> {
        let mut lines: Vec<String> = Vec::new();
        let mut used = 0;
        while let Some(length) = bytes[used..].iter().position(|&byte| byte == b'\n') {
            let line = &bytes[used..used + length];
            let Some(line) = line.strip_suffix(b"\r") else {
                return Err(malformed("a line ends with LF alone", line));
            };
            if line.contains(&b'\r') {
                return Err(malformed("a line has a CR inside", line));
            }
            used += length + 1;
            lines.push(String::from_utf8_lossy(line).into_owned());
            let (code, mark) = match line {
                [a, b, c, mark, ..] if [a, b, c].iter().all(|d| d.is_ascii_digit()) => {
                    (digits([*a, *b, *c]), *mark)
                }
                _ if lines.len() == 1 => {
                    return Err(malformed("a reply does not begin with a code", line));
                }
                _ => continue,
            };
            match mark {
                b' ' if lines[0].starts_with(&code.to_string()) => {
                    bytes.drain(..used);
                    return Ok(Some(Self { code, lines }));
                }
                b' ' => return Err(malformed("a reply ends with another code", line)),
                b'-' => {}
                _ if lines.len() == 1 => {
                    return Err(malformed(
                        "a code is followed by neither space nor hyphen",
                        line,
                    ));
                }
                _ => {}
            }
        }
        Ok(None)
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

/// The replies to one command: the 1xx replies and the final one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dialogue {
    /// The 1xx replies, in order.
    pub preliminary: Vec<Reply>,
    /// The reply that ended the command.
    pub last: Reply,
}

impl Dialogue {
    /// Collects the replies that `next` reads, with a deadline for all of them.
    pub(super) fn within(
        timeout: Duration,
        mut next: impl FnMut(Instant) -> io::Result<Reply>,
    ) -> io::Result<Self> {
        let deadline = Instant::now() + timeout;
        let mut preliminary = Vec::new();
        loop {
            let last = next(deadline)?;
            if !last.is_preliminary() {
                return Ok(Self { preliminary, last });
            }
            preliminary.push(last);
        }
    }

    /// The codes in order, the final one last.
    pub fn codes(&self) -> Vec<u16> {
        let preliminary = self.preliminary.iter().map(|reply| reply.code);
        preliminary.chain([self.last.code]).collect()
    }

    /// The ranges of all `111` markers, in order: `(first, one after the last)`.
    ///
    /// # Errors
    ///
    /// When a marker is not of the form `111 Range Marker a-b,c-d`.
    pub fn range_markers(&self) -> io::Result<Vec<(u64, u64)>> {
        let mut ranges = Vec::new();
        for marker in self.preliminary.iter().filter(|reply| reply.code == 111) {
            let wrong = || malformed("not a range marker", marker.text().as_bytes());
            let list = marker
                .tail()
                .strip_prefix("Range Marker ")
                .ok_or_else(wrong)?;
            for range in list.split(',') {
                let (first, end) = range.split_once('-').ok_or_else(wrong)?;
                let first = first.parse().map_err(|_| wrong())?;
                ranges.push((first, end.parse().map_err(|_| wrong())?));
            }
        }
        Ok(ranges)
    }
}

impl fmt::Display for Dialogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for reply in &self.preliminary {
            writeln!(f, "{reply}")?;
        }
        write!(f, "{}", self.last)
    }
}

pub(super) fn malformed(what: &str, line: &[u8]) -> io::Error {
    let line = String::from_utf8_lossy(line);
    io::Error::new(io::ErrorKind::InvalidData, format!("{what}: {line:?}"))
}

fn digits(code: [u8; 3]) -> u16 {
    code.iter()
        .fold(0, |value, digit| value * 10 + u16::from(digit - b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(text: &str) -> (io::Result<Option<Reply>>, Vec<u8>) {
        let mut bytes = text.as_bytes().to_vec();
        let reply = Reply::take(&mut bytes);
        (reply, bytes)
    }

    #[test]
    fn a_reply_ends_at_its_last_line() {
        let (reply, rest) = take("211-Features\r\n 211 no\r\n211-SIZE\r\n211 End.\r\n200 next\r\n");
        let reply = reply.unwrap().unwrap();
        assert_eq!((reply.code, reply.lines.len()), (211, 4));
        assert_eq!(reply.tail(), "End.");
        assert_eq!(rest, b"200 next\r\n");
    }

    #[test]
    fn an_unfinished_reply_stays() {
        for text in ["", "22", "220 hello\r", "220-hello\r\n there\r\n"] {
            let (reply, rest) = take(text);
            assert_eq!(reply.unwrap(), None, "{text:?}");
            assert_eq!(rest, text.as_bytes());
        }
    }

    #[test]
    fn replies_that_clients_cannot_parse_are_errors() {
        for text in [
            "220 hello\n",
            "hello\r\n",
            "220/x\r\n",
            "250-a\r\n550 b\r\n",
            "220 a\rb\r\n",
        ] {
            assert!(take(text).0.is_err(), "{text:?}");
        }
    }

    #[test]
    fn range_markers_are_collected_over_replies() {
        let marker = |text: &str| Reply {
            code: 111,
            lines: vec![text.to_owned()],
        };
        let mut dialogue = Dialogue {
            preliminary: vec![
                marker("111 Range Marker 0-5,7-9"),
                marker("111 Range Marker 5-7"),
            ],
            last: Reply {
                code: 226,
                lines: vec!["226 Transfer Complete.".to_owned()],
            },
        };
        assert_eq!(dialogue.range_markers().unwrap(), [(0, 5), (7, 9), (5, 7)]);
        assert_eq!(dialogue.codes(), [111, 111, 226]);
        dialogue.preliminary[0] = marker("111 Range Marker 0");
        assert!(dialogue.range_markers().is_err());
    }
}
