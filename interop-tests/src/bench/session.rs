//! A client of third-party copies: two control channels, and no process that would have to start.
//!
//! It measures what the servers do, from the first command of a copy to its last reply. What a client
//! program adds (its start, its login, the options that it sets) is in the rows that run one.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::support::raw::{Control, GsiControl, Identity, Reply, comma_form};

/// How long a copy may be silent.
const PATIENCE: Duration = Duration::from_secs(60);

/// A control channel of either sort, logged in, with `TYPE I`.
#[derive(Debug)]
pub enum Session {
    /// In clear, anonymous.
    Plain(Control),
    /// Of a user with a certificate.
    Protected(Box<GsiControl>),
}

/// How a copy is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manner {
    /// Parallel channels in MODE E; stream mode without.
    pub channels: Option<usize>,
    /// How data channels are protected; only users with certificates can say.
    pub protection: Option<Protection>,
}

/// How data channels of a user with a certificate are protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// Not even a handshake: `DCAU N`.
    Nothing,
    /// A handshake, and bytes in clear: `PROT C`.
    Clear,
    /// Encrypted: `PROT P`.
    Private,
}

impl Session {
    /// Logs in as `anonymous`.
    ///
    /// # Errors
    ///
    /// When the server refuses, with its words.
    pub fn anonymous(server: SocketAddr) -> io::Result<Self> {
        let mut control = Control::anonymous(server)?;
        control.set_patience(PATIENCE);
        Ok(Self::Plain(control))
    }

    /// Logs in with a certificate, and delegates.
    ///
    /// # Errors
    ///
    /// When the server refuses, with its words.
    pub fn certified(server: SocketAddr, identity: &Identity) -> io::Result<Self> {
        let mut control = GsiControl::logged_in(server, identity)?;
        control.control().set_patience(PATIENCE);
        Ok(Self::Protected(Box::new(control)))
    }

    /// Waits this long for each reply from now on.
    pub fn set_patience(&mut self, patience: Duration) {
        match self {
            Self::Plain(control) => control.set_patience(patience),
            Self::Protected(control) => control.control().set_patience(patience),
        }
    }

    /// Sends a command and expects a reply of this code.
    ///
    /// # Errors
    ///
    /// When the reply is another, with its text.
    pub fn must(&mut self, line: &str, code: u16) -> io::Result<Reply> {
        match self {
            Self::Plain(control) => control.must(line, code),
            Self::Protected(control) => control.must(line, code),
        }
    }

    /// Sends a command that is answered later.
    ///
    /// # Errors
    ///
    /// When the server does not take it.
    pub fn send_line(&mut self, line: &str) -> io::Result<()> {
        match self {
            Self::Plain(control) => control.send_line(line),
            Self::Protected(control) => control.send_line(line),
        }
    }

    /// Waits for the last reply to a command, and expects 2xx.
    ///
    /// # Errors
    ///
    /// When the reply is another, with its text.
    pub fn success(&mut self) -> io::Result<()> {
        let dialogue = match self {
            Self::Plain(control) => control.dialogue(),
            Self::Protected(control) => control.dialogue(),
        }?;
        if dialogue.last.is_success() {
            return Ok(());
        }
        Err(io::Error::other(format!("the server said: {dialogue}")))
    }

    /// Sets what lasts for the session.
    ///
    /// # Errors
    ///
    /// When the server refuses, with its words.
    pub fn prepare(&mut self, manner: Manner) -> io::Result<()> {
        match manner.protection {
            Some(Protection::Nothing) => drop(self.must("DCAU N", 200)?),
            Some(Protection::Clear) | None => {}
            Some(Protection::Private) => {
                self.must("PBSZ 1048576", 200)?;
                self.must("PROT P", 200)?;
            }
        }
        if let Some(channels) = manner.channels {
            self.must("MODE E", 200)?;
            let line = format!("OPTS RETR Parallelism={channels},{channels},{channels};");
            self.must(&line, 200)?;
        }
        Ok(())
    }

    fn passive(&mut self) -> io::Result<SocketAddr> {
        match self {
            Self::Plain(control) => control.passive(),
            Self::Protected(control) => control.passive(),
        }
    }

    fn port(&mut self, address: SocketAddr) -> io::Result<()> {
        let SocketAddr::V4(address) = address else {
            return Err(io::Error::other("PORT knows IPv4 only"));
        };
        self.must(&format!("PORT {}", comma_form(address)), 200)
            .map(drop)
    }
}

/// Begins a copy: the destination listens, the source connects.
///
/// # Errors
///
/// When a server refuses, with its words.
pub fn begin(
    [source, destination]: [&mut Session; 2],
    [from, to]: [&str; 2],
) -> io::Result<Instant> {
    let started = Instant::now();
    let address = destination.passive()?;
    source.port(address)?;
    destination.send_line(&format!("STOR {to}"))?;
    source.send_line(&format!("RETR {from}"))?;
    Ok(started)
}

/// Copies a file from one server to another, and says how long that took.
///
/// # Errors
///
/// When a server refuses or fails, with its words.
pub fn copy([source, destination]: [&mut Session; 2], paths: [&str; 2]) -> io::Result<Duration> {
    let started = begin([source, destination], paths)?;
    source.success()?;
    destination.success()?;
    Ok(started.elapsed())
}
