//! Private keys. They are wiped from memory when they are dropped, and never printed.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use aws_lc_rs::{rsa, rsa::KeySize};
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use rustls::SignatureScheme;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::sign::{Signer, SigningKey};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer};
use zeroize::Zeroizing;

use crate::secret::Secret;

/// A private key that can sign. Its numbers are in the memory of the cryptographic library, which wipes
/// what it frees.
pub struct PrivateKey {
    key: Arc<dyn SigningKey>,
    public: Vec<u8>,
    /// PKCS#8, of a key that was made here: it may have to be handed to another process.
    made: Option<Secret>,
}

/// Why a private key cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// It needs a passphrase, which a server has no way to ask for.
    #[error("the private key is encrypted; a server needs one without a passphrase")]
    Encrypted,
    /// Nothing that we know.
    #[error("the private key cannot be read: {0}")]
    Malformed(String),
    /// The generator failed.
    #[error("no private key could be made")]
    Generation,
    /// The library refused to sign.
    #[error("the private key cannot sign: {0}")]
    Signature(String),
}

/// How a signature was made, in the words of X.509.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignatureKind {
    /// sha256WithRSAEncryption.
    RsaSha256,
    /// ecdsa-with-SHA256.
    EcdsaSha256,
    /// ecdsa-with-SHA384.
    EcdsaSha384,
    /// ecdsa-with-SHA512.
    EcdsaSha512,
    /// Ed25519.
    Ed25519,
}

impl PrivateKey {
    /// Reads PKCS#8, PKCS#1 or SEC1 in PEM: the first key in `pem`.
    ///
    /// # Errors
    ///
    /// When there is none, it is encrypted, or of a kind that we do not use: RSA with fewer than 2048
    /// bits is among them.
    pub fn from_pem(pem: &[u8]) -> Result<Self, KeyError> {
        let section = Section::first(pem)?;
        let der = section.decode()?;
        let der = match section.label {
            "PRIVATE KEY" => PrivatePkcs8KeyDer::from(der.as_slice()).into(),
            "RSA PRIVATE KEY" => PrivatePkcs1KeyDer::from(der.as_slice()).into(),
            _ => PrivateSec1KeyDer::from(der.as_slice()).into(),
        };
        Self::from_der(&der)
    }

    /// Makes an RSA key of 2048 bits. Takes tens of milliseconds.
    ///
    /// # Errors
    ///
    /// When the library fails.
    pub fn generate_rsa() -> Result<Self, KeyError> {
        let pair = rsa::KeyPair::generate(KeySize::Rsa2048).map_err(|_| KeyError::Generation)?;
        let pkcs8 = AsDer::<Pkcs8V1Der<'_>>::as_der(&pair).map_err(|_| KeyError::Generation)?;
        Self::from_pkcs8(&Secret::new(pkcs8.as_ref().to_vec()))
    }

    /// Makes a P-256 key.
    ///
    /// # Errors
    ///
    /// When the library fails.
    pub fn generate_ec() -> Result<Self, KeyError> {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING)
            .map_err(|_| KeyError::Generation)?;
        let pkcs8 = pair.to_pkcs8v1().map_err(|_| KeyError::Generation)?;
        Self::from_pkcs8(&Secret::new(pkcs8.as_ref().to_vec()))
    }

    /// Reads a key that was made by this program, as [`Self::made_pkcs8`] gives it.
    ///
    /// # Errors
    ///
    /// When it is none.
    pub fn from_pkcs8(der: &Secret) -> Result<Self, KeyError> {
        let key = Self::from_der(&PrivatePkcs8KeyDer::from(der.bytes()).into())?;
        Ok(Self {
            made: Some(der.clone()),
            ..key
        })
    }

    /// The key in PKCS#8, if this program made it. Keys that were read from files are not given away.
    pub fn made_pkcs8(&self) -> Option<&Secret> {
        self.made.as_ref()
    }

    /// The DER `SubjectPublicKeyInfo`.
    pub fn public_key_info(&self) -> Vec<u8> {
        self.public.clone()
    }

    /// The key as TLS uses it.
    pub fn signing_key(&self) -> Arc<dyn SigningKey> {
        Arc::clone(&self.key)
    }

    /// How [`Self::sign`] signs.
    pub(crate) fn signature_kind(&self) -> Result<SignatureKind, KeyError> {
        Ok(self.signer()?.1)
    }

    /// Signs what becomes part of a certificate or of a request for one.
    pub(crate) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        let (signer, _) = self.signer()?;
        signer
            .sign(message)
            .map_err(|error| KeyError::Signature(error.to_string()))
    }

    /// RSA keys sign with PKCS #1 v1.5 and SHA-256: every program of this field verifies that.
    fn signer(&self) -> Result<(Box<dyn Signer>, SignatureKind), KeyError> {
        const KINDS: [(SignatureScheme, SignatureKind); 5] = [
            (SignatureScheme::RSA_PKCS1_SHA256, SignatureKind::RsaSha256),
            (
                SignatureScheme::ECDSA_NISTP256_SHA256,
                SignatureKind::EcdsaSha256,
            ),
            (
                SignatureScheme::ECDSA_NISTP384_SHA384,
                SignatureKind::EcdsaSha384,
            ),
            (
                SignatureScheme::ECDSA_NISTP521_SHA512,
                SignatureKind::EcdsaSha512,
            ),
            (SignatureScheme::ED25519, SignatureKind::Ed25519),
        ];
        KINDS
            .iter()
            .find_map(|(scheme, kind)| Some((self.key.choose_scheme(&[*scheme])?, *kind)))
            .ok_or_else(|| KeyError::Signature("certificates know no such algorithm".into()))
    }

    fn from_der(der: &PrivateKeyDer<'_>) -> Result<Self, KeyError> {
        let key =
            any_supported_type(der).map_err(|error| KeyError::Malformed(error.to_string()))?;
        let public = key
            .public_key()
            .map(|public| public.to_vec())
            .ok_or_else(|| KeyError::Malformed("its public half cannot be made".into()))?;
        Ok(Self {
            key,
            public,
            made: None,
        })
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateKey").finish_non_exhaustive()
    }
}

