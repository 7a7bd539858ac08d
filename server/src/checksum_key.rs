//! The key of checksums that are stored with files.

use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use gridhaul_security::files::open_file;
use gridhaul_storage::{ChecksumKey, ShortKey};
use zeroize::Zeroizing;

/// Longer files are not keys.
const MOST_BYTES: usize = 64 * 1024;

/// A key file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ChecksumKeyError {
    /// It cannot be read.
    #[error("the checksum key {}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The underlying OS error.
        error: io::Error,
    },
    /// Others than the owner may read or write it.
    #[error(
        "the checksum key {} may be read or written by others than its owner: chmod 600 {}",
        path.display(), path.display()
    )]
    Open {
        /// The file.
        path: PathBuf,
    },
    /// It is too short.
    #[error(
        "the checksum key {}: {error}; head -c 32 /dev/urandom makes one",
        path.display()
    )]
    Short {
        /// The file.
        path: PathBuf,
        /// Its length.
        error: ShortKey,
    },
}

/// Reads the key from its file.
pub(crate) fn read(path: &Path) -> Result<ChecksumKey, ChecksumKeyError> {
    let failed = |error| ChecksumKeyError::File {
        path: path.to_owned(),
        error,
    };
    let file = open_file(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.mode() & 0o077 != 0 {
        let path = path.to_owned();
        return Err(ChecksumKeyError::Open { path });
    }
    // Reads everything at once: a buffer that grows leaves a copy behind.
    let mut secret = Zeroizing::new(Vec::with_capacity(MOST_BYTES));
    file.take(MOST_BYTES as u64)
        .read_to_end(&mut secret)
        .map_err(failed)?;
    ChecksumKey::new(&secret).map_err(|error| ChecksumKeyError::Short {
        path: path.to_owned(),
        error,
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_is_long_and_secret() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("key");
        let read_with = |bytes: &[u8], mode| {
            fs::write(&path, bytes).expect("written");
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("ours");
            read(&path).map(drop).map_err(|error| error.to_string())
        };
        let shown = path.display();
        assert_eq!(
            read(&path).map(drop).expect_err("missing").to_string(),
            format!("the checksum key {shown}: No such file or directory (os error 2)")
        );
        read_with(&[1; 32], 0o600).expect("a key");
        assert_eq!(
            read_with(&[1; 31], 0o400).expect_err("short"),
            format!(
                "the checksum key {shown}: a key of 31 bytes is too short: it must have at least 32; head -c 32 \
                 /dev/urandom makes one"
            )
        );
        for mode in [0o640, 0o604, 0o620] {
            assert_eq!(
                read_with(&[1; 32], mode).expect_err("no secret"),
                format!(
                    "the checksum key {shown} may be read or written by others than its owner: chmod 600 {shown}"
                )
            );
        }
    }
}
