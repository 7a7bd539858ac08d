//! The timed client.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::site::{CLIENT, FILE};
use crate::support::Server;
use crate::support::raw::{Control, Exchange, GsiControl, Identity, connect_from};

/// The timeout of a reply.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The times of a round.
#[derive(Debug)]
pub(super) struct Times {
    /// From the connection to the reply to the password.
    pub(super) login: Duration,
    /// From `PASV` to the last reply.
    pub(super) get: Duration,
}

/// Logs in, with a certificate if there is one, and fetches the file.
pub(super) fn one_round(server: &Server, identity: Option<&Identity>) -> io::Result<Times> {
    let start = Instant::now();
    let mut control = Control::connect_from(CLIENT, server.address())?;
    control.set_timeout(TIMEOUT);
    let greeting = control.reply()?;
    if greeting.code != 220 {
        return Err(io::Error::other(greeting.text()));
    }
    let mut session = match identity {
        Some(identity) => Session::Gsi(Box::new(Exchange::begin(control, identity)?.finish()?)),
        None => Session::Plain(control),
    };
    session.log_in()?;
    let login = start.elapsed();
    let start = Instant::now();
    session.get(&server.path(FILE.0))?;
    Ok(Times {
        login,
        get: start.elapsed(),
    })
}

enum Session {
    Plain(Control),
    Gsi(Box<GsiControl>),
}

impl Session {
    fn log_in(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(control) => control.log_in(),
            Self::Gsi(control) => {
                control.log_in()?;
                // No authentication of the data connection.
                control.must("DCAU N", 200).map(drop)
            }
        }
    }

    fn passive(&mut self) -> io::Result<SocketAddr> {
        match self {
            Self::Plain(control) => control.passive(),
            Self::Gsi(control) => control.passive(),
        }
    }

    fn get(&mut self, path: &str) -> io::Result<()> {
        let mut channel = connect_from(CLIENT, self.passive()?)?;
        channel.set_read_timeout(Some(TIMEOUT))?;
        let line = format!("RETR {path}");
        match self {
            Self::Plain(control) => control.send_line(&line)?,
            Self::Gsi(control) => control.send_line(&line)?,
        }
        let mut content = Vec::with_capacity(FILE.1);
        channel.read_to_end(&mut content)?;
        let last = match self {
            Self::Plain(control) => control.dialogue()?.last,
            Self::Gsi(control) => control.dialogue()?.last,
        };
        if last.code != 226 || content.len() != FILE.1 {
            let words = format!("received {} bytes and: {}", content.len(), last.text());
            return Err(io::Error::other(words));
        }
        Ok(())
    }
}
