//! Lines of text over the connection between the two ends, each bounded in length and time.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// The longest line, with its end.
const MOST_BYTES: usize = 2048;

/// An end of the connection.
#[derive(Debug)]
pub(super) struct Lines {
    stream: TcpStream,
    /// What was received beyond the last line.
    received: Vec<u8>,
}

impl Lines {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            received: Vec::new(),
        }
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends a line.
    ///
    /// # Errors
    ///
    /// When the peer is gone, or takes nothing for `within`.
    pub(super) fn send(&mut self, line: &str, within: Duration) -> io::Result<()> {
        self.stream.set_write_timeout(Some(within))?;
        let line = format!("{line}\n");
        self.stream.write_all(line.as_bytes()).map_err(timed_out)
    }

    /// The next line without its end, and without bytes that are no UTF-8.
    ///
    /// # Errors
    ///
    /// When the peer is gone, sends no whole line within that time, or a longer one than it may.
    pub(super) fn receive(&mut self, within: Duration) -> io::Result<String> {
        let deadline = Instant::now() + within;
        loop {
            if let Some(line) = self.whole()? {
                return Ok(line);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left))?;
            self.read_more()?;
        }
    }

    /// The next line, if it was received to its end.
    ///
    /// # Errors
    ///
    /// When it is longer than it may be.
    pub(super) fn whole(&mut self) -> io::Result<Option<String>> {
        if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.received.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            return Ok(Some(line.trim_end().to_owned()));
        }
        match self.received.len() >= MOST_BYTES {
            true => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the line is too long",
            )),
            false => Ok(None),
        }
    }

    /// Receives some bytes. There may be none yet: a socket waits for its timeout, or not at all.
    ///
    /// # Errors
    ///
    /// When the peer is gone.
    pub(super) fn read_more(&mut self) -> io::Result<()> {
        let mut piece = [0; 512];
        match self.stream.read(&mut piece) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.received.extend_from_slice(&piece[..count]);
                Ok(())
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
                ) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// A socket with a timeout says that it would block (socket(7)).
fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    const SOON: Duration = Duration::from_millis(50);

    const LATE: Duration = Duration::from_secs(20);

    /// Two connected ends.
    pub(in crate::doctor::rdma) fn pair() -> (Lines, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
        let address = listener.local_addr().expect("bound");
        let there = TcpStream::connect(address).expect("connected");
        let (here, _) = listener.accept().expect("accepted");
        (Lines::new(here), there)
    }

    #[test]
    fn lines_come_one_by_one() {
        let (mut here, mut there) = pair();
        there
            .write_all(b"one\r\ntwo\nth\xffree\nrest")
            .expect("sent");
        let mut next = |time| here.receive(time);
        assert_eq!(next(LATE).expect("a line"), "one");
        assert_eq!(next(LATE).expect("a line"), "two");
        assert_eq!(next(LATE).expect("a line"), "th\u{fffd}ree");
        let waited = next(SOON).expect_err("no end");
        assert_eq!(waited.kind(), io::ErrorKind::TimedOut);
        drop(there);
        let ended = next(LATE).expect_err("no line");
        assert_eq!(ended.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_line_without_an_end_is_bounded() {
        let (mut here, mut there) = pair();
        there.write_all(&[b'x'; 10_000]).expect("sent");
        let error = here.receive(LATE).expect_err("too long");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(here.received.len() < 2 * MOST_BYTES);
    }
}
