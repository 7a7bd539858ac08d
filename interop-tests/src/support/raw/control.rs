//! The control channel: bytes out, replies in.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpStream};
use std::time::{Duration, Instant};

use super::data::{DataListener, TIMEOUT, connect_data, connect_from};
use super::reply::{Dialogue, Reply, malformed};

/// A control channel.
#[derive(Debug)]
pub struct Control {
    socket: TcpStream,
    server: SocketAddr,
    unread: Vec<u8>,
    timeout: Duration,
}

impl Control {
    /// Connects without reading the greeting.
    ///
    /// # Errors
    ///
    /// When the server cannot be reached.
    pub fn connect(server: SocketAddr) -> io::Result<Self> {
        Self::from_socket(TcpStream::connect_timeout(&server, TIMEOUT)?, server)
    }

    /// Connects from a given local address.
    ///
    /// # Errors
    ///
    /// When the address is not of this machine, or the server cannot be reached.
    pub fn connect_from(source: Ipv4Addr, server: SocketAddr) -> io::Result<Self> {
        Self::from_socket(connect_from(source, server)?, server)
    }

    /// Connects and expects the greeting, `220`.
    ///
    /// # Errors
    ///
    /// When the server cannot be reached or greets otherwise.
    pub fn greeted(server: SocketAddr) -> io::Result<Self> {
        let mut control = Self::connect(server)?;
        let greeting = control.reply()?;
        expect(&greeting, 220)?;
        Ok(control)
    }

    /// Connects and logs in as `anonymous`, with `TYPE I`.
    ///
    /// # Errors
    ///
    /// When the server cannot be reached or a reply has another code than that of the real server.
    pub fn anonymous(server: SocketAddr) -> io::Result<Self> {
        let mut control = Self::greeted(server)?;
        control.log_in()?;
        Ok(control)
    }

    /// As [`Control::anonymous`], from a given local address.
    ///
    /// # Errors
    ///
    /// As [`Control::anonymous`]; and when the address is not of this machine.
    pub fn anonymous_from(source: Ipv4Addr, server: SocketAddr) -> io::Result<Self> {
        let mut control = Self::connect_from(source, server)?;
        expect(&control.reply()?, 220)?;
        control.log_in()?;
        Ok(control)
    }

    /// Logs in as `anonymous`, with `TYPE I`.
    ///
    /// # Errors
    ///
    /// When a reply has another code than that of the real server.
    pub fn log_in(&mut self) -> io::Result<()> {
        expect(&self.command("USER anonymous")?, 331)?;
        expect(&self.command("PASS raw@")?, 230)?;
        expect(&self.command("TYPE I")?, 200)
    }

    /// Sets the timeout of each further reply.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// The timeout of each reply.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The address of the server.
    pub fn server(&self) -> SocketAddr {
        self.server
    }

