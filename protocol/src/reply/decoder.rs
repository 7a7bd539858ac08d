//! Decodes replies.

use super::{InnerLines, Reply};
use crate::excerpt::Excerpt;
use crate::line::{LineDecoder, LineError};

/// The most lines of a reply.
pub const MAX_REPLY_LINES: usize = 16 * 1024;

/// The most bytes of a reply, without codes and line ends.
pub const MAX_REPLY_BYTES: usize = 4 * 1024 * 1024;

/// Assembles replies. Holds no memory between two replies.
///
/// As in globus-url-copy 10.12, a reply of several lines ends at the first line that starts with any three digits and a space,
/// and its code is that of this line.
#[derive(Debug, Default)]
pub struct ReplyDecoder {
    lines: LineDecoder,
    /// A reply without its last line.
    unfinished: Option<Unfinished>,
}

/// Why a reply is invalid. The server is at fault. Later replies cannot be matched to commands, so the control channel must be
/// closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// A line is invalid.
    #[error("the server sent a bad line: {0}")]
    Line(#[from] LineError),
    /// A line does not start with a reply code from 100 to 699.
    #[error("the server sent '{0}', which is no reply")]
    Code(Excerpt),
    /// More than [`MAX_REPLY_LINES`].
    #[error("the server sent a reply of more than {MAX_REPLY_LINES} lines")]
    TooManyLines,
    /// More than [`MAX_REPLY_BYTES`].
    #[error("the server sent a reply of more than {MAX_REPLY_BYTES} bytes")]
    TooLong,
}

#[derive(Debug)]
struct Unfinished {
    /// The code of the first line, and a dash.
    prefix: Vec<u8>,
    lines: Vec<Vec<u8>>,
    bytes: usize,
    /// Every inner line so far starts with the prefix.
    all_coded: bool,
}

impl ReplyDecoder {
    /// A decoder at the beginning of a control channel.
    pub fn new() -> Self {
        Self {
            lines: LineDecoder::for_replies(),
            unfinished: None,
        }
    }

    /// Consumes `input` up to the end of a reply, and returns the reply, or its error. `None`: the reply is incomplete, and all of
    /// `input` is consumed.
    pub fn decode(&mut self, input: &mut &[u8]) -> Option<Result<Reply, ReplyError>> {
        while let Some(line) = self.lines.decode(input) {
            match line
                .map_err(ReplyError::Line)
                .and_then(|line| self.take(line))
            {
                Ok(None) => {}
                Ok(Some(reply)) => return Some(Ok(reply)),
                Err(error) => {
                    self.unfinished = None;
                    return Some(Err(error));
                }
            }
        }
        None
    }

    /// Consumes a line, and returns the reply that it completes.
    fn take(&mut self, line: Vec<u8>) -> Result<Option<Reply>, ReplyError> {
        let Some(unfinished) = &mut self.unfinished else {
            return self.begin(&line);
        };
        if !is_last(&line) {
            unfinished.add_inner(&line)?;
            return Ok(None);
        }
        let code = code(&line)?;
        unfinished.add(line[4..].to_vec())?;
        Ok(self.unfinished.take().map(|unfinished| Reply {
            code,
            inner: unfinished.inner_style(),
            lines: unfinished.lines,
        }))
    }

    fn begin(&mut self, line: &[u8]) -> Result<Option<Reply>, ReplyError> {
        let code = code(line)?;
        match line.get(3) {
            None => Ok(Some(Reply::new(code, ""))),
            Some(b' ') => Ok(Some(Reply::new(code, &line[4..]))),
            Some(b'-') => {
                let mut unfinished = Unfinished {
                    prefix: line[..4].to_vec(),
                    lines: Vec::new(),
                    bytes: 0,
                    all_coded: true,
                };
                unfinished.add(line[4..].to_vec())?;
                self.unfinished = Some(unfinished);
                Ok(None)
            }
            Some(_) => Err(ReplyError::Code(Excerpt::new(line))),
        }
    }
}

impl Unfinished {
    fn add_inner(&mut self, line: &[u8]) -> Result<(), ReplyError> {
        let coded = line.strip_prefix(self.prefix.as_slice());
        self.all_coded &= coded.is_some();
        let text = coded.or_else(|| line.strip_prefix(b" ")).unwrap_or(line);
        self.add(text.to_vec())
    }

    fn add(&mut self, text: Vec<u8>) -> Result<(), ReplyError> {
        self.bytes += text.len();
        if self.bytes > MAX_REPLY_BYTES {
            return Err(ReplyError::TooLong);
        }
        if self.lines.len() >= MAX_REPLY_LINES {
            return Err(ReplyError::TooManyLines);
        }
        self.lines.push(super::sanitized(&text));
        Ok(())
    }

    fn inner_style(&self) -> InnerLines {
        if self.all_coded && self.lines.len() > 2 {
            InnerLines::Coded
        } else {
            InnerLines::Spaced
        }
    }
}

fn is_last(line: &[u8]) -> bool {
    matches!(line, [a, b, c, b' ', ..] if [a, b, c].iter().all(|byte| byte.is_ascii_digit()))
}

