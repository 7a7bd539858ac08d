//! The driver `ftps`: data channels of sessions with `AUTH TLS` (RFC 4217).

use std::fmt;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::sync::Arc;

use gridhaul_stack::options::OptionDoc;
use gridhaul_stack::{
    Built, Channel, ChannelError, Driver, Operation, RestoreError, SessionValue, SessionValueError,
    Side, StackError, Transform,
};
use rustls::{ServerConfig, ServerConnection};
use zeroize::Zeroizing;

use crate::channel::{End, TlsChannel};
use crate::engine::Engine;
use crate::handshake;
use crate::record::protocol;

const NAME: &str = Ftps::NAME;

/// The driver `ftps`: data is sent in TLS records, and this end is the TLS server with the server's certificate, whether it
/// connected or accepted. It has no options. Clients are authenticated only on the control channel.
#[derive(Debug, Clone)]
pub struct Ftps {
    config: Arc<ServerConfig>,
}

impl Ftps {
    /// The name in a stack and of a [`SessionValue`].
    pub const NAME: &'static str = "ftps";

    /// The driver of one session, with the TLS configuration of its control channel.
    pub fn new(config: Arc<ServerConfig>) -> Self {
        let mut config = Arc::unwrap_or_clone(config);
        // A client that sends data never reads. Unread tickets would make its kernel reset the connection when it closes, and
        // the end of the data would be lost.
        config.send_tls13_tickets = 0;
        Self {
            config: Arc::new(config),
        }
    }

    /// The driver of a session of another machine, from the bytes of its [`SessionValue`], which are none: the channels present
    /// the certificate of this machine, in `config`.
    ///
    /// # Errors
    ///
    /// When there are bytes.
    pub fn restore(bytes: &[u8], config: Arc<ServerConfig>) -> Result<Self, RestoreError> {
        if bytes.is_empty() {
            return Ok(Self::new(config));
        }
        Err(RestoreError::Malformed {
            driver: NAME,
            reason: format!("it has {} bytes, where none are expected", bytes.len()),
        })
    }
}

impl Driver for Ftps {
    fn name(&self) -> &'static str {
        NAME
    }

    fn options(&self) -> &'static [OptionDoc] {
        &[]
    }

    fn build(&self, options: &[(String, String)]) -> Result<Built, StackError> {
        self.read_options(options)?;
        Ok(Built::Transform(Arc::new(self.clone())))
    }

    fn session_value(&self) -> Result<SessionValue, SessionValueError> {
        SessionValue::new(NAME, Zeroizing::default())
    }
}

impl Transform for Ftps {
    /// RFC 4217 7: the FTP server is the TLS server, also on connections that it opens.
    fn wrap(
        &self,
        mut channel: Box<dyn Channel>,
        _side: Side,
        operation: &Operation<'_>,
    ) -> Result<Box<dyn Channel>, ChannelError> {
        let connection = ServerConnection::new(Arc::clone(&self.config))
            .map_err(|error| protocol(NAME, error.to_string()))?;
        let mut engine = Rustls::new(connection.into());
        handshake::connect(&mut *channel, &mut engine, NAME, |_| Ok(()), operation)?;
        Ok(engine.protect(channel))
    }
}

/// A rustls connection that is given complete records.
pub(crate) struct Rustls {
    connection: rustls::Connection,
    is_closed_by_peer: bool,
}

impl Rustls {
    pub(crate) fn new(mut connection: rustls::Connection) -> Self {
        // No limit is needed: its output is removed after every write.
        connection.set_buffer_limit(None);
        Self {
            connection,
            is_closed_by_peer: false,
        }
    }

    /// The channel after its handshake.
    pub(crate) fn protect(self, channel: Box<dyn Channel>) -> Box<dyn Channel> {
        // Clients may treat a close without close_notify as an attack, though many do not send it themselves.
        Box::new(TlsChannel::new(channel, self, NAME, End::Notified))
    }

    /// The channel of a client after its handshake.
    pub(crate) fn protect_client(self, channel: Box<dyn Channel>) -> Box<dyn Channel> {
        // The server may have sent tickets that are not read while data is sent.
        Box::new(TlsChannel::new(channel, self, NAME, End::Awaited))
    }

    /// Processes a record, and returns the number of content bytes.
    fn take(&mut self, mut record: &[u8], output: &mut Vec<u8>) -> Result<usize, String> {
        while !record.is_empty() {
            let count = self.connection.read_tls(&mut record).map_err(text)?;
            if count == 0 {
                return Err("the peer has closed the connection already".to_owned());
            }
        }
        let state = self.connection.process_new_packets();
        self.move_output(output)?;
        let state = state.map_err(|error| error.to_string())?;
        self.is_closed_by_peer = state.peer_has_closed();
        Ok(state.plaintext_bytes_to_read())
    }

    fn move_output(&mut self, output: &mut dyn Write) -> Result<(), String> {
        while self.connection.wants_write() {
            if self.connection.write_tls(output).map_err(text)? == 0 {
                return Err("there is no room for the records".to_owned());
            }
        }
        Ok(())
    }
}

impl Engine for Rustls {
    fn advance(&mut self, record: &[u8], output: &mut Vec<u8>) -> Result<(), String> {
        match self.take(record, output)? {
            0 => Ok(()),
            _ => Err("the peer sent data during the handshake".to_owned()),
        }
    }

    fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    fn open(&mut self, record: &mut [u8], output: &mut Vec<u8>) -> Result<Range<usize>, String> {
        let count = self.take(record, output)?;
        // The content of a record is shorter than the record.
        self.connection
            .reader()
            .read_exact(&mut record[..count])
            .map_err(text)?;
        Ok(0..count)
    }

    fn seal(&mut self, plaintext: &[u8], records: &mut [u8]) -> Result<usize, String> {
        self.connection
            .writer()
            .write_all(plaintext)
            .map_err(text)?;
        let length = records.len();
        let mut room = records;
        self.move_output(&mut room)?;
        Ok(length - room.len())
    }

    fn is_closed_by_peer(&self) -> bool {
        self.is_closed_by_peer
    }

    fn close(&mut self, output: &mut Vec<u8>) {
        self.connection.send_close_notify();
        // Writing to a vector does not fail.
        let _ = self.move_output(output);
    }
}

fn text(error: io::Error) -> String {
    error.to_string()
}

impl fmt::Debug for Rustls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rustls").finish_non_exhaustive()
    }
}
