//! The engine for bulk data: a handshake by rustls, then records with the negotiated keys.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};

use super::hello::Hellos;
use super::keys::{Direction, RecordKeys};
use super::provider::Records;
use super::traffic::{KeySchedule, Traffic};
use super::verifier::PeerVerifier;
use super::{TlsError, TlsSettings, config, record_length};
use crate::trust::Peer;

/// The maximum length of incomplete handshake messages. rustls limits messages to 64 KiB.
const MAX_WAITING: usize = 1 << 18;

/// One end of a TLS connection: bytes in, bytes out.
#[derive(Debug)]
pub struct TlsEngine {
    state: State,
    verifier: Arc<PeerVerifier>,
}

#[derive(Debug)]
enum State {
    Handshake(Box<Handshake>),
    Traffic(Box<Traffic>),
    Failed,
}

struct Handshake {
    side: Side,
    hellos: Hellos,
    /// Records that rustls has not consumed.
    waiting: Vec<u8>,
    /// The length of the whole records in it that were passed to rustls.
    shown: usize,
}

enum Side {
    Connector(UnbufferedClientConnection),
    Acceptor(UnbufferedServerConnection),
}

impl Side {
    fn wants_write(&self) -> bool {
        match self {
            Self::Connector(connection) => connection.wants_write(),
            Self::Acceptor(connection) => connection.wants_write(),
        }
    }
}

/// The next step that rustls requires.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Work,
    Input,
    Traffic,
}

impl TlsEngine {
    /// The side that has connected, which is the TLS client.
    ///
    /// # Errors
    ///
    /// When the settings cannot be used.
    pub fn connector(settings: &TlsSettings) -> Result<Self, TlsError> {
        let (config, verifier) = config::client(settings, Records::Bulk)?;
        let connection = UnbufferedClientConnection::new(config, config::no_name())
            .map_err(|error| TlsError::protocol(error.to_string()))?;
        Ok(Self::new(Side::Connector(connection), verifier))
    }

    /// The side that has accepted, which is the TLS server. The peer must present a certificate.
    ///
    /// # Errors
    ///
    /// When the settings cannot be used.
    pub fn acceptor(settings: &TlsSettings) -> Result<Self, TlsError> {
        let (config, verifier) = config::server(settings, Records::Bulk)?;
        let connection = UnbufferedServerConnection::new(Arc::new(config))
            .map_err(|error| TlsError::protocol(error.to_string()))?;
        Ok(Self::new(Side::Acceptor(connection), verifier))
    }

    fn new(side: Side, verifier: Arc<PeerVerifier>) -> Self {
        let handshake = Handshake {
            side,
            hellos: Hellos::default(),
            waiting: Vec::new(),
            shown: 0,
        };
        Self {
            state: State::Handshake(Box::new(handshake)),
            verifier,
        }
    }

    /// Processes whole or partial records from the peer. Appends the output for the peer to `output`, and received data to
    /// `plaintext`. Begins the handshake when called without input.
    ///
    /// # Errors
    ///
    /// When the connection has failed; `output` then has the alert to send.
    pub fn advance(
        &mut self,
        input: &[u8],
        output: &mut Vec<u8>,
        plaintext: &mut Vec<u8>,
    ) -> Result<(), TlsError> {
        if let State::Traffic(traffic) = &mut self.state {
            return traffic.advance(input, output, plaintext);
        }
        // After a failure the connection cannot be used.
        let State::Handshake(mut handshake) = std::mem::replace(&mut self.state, State::Failed)
        else {
            return Err(TlsError::protocol("the connection has failed before"));
        };
        match handshake.advance(input, output) {
            Ok(false) => {
                self.state = State::Handshake(handshake);
                Ok(())
            }
            Ok(true) => {
                let (mut traffic, rest) = handshake.finish()?;
                let result = traffic.advance(&rest, output, plaintext);
                self.state = State::Traffic(Box::new(traffic));
                result
            }
            Err(error) => {
                handshake.flush(output);
                Err(self.verifier.refusal().unwrap_or(error))
            }
        }
    }

