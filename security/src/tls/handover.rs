//! The keys of an established connection as plain values, with which another process can protect its records.
//!
//! The values are complete: the process that performed the handshake is not needed afterwards. With TLS 1.3 they include the
//! traffic secrets, because the peer may update its keys at any time (RFC 8446 4.6.3). A connection may be handed over
//! several times, also within a record, so they include partially received records and messages.

use std::sync::{Mutex, PoisonError};

use aws_lc_rs::hkdf::{HKDF_SHA256, HKDF_SHA384, KeyType, Prk};
use rustls::{ConnectionTrafficSecrets, KeyLog, ProtocolVersion};
use serde::{Deserialize, Serialize};

use super::TlsError;
use super::keys::{RecordCipher, TrafficKeys};
use crate::secret::Secret;

/// The maximum number of key updates by the peer before the keys are handed over.
const MOST_UPDATES: usize = 16;

/// The keys of both directions, and partially received records and messages.
#[derive(Debug, Serialize, Deserialize)]
pub struct ConnectionKeys {
    is_tls13: bool,
    description: String,
    sending: DirectionKeys,
    receiving: DirectionKeys,
    pub(super) partial: Partial,
}

/// Partially received data of the peer.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Partial {
    /// The beginning of a record.
    pub(super) record: Vec<u8>,
    /// The beginning of a handshake message.
    pub(super) message: Vec<u8>,
    /// The peer has sent a close_notify.
    pub(super) is_closed: bool,
}

/// The keys of one direction.
#[derive(Debug, Serialize, Deserialize)]
struct DirectionKeys {
    keys: TrafficKeys,
    /// The sequence number of the next record.
    sequence: u64,
    /// TLS 1.3: the traffic secret, from which the next keys are derived.
    secret: Option<Secret>,
}

/// The traffic secrets of a connection with TLS 1.3, as rustls reports them during the handshake.
#[derive(Debug, Default)]
pub(super) struct TrafficSecrets(Mutex<[Option<Secret>; 2]>);

const CLIENT: usize = 0;
const SERVER: usize = 1;

impl KeyLog for TrafficSecrets {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        let side = match label {
            "CLIENT_TRAFFIC_SECRET_0" => CLIENT,
            "SERVER_TRAFFIC_SECRET_0" => SERVER,
            _ => return,
        };
        let mut secrets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        secrets[side] = Some(Secret::new(secret.to_vec()));
    }
}

impl TrafficSecrets {
    /// The traffic secrets of the client and of the server.
    fn take(&self) -> [Option<Secret>; 2] {
        let mut secrets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *secrets)
    }
}

impl ConnectionKeys {
    /// Extracts the keys of the server's side.
    pub(super) fn of_acceptor(
        connection: rustls::Connection,
        secrets: &TrafficSecrets,
        description: String,
    ) -> Result<Self, TlsError> {
        let is_tls13 = connection.protocol_version() == Some(ProtocolVersion::TLSv1_3);
        let extracted = connection
            .dangerous_extract_secrets()
            .map_err(|error| TlsError::protocol(error.to_string()))?;
        let [client, server] = secrets.take();
        let unknown = || TlsError::protocol("the cipher suite is not supported");
        Ok(Self {
            is_tls13,
            description,
            sending: DirectionKeys::new(extracted.tx, server).ok_or_else(unknown)?,
            receiving: DirectionKeys::new(extracted.rx, client).ok_or_else(unknown)?,
            partial: Partial::default(),
        })
    }

    /// The same keys with these sequence numbers and partial data.
    pub(super) fn continued(self, sending: u64, receiving: u64, partial: Partial) -> Self {
        Self {
            sending: DirectionKeys {
                sequence: sending,
                ..self.sending
            },
            receiving: DirectionKeys {
                sequence: receiving,
                ..self.receiving
            },
            partial,
            ..self
        }
    }

    /// `TLS 1.3, TLS13_AES_256_GCM_SHA384`, for the log.
    pub fn description(&self) -> &str {
        &self.description
    }

