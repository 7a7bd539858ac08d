//! Private keys. They are wiped from memory when they are dropped, and never printed.

mod pem;

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use aws_lc_rs::{rsa, rsa::KeySize};
use rustls::SignatureScheme;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::sign::{Signer, SigningKey};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use zeroize::Zeroizing;

use crate::encrypted_key::{self, DecryptError};
use crate::secret::Secret;

use pem::Section;

/// A private key for signatures. The cryptographic library stores it, and wipes memory that it frees.
pub struct PrivateKey {
    key: Arc<dyn SigningKey>,
    public: Vec<u8>,
    /// DER, if another process or machine may have the key.
    exported: Option<Secret>,
}

/// Why a private key cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// It needs a passphrase.
    #[error("the private key is encrypted, and there is no passphrase for it")]
    Encrypted,
    /// It needs a passphrase, which cannot be had.
    #[error("the private key is encrypted: {0}")]
    NoPassphrase(String),
    /// The passphrase is not that of the key.
    #[error("the passphrase of the private key is wrong")]
    WrongPassphrase,
    /// It is encrypted in another way than PKCS#8 with PBES2, PBKDF2 and AES.
    #[error(
        "the private key is encrypted in a way that is not supported: encrypt it again with \
         'openssl pkcs8 -topk8 -v2 aes-256-cbc -in OLD -out NEW'"
    )]
    UnknownEncryption,
    /// Malformed, or of an unsupported kind.
    #[error("the private key cannot be read: {0}")]
    Malformed(String),
    /// The generator failed.
    #[error("no private key could be made")]
    Generation,
    /// The key cannot sign.
    #[error("the private key cannot sign: {0}")]
    Signature(String),
}

impl From<DecryptError> for KeyError {
    fn from(error: DecryptError) -> Self {
        match error {
            DecryptError::Unknown => Self::UnknownEncryption,
            DecryptError::WrongPassphrase => Self::WrongPassphrase,
            DecryptError::Malformed(reason) => Self::Malformed(reason),
        }
    }
}

