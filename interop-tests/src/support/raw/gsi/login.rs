//! A complete login.

use std::io;
use std::net::SocketAddr;

use super::control::GsiControl;
use super::exchange::Exchange;
use super::identity::Identity;
use crate::support::raw::control::Control;

impl GsiControl {
    /// Connects, authenticates, delegates and logs in, with `TYPE I`.
    ///
    /// # Errors
    ///
    /// When the server refuses, with its reply.
    pub fn logged_in(server: SocketAddr, identity: &Identity) -> io::Result<Self> {
        let control = Control::greeted(server)?;
        let mut session = Exchange::begin(control, identity)?.finish()?;
        session.log_in()?;
        Ok(session)
    }
}
