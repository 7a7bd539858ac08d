//! The server's side of a handshake in which the client need not present a certificate, without I/O: `AUTH TLS` (RFC 4217).
//!
//! rustls gets no byte that follows the handshake, so that the connection can continue in another process.

use std::fmt;
use std::sync::Arc;

use rustls::{ServerConfig, ServerConnection};

use super::connection::HandedConnection;
use super::describe::describe;
use super::handover::{ConnectionKeys, TrafficSecrets};
use super::{RECORD_HEADER, TlsError, record_length};

/// A handshake in progress.
pub struct TlsAcceptance {
    connection: ServerConnection,
    secrets: Arc<TrafficSecrets>,
    /// The received part of an incomplete record.
    record: Vec<u8>,
    /// Bytes that follow the handshake.
    rest: Vec<u8>,
}

impl TlsAcceptance {
    /// Begins to wait for a client. Replaces the key log of the configuration.
    ///
    /// # Errors
    ///
    /// When the configuration is invalid.
    pub fn new(mut config: ServerConfig) -> Result<Self, TlsError> {
        let secrets = Arc::new(TrafficSecrets::default());
        config.key_log = Arc::clone(&secrets) as Arc<_>;
        config.enable_secret_extraction = true;
        let connection = ServerConnection::new(Arc::new(config)).map_err(protocol)?;
        Ok(Self {
            connection,
            secrets,
            record: Vec::new(),
            rest: Vec::new(),
        })
    }

    /// Processes whole or partial records. Appends the output for the peer to `output`.
    ///
    /// # Errors
    ///
    /// When the handshake has failed; `output` then has the alert to send.
    pub fn advance(&mut self, input: &[u8], output: &mut Vec<u8>) -> Result<(), TlsError> {
        let taken = self.take(input);
        // Writing to a Vec cannot fail.
        while self.connection.wants_write() && self.connection.write_tls(output).is_ok() {}
        taken
    }

    fn take(&mut self, mut input: &[u8]) -> Result<(), TlsError> {
        while self.connection.is_handshaking() && !input.is_empty() {
            let wanted = record_length(&self.record).unwrap_or(RECORD_HEADER);
            let missing = wanted.saturating_sub(self.record.len()).min(input.len());
            let (piece, rest) = input.split_at(missing);
            self.record.extend_from_slice(piece);
            input = rest;
            self.show(piece)?;
            if record_length(&self.record) == Some(self.record.len()) {
                self.record.clear();
            }
        }
        self.rest.extend_from_slice(input);
        Ok(())
    }

    /// Passes a part of a record to rustls, which may detect an error before the record is complete.
    fn show(&mut self, mut piece: &[u8]) -> Result<(), TlsError> {
        while !piece.is_empty() {
            if self.connection.read_tls(&mut piece).map_err(protocol)? == 0 {
                return Err(TlsError::protocol("the peer has closed the connection"));
            }
            self.connection.process_new_packets().map_err(protocol)?;
        }
        Ok(())
    }

    /// Whether the handshake is in progress.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// The connection after the handshake, and the bytes that follow the handshake: whole or partial records, which the
    /// connection has not processed.
    ///
    /// # Errors
    ///
    /// When the handshake is not complete.
    pub fn finish(self) -> Result<(HandedConnection, Vec<u8>), TlsError> {
        let suite = self.connection.negotiated_cipher_suite();
        let description = describe(self.connection.protocol_version(), suite);
        let keys = ConnectionKeys::of_acceptor(self.connection.into(), &self.secrets, description)?;
        Ok((HandedConnection::new(keys)?, self.rest))
    }
}

fn protocol(error: impl fmt::Display) -> TlsError {
    TlsError::protocol(error.to_string())
}

impl fmt::Debug for TlsAcceptance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsAcceptance")
            .field("handshaking", &self.is_handshaking())
            .finish_non_exhaustive()
    }
}
