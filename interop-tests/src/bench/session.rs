//! A client of third-party copies: two control channels, without a client program.
//!
//! It measures the servers alone, from the first command of a copy to its last reply. Other rows run a client
//! program and include its start, its login and its options.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::support::raw::{Control, GsiControl, Identity, Reply, comma_form};

/// The timeout of replies.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A control channel after login and `TYPE I`.
#[derive(Debug)]
pub enum Session {
    /// Of an anonymous user, without protection.
    Plain(Control),
    /// Of a user with a certificate.
    Protected(Box<GsiControl>),
}

/// The settings of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopySettings {
    /// Parallel channels in MODE E; `None` for stream mode.
    pub channels: Option<usize>,
    /// The protection of data channels; `None` for anonymous users.
    pub protection: Option<Protection>,
}

/// The protection of data channels of a user with a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// No authentication: `DCAU N`.
    Nothing,
    /// Authentication, and clear data: `PROT C`.
    Clear,
    /// Encrypted: `PROT P`.
    Private,
}

impl Session {
    /// Logs in as `anonymous`.
    ///
    /// # Errors
    ///
    /// When the server refuses, with its reply.
    pub fn anonymous(server: SocketAddr) -> io::Result<Self> {
        let mut control = Control::anonymous(server)?;
        control.set_timeout(TIMEOUT);
        Ok(Self::Plain(control))
    }

    /// Logs in with a certificate, and delegates.
    ///
    /// # Errors
    ///
    /// When the server refuses, with its reply.
    pub fn certified(server: SocketAddr, identity: &Identity) -> io::Result<Self> {
        let mut control = GsiControl::logged_in(server, identity)?;
        control.control().set_timeout(TIMEOUT);
        Ok(Self::Protected(Box::new(control)))
    }

    /// Sets the timeout of each further reply.
    pub fn set_timeout(&mut self, timeout: Duration) {
        match self {
            Self::Plain(control) => control.set_timeout(timeout),
            Self::Protected(control) => control.control().set_timeout(timeout),
        }
    }

    /// Sends a command and expects a reply of this code.
    ///
    /// # Errors
    ///
    /// When the reply has another code, with its text.
    pub fn must(&mut self, line: &str, code: u16) -> io::Result<Reply> {
        match self {
            Self::Plain(control) => control.must(line, code),
            Self::Protected(control) => control.must(line, code),
        }
    }

    /// Sends a command without waiting for the reply.
    ///
    /// # Errors
    ///
    /// When the server does not accept it.
    pub fn send_line(&mut self, line: &str) -> io::Result<()> {
        match self {
            Self::Plain(control) => control.send_line(line),
            Self::Protected(control) => control.send_line(line),
        }
    }

    /// Waits for the final reply to a command, and expects 2xx.
    ///
    /// # Errors
    ///
    /// When the reply has another code, with its text.
    pub fn success(&mut self) -> io::Result<()> {
        let dialogue = match self {
            Self::Plain(control) => control.dialogue(),
            Self::Protected(control) => control.dialogue(),
        }?;
        if dialogue.last.is_success() {
            return Ok(());
        }
        Err(io::Error::other(format!("the replies were: {dialogue}")))
    }

    /// Sends the commands that set protection and MODE E for the session.
    ///
    /// # Errors
    ///
    /// When the server refuses, with its reply.
    pub fn prepare(&mut self, settings: CopySettings) -> io::Result<()> {
        match settings.protection {
            Some(Protection::Nothing) => drop(self.must("DCAU N", 200)?),
            Some(Protection::Clear) | None => {}
            Some(Protection::Private) => {
                self.must("PBSZ 1048576", 200)?;
                self.must("PROT P", 200)?;
            }
        }
        if let Some(channels) = settings.channels {
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
            return Err(io::Error::other("PORT takes IPv4 addresses only"));
        };
        self.must(&format!("PORT {}", comma_form(address)), 200)
            .map(drop)
    }
}

/// Starts a copy: the destination listens, the source connects. Returns the time of the first command.
///
/// # Errors
///
/// When a server refuses, with its reply.
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

/// Copies a file from one server to another, and returns the duration.
///
/// # Errors
///
/// When a server refuses or fails, with its reply.
pub fn copy([source, destination]: [&mut Session; 2], paths: [&str; 2]) -> io::Result<Duration> {
    let started = begin([source, destination], paths)?;
    source.success()?;
    destination.success()?;
    Ok(started.elapsed())
}
