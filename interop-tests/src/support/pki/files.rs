//! Files of keys and credentials.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Writes a file with mode 0600: grid clients refuse keys that others may read.
pub(super) fn write_private(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    fs::write(path, content)?;
    fs::set_permissions(path, Permissions::from_mode(0o600))
}

/// Writes a certificate, its key and its chain into one file, the format of proxy credentials.
pub(super) fn write_credential(
    path: &Path,
    certificate: &Path,
    key: &Path,
    above: &[&Path],
) -> io::Result<()> {
    let mut content = fs::read(certificate)?;
    content.extend(fs::read(key)?);
    for issuer in above {
        content.extend(fs::read(issuer)?);
    }
    write_private(path, content)
}
