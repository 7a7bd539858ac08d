//! `AUTH GSSAPI`: the handshake on the control channel.

use std::fmt;
use std::io;

use gridhaul_security::context::{Context, Step};

use super::control::GsiControl;
use super::encoding::{base64, decode};
use super::identity::Identity;
use crate::support::raw::control::{Control, expect};
use crate::support::raw::reply::Reply;

/// `AUTH GSSAPI` and the `ADAT` tokens that follow, one at a time.
pub struct Exchange {
    control: Control,
    context: Context,
    token: Vec<u8>,
    identity: Identity,
}

impl Exchange {
    /// Sends `AUTH GSSAPI` on a control channel after the greeting, and makes the first token. The client
    /// will delegate.
    ///
    /// # Errors
    ///
    /// When the server refuses the mechanism.
    pub fn begin(control: Control, identity: &Identity) -> io::Result<Self> {
        Self::offer(control, identity, true)
    }

    /// As [`Exchange::begin`], but the client will not delegate.
    ///
    /// # Errors
    ///
    /// As [`Exchange::begin`].
    pub fn begin_without_delegation(control: Control, identity: &Identity) -> io::Result<Self> {
        Self::offer(control, identity, false)
    }

    fn offer(mut control: Control, identity: &Identity, delegate: bool) -> io::Result<Self> {
        control.must("AUTH GSSAPI", 334)?;
        let mut exchange = Self {
            control,
            context: Context::initiator(&identity.settings, delegate).map_err(io::Error::other)?,
            token: Vec::new(),
            identity: identity.clone(),
        };
        exchange.take(&[])?;
        Ok(exchange)
    }

    /// The next token.
    pub fn token(&self) -> &[u8] {
        &self.token
    }

    /// The control channel.
    pub fn control(&mut self) -> &mut Control {
        &mut self.control
    }

    /// Sends the next token and processes the token in the reply, if it has one.
    ///
    /// # Errors
    ///
    /// When the server's token is not accepted.
    pub fn step(&mut self) -> io::Result<Reply> {
        let token = std::mem::take(&mut self.token);
        let reply = self.send(&token)?;
        if let Some(answer) = reply.tail().strip_prefix("ADAT=") {
            self.take(&decode(answer)?)?;
        }
        Ok(reply)
    }

    /// Sends a token and reads the reply.
    ///
    /// # Errors
    ///
    /// As [`Control::command`].
    pub fn send(&mut self, token: &[u8]) -> io::Result<Reply> {
        let line = format!("ADAT {}", base64(token));
        self.control.command(&line)
    }

    fn take(&mut self, token: &[u8]) -> io::Result<()> {
        self.token = match self.context.step(token, &mut Vec::new()) {
            Ok(Step::Continue(output) | Step::Done(output)) => output,
            Err(error) => return Err(io::Error::other(error)),
        };
        Ok(())
    }

    /// Continues until the server has accepted or refused.
    ///
    /// # Errors
    ///
    /// When the server refuses, with its reply.
    pub fn finish(mut self) -> io::Result<GsiControl> {
        loop {
            let reply = self.step()?;
            if reply.code != 335 {
                expect(&reply, 235)?;
                return Ok(GsiControl::new(self.control, self.context, self.identity));
            }
        }
    }

    /// Continues until the server's reply is not `335`, and returns it.
    ///
    /// # Errors
    ///
    /// When the server's token is not accepted.
    pub fn verdict(&mut self) -> io::Result<Reply> {
        loop {
            let reply = self.step()?;
            if reply.code != 335 {
                return Ok(reply);
            }
        }
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange")
            .field("control", &self.control)
            .finish_non_exhaustive()
    }
}
