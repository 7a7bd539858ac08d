//! Block ciphers in CBC mode, by AWS-LC. aws-lc-rs offers triple DES only with other bindings for the whole program, and MD5
//! not at all.

use std::ffi::c_int;
use std::ptr::{self, NonNull};

use aws_lc_sys::{
    EVP_BytesToKey, EVP_CIPHER, EVP_CIPHER_CTX, EVP_CIPHER_CTX_free, EVP_CIPHER_CTX_new,
    EVP_DecryptFinal_ex, EVP_DecryptInit_ex, EVP_DecryptUpdate, EVP_aes_128_cbc, EVP_aes_192_cbc,
    EVP_aes_256_cbc, EVP_des_ede3_cbc, EVP_md5,
};
use zeroize::Zeroizing;

/// The length of the longest block, and of the longest initialization vector.
const MAX_BLOCK: usize = 16;

/// The longest key.
const MAX_KEY: usize = 32;

/// A cipher that keys are encrypted with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cipher {
    Aes128,
    Aes192,
    Aes256,
    TripleDes,
}

impl Cipher {
    pub(super) fn key_bytes(self) -> usize {
        match self {
            Self::Aes128 => 16,
            Self::Aes192 | Self::TripleDes => 24,
            Self::Aes256 => MAX_KEY,
        }
    }

    /// The length of a block, and of the initialization vector.
    pub(super) fn block_bytes(self) -> usize {
        match self {
            Self::TripleDes => 8,
            _ => MAX_BLOCK,
        }
    }

    fn algorithm(self) -> *const EVP_CIPHER {
        let algorithm = match self {
            Self::Aes128 => EVP_aes_128_cbc,
            Self::Aes192 => EVP_aes_192_cbc,
            Self::Aes256 => EVP_aes_256_cbc,
            Self::TripleDes => EVP_des_ede3_cbc,
        };
        // SAFETY: these have no preconditions, and return a pointer to static data.
        unsafe { algorithm() }
    }

    /// Decrypts, and removes the padding (RFC 5652 6.3). `None` if the padding is wrong, or a length is not that of the cipher.
    pub(super) fn decrypt(
        self,
        key: &[u8],
        vector: &[u8],
        encrypted: &[u8],
    ) -> Option<Zeroizing<Vec<u8>>> {
        if key.len() != self.key_bytes() || vector.len() != self.block_bytes() {
            return None;
        }
        let length = c_int::try_from(encrypted.len()).ok()?;
        let context = Context::new()?;
        // SAFETY: the context is new, and key and vector are as long as the cipher needs. A null pointer selects no engine.
        let is_ready = unsafe {
            EVP_DecryptInit_ex(
                context.0.as_ptr(),
                self.algorithm(),
                ptr::null_mut(),
                key.as_ptr(),
                vector.as_ptr(),
            )
        };
        if is_ready != 1 {
            return None;
        }
        let mut text = Zeroizing::new(vec![0; encrypted.len() + MAX_BLOCK]);
        let (mut first, mut last) = (0, 0);
        // SAFETY: the context is initialized, `length` is that of `encrypted`, and cipher.h: the output has at most the length
        // of the input and one block.
        let is_read = unsafe {
            EVP_DecryptUpdate(
                context.0.as_ptr(),
                text.as_mut_ptr(),
                &raw mut first,
                encrypted.as_ptr(),
                length,
            )
        };
        let first = usize::try_from(first).ok().filter(|_| is_read == 1)?;
        let rest = text.get_mut(first..)?;
        if rest.len() < MAX_BLOCK {
            return None;
        }
        // SAFETY: the context is initialized, and cipher.h: the output has at most one block, for which there is room.
        let is_padded =
            unsafe { EVP_DecryptFinal_ex(context.0.as_ptr(), rest.as_mut_ptr(), &raw mut last) };
        let last = usize::try_from(last).ok().filter(|_| is_padded == 1)?;
        text.truncate(first + last);
        Some(text)
    }

    /// The key of the traditional encryption of PEM: MD5 of passphrase and salt, in one round (`EVP_BytesToKey` of OpenSSL).
    pub(super) fn traditional_key(self, passphrase: &[u8], salt: [u8; 8]) -> Zeroizing<Vec<u8>> {
        let mut key = Zeroizing::new(vec![0; self.key_bytes()]);
        let mut vector = [0; MAX_BLOCK];
        // SAFETY: it has no preconditions, and returns a pointer to static data.
        let hash = unsafe { EVP_md5() };
        // SAFETY: cipher.h: the salt has 8 bytes, and key and vector have room for those of the cipher.
        let length = unsafe {
            EVP_BytesToKey(
                self.algorithm(),
                hash,
                salt.as_ptr(),
                passphrase.as_ptr(),
                passphrase.len(),
                1,
                key.as_mut_ptr(),
                vector.as_mut_ptr(),
            )
        };
        debug_assert_eq!(usize::try_from(length), Ok(self.key_bytes()));
        key
    }
}

/// The state of a decryption, which is wiped when it is freed.
struct Context(NonNull<EVP_CIPHER_CTX>);

impl Context {
    fn new() -> Option<Self> {
        // SAFETY: it has no preconditions, and returns null if it cannot allocate.
        NonNull::new(unsafe { EVP_CIPHER_CTX_new() }).map(Self)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context is from `EVP_CIPHER_CTX_new`, and is not used afterwards.
        unsafe { EVP_CIPHER_CTX_free(self.0.as_ptr()) };
    }
}
