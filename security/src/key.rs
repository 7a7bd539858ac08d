//! Private keys. They are wiped from memory when they are dropped, and never printed.

mod pem;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use aws_lc_rs::{rsa, rsa::KeySize};
use rustls::SignatureScheme;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::sign::{Signer, SigningKey};
use rustls_pki_types::PrivateKeyDer;
use zeroize::Zeroizing;

use crate::encrypted_key::DecryptError;
use crate::secret::Secret;

use pem::Section;

/// A private key for signatures. The cryptographic library stores it, and wipes memory that it frees.
pub struct PrivateKey {
    key: Arc<dyn SigningKey>,
    public: Vec<u8>,
    /// DER, if another process or machine may have the key.
    exported: Option<Secret>,
}

/// The length of an RSA key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RsaBits {
    /// 2048 bits.
    Rsa2048,
    /// 3072 bits.
    Rsa3072,
    /// 4096 bits.
    Rsa4096,
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
    /// It is encrypted in another way than PKCS#8 with PBES2, PBKDF2 and AES or triple DES, or as traditional PEM with these.
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
            let der = section.decrypt(&der, &passphrase()?)?;
            return Self::from_der(&section.key(&der));
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
        Self::generate_rsa_of(RsaBits::Rsa2048)
    }

    /// Generates an RSA key of this length. Takes up to seconds.
    ///
    /// # Errors
    ///
    /// When the library fails.
    pub fn generate_rsa_of(bits: RsaBits) -> Result<Self, KeyError> {
        let size = match bits {
            RsaBits::Rsa2048 => KeySize::Rsa2048,
            RsaBits::Rsa3072 => KeySize::Rsa3072,
            RsaBits::Rsa4096 => KeySize::Rsa4096,
        };
        let pair = rsa::KeyPair::generate(size).map_err(|_| KeyError::Generation)?;
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
