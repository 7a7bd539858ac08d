//! A protected control channel.

use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use gridhaul_security::context::Context;

use super::encoding::{base64, decode};
use super::identity::{End, Identity};
use crate::support::raw::control::{
    Control, comma_form, expect, passive_address, striped_addresses,
};
use crate::support::raw::data::{DataListener, connect_data};
use crate::support::raw::reply::{Dialogue, Reply, malformed};

/// A control channel whose commands and replies are protected.
#[derive(Debug)]
pub struct GsiControl {
    control: Control,
    context: Context,
    identity: Identity,
}

impl GsiControl {
    /// The channel after the handshake.
    pub(super) fn new(control: Control, context: Context, identity: Identity) -> Self {
        Self {
            control,
            context,
            identity,
        }
    }

    /// Logs in with the account of the grid-mapfile, as clients do, and sends `TYPE I`.
    ///
    /// # Errors
    ///
    /// When the server refuses, with its reply.
    pub fn log_in(&mut self) -> io::Result<()> {
        self.must("USER :globus-mapping:", 331)?;
        self.must("PASS", 230)?;
        self.must("TYPE I", 200).map(drop)
    }

    /// The channel beneath, for unprotected commands.
    pub fn control(&mut self) -> &mut Control {
        &mut self.control
    }

    /// Makes the token that protects a line; CRLF is added. Tokens must be sent in the order in which they were made.
    ///
    /// # Errors
    ///
    /// When the context is lost.
    pub fn seal(&mut self, line: &str) -> io::Result<Vec<u8>> {
        let line = format!("{line}\r\n");
        self.context.wrap(line.as_bytes()).map_err(io::Error::other)
    }

    /// Sends a token with `ENC`.
    ///
    /// # Errors
    ///
    /// When the server does not accept it in time.
    pub fn send_token(&mut self, token: &[u8]) -> io::Result<()> {
        let line = format!("ENC {}", base64(token));
        self.control.send_line(&line)
    }

    /// Sends a command line in a token of its own.
    ///
    /// # Errors
    ///
    /// As [`GsiControl::send_token`].
    pub fn send_line(&mut self, line: &str) -> io::Result<()> {
        let token = self.seal(line)?;
        self.send_token(&token)
    }

    /// Reads the next reply. An unprotected reply is an error, and so is one out of order.
    ///
    /// # Errors
    ///
    /// As [`Control::reply`].
    pub fn reply(&mut self) -> io::Result<Reply> {
        self.reply_by(Instant::now() + self.control.timeout())
    }

    fn reply_by(&mut self, deadline: Instant) -> io::Result<Reply> {
        let outer = self.control.reply_by(deadline)?;
        expect(&outer, 632)?;
        let mut bytes = Vec::new();
        for line in &outer.lines {
            let token = decode(line.get(4..).unwrap_or_default())?;
            bytes.extend(self.context.unwrap(&token).map_err(io::Error::other)?);
        }
        let reply = Reply::take(&mut bytes)?.filter(|_| bytes.is_empty());
        reply.ok_or_else(|| malformed("not one reply in", outer.text().as_bytes()))
    }

    /// Reads replies up to the first that is not a 1xx. The timeout is for all of them together.
    ///
    /// # Errors
    ///
    /// As [`GsiControl::reply`].
    pub fn dialogue(&mut self) -> io::Result<Dialogue> {
        Dialogue::within(self.control.timeout(), |deadline| self.reply_by(deadline))
    }

    /// Sends a command line and reads one reply, which may be a 1xx.
    ///
    /// # Errors
    ///
    /// As [`GsiControl::send_line`] and [`GsiControl::reply`].
    pub fn command(&mut self, line: &str) -> io::Result<Reply> {
        self.send_line(line)?;
        self.reply()
    }

    /// Sends a command line and expects a reply of this code.
    ///
    /// # Errors
    ///
    /// As [`GsiControl::command`]; and when the reply has another code, with its text.
    pub fn must(&mut self, line: &str, code: u16) -> io::Result<Reply> {
        let reply = self.command(line)?;
        expect(&reply, code).map_err(|error| io::Error::other(format!("{line}: {error}")))?;
        Ok(reply)
    }

    /// Sends `PASV` and returns the server's data address.
    ///
    /// # Errors
    ///
    /// When the server refuses, with its reply.
    pub fn passive(&mut self) -> io::Result<SocketAddr> {
        let reply = self.must("PASV", 227)?;
        passive_address(&reply)
    }

    /// Sends `SPAS` and returns the data addresses of the stripes (GFD.20 3.4).
    ///
    /// # Errors
    ///
    /// When the server refuses, with its reply.
    pub fn striped_passive(&mut self) -> io::Result<Vec<SocketAddr>> {
        striped_addresses(&self.must("SPAS", 229)?)
    }

    /// Listens, and sends the address with `PORT`.
    ///
    /// # Errors
    ///
    /// When the server refuses, with its reply.
    pub fn active(&mut self) -> io::Result<DataListener> {
        let listener = DataListener::open(Ipv4Addr::LOCALHOST)?;
        let address = comma_form(listener.address());
        self.must(&format!("PORT {address}"), 200)?;
        Ok(listener)
    }

    /// Fetches a file with `PASV`, `RETR`, `DCAU A` and `PROT C`.
    ///
    /// # Errors
    ///
    /// When the server refuses, with its reply.
    pub fn get(&mut self, path: &str) -> io::Result<Vec<u8>> {
        let address = self.passive()?;
        self.send_line(&format!("RETR {path}"))?;
        let stream = connect_data(address)?;
        let mut bytes = Vec::new();
        let received = self
            .identity
            .authenticate(stream, End::Connector)
            .and_then(|mut channel| channel.read_to_end(&mut bytes));
        expect(&self.dialogue()?.last, 226)?;
        received?;
        Ok(bytes)
    }
}