/// A private key's part of a PEM text. rustls-pki-types reads PEM as well, but leaves the text that it
/// collected in freed memory.
struct Section<'a> {
    label: &'a str,
    lines: &'a [u8],
}

impl<'a> Section<'a> {
    fn first(pem: &'a [u8]) -> Result<Self, KeyError> {
        let mut rest = pem;
        while let Some(begin) = find(rest, b"-----BEGIN ") {
            rest = &rest[begin + b"-----BEGIN ".len()..];
            let Some(end_of_label) = find(rest, b"-----") else {
                break;
            };
            let (label, after) = rest.split_at(end_of_label);
            rest = &after[b"-----".len()..];
            let label = match label {
                b"PRIVATE KEY" => "PRIVATE KEY",
                b"RSA PRIVATE KEY" => "RSA PRIVATE KEY",
                b"EC PRIVATE KEY" => "EC PRIVATE KEY",
                b"ENCRYPTED PRIVATE KEY" => return Err(KeyError::Encrypted),
                _ => continue,
            };
            let end = find(rest, b"-----END ")
                .ok_or_else(|| KeyError::Malformed("its END line is missing".into()))?;
            let lines = &rest[..end];
            // RFC 1421 4.6.1.1: how OpenSSL marks an encrypted key in its own older formats.
            if find(lines, b"Proc-Type: 4,ENCRYPTED").is_some() {
                return Err(KeyError::Encrypted);
            }
            return Ok(Self { label, lines });
        }
        Err(KeyError::Malformed("there is no private key in it".into()))
    }

    fn decode(&self) -> Result<Zeroizing<Vec<u8>>, KeyError> {
        const BASE64: GeneralPurpose = GeneralPurpose::new(
            &alphabet::STANDARD,
            GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
        );
        let mut text = Zeroizing::new(Vec::with_capacity(self.lines.len()));
        text.extend(self.lines.iter().filter(|byte| !byte.is_ascii_whitespace()));
        let mut der = Zeroizing::new(vec![0; base64::decoded_len_estimate(text.len())]);
        let length = BASE64
            .decode_slice(text.as_slice(), &mut der)
            .map_err(|error| KeyError::Malformed(error.to_string()))?;
        der.truncate(length);
        Ok(der)
    }
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use aws_lc_rs::signature::{self, UnparsedPublicKey};

    use super::*;

    fn openssl(arguments: &[&str]) -> Vec<u8> {
        let output = Command::new("openssl")
            .args(arguments)
            .output()
            .expect("openssl runs");
        assert!(output.status.success(), "openssl {arguments:?}");
        output.stdout
    }

    #[test]
    fn each_form_that_openssl_writes_is_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name).display().to_string();
        let commands: [&[&str]; 4] = [
            &["genpkey", "-algorithm", "RSA", "-out"],
            &["genrsa", "-traditional", "-out"],
            &["ecparam", "-name", "prime256v1", "-genkey", "-out"],
            &["genpkey", "-algorithm", "ED25519", "-out"],
        ];
        for (number, command) in commands.iter().enumerate() {
            let path = at(&format!("{number}.pem"));
            openssl(&[*command, &[path.as_str()]].concat());
            let pem = std::fs::read(&path).expect("the key");
            let key = PrivateKey::from_pem(&pem).expect("a key that we use");
            let public = openssl(&["pkey", "-in", &path, "-pubout", "-outform", "DER"]);
            assert_eq!(key.public_key_info(), public, "{command:?}");
            key.sign(b"message").expect("a signature");
        }
    }

    #[test]
    fn encrypted_keys_are_refused_by_that_name() {
        for form in [&["-traditional"][..], &[]] {
            let command = [&["genrsa", "-aes256", "-passout", "pass:secret"], form].concat();
            let pem = openssl(&command);
            assert_eq!(
                PrivateKey::from_pem(&pem).err(),
                Some(KeyError::Encrypted),
                "{form:?}"
            );
        }
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for pem in [
            "",
            "-----BEGIN ",
            "-----BEGIN PRIVATE KEY-----",
            "-----BEGIN PRIVATE KEY-----\nMIIB\n",
            "-----BEGIN PRIVATE KEY-----\n!!!!\n-----END PRIVATE KEY-----\n",
            "-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n",
            "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
        ] {
            assert!(
                matches!(
                    PrivateKey::from_pem(pem.as_bytes()),
                    Err(KeyError::Malformed(_))
                ),
                "{pem:?}"
            );
        }
    }

    #[test]
    fn generated_keys_sign() {
        let key = PrivateKey::generate_ec().expect("a key");
        assert_eq!(key.signature_kind(), Ok(SignatureKind::EcdsaSha256));
        let signature = key.sign(b"message").expect("a signature");
        // The point is the end of the structure, 65 bytes uncompressed.
        let public = key.public_key_info();
        let point = &public[public.len() - 65..];
        UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_ASN1, point)
            .verify(b"message", &signature)
            .expect("it verifies");

        let key = PrivateKey::generate_rsa().expect("a key");
        assert_eq!(key.signature_kind(), Ok(SignatureKind::RsaSha256));
        assert_eq!(key.sign(b"message").expect("a signature").len(), 256);
        assert_eq!(format!("{key:?}"), "PrivateKey { .. }");
    }
}
