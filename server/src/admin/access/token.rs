//! The secret of administrators.

use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use gridhaul_security::files::open_file;
use zeroize::Zeroizing;

/// The least bytes of a secret.
const LEAST_BYTES: usize = 16;

/// Longer files are no secrets.
const MOST_BYTES: usize = 4096;

/// A secret, as its hash.
#[derive(Debug)]
pub(in crate::admin) struct Token(Hash);

/// A file that has no secret.
#[derive(Debug, thiserror::Error)]
pub enum AdminTokenError {
    /// It cannot be read.
    #[error("admin-token {}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The underlying OS error.
        error: io::Error,
    },
    /// Others than the owner may read or write it.
    #[error(
        "admin-token {} may be read or written by others than its owner: chmod 600 {}",
        path.display(), path.display()
    )]
    Open {
        /// The file.
        path: PathBuf,
    },
    /// It is too short or too long.
    #[error(
        "admin-token {} must have {LEAST_BYTES} to {MOST_BYTES} bytes; head -c 32 /dev/urandom | base64 makes some",
        path.display()
    )]
    Length {
        /// The file.
        path: PathBuf,
    },
}

type Hash = [u8; 32];

impl Token {
    /// Reads the secret. White space around it does not count.
    pub(in crate::admin) fn read(path: &Path) -> Result<Self, AdminTokenError> {
        let path_buf = || path.to_owned();
        let failed = |error| AdminTokenError::File {
            path: path_buf(),
            error,
        };
        let file = open_file(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.mode() & 0o077 != 0 {
            return Err(AdminTokenError::Open { path: path_buf() });
        }
        let mut secret = Zeroizing::new(Vec::with_capacity(MOST_BYTES + 1));
        file.take(MOST_BYTES as u64 + 1)
            .read_to_end(&mut secret)
            .map_err(failed)?;
        let shown = secret.trim_ascii();
        if shown.len() < LEAST_BYTES || secret.len() > MOST_BYTES {
            return Err(AdminTokenError::Length { path: path_buf() });
        }
        Ok(Self(hash(shown)))
    }

    /// Whether this is the secret. The time does not depend on how much of it is right.
    pub(in crate::admin) fn is(&self, shown: &[u8]) -> bool {
        verify_slices_are_equal(&hash(shown.trim_ascii()), &self.0).is_ok()
    }
}

fn hash(text: &[u8]) -> Hash {
    let mut hash = [0; 32];
    // SHA-256 has 32 bytes.
    hash.copy_from_slice(digest(&SHA256, text).as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn read_with(text: &str, mode: u32) -> Result<Token, String> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("token");
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("ours");
        Token::read(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn a_secret_is_long_and_secret() {
        let token = read_with("0123456789abcdef\n", 0o600).expect("a secret");
        assert!(token.is(b"0123456789abcdef"));
        assert!(
            !token.is(b"0123456789abcdee") && !token.is(b"") && !token.is(b"0123456789abcdef0")
        );
        for (text, mode, words) in [
            ("0123456789abcde\n", 0o600, "16 to 4096 bytes"),
            ("", 0o600, "16 to 4096 bytes"),
            (&"x".repeat(5000), 0o600, "16 to 4096 bytes"),
            ("0123456789abcdef", 0o640, "chmod 600"),
            ("0123456789abcdef", 0o604, "chmod 600"),
        ] {
            let error = read_with(text, mode).expect_err(words);
            assert!(error.contains(words), "{error}");
        }
    }
}
