//! The engine: a handshake by rustls, and records with the keys that came of it.

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

/// How much may wait for the rest of a handshake message. rustls limits messages to 64 KiB.
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
    /// Records that rustls is not done with, or has not seen.
    waiting: Vec<u8>,
    /// How many bytes of these it has seen: whole records.
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

/// What rustls wants next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Work,
    Input,
    Traffic,
}

impl TlsEngine {
    /// The side that begins: who connected.
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

    /// The side that waits: who accepted. The peer must present a certificate.
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

    /// Takes whole or partial records from the peer. Appends to `output` what must be sent, and to
    /// `plaintext` what the peer said. To be called with no input to begin.
    ///
    /// # Errors
    ///
    /// When the connection cannot go on; `output` then has the alert to send.
    pub fn advance(
        &mut self,
        input: &[u8],
        output: &mut Vec<u8>,
        plaintext: &mut Vec<u8>,
    ) -> Result<(), TlsError> {
        if let State::Traffic(traffic) = &mut self.state {
            return traffic.advance(input, output, plaintext);
        }
        // Whatever fails leaves nothing that could be used.
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

    /// Opens one whole record where it stands, without a copy: the place of what the peer said, which is
    /// empty for records that carry no data. For bulk data after the handshake; not to be mixed with
    /// partial records given to [`Self::advance`].
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
            State::Handshake(_) | State::Failed => Err(TlsError::protocol("there are no keys")),
        }
    }

    /// Whether the handshake goes on.
    pub fn is_handshaking(&self) -> bool {
        matches!(self.state, State::Handshake(_))
    }

    /// Whether the peer said that it will send no more (close_notify).
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
            State::Handshake(_) | State::Failed => Err(TlsError::protocol("there are no keys")),
        }
    }

    /// Puts `plaintext` into `records` as records, after the handshake, and says how long they are:
    /// [`wrapped_length`](super::wrapped_length) at most, for which there must be room. For bulk data: a buffer that is used
    /// again need not be cleared before.
    ///
    /// # Errors
    ///
    /// As [`Self::wrap`].
    pub fn wrap_into(&mut self, plaintext: &[u8], records: &mut [u8]) -> Result<usize, TlsError> {
        match &mut self.state {
            State::Traffic(traffic) => traffic.wrap_into(plaintext, records),
            State::Handshake(_) | State::Failed => Err(TlsError::protocol("there are no keys")),
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

    /// The kernel has the keys of a direction now. From here on this engine handles its records without protection,
    /// as a header and the content: [`Self::close`] and answers to the peer append such records, and
    /// [`Self::open_in_place`] takes them.
    pub fn release_keys(&mut self, direction: Direction) {
        if let State::Traffic(traffic) = &mut self.state {
            traffic.release_keys(direction);
        }
    }

    /// Counts records that were made with released keys. Once TLS wants other ones, appends the bare record that says so;
    /// after it has gone, [`Self::keys`] has them.
    ///
    /// # Errors
    ///
    /// When there are no other keys.
    pub fn note_sealed(&mut self, records: u64, output: &mut Vec<u8>) -> Result<(), TlsError> {
        match &mut self.state {
            State::Traffic(traffic) => traffic.note_sealed(records, output),
            State::Handshake(_) | State::Failed => Err(TlsError::protocol("there are no keys")),
        }
    }

    /// Appends a close_notify, if there are keys.
    pub fn close(&mut self, output: &mut Vec<u8>) {
        if let State::Traffic(traffic) = &mut self.state {
            traffic.close(output);
        }
    }

    /// Who is at the other end, after the handshake.
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
    /// Whether it is done. rustls gets one record after the other, and none that comes after the
    /// handshake.
    fn advance(&mut self, input: &[u8], output: &mut Vec<u8>) -> Result<bool, TlsError> {
        self.waiting.extend_from_slice(input);
        if matches!(self.side, Side::Acceptor(_)) {
            self.hellos.hide_names(&mut self.waiting);
        }
        loop {
            let rest = &self.waiting[self.shown..];
            let whole = record_length(rest).filter(|length| *length <= rest.len());
            // rustls sees the beginning of a record too: it may be wrong already.
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

    /// Lets rustls look at the first bytes that wait.
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
        // While there is something to send rustls does not look at its input, of which it may have kept
        // account no more.
        while self.side.wants_write() {
            if !matches!(self.work(0, output), (_, Ok(Next::Work))) {
                return;
            }
        }
    }

    /// The connection after the handshake, and what came behind it.
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

/// Does what rustls wants, and says how many bytes of its input it is done with.
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