    /// The socket itself.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Sends these bytes.
    ///
    /// # Errors
    ///
    /// When the server does not accept them in time.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket.write_all(bytes)
    }

    /// Sends a command line; CRLF is added. Replies are not read.
    ///
    /// # Errors
    ///
    /// When the server does not accept it in time.
    pub fn send_line(&mut self, line: &str) -> io::Result<()> {
        self.send(format!("{line}\r\n").as_bytes())
    }

    /// Reads the next reply.
    ///
    /// # Errors
    ///
    /// `TimedOut` after the timeout, `UnexpectedEof` when the server closed, `InvalidData` for bytes that
    /// are no reply.
    pub fn reply(&mut self) -> io::Result<Reply> {
        self.reply_by(Instant::now() + self.timeout)
    }

    /// Reads replies up to the first that is not a 1xx. The timeout is for all of them together, so that
    /// markers cannot extend it.
    ///
    /// # Errors
    ///
    /// As [`Control::reply`].
    pub fn dialogue(&mut self) -> io::Result<Dialogue> {
        Dialogue::within(self.timeout, |deadline| self.reply_by(deadline))
    }

    /// Sends a command line and reads one reply, which may be a 1xx.
    ///
    /// # Errors
    ///
    /// As [`Control::send_line`] and [`Control::reply`].
    pub fn command(&mut self, line: &str) -> io::Result<Reply> {
        self.send_line(line)?;
        self.reply()
    }

    /// Sends a command line and expects a reply of this code.
    ///
    /// # Errors
    ///
    /// As [`Control::command`]; and when the reply has another code, with its text.
    pub fn must(&mut self, line: &str, code: u16) -> io::Result<Reply> {
        let reply = self.command(line)?;
        expect(&reply, code).map_err(|error| io::Error::other(format!("{line}: {error}")))?;
        Ok(reply)
    }

    /// Waits until the server closes the control channel, and returns the replies before that. A reset
    /// counts as a close.
    ///
    /// # Errors
    ///
    /// `TimedOut` when it stays open.
    pub fn until_closed(&mut self) -> io::Result<Vec<Reply>> {
        let deadline = Instant::now() + self.timeout;
        let mut replies = Vec::new();
        loop {
            while let Some(reply) = Reply::take(&mut self.unread)? {
                replies.push(reply);
            }
            match self.fill(deadline) {
                Ok(0) => return Ok(replies),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(replies),
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
    }

    /// Closes the sending direction; replies can still be read.
    ///
    /// # Errors
    ///
    /// When the connection is already closed.
    pub fn half_close(&self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Write)
    }

    /// Sends `PASV` and returns the server's data address.
    ///
    /// # Errors
    ///
    /// When the reply is not a `227` with six numbers.
    pub fn passive(&mut self) -> io::Result<SocketAddr> {
        passive_address(&self.must("PASV", 227)?)
    }

    /// Sends `EPSV` and returns the server's data port, at the address of the control channel (RFC 2428).
    ///
    /// # Errors
    ///
    /// When the reply is not a `229` with `(|||port|)`.
    pub fn extended_passive(&mut self) -> io::Result<SocketAddr> {
        let reply = self.must("EPSV", 229)?;
        let port = reply
            .tail()
            .split_once("(|||")
            .and_then(|(_, rest)| rest.split_once("|)"));
        let port = port.and_then(|(port, _)| port.parse().ok());
        let port = port.ok_or_else(|| malformed("no port in", reply.text().as_bytes()))?;
        Ok(SocketAddr::new(self.server.ip(), port))
    }

    /// Sends `SPAS` and returns the data addresses of the stripes (GFD.20 3.4).
    ///
    /// # Errors
    ///
    /// When the reply is not a `229` with one address on each inner line.
    pub fn striped_passive(&mut self) -> io::Result<Vec<SocketAddr>> {
        striped_addresses(&self.must("SPAS", 229)?)
    }

    /// Sends `PORT`.
    ///
    /// # Errors
    ///
    /// When the reply is not `200`.
    pub fn port(&mut self, address: SocketAddrV4) -> io::Result<()> {
        self.must(&format!("PORT {}", comma_form(address)), 200)
            .map(drop)
    }

    /// Listens on the local address of the control channel, and sends it to the server with `PORT`.
    ///
    /// # Errors
    ///
    /// As [`DataListener::open`] and [`Control::port`]; and when the control channel is IPv6.
    pub fn listen(&mut self) -> io::Result<DataListener> {
        let address = match self.socket.local_addr()?.ip() {
            IpAddr::V4(address) => address,
            IpAddr::V6(_) => return Err(io::Error::other("PORT takes IPv4 addresses only")),
        };
        let listener = DataListener::open(address)?;
        self.port(listener.address())?;
        Ok(listener)
    }

    pub(super) fn reply_by(&mut self, deadline: Instant) -> io::Result<Reply> {
        loop {
            if let Some(reply) = Reply::take(&mut self.unread)? {
                return Ok(reply);
            }
            if self.fill(deadline)? == 0 {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    format!(
                        "the server closed the control channel; unread: {:?}",
                        self.unread_text()
                    ),
                ));
            }
        }
    }

    /// Connects to a data port of the server from the local address of the control channel.
    ///
    /// # Errors
    ///
    /// When the connection is refused.
    pub fn connect_data(&self, address: SocketAddr) -> io::Result<TcpStream> {
        match self.socket.local_addr()?.ip() {
            IpAddr::V4(source) => connect_from(source, address),
            IpAddr::V6(_) => connect_data(address),
        }
    }

    /// Waits for bytes and appends them to the unread ones. Returns their number, 0 at the end of the stream.
    fn fill(&mut self, deadline: Instant) -> io::Result<usize> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(self.timed_out());
        }
        self.socket.set_read_timeout(Some(left))?;
        let mut buffer = [0; 16 * 1024];
        match self.socket.read(&mut buffer) {
            Ok(count) => {
                self.unread.extend_from_slice(&buffer[..count]);
                Ok(count)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(self.timed_out()),
            Err(error) => Err(error),
        }
    }

    fn timed_out(&self) -> io::Error {
        let (timeout, unread) = (self.timeout, self.unread_text());
        io::Error::new(
            io::ErrorKind::TimedOut,
            format!("no complete reply within {timeout:?}; unread: {unread:?}"),
        )
    }

    fn unread_text(&self) -> String {
        String::from_utf8_lossy(&self.unread).into_owned()
    }

    fn from_socket(socket: TcpStream, server: SocketAddr) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self {
            socket,
            server,
            unread: Vec::new(),
            timeout: TIMEOUT,
        })
    }
}

/// An address in the form of `PORT`: six decimal numbers (RFC 959 4.1.2).
pub(crate) fn comma_form(address: SocketAddrV4) -> String {
    let [a, b, c, d] = address.ip().octets();
    let [high, low] = address.port().to_be_bytes();
    format!("{a},{b},{c},{d},{high},{low}")
}

/// The address in the reply to `PASV`.
pub(super) fn passive_address(reply: &Reply) -> io::Result<SocketAddr> {
    let list = reply.tail().split_once('(').map_or("", |(_, list)| list);
    six_numbers(list.trim_end_matches([')', '.']))
        .ok_or_else(|| malformed("no address in", reply.text().as_bytes()))
}

/// The addresses in the reply to `SPAS`.
pub(super) fn striped_addresses(reply: &Reply) -> io::Result<Vec<SocketAddr>> {
    let inner = reply.lines.len().saturating_sub(1);
    let lines = reply.lines.get(1..inner).unwrap_or_default().iter();
    lines
        .map(|line| line.strip_prefix(' ').and_then(six_numbers))
        .collect::<Option<Vec<_>>>()
        .filter(|stripes| !stripes.is_empty())
        .ok_or_else(|| malformed("not a list of addresses:", reply.text().as_bytes()))
}

pub(super) fn expect(reply: &Reply, code: u16) -> io::Result<()> {
    if reply.code == code {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "expected {code}, received: {reply}"
    )))
}

fn six_numbers(list: &str) -> Option<SocketAddr> {
    let numbers: Option<Vec<u8>> = list.split(',').map(|number| number.parse().ok()).collect();
    let [a, b, c, d, high, low] = numbers?.try_into().ok()?;
    let port = u16::from_be_bytes([high, low]);
    Some(SocketAddr::from((Ipv4Addr::new(a, b, c, d), port)))
}