    pub(super) fn version(&self) -> ProtocolVersion {
        if self.is_tls13 {
            ProtocolVersion::TLSv1_3
        } else {
            ProtocolVersion::TLSv1_2
        }
    }

    /// The sequence number of the next record and the keys: for sending, for receiving.
    pub(super) fn current(&self) -> ((u64, TrafficKeys), (u64, TrafficKeys)) {
        (self.sending.current(), self.receiving.current())
    }

    /// The keys after a key update; `None` with TLS 1.2.
    pub(super) fn next_sending(&mut self) -> Option<(u64, TrafficKeys)> {
        self.sending.advance()
    }

    /// As [`Self::next_sending`].
    pub(super) fn next_receiving(&mut self) -> Option<(u64, TrafficKeys)> {
        self.receiving.advance()
    }
}

impl DirectionKeys {
    fn new(
        (sequence, secrets): (u64, ConnectionTrafficSecrets),
        first_secret: Option<Secret>,
    ) -> Option<Self> {
        let keys = TrafficKeys::new(&secrets)?;
        let secret = first_secret.and_then(|first| secret_of(first, &keys));
        Some(Self {
            keys,
            sequence,
            secret,
        })
    }

    fn current(&self) -> (u64, TrafficKeys) {
        (self.sequence, self.keys.clone())
    }

    /// RFC 8446 7.2: the next generation of keys.
    fn advance(&mut self) -> Option<(u64, TrafficKeys)> {
        let cipher = self.keys.cipher;
        let next = next_secret(cipher, &self.secret.take()?)?;
        self.keys = derive_keys(cipher, &next)?;
        self.sequence = 0;
        self.secret = Some(next);
        Some(self.current())
    }
}

/// The traffic secret of these keys: the first one, or one that key updates have derived from it.
fn secret_of(first: Secret, keys: &TrafficKeys) -> Option<Secret> {
    let mut secret = first;
    for _ in 0..=MOST_UPDATES {
        if derive_keys(keys.cipher, &secret)?.key == keys.key {
            return Some(secret);
        }
        secret = next_secret(keys.cipher, &secret)?;
    }
    None
}

/// RFC 8446 7.2.
fn next_secret(cipher: RecordCipher, secret: &Secret) -> Option<Secret> {
    expand_label(cipher, secret, b"traffic upd", secret.bytes().len())
}

/// RFC 8446 7.3.
fn derive_keys(cipher: RecordCipher, secret: &Secret) -> Option<TrafficKeys> {
    let key_bytes = match cipher {
        RecordCipher::Aes128Gcm => 16,
        RecordCipher::Aes256Gcm | RecordCipher::ChaCha20Poly1305 => 32,
    };
    let iv = expand_label(cipher, secret, b"iv", 12)?;
    Some(TrafficKeys {
        cipher,
        key: expand_label(cipher, secret, b"key", key_bytes)?,
        iv: iv.bytes().try_into().ok()?,
    })
}

/// RFC 8446 7.1: HKDF-Expand-Label with an empty context.
fn expand_label(
    cipher: RecordCipher,
    secret: &Secret,
    label: &[u8],
    length: usize,
) -> Option<Secret> {
    struct Length(usize);
    impl KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }
    const PREFIX: &[u8] = b"tls13 ";
    // RFC 8446 B.4: the hash of the cipher suite.
    let hash = match cipher {
        RecordCipher::Aes256Gcm => HKDF_SHA384,
        RecordCipher::Aes128Gcm | RecordCipher::ChaCha20Poly1305 => HKDF_SHA256,
    };
    let length_bytes = u16::try_from(length).ok()?.to_be_bytes();
    let label_length = [u8::try_from(PREFIX.len() + label.len()).ok()?];
    let info: [&[u8]; 5] = [&length_bytes, &label_length, PREFIX, label, &[0]];
    let mut output = vec![0; length];
    Prk::new_less_safe(hash, secret.bytes())
        .expand(&info, Length(length))
        .ok()?
        .fill(&mut output)
        .ok()?;
    Some(Secret::new(output))
}