fn code(line: &[u8]) -> Result<u16, ReplyError> {
    match line {
        [a @ b'1'..=b'6', b @ b'0'..=b'9', c @ b'0'..=b'9', ..] => {
            let digit = |byte: &u8| u16::from(byte - b'0');
            Ok(digit(a) * 100 + digit(b) * 10 + digit(c))
        }
        _ => Err(ReplyError::Code(Excerpt::new(line))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn decode(mut input: &[u8]) -> Vec<Result<Reply, ReplyError>> {
        let mut decoder = ReplyDecoder::new();
        std::iter::from_fn(|| decoder.decode(&mut input)).collect()
    }

    fn only(input: &[u8]) -> Reply {
        let mut replies = decode(input);
        assert_eq!(replies.len(), 1, "{replies:?}");
        replies.remove(0).unwrap()
    }

    #[test]
    fn recorded_replies() {
        let reply = only(b"227 Entering Passive Mode (127,0,0,1,202,79)\r\n");
        assert_eq!(reply.code(), 227);
        assert_eq!(reply.text(), "Entering Passive Mode (127,0,0,1,202,79)");

        let reply = only(b"211-Extensions supported\r\n SIZE\r\n MLST Type*;\r\n211 End.\r\n");
        assert_eq!(reply.inner(), [&b"SIZE"[..], b"MLST Type*;"]);
        assert_eq!(reply.code(), 211);

        let reply = only(b"500-Command failed.\r\n500- : init failed.\r\n500 End.\r\n");
        assert_eq!(reply.inner(), [b" : init failed."]);
        assert_eq!(only(b"220 \r\n").text(), "");
    }

    #[test]
    fn any_line_with_a_code_and_a_space_ends_a_reply() {
        let replies = decode(b"250-status\r\n226 done\r\n200 next\r\n");
        let codes: Vec<_> = replies
            .iter()
            .map(|reply| reply.as_ref().unwrap().code())
            .collect();
        assert_eq!(codes, [226, 200]);
        // Not these, which other servers send.
        let reply = only(b"230-Welcome\r\n 226 x\r\n226-y\r\nz\r\n226\r\n230 End\r\n");
        assert_eq!(reply.inner().len(), 4);
    }

    #[test]
    fn other_lines_are_errors() {
        for wrong in [
            "hello", "", "99 x", "099 x", "700 x", "226x", "\x01\x02", "2260 x",
        ] {
            let replies = decode(format!("{wrong}\r\n").as_bytes());
            assert!(
                matches!(replies[..], [Err(ReplyError::Code(_))]),
                "{wrong}: {replies:?}"
            );
        }
        assert_eq!(
            decode(b"200 a\0\r\n"),
            [Err(ReplyError::Line(LineError::Nul))]
        );
    }

    #[test]
    fn a_reply_without_an_end_takes_no_more_memory_than_allowed() {
        let mut many = b"211-a\r\n".to_vec();
        many.extend(b" x\r\n".repeat(MAX_REPLY_LINES));
        assert_eq!(decode(&many)[0], Err(ReplyError::TooManyLines));

        let mut long = b"211-a\r\n".to_vec();
        let line = [b" ".as_slice(), &[b'x'; 60_000], b"\r\n"].concat();
        long.extend(line.repeat(MAX_REPLY_BYTES / 60_000 + 1));
        assert_eq!(decode(&long)[0], Err(ReplyError::TooLong));
    }

    fn any_reply() -> impl Strategy<Value = Reply> {
        let text = || vec(any::<u8>(), 0..12);
        prop_oneof![
            (100u16..700, text()).prop_map(|(code, text)| Reply::new(code, text)),
            (100u16..700, text(), vec(text(), 0..5), text())
                .prop_map(|(code, first, inner, last)| Reply::spaced(code, first, inner, last)),
            (100u16..700, text(), vec(text(), 0..5), text())
                .prop_map(|(code, first, inner, last)| Reply::coded(code, first, inner, last)),
        ]
    }

    proptest! {
        #[test]
        fn replies_survive_in_any_pieces(
            replies in vec(any_reply(), 1..4),
            cuts in vec(1usize..9, 1..40),
        ) {
            let encoded: Vec<u8> = replies.iter().flat_map(Reply::encode).collect();
            let mut decoder = ReplyDecoder::new();
            let mut decoded = Vec::new();
            let mut rest = encoded.as_slice();
            let mut cuts = cuts.iter().cycle();
            while !rest.is_empty() {
                let (mut piece, after) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
                rest = after;
                while let Some(reply) = decoder.decode(&mut piece) {
                    decoded.push(reply.unwrap());
                }
            }
            prop_assert_eq!(decoded, replies);
        }

        #[test]
        fn decoded_replies_survive(input in "([0-9]{3}[- ]|[ -~]|\r\n){0,40}\r\n") {
            for reply in decode(input.as_bytes()).into_iter().flatten() {
                prop_assert_eq!(only(&reply.encode()), reply);
            }
        }
    }
}
