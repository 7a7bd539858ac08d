//! The host's key, which stays in the login process: the messages that it signs, and a key for rustls that asks for
//! signatures.

use std::fmt;
use std::sync::Arc;

use rustls::sign::{Signer, SigningKey};
use rustls::{SignatureAlgorithm, SignatureScheme};

/// The signature schemes of host keys.
const SCHEMES: [SignatureScheme; 9] = [
    SignatureScheme::RSA_PSS_SHA512,
    SignatureScheme::RSA_PSS_SHA384,
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PKCS1_SHA512,
    SignatureScheme::RSA_PKCS1_SHA384,
    SignatureScheme::RSA_PKCS1_SHA256,
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::ED25519,
];

/// Signs in another process.
pub(super) trait Signs: Send + Sync + fmt::Debug {
    /// Signs a message of a TLS handshake.
    ///
    /// # Errors
    ///
    /// The reason why there is no signature.
    fn sign(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, String>;
}

/// A key of another process.
#[derive(Debug)]
pub(super) struct KeyElsewhere {
    pub(super) schemes: Vec<SignatureScheme>,
    pub(super) signs: Arc<dyn Signs>,
}

#[derive(Debug)]
struct SignerElsewhere {
    scheme: SignatureScheme,
    signs: Arc<dyn Signs>,
}

impl SigningKey for KeyElsewhere {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let scheme = self
            .schemes
            .iter()
            .find(|scheme| offered.contains(scheme))?;
        Some(Box::new(SignerElsewhere {
            scheme: *scheme,
            signs: Arc::clone(&self.signs),
        }))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        match self.schemes.first() {
            Some(
                SignatureScheme::ECDSA_NISTP256_SHA256 | SignatureScheme::ECDSA_NISTP384_SHA384,
            ) => SignatureAlgorithm::ECDSA,
            Some(SignatureScheme::ED25519) => SignatureAlgorithm::ED25519,
            _ => SignatureAlgorithm::RSA,
        }
    }
}

impl Signer for SignerElsewhere {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        self.signs
            .sign(self.scheme, message)
            .map_err(rustls::Error::General)
    }

    fn scheme(&self) -> SignatureScheme {
        self.scheme
    }
}

/// The schemes of a key, in order of preference.
pub(super) fn schemes_of(key: &dyn SigningKey) -> Vec<SignatureScheme> {
    SCHEMES
        .into_iter()
        .filter(|scheme| key.choose_scheme(&[*scheme]).is_some())
        .collect()
}

/// The ends of TLS connections that the host's key is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ends {
    /// Connections that clients make.
    Server,
    /// Those, and connections to data nodes.
    Both,
    /// Connections to data nodes only.
    Client,
}

/// Signs messages of a TLS handshake only: a process that may ask for signatures must not get one for a certificate or a
/// proxy.
pub(super) fn sign_for_handshake(
    key: &dyn SigningKey,
    scheme: SignatureScheme,
    message: &[u8],
    ends: Ends,
) -> Result<Vec<u8>, String> {
    let is_of_client =
        ends != Ends::Server && is_of_tls13(scheme) && is_certificate_verify(CLIENT, message);
    let is_of_server = ends != Ends::Client
        && (is_server_key_exchange(message) || is_certificate_verify(SERVER, message));
    if !is_of_server && !is_of_client {
        return Err("only messages of TLS handshakes are signed".to_owned());
    }
    let signer = key
        .choose_scheme(&[scheme])
        .ok_or_else(|| "the key does not sign in this way".to_owned())?;
    signer.sign(message).map_err(|error| error.to_string())
}

/// RFC 8446 4.2.3: TLS 1.3 signs nothing with PKCS #1 v1.5.
fn is_of_tls13(scheme: SignatureScheme) -> bool {
    !matches!(
        scheme,
        SignatureScheme::RSA_PKCS1_SHA256
            | SignatureScheme::RSA_PKCS1_SHA384
            | SignatureScheme::RSA_PKCS1_SHA512
    )
}

const SERVER: &[u8] = b"TLS 1.3, server CertificateVerify\0";

/// A client of TLS 1.2 signs messages without such a mark, so connections to data nodes have TLS 1.3.
const CLIENT: &[u8] = b"TLS 1.3, client CertificateVerify\0";

