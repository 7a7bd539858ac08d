//! A client of the program.

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::program::Running;

/// A control connection.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    replies: BufReader<TcpStream>,
}

impl Client {
    /// Returns the client and the server's greeting.
    pub(crate) fn connect(server: &Running) -> (Self, String) {
        let stream = TcpStream::connect(server.address).expect("connected");
        let limit = Some(Duration::from_secs(60));
        stream.set_read_timeout(limit).expect("set");
        let replies = BufReader::new(stream.try_clone().expect("a handle"));
        let mut client = Self { stream, replies };
        let greeting = client.reply();
        (client, greeting)
    }

    /// A client that has logged in.
    pub(crate) fn log_in(server: &Running) -> Self {
        let (mut client, greeting) = Self::connect(server);
        assert!(greeting.starts_with("220"), "{greeting}");
        for (line, code) in [
            ("USER anonymous", "331"),
            ("PASS x", "230"),
            ("TYPE I", "200"),
        ] {
            client.expect(line, code);
        }
        client
    }

    /// Empty when the server has closed the connection.
    pub(crate) fn reply(&mut self) -> String {
        let mut line = String::new();
        let read = self.replies.read_line(&mut line);
        // A connection that was reset is as closed as any other.
        let is_late = read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        assert!(!is_late, "no reply comes");
        line
    }

    pub(crate) fn send(&mut self, line: &str) -> String {
        let sent = self.stream.write_all(format!("{line}\r\n").as_bytes());
        sent.map_or_else(|_| String::new(), |()| self.reply())
    }

    /// As [`Client::send`]; `None` if no reply comes within the time limit of the stream.
    pub(crate) fn try_send(&mut self, line: &str) -> Option<String> {
        self.stream
            .write_all(format!("{line}\r\n").as_bytes())
            .ok()?;
        let mut reply = String::new();
        self.replies.read_line(&mut reply).ok()?;
        Some(reply)
    }

    /// The next reply, which has this code.
    pub(crate) fn expect_reply(&mut self, code: &str) {
        let reply = self.reply();
        assert!(reply.starts_with(code), "{reply:?}");
    }

    /// As [`Client::send`], for a reply with this code.
    pub(crate) fn expect(&mut self, line: &str, code: &str) -> String {
        let reply = self.send(line);
        assert!(reply.starts_with(code), "{line}: {reply:?}");
        reply
    }

    /// Where the server listens for a data connection.
    pub(crate) fn passive(&mut self) -> SocketAddr {
        let reply = self.expect("EPSV", "229");
        let port = reply.split('|').nth(3).expect("229 has a port");
        let server = self.stream.peer_addr().expect("connected").ip();
        SocketAddr::new(server, port.parse().expect("a number"))
    }

    /// Begins a transfer over a passive connection.
    pub(crate) fn begin(&mut self, lines: &[(&str, &str)]) -> TcpStream {
        let data = TcpStream::connect(self.passive()).expect("connected");
        for (line, code) in lines {
            self.expect(line, code);
        }
        data
    }

    /// Begins to receive a file, and returns the data connection.
    pub(crate) fn retrieve(&mut self, name: &str) -> TcpStream {
        self.begin(&[(&format!("RETR {name}"), "150")])
    }
}
