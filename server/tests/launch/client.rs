//! A client of the program.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::program::Running;

/// A client that has logged in.
pub(crate) struct Client {
    control: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn new(server: &Running) -> Self {
        let control = TcpStream::connect(server.address).expect("connected");
        let limit = Some(Duration::from_secs(20));
        control.set_read_timeout(limit).expect("set");
        let mut client = Self {
            control: BufReader::new(control),
        };
        client.reply("220");
        for (line, code) in [("USER ftp", "331"), ("PASS x", "230"), ("TYPE I", "200")] {
            client.ask(line, code);
        }
        client
    }

    pub(crate) fn reply(&mut self, code: &str) -> String {
        let mut line = String::new();
        self.control.read_line(&mut line).expect("a reply");
        assert!(line.starts_with(code), "{line}");
        line
    }

    pub(crate) fn ask(&mut self, line: &str, code: &str) -> String {
        let control = self.control.get_mut();
        control
            .write_all(format!("{line}\r\n").as_bytes())
            .expect("sent");
        self.reply(code)
    }

    /// Begins a transfer over a passive connection.
    pub(crate) fn begin(&mut self, lines: &[(&str, &str)]) -> TcpStream {
        let reply = self.ask("EPSV", "229");
        let port = reply.split('|').nth(3).expect("a port");
        let port = port.parse().expect("a number");
        let data = TcpStream::connect(("127.0.0.1", port)).expect("connected");
        for (line, code) in lines {
            self.ask(line, code);
        }
        data
    }
}