/// RFC 8446 4.4.3: 64 spaces, the context string, a zero, and the hash of the handshake (SHA-256 or SHA-384).
fn is_certificate_verify(context: &[u8], message: &[u8]) -> bool {
    message
        .strip_prefix(&[b' '; 64])
        .and_then(|rest| rest.strip_prefix(context))
        .is_some_and(|hash| matches!(hash.len(), 32 | 48))
}

/// RFC 8422 5.4: two random values of 32 bytes, a named curve, and a point of it. A certificate is longer: its two names and
/// its key alone are.
fn is_server_key_exchange(message: &[u8]) -> bool {
    const NAMED_CURVE: u8 = 3;
    let Some([NAMED_CURVE, high, low, length, point @ ..]) = message.get(64..) else {
        return false;
    };
    let point_bytes = match u16::from_be_bytes([*high, *low]) {
        23 => 65, // secp256r1
        24 => 97, // secp384r1
        29 => 32, // x25519
        _ => return false,
    };
    // SEC 1 2.3.3: points of the first two curves are uncompressed.
    let has_form = point_bytes == 32 || point.first() == Some(&4);
    has_form && usize::from(*length) == point_bytes && point.len() == point_bytes
}

#[cfg(test)]
mod tests {
    use gridhaul_security::key::PrivateKey;

    use super::*;

    fn certificate_verify(hash: usize) -> Vec<u8> {
        let mut message = vec![b' '; 64];
        message.extend(b"TLS 1.3, server CertificateVerify\0");
        message.resize(message.len() + hash, 7);
        message
    }

    fn key_exchange(curve: u16, point: u8) -> Vec<u8> {
        let mut message = vec![9; 64];
        message.push(3);
        message.extend(curve.to_be_bytes());
        message.push(point);
        message.resize(message.len() + usize::from(point), 4);
        message
    }

    #[test]
    fn handshakes_are_signed_and_nothing_else() {
        let key = PrivateKey::generate_ec().expect("a key").signing_key();
        let scheme = SignatureScheme::ECDSA_NISTP256_SHA256;
        let sign = |message: &[u8]| sign_for_handshake(&*key, scheme, message, Ends::Server);
        for message in [
            certificate_verify(32),
            certificate_verify(48),
            key_exchange(23, 65),
            key_exchange(24, 97),
            key_exchange(29, 32),
        ] {
            sign(&message).expect("a handshake's");
            let mut longer = message.clone();
            longer.push(0);
            sign(&longer).expect_err("longer");
            sign(&message[1..]).expect_err("shorter");
        }
        let client = [
            &[b' '; 64],
            &b"TLS 1.3, client CertificateVerify\0"[..],
            &[7; 32],
        ]
        .concat();
        sign(&client).expect_err("a client's");
        sign(&key_exchange(23, 32)).expect_err("another point");
        let mut compressed = key_exchange(23, 65);
        compressed[68] = 3;
        sign(&compressed).expect_err("another form");
        // What a proxy of the host would begin with.
        let mut certificate = vec![0x30, 0x82, 0x01, 0x80];
        certificate.resize(388, 0x30);
        sign(&certificate).expect_err("a certificate");
        sign(b"").expect_err("nothing");
    }

    #[test]
    fn a_key_elsewhere_signs_as_the_key_itself() {
        #[derive(Debug)]
        struct Here(Arc<dyn SigningKey>);
        impl Signs for Here {
            fn sign(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, String> {
                sign_for_handshake(&*self.0, scheme, message, Ends::Server)
            }
        }
        let key = PrivateKey::generate_ec().expect("a key").signing_key();
        let elsewhere = KeyElsewhere {
            schemes: schemes_of(&*key),
            signs: Arc::new(Here(Arc::clone(&key))),
        };
        assert_eq!(elsewhere.algorithm(), key.algorithm());
        assert!(
            elsewhere
                .choose_scheme(&[SignatureScheme::RSA_PSS_SHA256])
                .is_none()
        );
        let signer = elsewhere
            .choose_scheme(&[SignatureScheme::ECDSA_NISTP256_SHA256])
            .expect("it can");
        signer.sign(&certificate_verify(32)).expect("signed");
        signer.sign(b"x").expect_err("no handshake");
    }
}
