//! MD5 (RFC 1321) by AWS-LC.

use std::ptr::{self, NonNull};

use aws_lc_sys::{
    EVP_DigestFinal_ex, EVP_DigestInit_ex, EVP_DigestUpdate, EVP_MD_CTX, EVP_MD_CTX_free,
    EVP_MD_CTX_new, EVP_md5,
};

const DIGEST_BYTES: usize = 16;

/// The computation of an MD5.
pub(super) struct Md5(NonNull<EVP_MD_CTX>);

// SAFETY: the context has one owner and is not bound to a thread.
unsafe impl Send for Md5 {}

impl Md5 {
    /// # Panics
    ///
    /// When memory cannot be allocated.
    pub(super) fn new() -> Self {
        // SAFETY: it has no preconditions, and returns null if it cannot allocate.
        let context = unsafe { EVP_MD_CTX_new() };
        let hash = Self(NonNull::new(context).expect("memory for a hash"));
        // SAFETY: it has no preconditions, and returns a pointer to static data.
        let algorithm = unsafe { EVP_md5() };
        // SAFETY: the context is valid and new. A null pointer selects no engine.
        let done = unsafe { EVP_DigestInit_ex(hash.0.as_ptr(), algorithm, ptr::null_mut()) };
        assert_eq!(done, 1, "memory for a hash");
        hash
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        // SAFETY: the context is initialized, and pointer and length are those of a slice. digest.h: it cannot fail.
        unsafe { EVP_DigestUpdate(self.0.as_ptr(), bytes.as_ptr().cast(), bytes.len()) };
    }

    pub(super) fn finish(self) -> [u8; DIGEST_BYTES] {
        let mut digest = [0; DIGEST_BYTES];
        // SAFETY: the context is initialized, and `digest` is as long as the hash. A null pointer omits the length.
        // digest.h: it cannot fail.
        unsafe {
            EVP_DigestFinal_ex(self.0.as_ptr(), digest.as_mut_ptr(), ptr::null_mut());
        }
        digest
    }
}

impl Drop for Md5 {
    fn drop(&mut self) {
        // SAFETY: the context is from `EVP_MD_CTX_new`, and is not used afterwards.
        unsafe { EVP_MD_CTX_free(self.0.as_ptr()) };
    }
}