/// A signature algorithm of X.509.
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
    /// Parses the first key in `pem`: PKCS#8, PKCS#1 or SEC1.
    ///
    /// # Errors
    ///
    /// When there is no key, or it is encrypted or of an unsupported kind, such as RSA with fewer than 2048 bits.
    pub fn from_pem(pem: &[u8]) -> Result<Self, KeyError> {
        Self::from_pem_with(pem, || Err(KeyError::Encrypted))
    }

    /// As [`PrivateKey::from_pem`]; `passphrase` is called if the key is encrypted.
    ///
    /// # Errors
    ///
    /// As for [`PrivateKey::from_pem`], and when there is no passphrase or a wrong one.
    pub fn from_pem_with(
        pem: &[u8],
        passphrase: impl FnOnce() -> Result<Zeroizing<Vec<u8>>, KeyError>,
    ) -> Result<Self, KeyError> {
        let section = Section::first(pem)?;
        let der = section.decode()?;
        if section.is_encrypted() {
            let der = encrypted_key::decrypt(&der, &passphrase()?)?;
            return Self::from_der(&PrivatePkcs8KeyDer::from(der.as_slice()).into());
        }
        Self::from_der(&section.key(&der))
    }

    /// As [`PrivateKey::from_pem`], for a key that other machines may have ([`PrivateKey::exported`]): that of a session, not
    /// that of a host.
    ///
    /// # Errors
    ///
    /// As for [`PrivateKey::from_pem`].
    pub fn exportable_from_pem(pem: &[u8]) -> Result<Self, KeyError> {
        let section = Section::first(pem)?;
        if section.is_encrypted() {
            return Err(KeyError::Encrypted);
        }
        let der = section.decode()?;
        let key = Self::from_der(&section.key(&der))?;
        Ok(key.exportable(Secret::new(der.to_vec())))
    }

    /// Generates an RSA key of 2048 bits. Takes tens of milliseconds.
    ///
    /// # Errors
    ///
    /// When the library fails.
    pub fn generate_rsa() -> Result<Self, KeyError> {
        let pair = rsa::KeyPair::generate(KeySize::Rsa2048).map_err(|_| KeyError::Generation)?;
        let pkcs8 = AsDer::<Pkcs8V1Der<'_>>::as_der(&pair).map_err(|_| KeyError::Generation)?;
        Self::from_exported(&Secret::new(pkcs8.as_ref().to_vec()))
    }

    /// Generates a P-256 key.
    ///
    /// # Errors
    ///
    /// When the library fails.
    pub fn generate_ec() -> Result<Self, KeyError> {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING)
            .map_err(|_| KeyError::Generation)?;
        let pkcs8 = pair.to_pkcs8v1().map_err(|_| KeyError::Generation)?;
        Self::from_exported(&Secret::new(pkcs8.as_ref().to_vec()))
    }

    /// Restores a key from the result of [`Self::exported`].
    ///
    /// # Errors
    ///
    /// When it is malformed.
    pub fn from_exported(der: &Secret) -> Result<Self, KeyError> {
        let kind = PrivateKeyDer::try_from(der.bytes())
            .map_err(|reason| KeyError::Malformed(reason.to_owned()))?;
        Ok(Self::from_der(&kind)?.exportable(der.clone()))
    }

    /// The key in DER (PKCS#8, PKCS#1 or SEC1), if another process or machine may have it: it was generated here, or read with
    /// [`Self::exportable_from_pem`]. Keys that were read from files cannot be exported.
    pub fn exported(&self) -> Option<&Secret> {
        self.exported.as_ref()
    }

    fn exportable(self, der: Secret) -> Self {
        Self {
            exported: Some(der),
            ..self
        }
    }

    /// The DER `SubjectPublicKeyInfo`.
    pub fn public_key_info(&self) -> Vec<u8> {
        self.public.clone()
    }

    /// The key for TLS.
    pub fn signing_key(&self) -> Arc<dyn SigningKey> {
        Arc::clone(&self.key)
    }

    /// The algorithm of [`Self::sign`].
    pub(crate) fn signature_kind(&self) -> Result<SignatureKind, KeyError> {
        Ok(self.signer()?.1)
    }

    /// Signs a certificate or a certification request.
    pub(crate) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        let (signer, _) = self.signer()?;
        signer
            .sign(message)
            .map_err(|error| KeyError::Signature(error.to_string()))
    }

    /// RSA keys sign with PKCS #1 v1.5 and SHA-256, which all GSI implementations verify.
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
            .ok_or_else(|| {
                KeyError::Signature("X.509 has no signature algorithm for this key".into())
            })
    }

    fn from_der(der: &PrivateKeyDer<'_>) -> Result<Self, KeyError> {
        let key =
            any_supported_type(der).map_err(|error| KeyError::Malformed(error.to_string()))?;
        let public = key
            .public_key()
            .map(|public| public.to_vec())
            .ok_or_else(|| KeyError::Malformed("its public key cannot be derived".into()))?;
        Ok(Self {
            key,
            public,
            exported: None,
        })
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateKey").finish_non_exhaustive()
    }
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
            assert!(key.exported().is_none(), "{command:?}");
            let key = PrivateKey::exportable_from_pem(&pem).expect("a key that we use");
            let exported = key.exported().expect("it may leave");
            let restored = PrivateKey::from_exported(exported).expect("the same key");
            assert_eq!(restored.public_key_info(), public, "{command:?}");
            assert_eq!(restored.exported(), Some(exported));
        }
    }

    /// Decrypts with a passphrase.
    fn decrypt(pem: &[u8], passphrase: &str) -> Result<PrivateKey, KeyError> {
        PrivateKey::from_pem_with(pem, || Ok(Zeroizing::new(passphrase.as_bytes().to_vec())))
    }

    #[test]
    fn encrypted_keys_need_their_passphrase() {
        let directory = tempfile::tempdir().expect("a directory");
        let plain = directory.path().join("plain").display().to_string();
        openssl(&[
            "genpkey",
            "-algorithm",
            "EC",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-out",
            &plain,
        ]);
        let public = openssl(&["pkey", "-in", &plain, "-pubout", "-outform", "DER"]);
        for form in [
            &[][..],
            &["-v2", "aes-128-cbc"],
            &["-v2", "aes-192-cbc", "-v2prf", "hmacWithSHA512"],
            &[
                "-v2",
                "aes-256-cbc",
                "-v2prf",
                "hmacWithSHA1",
                "-iter",
                "20000",
            ],
        ] {
            let command = ["pkcs8", "-topk8", "-in", &plain, "-passout", "pass:secret"];
            let pem = openssl(&[&command, form].concat());
            let key = decrypt(&pem, "secret").expect("its passphrase");
            assert_eq!(key.public_key_info(), public, "{form:?}");
            for wrong in ["", "Secret", "secret "] {
                assert_eq!(decrypt(&pem, wrong).err(), Some(KeyError::WrongPassphrase));
            }
            for read in [PrivateKey::from_pem, PrivateKey::exportable_from_pem] {
                assert_eq!(read(&pem).err(), Some(KeyError::Encrypted));
            }
        }
    }

    #[test]
    fn other_encryptions_are_refused_with_the_remedy() {
        let directory = tempfile::tempdir().expect("a directory");
        let plain = directory.path().join("plain").display().to_string();
        openssl(&["genrsa", "-out", &plain]);
        let traditional = openssl(&[
            "genrsa",
            "-aes256",
            "-passout",
            "pass:secret",
            "-traditional",
        ]);
        let topk8 = ["pkcs8", "-topk8", "-in", &plain, "-passout", "pass:secret"];
        let scrypt = openssl(&[&topk8[..], &["-scrypt"]].concat());
        let des = openssl(&[&topk8[..], &["-v2", "des3"]].concat());
        for pem in [traditional, scrypt, des] {
            let error = decrypt(&pem, "secret").expect_err("not supported");
            assert_eq!(error, KeyError::UnknownEncryption);
            assert!(error.to_string().contains("openssl pkcs8"), "{error}");
        }
        let cut =
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n-----END ENCRYPTED PRIVATE KEY-----\n";
        let error = decrypt(cut.as_bytes(), "secret");
        assert!(matches!(error, Err(KeyError::Malformed(_))));
    }

    #[test]
    fn malformed_keys_are_refused() {
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