    /// Opens one whole record in place, without a copy. Returns the position of the data, which is empty for records without
    /// data. For bulk data after the handshake; must not be mixed with partial records passed to [`Self::advance`].
    ///
    /// # Errors
    ///
    /// As [`Self::advance`].
    pub fn open_in_place(
        &mut self,
        record: &mut [u8],
        output: &mut Vec<u8>,
    ) -> Result<Range<usize>, TlsError> {
        match &mut self.state {
            State::Traffic(traffic) => traffic.open_in_place(record, output),
            State::Handshake(_) | State::Failed => {
                Err(TlsError::protocol("the handshake is not complete"))
            }
        }
    }

    /// Whether the handshake is in progress.
    pub fn is_handshaking(&self) -> bool {
        matches!(self.state, State::Handshake(_))
    }

    /// Whether the peer has sent a close_notify.
    pub fn is_closed_by_peer(&self) -> bool {
        matches!(&self.state, State::Traffic(traffic) if traffic.is_closed_by_peer())
    }

    /// Appends `plaintext` to `output` as records, after the handshake.
    ///
    /// # Errors
    ///
    /// When there are no keys, or this end was closed.
    pub fn wrap(&mut self, plaintext: &[u8], output: &mut Vec<u8>) -> Result<(), TlsError> {
        match &mut self.state {
            State::Traffic(traffic) => traffic.wrap(plaintext, output),
            State::Handshake(_) | State::Failed => {
                Err(TlsError::protocol("the handshake is not complete"))
            }
        }
    }

    /// Writes `plaintext` into `records` as records, after the handshake, and returns their length, which is at most
    /// [`wrapped_length`](super::wrapped_length). For bulk data: `records` can be reused without clearing it.
    ///
    /// # Errors
    ///
    /// As [`Self::wrap`].
    pub fn wrap_into(&mut self, plaintext: &[u8], records: &mut [u8]) -> Result<usize, TlsError> {
        match &mut self.state {
            State::Traffic(traffic) => traffic.wrap_into(plaintext, records),
            State::Handshake(_) | State::Failed => {
                Err(TlsError::protocol("the handshake is not complete"))
            }
        }
    }

    /// The keys of a direction after the handshake, for the kernel to protect its records; `None` after
    /// [`Self::release_keys`], until the keys change.
    pub fn keys(&self, direction: Direction) -> Option<RecordKeys<'_>> {
        match &self.state {
            State::Traffic(traffic) => traffic.keys(direction),
            State::Handshake(_) | State::Failed => None,
        }
    }

    /// Declares that the kernel has the keys of a direction. From now on this engine handles records of this direction without
    /// protection, as a header and the content: [`Self::close`] and answers to the peer append such records, and
    /// [`Self::open_in_place`] accepts them.
    pub fn release_keys(&mut self, direction: Direction) {
        if let State::Traffic(traffic) = &mut self.state {
            traffic.release_keys(direction);
        }
    }

    /// Counts records that were sealed with released keys. When the limit of a key is reached, appends the unprotected record
    /// of a key update; after it was sent, [`Self::keys`] returns the new keys.
    ///
    /// # Errors
    ///
    /// When no new keys can be derived.
    pub fn note_sealed(&mut self, records: u64, output: &mut Vec<u8>) -> Result<(), TlsError> {
        match &mut self.state {
            State::Traffic(traffic) => traffic.note_sealed(records, output),
            State::Handshake(_) | State::Failed => {
                Err(TlsError::protocol("the handshake is not complete"))
            }
        }
    }

    /// Appends a close_notify, if there are keys.
    pub fn close(&mut self, output: &mut Vec<u8>) {
        if let State::Traffic(traffic) = &mut self.state {
            traffic.close(output);
        }
    }

    /// The identity of the peer, after the handshake.
    pub fn peer(&self) -> Option<&Peer> {
        match self.state {
            State::Traffic(_) => self.verifier.peer(),
            State::Handshake(_) | State::Failed => None,
        }
    }

    /// `TLS 1.3, TLS13_AES_256_GCM_SHA384`, after the handshake, for the log.
    pub fn description(&self) -> String {
        match &self.state {
            State::Traffic(traffic) => traffic.description(),
            State::Handshake(_) | State::Failed => "no TLS yet".to_owned(),
        }
    }
}

