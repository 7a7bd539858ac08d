//! The authorities for servers of ftps.

use std::path::Path;
use std::sync::Arc;

use gridhaul_security::files::{TrustDirectory, read_roots};
use gridhaul_security::trust::TrustStore;

use super::error::IdentityError;

/// Where distributions have the authorities of web servers: Debian and Alpine, Red Hat, SUSE, and what the others link to.
const OF_SYSTEM: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The authorities of a directory with signing policies, or of a PEM file; those of this system if neither is given. Blocks.
///
/// # Errors
///
/// When there are none, or they cannot be used.
pub fn roots(
    directory: Option<&Path>,
    file: Option<&Path>,
) -> Result<Arc<TrustStore>, IdentityError> {
    if let Some(directory) = directory {
        return Ok(TrustDirectory::open(directory)?.current());
    }
    let of_system = || {
        OF_SYSTEM
            .map(Path::new)
            .into_iter()
            .find(|file| file.exists())
    };
    let file = file.or_else(of_system);
    let file = file.ok_or_else(|| IdentityError::NoRoots(OF_SYSTEM.join(", ")))?;
    Ok(Arc::new(read_roots(file)?))
}
