//! A control channel in TLS (RFC 4217), with access to the socket beneath.

use std::fmt;
use std::io::{self, Write};

use gridhaul_security::tls::TlsEngine;

use super::control::Control;
use super::gsi::{Identity, read_record};
use super::reply::Reply;

/// A control channel behind `AUTH TLS`.
pub struct TlsControl {
    control: Control,
    engine: TlsEngine,
    unread: Vec<u8>,
}

impl TlsControl {
    /// Sends `AUTH TLS` on a control channel after the greeting, and does the handshake.
    ///
    /// # Errors
    ///
    /// When the server refuses.
    pub fn begin(mut control: Control, identity: &Identity) -> io::Result<Self> {
        control.must("AUTH TLS", 234)?;
        let mut socket = control.socket().try_clone()?;
        Ok(Self {
            engine: identity.connect_privately(&mut socket)?,
            control,
            unread: Vec::new(),
        })
    }

    /// The channel beneath.
    pub fn control(&mut self) -> &mut Control {
        &mut self.control
    }

    /// Sends a command line and reads one reply.
    ///
    /// # Errors
    ///
    /// When the server closes the connection, or sends bytes that are no reply.
    pub fn command(&mut self, line: &str) -> io::Result<Reply> {
        let mut records = Vec::new();
        let line = format!("{line}\r\n");
        self.engine
            .wrap(line.as_bytes(), &mut records)
            .map_err(io::Error::other)?;
        let mut socket = self.control.socket().try_clone()?;
        socket.write_all(&records)?;
        loop {
            if let Some(reply) = Reply::take(&mut self.unread)? {
                return Ok(reply);
            }
            let record = read_record(&mut socket)?;
            self.engine
                .advance(&record, &mut Vec::new(), &mut self.unread)
                .map_err(io::Error::other)?;
        }
    }
}

impl fmt::Debug for TlsControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsControl")
            .field("control", &self.control)
            .finish_non_exhaustive()
    }
}
