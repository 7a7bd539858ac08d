//! A relay for control channels that breaks one connection at a chosen reply.
//!
//! It simulates a network failure in the middle of a transfer, after which clients restart. Data
//! connections do not pass through it.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// A relay that listens until it is dropped.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    server: SocketAddr,
    reply: &'static str,
    broken: AtomicBool,
    closed: AtomicBool,
}

impl Relay {
    /// Relays to `server`, and closes the first connection on which a line of the server begins
    /// with `reply`, instead of passing that line on.
    ///
    /// # Errors
    ///
    /// When it cannot listen.
    pub fn start(server: SocketAddr, reply: &'static str) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let (broken, closed) = (AtomicBool::new(false), AtomicBool::new(false));
        let state = Arc::new(State {
            server,
            reply,
            broken,
            closed,
        });
        let accepting = Arc::clone(&state);
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                if accepting.closed.load(Ordering::Acquire) {
                    break;
                }
                let state = Arc::clone(&accepting);
                thread::spawn(move || state.relay(&client));
            }
        });
        Ok(Self { address, state })
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether it has broken a connection.
    pub fn has_broken(&self) -> bool {
        self.state.broken.load(Ordering::Acquire)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.state.closed.store(true, Ordering::Release);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

impl State {
    /// Relays one connection to its end, and closes both sides of it.
    fn relay(&self, client: &TcpStream) -> io::Result<()> {
        let server = TcpStream::connect(self.server)?;
        thread::scope(|scope| {
            scope.spawn(|| {
                let _ = io::copy(&mut &*client, &mut &server);
                let _ = server.shutdown(Shutdown::Both);
            });
            let result = self.pass_replies(&server, client);
            let _ = client.shutdown(Shutdown::Both);
            let _ = server.shutdown(Shutdown::Both);
            result
        })
    }

    fn pass_replies(&self, server: &TcpStream, mut client: &TcpStream) -> io::Result<()> {
        let mut line = Vec::new();
        let mut replies = BufReader::new(server);
        while replies.read_until(b'\n', &mut line)? > 0 {
            if line.starts_with(self.reply.as_bytes()) && !self.broken.swap(true, Ordering::AcqRel)
            {
                break;
            }
            client.write_all(&line)?;
            line.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    /// A server that greets and answers one line.
    fn server() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for _ in 0..2 {
                let (mut control, _) = listener.accept().unwrap();
                control.write_all(b"220 ready\r\n").unwrap();
                BufReader::new(&control)
                    .read_line(&mut String::new())
                    .unwrap();
                let _ = control.write_all(b"226 done\r\n");
            }
        });
        address
    }

    #[test]
    fn only_the_first_connection_breaks_at_the_reply() {
        let relay = Relay::start(server(), "226").unwrap();
        for expected in ["220 ready\r\n", "220 ready\r\n226 done\r\n"] {
            let mut control = TcpStream::connect(relay.address()).unwrap();
            control.write_all(b"NOOP\r\n").unwrap();
            let mut received = String::new();
            control.read_to_string(&mut received).unwrap();
            assert_eq!(received, expected);
            assert!(relay.has_broken());
        }
    }
}
