//! The secret of administrators, and the cookies that browsers get for it.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use rustix::rand::GetRandomFlags;
use zeroize::Zeroizing;

/// The name of the cookie.
pub(in crate::admin) const COOKIE_NAME: &str = "gridhaul-admin";

/// The least bytes of a secret.
const LEAST_BYTES: usize = 16;

/// Longer files are no secrets.
const MOST_BYTES: usize = 4096;

/// The time that a cookie is valid.
const COOKIE_TIME: Duration = Duration::from_secs(12 * 3600);

/// Valid cookies at a time; a further one replaces the oldest.
const COOKIES: usize = 64;

/// A secret, as its hash, and the cookies that were given for it, as theirs.
#[derive(Debug)]
pub(in crate::admin) struct Token {
    hash: Hash,
    cookies: Mutex<VecDeque<(Hash, Instant)>>,
}

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
        let file = File::open(path).map_err(failed)?;
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
        Ok(Self {
            hash: hash(shown),
            cookies: Mutex::default(),
        })
    }

    /// Whether this is the secret. The time does not depend on how much of it is right.
    pub(in crate::admin) fn is(&self, shown: &[u8]) -> bool {
        verify_slices_are_equal(&hash(shown.trim_ascii()), &self.hash).is_ok()
    }

    /// A new cookie, for a client that has shown the secret.
    pub(in crate::admin) fn give(&self) -> io::Result<String> {
        let mut random = [0; 32];
        // getrandom(2): a request for up to 256 bytes is never answered in part.
        rustix::rand::getrandom(&mut random, GetRandomFlags::empty())?;
        let value: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut cookies = self.cookies();
        if cookies.len() >= COOKIES {
            cookies.pop_front();
        }
        cookies.push_back((hash(value.as_bytes()), Instant::now() + COOKIE_TIME));
        Ok(value)
    }

    /// Whether a cookie was given, and is still valid.
    pub(in crate::admin) fn has_given(&self, value: &str) -> bool {
        let (shown, now) = (hash(value.as_bytes()), Instant::now());
        let mut cookies = self.cookies();
        cookies.retain(|(_, ends)| *ends > now);
        let mut cookies = cookies.iter();
        cookies.any(|(given, _)| verify_slices_are_equal(given, &shown).is_ok())
    }

    /// Ends the validity of all cookies.
    pub(in crate::admin) fn forget(&self) {
        self.cookies().clear();
    }

    fn cookies(&self) -> std::sync::MutexGuard<'_, VecDeque<(Hash, Instant)>> {
        // Each change is complete.
        self.cookies.lock().unwrap_or_else(PoisonError::into_inner)
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

    #[test]
    fn cookies_are_bounded_and_can_be_forgotten() {
        let token = read_with("0123456789abcdef", 0o600).expect("a secret");
        let first = token.give().expect("random");
        assert!(token.has_given(&first) && !token.has_given("0123456789abcdef"));
        for _ in 0..COOKIES {
            token.give().expect("random");
        }
        assert!(!token.has_given(&first), "the oldest made room");
        let last = token.give().expect("random");
        token.forget();
        assert!(!token.has_given(&last));
    }
}
