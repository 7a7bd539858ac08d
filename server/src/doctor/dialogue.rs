//! A client of the control channel, for a few commands.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use gridhaul_protocol::reply::Reply;

/// The time limit of a connection and of a reply. A server with penalties or a queue waits longer, which is worth a line.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(10);

/// An open control channel.
pub(super) struct Dialogue {
    stream: BufReader<TcpStream>,
    pub(super) server: SocketAddr,
}

impl Dialogue {
    pub(super) fn connect(server: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&server, TIME_LIMIT)?;
        stream.set_read_timeout(Some(TIME_LIMIT))?;
        stream.set_write_timeout(Some(TIME_LIMIT))?;
        Ok(Self {
            stream: BufReader::new(stream),
            server,
        })
    }

    pub(super) fn command(&mut self, line: &str) -> io::Result<Reply> {
        self.stream
            .get_mut()
            .write_all(format!("{line}\r\n").as_bytes())?;
        self.reply()
    }

    /// RFC 959 4.2: the last line of a reply has a space after the code. What answers at the port may be another program, so
    /// the length is bounded.
    pub(super) fn reply(&mut self) -> io::Result<Reply> {
        const LINES: usize = 100;
        const LINE_BYTES: u64 = 4096;

        let mut first = None;
        for _ in 0..LINES {
            let mut line = String::new();
            let mut limited = self.stream.by_ref().take(LINE_BYTES);
            if limited.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let line = line.trim_end();
            let code = line.get(..3).and_then(|code| code.parse::<u16>().ok());
            let text = line.get(4..).unwrap_or_default();
            let text = first.get_or_insert_with(|| text.to_owned());
            let is_last = matches!(line.as_bytes().get(3), Some(b' ') | None);
            if let Some(code @ 100..=699) = code.filter(|_| is_last) {
                return Ok(Reply::new(code, text.as_str()));
            }
        }
        Err(io::Error::other("what it sends is no reply of FTP"))
    }
}
