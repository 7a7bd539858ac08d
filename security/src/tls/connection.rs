//! A connection whose records rustls protects: for contexts, which exchange few small tokens.

use std::fmt;
use std::io::{Read, Write};
use std::sync::Arc;

use rustls::{ClientConnection, ServerConnection, SupportedCipherSuite};

use super::describe::describe;
use super::handover::{ConnectionKeys, TrafficSecrets};
use super::hello::Hellos;
use super::provider::Records;
use super::traffic::Traffic;
use super::verifier::PeerVerifier;
use super::{TlsError, TlsSettings, config};
use crate::trust::Peer;

/// One end of a TLS connection, which processes whole records.
pub(crate) struct Connection {
    connection: rustls::Connection,
    verifier: Arc<PeerVerifier>,
    hellos: Hellos,
    /// Filled on the server's side.
    secrets: Arc<TrafficSecrets>,
}

/// The server's side of a connection after its handshake, which another process may have performed.
#[derive(Debug)]
pub struct HandedConnection(Traffic);

impl Connection {
    /// The client's side.
    pub(crate) fn connector(settings: &TlsSettings) -> Result<Self, TlsError> {
        let (config, verifier) = config::client(settings, Records::Tokens)?;
        let connection = ClientConnection::new(config, config::no_name())
            .map_err(|error| TlsError::protocol(error.to_string()))?;
        Ok(Self::new(connection.into(), verifier))
    }

    /// The server's side.
    pub(crate) fn acceptor(settings: &TlsSettings) -> Result<Self, TlsError> {
        let (mut config, verifier) = config::server(settings, Records::Tokens)?;
        let secrets = Arc::new(TrafficSecrets::default());
        config.key_log = Arc::clone(&secrets) as Arc<_>;
        let connection = ServerConnection::new(Arc::new(config))
            .map_err(|error| TlsError::protocol(error.to_string()))?;
        Ok(Self {
            secrets,
            ..Self::new(connection.into(), verifier)
        })
    }

    fn new(mut connection: rustls::Connection, verifier: Arc<PeerVerifier>) -> Self {
        connection.set_buffer_limit(None);
        Self {
            connection,
            verifier,
            hellos: Hellos::default(),
            secrets: Arc::default(),
        }
    }

    /// Processes whole records. Appends the output for the peer to `output`, and received data to `plaintext`.
    ///
    /// # Errors
    ///
    /// When the connection has failed; `output` then has the alert to send.
    pub(crate) fn advance(
        &mut self,
        records: &[u8],
        output: &mut Vec<u8>,
        plaintext: &mut Vec<u8>,
    ) -> Result<(), TlsError> {
        let result = if self.connection.is_handshaking() {
            let mut records = records.to_vec();
            self.hellos.hide_names(&mut records);
            self.take(&records, plaintext)
        } else {
            self.take(records, plaintext)
        };
        self.send(output);
        result
    }

    fn take(&mut self, mut records: &[u8], plaintext: &mut Vec<u8>) -> Result<(), TlsError> {
        while !records.is_empty() {
            let read = self
                .connection
                .read_tls(&mut records)
                .map_err(|error| TlsError::protocol(error.to_string()))?;
            if read == 0 {
                return Err(TlsError::protocol("the peer has closed the connection"));
            }
            let state = self
                .hellos
                .during(|| self.connection.process_new_packets())
                .map_err(|error| {
                    self.verifier
                        .refusal()
                        .unwrap_or_else(|| TlsError::protocol(error.to_string()))
                })?;
            let start = plaintext.len();
            plaintext.resize(start + state.plaintext_bytes_to_read(), 0);
            self.connection
                .reader()
                .read_exact(&mut plaintext[start..])
                .map_err(|error| TlsError::protocol(error.to_string()))?;
        }
        Ok(())
    }

    /// Appends the output of rustls.
    fn send(&mut self, output: &mut Vec<u8>) {
        // Writing to a Vec cannot fail.
        while self.connection.wants_write() && self.connection.write_tls(output).is_ok() {}
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Appends `plaintext` to `output` as records, after the handshake.
    pub(crate) fn wrap(&mut self, plaintext: &[u8], output: &mut Vec<u8>) -> Result<(), TlsError> {
        self.connection
            .writer()
            .write_all(plaintext)
            .map_err(|error| TlsError::protocol(error.to_string()))?;
        self.send(output);
        Ok(())
    }

    /// The identity of the peer, after the handshake.
    pub(crate) fn peer(&self) -> Option<&Peer> {
        self.verifier.peer().filter(|_| !self.is_handshaking())
    }

    pub(crate) fn suite(&self) -> Option<SupportedCipherSuite> {
        self.connection.negotiated_cipher_suite()
    }

    /// Exported keying material (RFC 5705), after the handshake.
    pub(crate) fn export<const LENGTH: usize>(
        &self,
        label: &[u8],
    ) -> Result<[u8; LENGTH], TlsError> {
        self.connection
            .export_keying_material([0; LENGTH], label, None)
            .map_err(|error| TlsError::protocol(error.to_string()))
    }

    /// The keys after the handshake, for another process.
    pub(crate) fn hand_over(self) -> Result<ConnectionKeys, TlsError> {
        let description = self.description();
        ConnectionKeys::of_acceptor(self.connection, &self.secrets, description)
    }

    /// Updates the keys, as a peer may do at any time (RFC 8446 4.6.3).
    #[cfg(test)]
    pub(crate) fn change_keys(&mut self, output: &mut Vec<u8>) {
        self.connection.refresh_traffic_keys().expect("TLS 1.3");
        self.send(output);
    }

    /// For the log, after the handshake.
    pub(crate) fn description(&self) -> String {
        describe(self.connection.protocol_version(), self.suite())
    }
}

impl HandedConnection {
    /// Continues with these keys.
    ///
    /// # Errors
    ///
    /// When the keys are invalid.
    pub fn new(keys: ConnectionKeys) -> Result<Self, TlsError> {
        Traffic::handed_over(keys).map(Self)
    }

    /// The present keys, with partially received records and messages, for another process.
    ///
    /// # Errors
    ///
    /// When this end was closed.
    pub fn hand_over(self) -> Result<ConnectionKeys, TlsError> {
        self.0.hand_over()
    }

    /// Processes whole or partial records. Appends the output for the peer to `output`, and received data to `plaintext`.
    ///
    /// # Errors
    ///
    /// When the connection has failed; `output` then has the alert to send.
    pub fn advance(
        &mut self,
        records: &[u8],
        output: &mut Vec<u8>,
        plaintext: &mut Vec<u8>,
    ) -> Result<(), TlsError> {
        self.0.advance(records, output, plaintext)
    }

    /// Appends `plaintext` to `output` as records.
    ///
    /// # Errors
    ///
    /// When this end was closed.
    pub fn wrap(&mut self, plaintext: &[u8], output: &mut Vec<u8>) -> Result<(), TlsError> {
        self.0.wrap(plaintext, output)
    }

    /// Whether the peer has sent a close_notify.
    pub fn is_closed_by_peer(&self) -> bool {
        self.0.is_closed_by_peer()
    }

    /// Appends a close_notify, once.
    pub fn close(&mut self, output: &mut Vec<u8>) {
        self.0.close(output);
    }

    /// `TLS 1.3, TLS13_AES_256_GCM_SHA384`, for the log.
    pub fn description(&self) -> String {
        self.0.description()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("handshaking", &self.is_handshaking())
            .finish_non_exhaustive()
    }
}
