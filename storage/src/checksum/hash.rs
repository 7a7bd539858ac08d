//! Hashes, which need the bytes in order.
//!
//! AWS-LC computes them, which TLS needs anyway. For MD5 and SHA-512 it is a quarter faster than the implementations in
//! Rust, and a hash cannot use more than one core. [`aws_lc_rs`] does not offer MD5, because MD5 does not protect against
//! forgery. Here it detects damage, so the C function is called.

use aws_lc_rs::digest;

use super::md5::Md5;

/// The computation of a hash.
pub(super) enum Hash {
    Md5(Md5),
    Sha(digest::Context),
}

impl Hash {
    pub(super) fn md5() -> Self {
        Self::Md5(Md5::new())
    }

    pub(super) fn sha1() -> Self {
        Self::sha(&digest::SHA1_FOR_LEGACY_USE_ONLY)
    }

    pub(super) fn sha256() -> Self {
        Self::sha(&digest::SHA256)
    }

    pub(super) fn sha512() -> Self {
        Self::sha(&digest::SHA512)
    }

    fn sha(algorithm: &'static digest::Algorithm) -> Self {
        Self::Sha(digest::Context::new(algorithm))
    }

    /// Takes the next bytes.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Md5(hash) => hash.update(bytes),
            Self::Sha(hash) => hash.update(bytes),
        }
    }

    /// The hash of all bytes taken, in lower-case hexadecimal.
    pub(super) fn finish(self) -> String {
        match self {
            Self::Md5(hash) => hexadecimal(&hash.finish()),
            Self::Sha(hash) => hexadecimal(hash.finish().as_ref()),
        }
    }
}

pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
