//! The drivers of a session as bytes, for a machine that makes data channels for it.
//!
//! A value of `gsi` has what belongs to the session: the credential with its key, the expected peer, the protection, the
//! versions of TLS, and the trust anchors that the session has in addition to those of the site. The site's own anchors do not
//! travel: each machine has its trust directory. A value of `ftps` is empty: each machine presents its own certificate.
//!
//! The first byte of a value of `gsi` is its format. The rest is the encoding of [`Sent`] by postcard.

use std::fmt::Display;
use std::sync::Arc;

use gridhaul_security::certificate::Certificate;
use gridhaul_security::credential::Credential;
use gridhaul_security::key::PrivateKey;
use gridhaul_security::secret::Secret;
use gridhaul_security::tls::TlsVersions;
use gridhaul_security::trust::TrustStore;
use gridhaul_stack::{MAX_SESSION_VALUE_BYTES, RestoreError, SessionValue, SessionValueError};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::security::{ChannelSecurity, Protection};

const NAME: &str = "gsi";

/// The format that this version writes and reads. Every change of [`Sent`] has a new one.
const FORMAT: u8 = 1;

#[derive(Serialize, Deserialize)]
struct Sent<'a> {
    /// DER, leaf first.
    #[serde(borrow)]
    chain: Vec<&'a [u8]>,
    /// DER.
    key: &'a [u8],
    /// DER.
    anchors: Vec<&'a [u8]>,
    expected: &'a str,
    protection: SentProtection,
    versions: SentVersions,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
enum SentProtection {
    Clear,
    Private,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
enum SentVersions {
    From12To13,
    Only12,
    Only13,
}

/// The value of a session's security.
pub(crate) fn describe(security: &ChannelSecurity) -> Result<SessionValue, SessionValueError> {
    let key = security.credential.key().exported();
    let sent = Sent {
        chain: encodings(security.credential.chain()),
        key: key.ok_or_else(|| not_sendable(KEY_STAYS))?.bytes(),
        anchors: encodings(&security.anchors),
        expected: &security.expected,
        protection: security.protection.into(),
        versions: security.versions.into(),
    };
    SessionValue::new(NAME, encode(&sent)?)
}

/// The security that a value describes, with the trust of this machine.
pub(crate) fn restore(
    bytes: &[u8],
    trust: Arc<TrustStore>,
) -> Result<ChannelSecurity, RestoreError> {
    if bytes.len() > MAX_SESSION_VALUE_BYTES {
        return Err(malformed(format!(
            "it has {} bytes, and at most {MAX_SESSION_VALUE_BYTES} are possible",
            bytes.len()
        )));
    }
    let (&format, bytes) = bytes
        .split_first()
        .ok_or_else(|| malformed("it is empty"))?;
    if format != FORMAT {
        return Err(RestoreError::UnknownFormat {
            driver: NAME,
            found: format,
            known: FORMAT,
        });
    }
    let (sent, rest) = postcard::take_from_bytes::<Sent<'_>>(bytes).map_err(malformed)?;
    if !rest.is_empty() {
        return Err(malformed(format!("{} bytes follow it", rest.len())));
    }
    let key = Secret::new(sent.key.to_vec());
    let key = PrivateKey::from_exported(&key).map_err(malformed)?;
    let credential = Credential::new(certificates(&sent.chain)?, key).map_err(malformed)?;
    Ok(ChannelSecurity {
        credential: Arc::new(credential),
        trust,
        anchors: certificates(&sent.anchors)?,
        expected: sent.expected.to_owned(),
        protection: sent.protection.into(),
        versions: sent.versions.into(),
    })
}

const KEY_STAYS: &str =
    "its credential was read from a file of this machine, whose key stays on this machine";

fn not_sendable(reason: &'static str) -> SessionValueError {
    SessionValueError::NotSendable {
        driver: NAME,
        reason,
    }
}

/// The format and the encoding. A vector that grows would leave copies of the key behind, so its size is estimated.
fn encode(sent: &Sent<'_>) -> Result<Zeroizing<Vec<u8>>, SessionValueError> {
    /// The length in front of each part is shorter, and so is everything else.
    const EACH: usize = 10;

    let parts = sent.chain.iter().chain(&sent.anchors);
    let parts = parts.map(|part| part.len() + EACH).sum::<usize>();
    let size = parts + sent.key.len() + sent.expected.len() + 8 * EACH;
    if size > MAX_SESSION_VALUE_BYTES {
        return Err(SessionValueError::TooLong {
            name: NAME.to_owned(),
            bytes: size,
        });
    }
    let mut bytes = Zeroizing::new(vec![0; size]);
    bytes[0] = FORMAT;
    let encoded = postcard::to_slice(sent, &mut bytes[1..]).map(|encoded| encoded.len());
    let length = encoded.map_err(|_| not_sendable("its value cannot be encoded"))?;
    bytes.truncate(1 + length);
    Ok(bytes)
}

fn encodings(certificates: &[Certificate]) -> Vec<&[u8]> {
    certificates.iter().map(Certificate::der).collect()
}

fn certificates(encodings: &[&[u8]]) -> Result<Vec<Certificate>, RestoreError> {
    let parsed = encodings.iter().map(|der| Certificate::from_der(der));
    parsed.collect::<Result<_, _>>().map_err(malformed)
}

fn malformed(reason: impl Display) -> RestoreError {
    RestoreError::Malformed {
        driver: NAME,
        reason: reason.to_string(),
    }
}

impl From<Protection> for SentProtection {
    fn from(protection: Protection) -> Self {
        match protection {
            Protection::Clear => Self::Clear,
            Protection::Private => Self::Private,
        }
    }
}

impl From<SentProtection> for Protection {
    fn from(protection: SentProtection) -> Self {
        match protection {
            SentProtection::Clear => Self::Clear,
            SentProtection::Private => Self::Private,
        }
    }
}

impl From<TlsVersions> for SentVersions {
    fn from(versions: TlsVersions) -> Self {
        match versions {
            TlsVersions::From12To13 => Self::From12To13,
            TlsVersions::Only12 => Self::Only12,
            TlsVersions::Only13 => Self::Only13,
        }
    }
}

impl From<SentVersions> for TlsVersions {
    fn from(versions: SentVersions) -> Self {
        match versions {
            SentVersions::From12To13 => Self::From12To13,
            SentVersions::Only12 => Self::Only12,
            SentVersions::Only13 => Self::Only13,
        }
    }
}