impl Handshake {
    /// Continues the handshake; true if it is complete. rustls gets one record at a time, and none that follows the handshake.
    fn advance(&mut self, input: &[u8], output: &mut Vec<u8>) -> Result<bool, TlsError> {
        self.waiting.extend_from_slice(input);
        if matches!(self.side, Side::Acceptor(_)) {
            self.hellos.hide_names(&mut self.waiting);
        }
        loop {
            let rest = &self.waiting[self.shown..];
            let whole = record_length(rest).filter(|length| *length <= rest.len());
            // rustls also gets partial records, because it may detect an error early.
            let mut visible = self.shown + whole.unwrap_or(rest.len());
            loop {
                let (discard, next) = self.work(visible, output);
                self.waiting.drain(..discard);
                self.shown = self.shown.saturating_sub(discard);
                visible -= discard;
                match next? {
                    Next::Work => {}
                    Next::Traffic => return Ok(true),
                    Next::Input => break,
                }
            }
            if whole.is_none() {
                return Ok(false);
            }
            if visible > MAX_WAITING {
                return Err(TlsError::protocol("a handshake message is too long"));
            }
            self.shown = visible;
        }
    }

    /// Passes the first waiting bytes to rustls.
    fn work(&mut self, visible: usize, output: &mut Vec<u8>) -> (usize, Result<Next, TlsError>) {
        let Self {
            side,
            hellos,
            waiting,
            ..
        } = self;
        let input = &mut waiting[..visible];
        hellos.during(|| match side {
            Side::Connector(connection) => handle(connection.process_tls_records(input), output),
            Side::Acceptor(connection) => handle(connection.process_tls_records(input), output),
        })
    }

    /// Appends the alert of a handshake that failed.
    fn flush(&mut self, output: &mut Vec<u8>) {
        // While rustls has output it does not process its input, whose consumption it may no longer track after a failure.
        while self.side.wants_write() {
            if !matches!(self.work(0, output), (_, Ok(Next::Work))) {
                return;
            }
        }
    }

    /// The connection after the handshake, and the bytes that follow the handshake.
    fn finish(self) -> Result<(Traffic, Vec<u8>), TlsError> {
        let refused = |error: rustls::Error| TlsError::protocol(error.to_string());
        let (keys, secrets) = match self.side {
            Side::Connector(connection) => {
                let (secrets, keys) = connection
                    .dangerous_into_kernel_connection()
                    .map_err(refused)?;
                (KeySchedule::Connector(keys), secrets)
            }
            Side::Acceptor(connection) => {
                let (secrets, keys) = connection
                    .dangerous_into_kernel_connection()
                    .map_err(refused)?;
                (KeySchedule::Acceptor(keys), secrets)
            }
        };
        Ok((Traffic::new(keys, secrets)?, self.waiting))
    }
}

/// Performs the step that rustls requires, and returns the number of input bytes that it has consumed.
fn handle<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    output: &mut Vec<u8>,
) -> (usize, Result<Next, TlsError>) {
    let next = match status.state {
        Ok(ConnectionState::EncodeTlsData(mut message)) => {
            let start = output.len();
            if let Err(EncodeError::InsufficientSize(needed)) = message.encode(&mut []) {
                output.resize(start + needed.required_size, 0);
            }
            message
                .encode(&mut output[start..])
                .map(|_| Next::Work)
                .map_err(|error| TlsError::protocol(error.to_string()))
        }
        Ok(ConnectionState::TransmitTlsData(message)) => {
            message.done();
            Ok(Next::Work)
        }
        Ok(ConnectionState::WriteTraffic(_)) => Ok(Next::Traffic),
        Ok(ConnectionState::BlockedHandshake) => Ok(Next::Input),
        Ok(_) => Err(TlsError::protocol(
            "the peer sent something else before the end of the handshake",
        )),
        Err(error) => Err(TlsError::protocol(error.to_string())),
    };
    (status.discard, next)
}

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handshake").finish_non_exhaustive()
    }
}
